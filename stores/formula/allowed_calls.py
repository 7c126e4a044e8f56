"""The allow-list of calls in a formula, and their parser; formula text is never executed.

The tokens of a call are parsed as Python (not compiled) and become the few node types of
``stores.formula.nodes``, which streammc itself interprets. Everything else is refused:
attributes, subscripts, lambdas, comprehensions, strings outside of arguments, unknown
functions and options.
"""

from __future__ import annotations

import ast
import keyword
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, Final

from streammc.errors import ConfigError
from streammc.stores.formula.nodes import (
    Call,
    Column,
    Node,
    Number,
    Operation,
    Text,
    columns_of,
    walk,
)
from streammc.stores.formula.tokens import TREATMENT, Token, refused

MAX_LIST: Final = 4096
MAX_NESTED: Final = 100

_SPLINE: Final = {"lower_bound": "number", "upper_bound": "number"}
_CUBIC: Final = {"df": "integer", "knots": "numbers", **_SPLINE, "constraints": "text"}

ELEMENTWISE: Final = ("log", "log10", "log2", "log1p", "exp", "expm1", "sqrt", "abs", "I")

FUNCTIONS: Final[dict[str, dict[str, str]]] = {
    **{name: {} for name in ELEMENTWISE},
    "center": {},
    "scale": {"center": "flag", "scale": "flag", "ddof": "number"},
    "poly": {"degree": "integer", "raw": "flag"},
    "bs": {
        "df": "integer",
        "knots": "numbers",
        "degree": "integer",
        "include_intercept": "flag",
        **_SPLINE,
        "extrapolation": "text",
    },
    "cr": {**_CUBIC, "extrapolation": "text"},
    "cc": {**_CUBIC, "extrapolation": "text"},
    "C": {"contrasts": "contrasts", "levels": "levels"},
    "offset": {},
}
"""The options of each function after its first argument, in order, with their kinds."""

OUTER: Final = frozenset({"poly", "bs", "cr", "cc", "C", "offset"})
"""Functions that may not stand inside others."""

_CONTRASTS: Final = "write C({column}), whose levels have treatment coding"
_OF_PATSY: Final = {
    "Treatment": "write C({column}, contr.treatment({level}))",
    **dict.fromkeys(("Sum", "Poly", "Helmert", "Diff"), _CONTRASTS),
    "Q": "write a column name in backquotes, `{name}`",
    "standardize": "write scale(x)",
}
"""Functions of patsy and similar packages, with the form to write instead."""

_CHOICES: Final = {
    "extrapolation": ("raise", "clip", "zero", "extend"),
    "constraints": ("center",),
}
_LIMITS: Final = {"df": 1000, "degree": 20}


