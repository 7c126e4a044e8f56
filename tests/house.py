"""Counts of the rules of the house, read from the sources without importing them.

``python tests/house.py`` prints the counts and what is behind them.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from import_graph import parsed

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("streammc", "stores", "cli")
FAMILY_PARTS = {
    "__init__",
    "options",
    "preparation",
    "problem",
    "kernel",
    "loop",
    "facts",
    "ensemble",
}
"""File names that every family of samplers may have."""
BLIND = ("streammc/runs", "streammc/prediction", "streammc/trace", "cli")
"""Folders that know the protocol of samplers, and no sampler."""

Offenders = dict[str, int]
"""Where a rule is not kept, and by what number."""


def sources(root: Path) -> list[Path]:
    """Return the modules of production code; the links inside streammc are left out."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    )


def _tree(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(_tree(path)))


def _last_name(node: ast.expr) -> str:
    """Return ``c`` of ``a.b.c(...)``."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def repeated_names(root: Path) -> Offenders:
    """Return the file names that occur in several folders, but for the parts of a family."""
    places: dict[str, int] = {}
    for path in sources(root):
        places[path.stem] = places.get(path.stem, 0) + 1
    return {name: count for name, count in places.items() if count > 1 and name not in FAMILY_PARTS}


def sampler_names(root: Path) -> set[str]:
    """Return the names under which samplers are registered."""
    for node in _tree(root / "streammc" / "registry.py").body:
        if isinstance(node, ast.AnnAssign) and _last_name(node.target) == "SAMPLERS":
            return set(ast.literal_eval(node.value or ast.Dict([], [])))
    raise AssertionError("streammc/registry.py has no table SAMPLERS")


def sampler_classes(root: Path) -> set[str]:
    """Return the names of all classes of samplers: families' and common ones."""
    return {
        node.name
        for path in (root / "streammc" / "samplers").rglob("*.py")
        for node in _nodes(path)
        if isinstance(node, ast.ClassDef) and not node.name.endswith("Error")
    }


def _last_value(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _asks_for_a_sampler(node: ast.AST, names: set[str], classes: set[str]) -> bool:
    """Return whether a node tells one sampler from another by class, name or target."""
    if isinstance(node, ast.MatchClass):
        return _last_name(node.cls) in classes
    if isinstance(node, ast.Call) and _last_name(node.func) == "isinstance":
        return any(
            isinstance(each, ast.Name | ast.Attribute) and _last_name(each) in classes
            for each in ast.walk(node.args[1])
        )
    if not isinstance(node, ast.Compare):
        return False
    for side in (node.left, *node.comparators):
        members = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
        for each in members:
            if isinstance(each, ast.Constant) and each.value in names:
                return True
            if isinstance(each, ast.Attribute) and (
                each.attr == "target"
                or (each.attr == "name" and "sampler" in _last_name(each.value))
            ):
                return True
            if isinstance(each, ast.Subscript) and _last_value(each.slice) in ("sampler", "target"):
                return True
    return False


def known_samplers(root: Path) -> Offenders:
    """Return the lines of runs, prediction, trace and cli that tell samplers apart."""
    names, classes = sampler_names(root), sampler_classes(root)
    found: Offenders = {}
    for path in sources(root):
        place = path.relative_to(root).as_posix()
        if not place.startswith(tuple(f"{folder}/" for folder in BLIND)):
            continue
        for node in _nodes(path):
            if _asks_for_a_sampler(node, names, classes):
                line = f"{place}:{getattr(node, 'lineno', 0)}"
                found[line] = found.get(line, 0) + 1
    return found


def imported_families(root: Path) -> Offenders:
    """Return the imports of a family of samplers in runs, prediction, trace and cli."""
    families = {path.parent.name for path in (root / "streammc" / "samplers").glob("*/__init__.py")}
    found: Offenders = {}
    for path in sources(root):
        place = path.relative_to(root).as_posix()
        if not place.startswith(tuple(f"{folder}/" for folder in BLIND)):
            continue
        for node in _nodes(path):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                parts = module.split(".")
                if parts[:2] == ["streammc", "samplers"] and set(parts[2:3]) & (
                    families - {"common"}
                ):
                    found[f"{place}:{node.lineno} {module}"] = 1
    return found


def measured(root: Path) -> dict[str, Offenders]:
    """Return where every rule is not kept."""
    return {
        "file names in several folders": repeated_names(root),
        "samplers told apart outside their family": known_samplers(root),
        "imports of a family outside the samplers": imported_families(root),
    }


def counts(found: dict[str, Offenders]) -> dict[str, tuple[int, int]]:
    """Return of every rule how many do not keep it, and the largest number among them."""
    return {rule: (len(each), max(each.values(), default=0)) for rule, each in found.items()}


if __name__ == "__main__":
    found = measured(ROOT)
    for rule, offenders in found.items():
        print(rule)
        for where, number in sorted(offenders.items()):
            print(f"  {number:4d}  {where}")
    print("PRESENT = {")
    for rule, pair in counts(found).items():
        print(f'    "{rule}": {pair},')
    print("}")
