"""Small changes of Python sources, each of one line: the faults that ``mutations.py`` plants.

A change replaces the text of one expression or statement and leaves every other character, so
that line numbers, docstrings and comments stay. Annotations, decorators, strings and the text of
error messages are left alone.
"""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

_ARITHMETIC: Final = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.MatMult: ("@", "*"),
}
_COMPARED: Final = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_NAMES: Final = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "zeros": "ones",
    "ones": "zeros",
    "float64": "float32",
    "int64": "int16",
    "sum": "prod",
    "mean": "sum",
    "floor": "ceil",
    "ceil": "floor",
    "exp": "expm1",
    "log": "log1p",
    "argmin": "argmax",
    "argmax": "argmin",
    "sin": "cos",
    "cos": "sin",
}
_SYMMETRIC: Final = {"min": 9, "max": 9, "minimum": 9, "maximum": 9, "multiply_add": 1}
"""How many of the first pairs of arguments may be swapped without any effect."""
_NOT_CORE: Final = {
    "streammc/numerics": "compile_ahead dispatchers jit process_limits",
}
"""Modules that compute nothing: how compiled functions are made and kept."""


class Mutation(NamedTuple):
    """A change of one line of a source."""

    path: str
    line: int
    """Counted from 1."""
    operator: str
    before: str
    """The whole line."""
    after: str
    place: int = 1
    """Which of the equal lines of the file, counted from 1."""

    @property
    def key(self) -> str:
        """Name that stays where other lines of the file change."""
        which = f" ({self.place})" if self.place > 1 else ""
        return f"{self.path}{which}: {self.before.strip()} => {self.after.strip()}"