def parse_expression(tokens: list[Token]) -> Node:
    """Return the node of a column or of a call with its arguments.

    Raises
    ------
    ConfigError
        If a part of it is not in the allow-list.
    """
    start = tokens[0].position
    names: dict[str, Column] = {}
    source = []
    for index, (kind, text, position) in enumerate(tokens):
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if kind == "column" or (kind == "name" and text not in ("True", "False")):
            if kind == "name" and following == "(":
                _check_function(tokens, index)
            elif kind == "column" or following != "=":
                names[f"_c{index}_"] = Column(text.strip("`"))
                text = f"_c{index}_"
        elif text in (":", "^", "~"):
            advice = "write powers as ** inside a function, and no interactions"
            raise refused(repr(text), position, advice)
        source.append("_treatment" if text == TREATMENT else text)
    try:
        body = ast.parse(" ".join(source), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        shown = " ".join(token.text for token in tokens)[:60]
        raise refused(repr(shown), start, "write a complete expression") from None
    return _Reader(names, start).expression(body)


def _check_function(tokens: list[Token], index: int) -> None:
    """Refuse a call of an unknown function; ``tokens[index]`` is the name of the function."""
    _, name, position = tokens[index]
    if name in FUNCTIONS or name == TREATMENT:
        return
    near = get_close_matches(name, FUNCTIONS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(FUNCTIONS)}"
    if name in _OF_PATSY:
        values = [token.text for token in tokens[index:] if token.kind in ("string", "number")]
        column = tokens[2].text if tokens[0].text == "C" and index > 2 else "column"
        level = values[0] if values else "'level'"
        hint = _OF_PATSY[name].format(column=column, level=level, name=level.strip("'\""))
    raise refused(f"the function {name!r}", position, hint)


_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.USub: "negative",
    ast.UAdd: "positive",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


class _Reader:
    """Converter of Python syntax trees to formula nodes; refuses syntax outside the allow-list."""

    def __init__(self, names: dict[str, Column], position: int) -> None:
        self._names = names
        self._position = position
        self._depth = 0

    def expression(self, node: ast.expr) -> Node:
        self._depth += 1
        try:
            if self._depth > MAX_NESTED:
                advice = f"it is nested over {MAX_NESTED} deep; calculate it before"
                raise refused("a long expression", self._position, advice)
            return self._node(node)
        finally:
            self._depth -= 1

    def _node(self, node: ast.expr) -> Node:
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return Number(self._number(node))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return Operation(_OPERATORS[type(node.op)], (self.expression(node.operand),))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            sides = self.expression(node.left), self.expression(node.right)
            return Operation(_OPERATORS[type(node.op)], sides)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            symbol = _OPERATORS.get(type(node.ops[0]), "")
            right = node.comparators[0]
            if isinstance(right, ast.Constant) and isinstance(right.value, str):
                left = self.expression(node.left)
                if isinstance(left, Column) and symbol in ("==", "!="):
                    return Operation(symbol, (left, Text(right.value)))
            elif symbol:
                return Operation(symbol, (self.expression(node.left), self.expression(right)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node, node.func.id)
        raise self._refused(node)

    def _call(self, node: ast.Call, name: str) -> Call:
        if name not in FUNCTIONS or not node.args:
            raise self._refused(node)
        kinds = FUNCTIONS[name]
        given: dict[str, ast.expr] = {}
        if len(node.args) - 1 > len(kinds):
            raise self._refused(node)
        for option, value in zip(kinds, node.args[1:], strict=False):
            given[option] = value
        for word in node.keywords:
            if word.arg not in kinds or word.arg in given:
                raise self._option(node, name, str(word.arg), "an option of it, once")
            given[word.arg] = word.value
        argument = self.expression(node.args[0])
        if not columns_of(argument):
            raise self._refused(node)
        inner = [part for part in walk(argument) if isinstance(part, Call)]
        if any(part.function in OUTER for part in inner):
            raise self._refused(node)
        options = [
            (option, self._value(node, name, option, kinds[option], value))
            for option, value in given.items()
        ]
        return Call(name, argument, tuple(sorted(options)), self.unparse(node))

    def _value(self, call: ast.Call, name: str, option: str, kind: str, node: ast.expr) -> Any:
        value = node.value if isinstance(node, ast.Constant) else None
        if kind == "flag" and isinstance(value, bool):
            return value
        if kind == "integer" and type(value) is int and 0 <= value <= _LIMITS[option]:
            return value
        if kind == "number":
            return self._number(node)
        if kind == "text" and value in _CHOICES[option]:
            return value
        if kind in ("numbers", "levels") and isinstance(node, ast.List):
            if not 0 < len(node.elts) <= MAX_LIST:
                raise self._option(call, name, option, f"1 to {MAX_LIST} values")
            if kind == "numbers":
                return tuple(self._number(item) for item in node.elts)
            return tuple(self._level(item) for item in node.elts)
        if kind == "contrasts" and isinstance(node, ast.Call):
            inner = node.func
            named = all(word.arg == "base" for word in node.keywords)
            values = [*node.args, *(word.value for word in node.keywords)]
            treatment = isinstance(inner, ast.Name) and inner.id == "_treatment"
            if treatment and named and len(values) <= 1:
                return tuple(self._level(item) for item in values)
        expected = {
            "flag": "True or False",
            "integer": f"a whole number from 0 to {_LIMITS.get(option)}",
            "text": " or ".join(map(repr, _CHOICES.get(option, ()))),
            "contrasts": "contr.treatment('level')",
        }.get(kind, "a list of values")
        raise self._option(call, name, option, expected)

    def _number(self, node: ast.expr) -> float:
        sign = 1.0
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, node = -1.0, node.operand
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            try:
                number = sign * float(node.value)  # type: ignore[arg-type]
            except OverflowError:
                number = float("inf")
            if abs(number) < float("inf"):
                return number
        raise self._refused(node)

    def _level(self, node: ast.expr) -> str | float | bool:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bool)):
            return node.value
        return self._number(node)

    def unparse(self, node: ast.expr) -> str:
        """Return the normalised text of an expression, with column names for placeholders."""
        copied = deepcopy(node)
        for part in ast.walk(copied):
            if isinstance(part, ast.Name) and part.id in self._names:
                name = self._names[part.id].name
                plain = name.isidentifier() and not keyword.iskeyword(name)
                plain = plain and not name.startswith("__")
                part.id = name if plain else f"`{name}`"
            elif isinstance(part, ast.Name) and part.id == "_treatment":
                part.id = TREATMENT
        return ast.unparse(copied)

    def _option(self, node: ast.Call, name: str, option: str, expected: str) -> ConfigError:
        return ConfigError(
            f"expected {expected} for {option!r} of {name}() in the formula, found "
            f"{self.unparse(node)[:80]!r}: see the how-to on formulas"
        )

    def _refused(self, node: ast.expr) -> ConfigError:
        found = repr(self.unparse(node)[:60])
        return refused(found, self._position, "use columns, numbers and known functions")
