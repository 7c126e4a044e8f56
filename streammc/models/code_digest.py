"""What tells one user's functions from another's: their source and the values they read.

A module of the user's own is neither in the standard library, nor installed, nor of streammc. Files
are found and read without running them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np


def code_digest(functions: Sequence[Any]) -> str:
    """Return a digest of functions: their source, and the values that they read.

    Values of closures, defaults and globals count where they are numbers, text, arrays,
    containers of these, or functions, and by name otherwise. The files of the user's own modules
    count which the files of the functions import, or which are among the values.
    """
    total = hashlib.sha256()
    seen: set[int] = set()
    importing: set[str] = set()
    own: dict[str, bytes] = {}
    plain_functions = (getattr(each, "py_func", each) for each in functions)
    roots = {getattr(each, "__module__", None) for each in plain_functions}

    def add(value: Any) -> None:
        plain = getattr(value, "py_func", value)
        total.update(f"<{type(plain).__name__}>".encode())
        if isinstance(plain, FunctionType):
            if id(plain) not in seen:
                seen.add(id(plain))
                add_function(plain)
        elif isinstance(plain, np.ndarray):
            total.update(f"{plain.dtype}{plain.shape}".encode())
            total.update(np.ascontiguousarray(plain).tobytes())
        elif isinstance(plain, dict):
            for key in sorted(plain, key=repr):
                add(key)
                add(plain[key])
        elif isinstance(plain, (list, tuple)):
            for part in plain:
                add(part)
        elif isinstance(plain, (set, frozenset)):
            add(sorted(plain, key=repr))
        elif isinstance(plain, CodeType):
            add_code(plain)
        elif isinstance(plain, (int, float, complex, str, bytes, np.generic, type(None))):
            total.update(repr(plain).encode())
        else:
            total.update(str(getattr(plain, "__name__", "")).encode())
            if isinstance(plain, ModuleType):
                add_module(plain.__name__, getattr(plain, "__file__", None))
            else:  # a class, or an object of one
                add_module((plain if isinstance(plain, type) else type(plain)).__module__)

    def add_module(name: Any, origin: str | None = None) -> None:
        importing.add(str(name))
        # Of the file with the functions themselves, only what they read counts.
        if name not in roots and (content := own_file(str(name), origin)) is not None:
            own[str(name)] = content

    def add_code(code: CodeType) -> None:
        total.update(code.co_code)
        add(code.co_names)
        for constant in code.co_consts:
            add(constant)

    def add_function(function: FunctionType) -> None:
        add_module(function.__module__)
        try:
            total.update(inspect.getsource(function).encode())
        except (OSError, TypeError):
            add_code(function.__code__)
        add(function.__defaults__)
        add(function.__kwdefaults__)
        read = inspect.getclosurevars(function)
        for values in (read.nonlocals, read.globals):
            for name in sorted(values):
                total.update(name.encode())
                add(values[name])

    for function in functions:
        add(function)
    # Files of installed modules do not count, so that their versions do not end a run.
    own |= own_imports(sorted(importing))
    for name in sorted(own):
        total.update(f"<file {name}>".encode())
        total.update(hashlib.sha256(own[name]).digest())
    return total.hexdigest()[:16]


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
