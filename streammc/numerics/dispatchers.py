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

An inner copy (:class:`InnerDispatcher`) is intermediate code without machine code. numba optimises
a compiled function and turns it into machine code, with a wrapper for calls from Python and one for
function pointers, even where only compiled code calls it. A compiled caller takes none of this: it
links the intermediate code, and the machine code of the caller contains its own copy. Of
``transition.run`` of ``hmc-ecs``, with 72 functions below it, that was two thirds of 67 CPU
seconds.

Machine code is loaded without what only a compilation needs (:class:`MachineCodeCache`). numba
prepares itself for a compilation before it loads a function from its cache (0.3 CPU s, once:
the implementations of everything that it can compile), and parses the intermediate code beside the
machine code for callers that could link it (0.1 CPU s for the functions of a run of ``hmc-ecs``).
Callers link the inner copy instead (:class:`InnerDispatcher`).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import re
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numba.experimental.function_type
from numba.core import config as numba_config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary, ll
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.runtime import rtsys

from streammc.unfinished import new_folder, remove


class SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """Files of the cache, each behind the digest of its content.

    A file that was cut or damaged is compiled again. numba would end with the error of its pickle,
    or run the damaged machine code.
    """

    def _load_index(self) -> Any:
        try:
            version, stamp, overloads = pickle.loads(self._read(self._index_path))
        except (OSError, ValueError):
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return pickle.loads(self._read(self._data_path(name)))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        data = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)

    def _read(self, path: str) -> memoryview:
        """Return the content of a file; OSError if it is not what was written."""
        with open(path, "rb") as file:
            stored = memoryview(file.read())
        size = hashlib.sha256().digest_size
        if hashlib.sha256(stored[size:]).digest() != stored[:size]:
            raise OSError(f"damaged: {path}")
        return stored[size:]


class SealedCache(FunctionCache):  # type: ignore[misc]
    """Index of the compiled code of a function on disk."""

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = SealedFiles(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compile result of a signature; a folder that cannot be written keeps none."""
        with suppress(OSError):
            super().save_overload(sig, data)


_ROOT = Path(__file__).resolve().parent.parent
_FACADE = _ROOT.name
"""Name of the package, which imports its names lazily: no compiled code depends on it."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(streammc[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|.*)|import[ \t]+(.*))", re.M
)


@cache
def cache_dir() -> str:
    """Return the private cache folder of this version of numba and this processor."""
    magic = repr(cpu_target.target_context.codegen().magic_tuple())
    digest = hashlib.sha256(magic.encode()).hexdigest()[:16]
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
    """Return the digest of a source file and of all files it imports from this package."""
    seen: dict[str, str] = {}
    unread = [file]
    while unread:
        path = unread.pop()
        if path not in seen:
            seen[path], imported = _read(path)
            unread += imported
    texts = sorted((os.path.relpath(path, _ROOT), digest) for path, digest in seen.items())
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


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


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Intermediate code of a function, to be linked into its callers."""

    def _finalize_final_module(self) -> None:
        """Finish the module without the engine, which would emit machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    @classmethod
    def read(cls, codegen: Any, name: str, bitcode: bytes) -> InnerLibrary:
        """Return the library that ``serialize_using_bitcode`` has written."""
        library = cls(codegen, name)
        library._final_module = ll.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class CompositionLibrary(InnerLibrary):
    """Intermediate code that is optimised within its callers, and not alone."""

    def _optimize_final_module(self) -> None:
        """Leave the module as it is."""


