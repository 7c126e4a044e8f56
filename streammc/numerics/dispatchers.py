"""Compiled functions: their cache on disk, and their compilation deferred to the first use.

The disk cache has one folder per state of the sources of a function. numba's disk cache does not
notice an edit of a function in another file that a cached function calls. Therefore the folder of a
function is named after a digest of its module and of all modules of this package imported by it,
directly or not: an edit recompiles all functions that depend on it, and no others. Sources are read
when a module is imported, not when its functions are compiled: code compiled after an edit in
between must not be stored under the digest of the edited file. All folders are in one folder named
after the version of numba and the processor: processes that compile for different processors at
once must not share an index, whose entries could then refer to machine code of the other processor.
This folder is private (mode 0700): a cache entry is a pickle, and loading a planted pickle would
run its code.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numba.experimental.function_type
from numba import config as numba_config
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import typeof_impl

from streammc.unfinished import new_folder, remove

try:
    from streammc.numerics import numba_internals

    INTERNALS: Any = numba_internals if numba_internals.fits() else None
except ImportError:
    INTERNALS = None
"""Dispatchers that compile and load in less time; ``None`` with a numba that they do not fit."""

_ROOT = Path(__file__).resolve().parent.parent
_FACADE = _ROOT.name
"""Name of the package, which imports its names lazily: no compiled code depends on it."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(streammc[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|.*)|import[ \t]+(.*))", re.M
)


