"""Where compiled code is kept: one folder per state of the sources that a function is made of.

numba's disk cache does not see edits to functions that a cached one calls from another file.
So the folder of a function is named after a digest of its module and of every module of this
package that this one imports, directly or not: an edit recompiles what depends on it, and
nothing else. Sources are read when a module is imported, not when its functions are compiled:
an edit in between must not lend its name to code of before. All folders are in one that is
named after the version of numba and the processor: two processes that compile for different
processors at once must not write to one index, where the entry of one would come to name the
machine code of the other. That one is private (mode 0700): a cache entry is a pickle, and
loading a planted one would run code.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from functools import cache
from pathlib import Path

import numba
from numba.core.registry import cpu_target

_ROOT = Path(__file__).resolve().parent.parent
_FACADE = _ROOT.name
"""Resolves its names lazily, so that no compiled code depends on it."""
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
        info = folder.stat()
        private = info.st_uid == os.getuid() and not stat.S_IMODE(info.st_mode) & 0o022
        if private and os.access(folder, os.W_OK):
            return str(folder)
    except (OSError, RuntimeError):
        pass
    return tempfile.mkdtemp(prefix="streammc-numba-")


@cache
def source_digest(file: str) -> str:
    """Return the digest of a source file and of all that it imports from this package."""
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
    """Return the digest of a file, and the files of this package that it names in imports."""
    text = Path(path).read_bytes()
    return hashlib.sha256(text).hexdigest(), imported_files(text.decode())


def imported_files(text: str) -> frozenset[str]:
    """Return the files of this package that a source imports, at its top or within functions.

    A name that is imported may be a module: both it and the package that has it count.
    """
    names = set()
    for module, imported, plain in _IMPORT.findall(text):
        words = re.findall(r"[\w.]+", plain or imported)
        names |= set(words) if plain else {module, *(f"{module}.{word}" for word in words)}
    return frozenset(path for name in names if (path := _file(name)) is not None)


@cache
def _file(name: str) -> str | None:
    """Return the source of a module of this package."""
    first, *rest = name.split(".")
    if first != _FACADE or not rest:
        return None
    path = _ROOT.joinpath(*rest)
    for source in (path.with_suffix(".py"), path / "__init__.py"):
        if source.is_file():
            return str(source)
    return None