class _Finder(ast.NodeVisitor):
    """All changes of a source, by walking its tree."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.lines = path, text.splitlines()
        self.found: list[Mutation] = []
        self.visit(ast.parse(text))

    def _replace(self, operator: str, line: int, span: tuple[int, int], new: str) -> None:
        """Note a change of the bytes ``span`` of a line."""
        raw = self.lines[line - 1].encode()
        after = (raw[: span[0]] + new.encode() + raw[span[1] :]).decode()
        before = self.lines[line - 1]
        if after != before:
            place = sum(each.strip() == before.strip() for each in self.lines[:line])
            self.found.append(Mutation(self.path, line, operator, before, after, place))

    def _swap_node(self, operator: str, node: Any, new: str) -> None:
        if node.lineno == node.end_lineno:
            self._replace(operator, node.lineno, (node.col_offset, node.end_col_offset), new)

    def _between(self, operator: str, left: Any, right: Any, old: str, new: str) -> None:
        """Change the operator that stands between two expressions on one line."""
        if left.end_lineno != right.lineno:
            return
        raw = self.lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset]
        match = re.search(rf"(?<!\w){re.escape(old)}(?!\w)" if old.isalpha() else re.escape(old),
                          raw.decode())  # fmt: skip
        if match:
            lo = left.end_col_offset + match.start()
            self._replace(operator, right.lineno, (lo, lo + len(old)), new)

    def _text(self, node: Any) -> str:
        raw = self.lines[node.lineno - 1].encode()
        return raw[node.col_offset : node.end_col_offset].decode()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        returns = any(isinstance(n, ast.Return) and n.value for n in ast.walk(node))
        yields = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(node))
        for statement in node.body:
            if not returns and not yields:
                self._leave_early(statement)
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def _leave_early(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign) or _is_call(node):
            self._swap_node("return early", node, "return")

    def visit_Expr(self, node: ast.Expr) -> None:
        if _is_call(node):
            self._swap_node("drop a call", node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(each, ast.Subscript | ast.Attribute) for each in node.targets):
            self._swap_node("drop an assignment", node, "pass")
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        old, other = _ARITHMETIC[type(node.op)]
        self._between("assign in place", node.target, node.value, f"{old}=", "=")
        self._between("arithmetic", node.target, node.value, f"{old}=", f"{other}=")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave messages alone."""

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise  # type: ignore[assignment]

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        test = node.test
        checking = isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
        if checking:
            return
        if test.lineno == test.end_lineno:
            self._swap_node("negate a condition", test, f"(not ({self._text(test)}))")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If  # type: ignore[assignment]

    def visit_BinOp(self, node: ast.BinOp) -> None:
        old, new = _ARITHMETIC[type(node.op)]
        self._between("arithmetic", node.left, node.right, old, new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            self._between("and, or", left, right, old, new)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            self._between("comparison", left, right, *_COMPARED[type(op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        name = "drop not" if isinstance(node.op, ast.Not) else "drop a sign"
        if isinstance(node.op, ast.Not | ast.USub) and node.lineno == node.end_lineno:
            self._swap_node(name, node, self._text(node.operand))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        plain = [each for each in node.args if not isinstance(each, ast.Starred)]
        inside = node.lineno == node.end_lineno
        if isinstance(node.func, ast.Name) and node.func.id == "range" and inside:
            last = plain[min(len(plain), 2) - 1]
            self._swap_node("range", last, f"{self._text(last)} - 1")
            if len(plain) > 1:
                self._swap_node("range", plain[0], f"{self._text(plain[0])} + 1")
        elif len(plain) > 1 and inside and len(plain) == len(node.args):
            symmetric = _SYMMETRIC.get(self._text(node.func).rpartition(".")[2], 0)
            for a, b in list(pairwise(plain))[symmetric:]:
                lo, hi = a.col_offset, b.end_col_offset
                raw = self.lines[node.lineno - 1].encode()
                middle = raw[a.end_col_offset : b.col_offset].decode()
                self._replace(
                    "swap arguments", node.lineno, (lo, hi), self._text(b) + middle + self._text(a)
                )
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg == "axis" and isinstance(value, ast.Constant):
                self._swap_node("axis", value, str(0 if value.value else 1))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in _NAMES and node.id in ("min", "max"):
            self._swap_node("another function", node, _NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and node.attr in _NAMES:
            end = node.end_col_offset or 0
            span = (end - len(node.attr), end)
            kind = "dtype" if node.attr[-1].isdigit() else "another function"
            self._replace(kind, node.end_lineno or 0, span, _NAMES[node.attr])
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._swap_node("break, continue", node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._swap_node("break, continue", node, "continue")

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._swap_node("constant", node, str(not value))
        elif isinstance(value, int):
            self._swap_node("constant", node, str(value + 1))
            if value > 0:
                self._swap_node("constant", node, str(value - 1))
        elif isinstance(value, float):
            self._swap_node("constant", node, repr(value + 1.0))
            if value:
                self._swap_node("constant", node, repr(1.01 * value))
        elif value in ("left", "right"):
            self._swap_node("constant", node, repr("right" if value == "left" else "left"))


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def changes(path: str, text: str) -> list[Mutation]:
    """Return every change of a source; each leaves a source that can be parsed."""
    found = {(each.line, each.after): each for each in reversed(_Finder(path, text).found)}
    return [each for each in reversed(found.values()) if _parses(mutated(text, each))]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def mutated(text: str, mutation: Mutation) -> str:
    """Return the source with the change."""
    lines = text.splitlines(keepends=True)
    at = mutation.line - 1
    lines[at] = lines[at].replace(mutation.before, mutation.after, 1)
    return "".join(lines)


def _sources(root: Path, packages: Iterable[str]) -> Iterator[Path]:
    for package in packages:
        left_out = _NOT_CORE.get(package, "").split()
        yield from (
            path for path in sorted((root / package).rglob("*.py")) if path.stem not in left_out
        )


def draw(root: Path, packages: Iterable[str], count: int, seed: int) -> list[Mutation]:
    """Return ``count`` changes of different lines: every line of code is equally likely."""
    by_line: dict[tuple[str, int], list[Mutation]] = defaultdict(list)
    for path in _sources(root, packages):
        name = str(path.relative_to(root))
        for each in _Finder(name, path.read_text(encoding="utf-8")).found:
            by_line[each.path, each.line].append(each)
    rng = random.Random(seed)
    places = sorted(by_line)
    rng.shuffle(places)
    drawn: list[Mutation] = []
    for place in places:
        text = (root / place[0]).read_text(encoding="utf-8")
        choices = [each for each in by_line[place] if _parses(mutated(text, each))]
        if choices:
            drawn.append(rng.choice(choices))
        if len(drawn) == count:
            break
    return drawn