class InnerCompiler(Compiler):  # type: ignore[misc]
    """Compiler of a function that only compiled code calls."""

    library_class: type[InnerLibrary] = InnerLibrary

    def define_pipelines(self) -> Any:
        """Return numba's passes, set to make no wrapper and no machine code."""
        state = self.state
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        state.flags.no_compile = True
        state.library = self.library_class(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        """Compile; make the result known to the lowering of callers."""
        result = _with_key(super().compile_extra(func))
        result.target_context.insert_user_function(
            result.entry_point, result.fndesc, [result.library]
        )
        return result


class CompositionCompiler(InnerCompiler):
    """Compiler of a function that is optimised within its callers only."""

    library_class = CompositionLibrary


def _with_key(result: Any) -> Any:
    """Return a compile result with an entry point of its own, as which callers look it up."""
    return result._replace(entry_point=object())


class InnerCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Compile results on disk as intermediate code."""

    def reduce(self, cres: Any) -> Any:
        """Return what is written."""
        library = cres.library
        cres.fndesc.typemap = cres.fndesc.calltypes = None
        environments = tuple(cres._find_referenced_environments())
        return (
            *library.serialize_using_bitcode()[::2],
            cres.fndesc,
            cres.environment,
            cres.signature,
            cres.reload_init,
            environments,
        )

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compile result that was written."""
        name, bitcode, fndesc, environment, signature, reload_init, environments = payload
        for function in reload_init:
            function()
        return _with_key(
            CompileResult(
                target_context=target_context,
                typing_context=target_context.typing_context,
                library=InnerLibrary.read(target_context.codegen(), name, bitcode),
                environment=environment,
                entry_point=None,
                fndesc=fndesc,
                type_annotation=None,
                signature=signature,
                objectmode=False,
                lifted=(),
                typing_error=None,
                call_helper=None,
                metadata=None,
                reload_init=reload_init,
                referenced_envs=environments,
            )
        )


class InnerCache(SealedCache):
    """Index of the compile results of a function on disk."""

    _impl_class = InnerCacheImpl


class InnerDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function compiled for compiled callers; a call from Python compiles it once more.

    A ``composition`` is optimised within its callers only.
    """

    def __init__(
        self,
        py_func: Any,
        locals: Any = None,
        targetoptions: Any = None,
        composition: bool = False,
    ) -> None:
        compiler = CompositionCompiler if composition else InnerCompiler
        CPUDispatcher.__init__(self, py_func, locals, targetoptions, compiler)

    def enable_caching(self) -> None:
        """Keep the compile results on disk."""
        self._cache = InnerCache(self.py_func)

    def add_overload(self, cres: Any) -> None:
        """Add a compile result: to the table for callers, not to that for calls from Python."""
        self.overloads[tuple(cres.signature.args)] = cres

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function from Python."""
        outer = self.__dict__.get("_outer")
        if outer is None:
            outer = self._outer = CPUDispatcher(self.py_func, {}, self.targetoptions)
        return outer(*args, **kwargs)


class LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Machine code from the disk; intermediate code is parsed if a caller links it."""

    bitcode: bytes
    _shared_module: Any

    @classmethod
    def read(cls, codegen: Any, data: tuple[str, str, tuple[bytes, bytes]]) -> LoadedLibrary:
        """Return the library that ``serialize_using_object_code`` has written."""
        name, kind, (machine_code, bitcode) = data
        assert kind == "object", kind
        library = cls(codegen, name)
        library.bitcode = bitcode
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._finalize_final_module()
        return library

    def _get_module_for_linking(self) -> Any:
        module: Any = self._shared_module
        if module is None:
            module = self._shared_module = ll.parse_bitcode(self.bitcode)
        return module


def _defined(module: Any) -> set[str]:
    """Return the names of the functions and variables that a module defines."""
    both = (*module.functions, *module.global_variables)
    return {value.name for value in both if not value.is_declaration}


class MachineCodeImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Compile results on disk, with the names that their machine code defines."""

    def reduce(self, cres: Any) -> Any:
        """Return what is written: numba's record without the annotated source, and the names."""
        cres = cres._replace(type_annotation=None)
        return cres._reduce(), _defined(cres.library._get_module_for_linking())

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return the compile result that was written."""
        record, names = payload
        data, fndesc, environment, signature, objectmode, lifted, _, reload_init, others = record
        if objectmode or lifted or reload_init:
            target_context.refresh()
            return CompileResult._rebuild(target_context, *record)
        codegen = target_context.codegen()
        library = LoadedLibrary.read(codegen, data)
        codegen._engine._defined_symbols |= names
        for each in others:
            codegen.set_env(each.env_name, each)
        return CompileResult(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=target_context.get_executable(library, fndesc, environment),
            fndesc=fndesc,
            type_annotation=None,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            typing_error=None,
            call_helper=None,
            metadata=None,
            reload_init=reload_init,
            referenced_envs=others,
        )


class MachineCodeCache(SealedCache):
    """Index of the machine code of a function on disk."""

    _impl_class = MachineCodeImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compile result of a signature, ``None`` if it is not on disk."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class ReadyDispatcher(CPUDispatcher):  # type: ignore[misc]
    """Function for calls from Python and function pointers; compiled code calls another copy.

    The copy has no wrappers and no machine code of its own (:class:`InnerDispatcher`).
    """

    _signatures: tuple[Any, ...] = ()
    _folder: str | None = None
    """Folder in the cache; ``None``: not cached."""

    def enable_caching(self) -> None:
        """Keep the machine code on disk."""
        self._cache = MachineCodeCache(self.py_func)

    def inner(self) -> InnerDispatcher:
        """Return the copy that compiled code calls."""
        with global_compiler_lock:
            if "_inner" not in self.__dict__:
                self._inner = InnerDispatcher(self.py_func, {}, self.targetoptions)
                try:
                    _compile(self._inner, self._signatures, self._folder and f"{self._folder}-i")
                except BaseException:
                    del self._inner
                    raise
            copy: InnerDispatcher = self._inner
            return copy

    @property
    def is_compiling(self) -> bool:
        """Whether a call of the function is one by itself: it is recursive."""
        copy = self.__dict__.get("_inner")
        return bool(self._compiling_counter or (copy is not None and copy.is_compiling))

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the signatures for a call by a compiled function."""
        return self.inner().get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return the key of the code of a signature, for a call by a compiled function."""
        return self.inner().get_overload(sig)


def _compile(dispatcher: CPUDispatcher, signatures: tuple[Any, ...], folder: str | None) -> None:
    """Compile the signatures, or load them from a folder of the cache; allow no others."""
    if folder is not None:
        before, numba_config.CACHE_DIR = numba_config.CACHE_DIR, f"{cache_dir()}/{folder}"
        try:
            dispatcher.enable_caching()
        finally:
            numba_config.CACHE_DIR = before
    for signature in signatures:
        CPUDispatcher.compile(dispatcher, signature)
    if signatures:
        dispatcher.disable_compile()


class LazyDispatcher(ReadyDispatcher):
    """Function with fixed signatures, compiled or loaded at the first use.

    A use is a call or a function pointer; a call by a compiled function is a use of its copy
    alone. Then the object turns into a ``ReadyDispatcher``, which takes no other signature, so
    that later calls have no more overhead than calls of numba.
    """

    @classmethod
    def defer(cls, dispatcher: CPUDispatcher, signatures: tuple[Any, ...], digest: str) -> Any:
        """Defer the compilation of ``dispatcher`` to its first use; return it.

        Without signatures, the types of each call are compiled.
        """
        dispatcher._signatures, dispatcher._folder = signatures, digest
        dispatcher.__class__ = cls
        return dispatcher

    def ready(self) -> None:
        """Compile the signatures, or load them from the disk."""
        with global_compiler_lock:
            # A recursive call, or a thread that waited for the lock, finds nothing left to do.
            if self.__dict__.get("_begun"):
                return
            self._begun = True
            try:
                _compile(self, self._signatures, self._folder)
            except BaseException:
                self._begun = False
                raise
            self.__class__ = ReadyDispatcher

    @property
    def overloads(self) -> Any:
        """Compiled code by argument types; access to it counts as a use."""
        self.ready()
        return self.__dict__["overloads"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        self.ready()
        return CPUDispatcher.__call__(self, *args, **kwargs)

    def get_function_type(self) -> Any:
        """Return the type of a pointer to the function."""
        self.ready()
        return CPUDispatcher.get_function_type(self)

    def compile(self, sig: Any) -> Any:
        """Refuse a signature other than the fixed ones."""
        self.ready()
        return CPUDispatcher.compile(self, sig)

    def _reduce_states(self) -> Any:
        self.ready()
        return CPUDispatcher._reduce_states(self)
