"""Modules of the user's own, as files: those that a module imports, and those that they import.

Own is what is neither in the standard library, nor installed, nor of streammc. Files are found
and read without running them.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

_INSTALLED: Final = {"site-packages", "dist-packages"}


def own_imports(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the files of the user's own modules that ``modules`` import, by name of the module.

    A module in ``modules`` itself is left out unless another of them imports it.
    """
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    left = list(modules)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        content = own_file(name)
        if content is None:
            continue
        for each in _imported(name, content, _is_package(name)):
            if each not in found and (own := own_file(each)) is not None:
                found[each] = own
                left.append(each)
    return found


def own_file(name: str, origin: str | None = None) -> bytes | None:
    """Return the file of a module; ``None`` if it has none or is not the user's own.

    ``origin`` is its path, where that is known.
    """
    if name.partition(".")[0] == "streammc":
        return None
    origin = origin or _origin(name)
    if origin is None:
        return None
    path = Path(origin).resolve()
    if _INSTALLED & set(path.parts) or any(path.is_relative_to(each) for each in _libraries()):
        return None
    with suppress(OSError):
        return path.read_bytes()
    return None


@lru_cache(maxsize=1)
def _libraries() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = (sysconfig.get_path(name) for name in names)
    return tuple(Path(each).resolve() for each in paths if each)


def _origin(name: str) -> str | None:
    """Return the path of the file of a module, imported or not."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__file__", None)
    spec = _spec(name)
    return spec.origin if spec is not None and spec.has_location else None


def _is_package(name: str) -> bool:
    module: ModuleType | ModuleSpec | None = sys.modules.get(name)
    if module is not None:
        return hasattr(module, "__path__")
    spec = _spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _spec(name: str) -> ModuleSpec | None:
    """Find a module that is not imported, without running its parents."""
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    whole = ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = None
        for finder in sys.meta_path:
            with suppress(ImportError, AttributeError, ValueError, OSError):
                spec = spec or finder.find_spec(whole, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations or []
    return spec


def _imported(name: str, content: bytes, package: bool) -> list[str]:
    """Return the names of the modules that a source may import, with the packages around them."""
    found = set()
    for each in _named(name, content, package):
        parts = each.split(".")
        found |= {".".join(parts[: end + 1]) for end in range(len(parts))}
    return sorted(found)


@lru_cache(maxsize=256)
def _named(name: str, content: bytes, package: bool) -> tuple[str, ...]:
    """Return the names in the import statements of a source; none if it cannot be parsed."""
    try:
        nodes = ast.walk(ast.parse(content))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    around = name if package else name.rpartition(".")[0]
    return tuple(_names(nodes, around))


def _names(nodes: Iterable[ast.AST], around: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, around)
                except ImportError:
                    continue
            yield base
            # A name may be a module of the package.
            yield from (f"{base}.{each.name}" for each in node.names if each.name != "*")
