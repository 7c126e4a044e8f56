"""Disk cache of compiled code: one folder per state of the sources of a function.

numba's disk cache does not notice an edit of a function in another file that a cached function
calls. Therefore the folder of a function is named after a digest of its module and of all modules
of this package imported by it, directly or not: an edit recompiles all functions that depend on it,
and no others. Sources are read when a module is imported, not when its functions are compiled: code
compiled after an edit in between must not be stored under the digest of the edited file. All
folders are in one folder named after the version of numba and the processor: processes that compile
for different processors at once must not share an index, whose entries could then refer to machine
code of the other processor. This folder is private (mode 0700): a cache entry is a pickle, and
loading a planted pickle would run its code.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

import numba
from numba.core.registry import cpu_target

from streammc.owner_mark import new_folder, remove

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
