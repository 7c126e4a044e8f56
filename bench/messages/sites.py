"""Every place of the sources that makes or raises an error, found by reading them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("cli", "stores", "streammc")
CLICK: Final = ("UsageError", "BadParameter")
FOREIGN: Final = (
    "AssertionError", "AttributeError", "ImportError", "Interrupted", "KeyboardInterrupt",
    "NotANumberError", "NotPositiveDefiniteError", "StoppedError", "TypeError", "ValueError",
)  # fmt: skip
"""Raised for Python itself or caught inside the package: no message of ours."""


class Site(NamedTuple):
    """An expression that makes an error, or a statement that raises one made elsewhere."""

    path: str
    function: str
    first: int
    last: int
    message: str
    """With ``{}`` for its values; or the call that makes the error."""

    @property
    def text(self) -> str:
        """Beginning of the message."""
        return self.message[:90]

    @property
    def name(self) -> str:
        """Name of the site that an edit elsewhere in its file leaves as it is."""
        return f"{self.path} {self.function}: {self.text}"

    def holds(self, path: str, line: int) -> bool:
        """Return whether a line of a traceback is in this site."""
        return path == self.path and self.first <= line <= self.last


def error_names(root: Path = ROOT) -> set[str]:
    """Return the names of the classes of ``streammc/errors.py``."""
    tree = ast.parse((root / "streammc/errors.py").read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return {name for name in classes if name.endswith("Error")} | set(CLICK)


def all_sites(root: Path = ROOT) -> list[Site]:
    """Return the sites of the package; the links below ``streammc`` are not followed."""
    names = error_names(root)
    found: list[Site] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            inside = path.relative_to(root)
            if not any((root / part).is_symlink() for part in list(inside.parents)[:-1]):
                found += sites_of(path.read_text(), inside.as_posix(), names)
    return found


def sites_of(source: str, path: str, names: set[str]) -> list[Site]:
    """Return the sites of one file."""
    found = []
    for node, function, raised in _calls(ast.parse(source), "", None):
        call = node.func
        name = call.id if isinstance(call, ast.Name) else getattr(call, "attr", "")
        whole = raised or node
        if name in names:
            text = skeleton(node)
        elif raised and name not in FOREIGN:
            text = ast.unparse(node)
        else:
            continue
        found.append(Site(path, function, whole.lineno, whole.end_lineno or 0, text))
    return found


def _calls(
    node: ast.AST, function: str, raised: ast.Raise | None
) -> Iterator[tuple[ast.Call, str, ast.Raise | None]]:
    """Yield each call, its function, and the statement that raises what it makes."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield node.exc, function, node
        for child in ast.iter_child_nodes(node.exc):
            yield from _calls(child, function, None)
        return
    if isinstance(node, ast.Call):
        yield node, function, None
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{child.name}" if function else child.name
        yield from _calls(child, inner, None)


def skeleton(call: ast.Call) -> str:
    """Return the message that a call makes, with ``{}`` in place of each value."""
    if not call.args:
        return ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else _value(part)
        for part in getattr(call.args[0], "values", [call.args[0]])
    )


def _value(part: ast.expr) -> str:
    """Return ``{}`` for a value of a message, in quotes where it is shown by its repr."""
    quoted = isinstance(part, ast.FormattedValue) and part.conversion == ord("r")
    return "'{}'" if quoted else "{}"
