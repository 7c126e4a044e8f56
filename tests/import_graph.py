"""Which module of the package imports which, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOTS = {"streammc": "streammc", "stores": "streammc.stores", "cli": "streammc.cli"}
"""Folders of the repository and the packages that they are installed as."""

Graph = dict[str, set[str]]

parsed = cache(ast.parse)


def modules(root: Path) -> dict[str, str]:
    """Return the source of every module by its name."""
    found = {}
    for folder, package in ROOTS.items():
        for path in (root / folder).rglob("*.py"):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if folder == "streammc" and parts[0] in ROOTS:
                continue  # a link to another folder of the repository
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = path.read_text(encoding="utf-8")
    return found


def graphs(sources: Mapping[str, str]) -> tuple[Graph, Graph]:
    """Return the imports at the top of modules, and those inside functions.

    Imports under ``if TYPE_CHECKING`` never run and do not count.
    """
    top: Graph = {name: set() for name in sources}
    inside: Graph = {name: set() for name in sources}
    for name, source in sources.items():
        for node, in_function in imports(parsed(source), False):
            (inside if in_function else top)[name] |= targets(node, sources.keys()) - {name}
    return top, inside


def imports(node: ast.AST, in_function: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the import statements below a node, and whether a function holds each."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, in_function
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(child, in_function or function)


def targets(node: ast.AST, known: Set[str]) -> set[str]:
    """Return the modules among ``known`` that an import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & known
    assert isinstance(node, ast.ImportFrom)
    names = {f"{node.module}.{alias.name}" for alias in node.names}
    whole = {str(node.module)} if names - known else set()
    return (names | whole) & known


def cycle(graph: Graph) -> list[str]:
    """Return the modules of one cycle, first and last the same; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def closing(top: Graph, inside: Graph) -> set[tuple[str, str]]:
    """Return the imports inside functions that would close a cycle at the top of a module."""
    return {
        (name, other)
        for name, others in inside.items()
        for other in others
        if cycle({**top, name: top[name] | {other}})
    }