@cache
def cache_dir() -> str:
    """Return the private cache folder of this version of numba and this processor."""
    processor = (
        numba_config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
        numba_config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten(),
    )
    digest = hashlib.sha256(repr(processor).encode()).hexdigest()[:16]
    base = os.environ.get("STREAMMC_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path("~/.cache").expanduser()
    folder = home / "streammc" / f"numba-{numba.__version__}-{digest}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _private(folder) and _private(folder.parent) and os.access(folder, os.W_OK):
            return str(folder)
    except (OSError, RuntimeError):
        pass
    folder = new_folder("streammc-numba-")
    atexit.register(_remove, folder, os.getpid())
    return str(folder)


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder at the exit of the process that made it."""
    if os.getpid() == owner:
        with suppress(OSError):
            remove(folder)


def _private(folder: Path) -> bool:
    """Return whether a folder is this user's, and nobody else may write to it."""
    info = folder.stat()
    return info.st_uid == os.getuid() and not stat.S_IMODE(info.st_mode) & 0o022


@cache
def source_digest(file: str) -> str:
    """Return the digest of a source file and of all files it imports from this package.

    Files that import each other have different digests. The place of the package does not count:
    checkouts with the same sources share their compiled code.
    """
    seen: dict[str, str] = {}
    unread = [file]
    while unread:
        path = unread.pop()
        if path not in seen:
            seen[path], imported = _read(path)
            unread += imported
    texts = sorted((os.path.relpath(path, _ROOT), digest) for path, digest in seen.items())
    own = os.path.relpath(file, _ROOT)
    return hashlib.sha256(repr((own, texts)).encode()).hexdigest()[:16]


@cache
def _read(path: str) -> tuple[str, frozenset[str]]:
    """Return the digest of a file, and the files of this package that it imports."""
    text = Path(path).read_bytes()
    return hashlib.sha256(text).hexdigest(), imported_files(text.decode())


def imported_files(text: str) -> frozenset[str]:
    """Return the files of this package that a source imports, at its top or within functions.

    An imported name may be a module: both this module and its package are included.
    """
    names = set()
    for module, imported, plain in _IMPORT.findall(text):
        words = re.findall(r"[\w.]+", plain or imported)
        names |= set(words) if plain else {module, *(f"{module}.{word}" for word in words)}
    return frozenset(path for name in names if (path := _file(name)) is not None)


@cache
def _file(name: str) -> str | None:
    """Return the source file of a module of this package, or None."""
    first, *rest = name.split(".")
    if first != _FACADE or not rest:
        return None
    path = _ROOT.joinpath(*rest)
    for source in (path.with_suffix(".py"), path / "__init__.py"):
        if source.is_file():
            return str(source)
    return None


class Compiled:
    """Function that is compiled, or loaded from the disk, at its first use.

    There are two copies. Python, and a pointer to the function, use the outer one; compiled
    functions use the inner one, which has no wrapper for calls from Python. Without
    :data:`INTERNALS` they are the same. Only the ``signatures`` are compiled, or without any the
    types of each call. ``options`` are those of ``numba.njit``; without a ``digest`` of its
    sources, the function is not cached. A ``composition`` is optimised within its callers only.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signatures: tuple[Any, ...],
        options: dict[str, Any],
        digest: str | None = None,
        composition: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._signatures = signatures
        self._options = options
        self._digest = digest
        self._composition = composition
        self._outer: Any = None
        self._inner: Any = None
        self._entry: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function; compiled functions among ``args`` are passed as pointers."""
        if self._entry is None:
            self.ready()
        return self._entry(*[_outer_copy(each) for each in args], **kwargs)

    def __wrapper_address__(self) -> int:
        """Return the address of the machine code, for numba's pointers to functions."""
        [compiled] = self.ready().overloads.values()
        address: int = compiled.library.get_pointer_to_function(
            compiled.fndesc.llvm_cfunc_wrapper_name
        )
        return address

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined,no-any-return]

    @property
    def is_ready(self) -> bool:
        """Whether the signatures are compiled or loaded."""
        return self._entry is not None

    def ready(self) -> Any:
        """Compile the signatures, or load them from the disk; return the outer copy."""
        with global_compiler_lock:
            if self._outer is None:
                if INTERNALS is None:
                    copy = numba.njit(**self._options)(self.py_func)
                else:
                    copy = INTERNALS.OuterDispatcher(self.py_func, self._options)
                self._outer = self._cached(copy, "")
            if self._entry is None and not self._outer.is_compiling:
                for signature in self._signatures:
                    self._outer.compile(signature)
                if self._signatures:
                    self._outer.disable_compile()
                self._entry = self._outer
            return self._outer

    def inner(self) -> Any:
        """Return the copy that compiled functions use; for a recursion, the one being compiled."""
        with global_compiler_lock:
            if INTERNALS is None or (self._outer is not None and self._outer.is_compiling):
                return self.ready()
            if self._inner is None:
                copy = INTERNALS.InnerDispatcher(
                    self.py_func, self._options, self._signatures, self._composition
                )
                self._inner = self._cached(copy, "-i")
            return self._inner

    def _cached(self, dispatcher: Any, suffix: str) -> Any:
        """Return the dispatcher after its cache was set to its folder.

        The code of a module that no name imports is not kept: numba looks for it by its name.
        """
        if self._digest is not None and self.py_func.__module__ in sys.modules:
            folder = f"{cache_dir()}/{self._digest}{suffix}"
            before, numba_config.CACHE_DIR = numba_config.CACHE_DIR, folder
            try:
                dispatcher.enable_caching()
            finally:
                numba_config.CACHE_DIR = before
        return dispatcher


def _outer_copy(value: Any) -> Any:
    """Return the outer copy of a compiled function, and any other value as it is."""
    if type(value) is not Compiled:
        return value
    return value.ready() if value._entry is None else value._entry  # no lock where it is ready


@typeof_impl.register(Compiled)  # type: ignore[untyped-decorator]
def _type_of(function: Compiled, _context: Any) -> Any:
    """Return the numba type of a compiled function that a compiled function calls."""
    return numba.typeof(function.inner())


def make_ready(*functions: Any) -> None:
    """Compile the functions, or load them from the disk, as far as they are to be compiled."""
    for function in functions:
        if isinstance(function, Compiled):
            function.ready()


def compile_ahead(*modules: str) -> None:
    """Compile, or load from the disk, every compiled function in the namespace of ``modules``."""
    for module in modules:
        make_ready(*vars(import_module(module)).values())
