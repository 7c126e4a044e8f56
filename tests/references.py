"""Modules that docstrings, comments and pages name, and whether they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from house import sources
from import_graph import parsed

DOTTED = re.compile(r"`~?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*)?`")


def _names(path: Path) -> set[str]:
    """Return every name that a module defines, imports or offers as text."""
    found = set()
    for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@cache
def named_modules(root: Path) -> dict[tuple[str, ...], set[str]]:
    """Return the names in every module and package, by its dotted path in parts."""
    found = {}
    for path in sources(root):
        parts = path.relative_to(root).with_suffix("").parts
        parts = parts if parts[0] == "streammc" else ("streammc", *parts)
        found[parts[:-1] if parts[-1] == "__init__" else parts] = _names(path)
    return found


def lost(text: str, known: dict[tuple[str, ...], set[str]]) -> list[str]:
    """Return what begins like a package or a module of the top and leads nowhere.

    ``a.b.c`` leads to a module whose path ends so, or to a name in the one that ends with
    ``a.b``, or with ``a`` where the rest are attributes of ``b``.
    """
    packages = {path[-2] for path in known if len(path) > 1}
    packages |= {path[-1] for path in known if len(path) == 2}

    def leads(parts: tuple[str, ...]) -> bool:
        return any(
            path[-length:] == parts[:length] and (length == len(parts) or parts[length] in names)
            for length in range(1, len(parts) + 1)
            for path, names in known.items()
        )

    return [
        name
        for name in DOTTED.findall(text)
        if name.split(".")[0] in packages
        and not name.endswith(".py")
        and not leads(tuple(name.split(".")))
    ]
