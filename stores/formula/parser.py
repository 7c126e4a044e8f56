"""The parser of formulas: from text to terms; formula text is never executed.

Text is cut into tokens, in which characters and words outside an allow-list are refused: no
attributes, braces, backslashes, keywords or names with two leading underscores. Random effects
``(1 | g)`` are cut out. The tokens of a call are parsed as Python (not compiled) and become a few
node types, which streammc itself interprets. Everything else is refused: subscripts, lambdas,
comprehensions, strings outside of arguments, unknown functions and options.

Sums of different columns and calls are expanded here: the import of formulaic, and of pandas below
it, takes a third of a second of processor time, more than all else that a command does for a few
rows. All other formulas are expanded by formulaic, and the tests compare both. It sees only
placeholders for columns and calls, numbers and operators: it has nothing to evaluate.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streammc.errors import ConfigError
from streammc.stores.iso_words import DATES

if TYPE_CHECKING:
    from formulaic import Formula


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    name: str


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class Text:
    """A string that a column is compared with."""

    value: str


@dataclass(frozen=True)
class Operation:
    """Arithmetic, a sign or a comparison."""

    operator: str
    """Such as ``+``, ``negative`` or ``<=``."""
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Call:
    """An allowed function of one expression, such as ``bs``, and its further arguments."""

    function: str
    argument: Node
    options: tuple[tuple[str, Any], ...]
    label: str = field(compare=False)
    """Text of the call, as formulaic writes it."""


Node = Column | Number | Text | Operation | Call


def label(node: Node) -> str:
    """Return the label of a column or call: a factor of a term is one of these two."""
    assert isinstance(node, (Column, Call))
    return node.label if isinstance(node, Call) else node.name


def argument_of(node: Node) -> Node:
    """Return the argument of a call, and any other expression itself."""
    return node.argument if isinstance(node, Call) else node


def coding_of(node: Node) -> str | None:
    """Return the coding of a factor, one of ``CODED``; ``None`` of indicators, and of no factor."""
    coding = dict(node.options).get("contrasts") if isinstance(node, Call) else None
    return coding if isinstance(coding, str) else None


def columns_of(node: Node) -> list[str]:
    """Return the columns of the table that an expression needs."""
    return list(dict.fromkeys(part.name for part in walk(node) if isinstance(part, Column)))


def values_of(node: Node) -> list[str]:
    """Return the columns whose values an expression depends on: not those of missing() alone."""
    if isinstance(node, Operation):
        return list(dict.fromkeys(name for part in node.arguments for name in values_of(part)))
    if isinstance(node, Call):
        return [] if node.function == MISSING else values_of(node.argument)
    return columns_of(node)


def walk(node: Node) -> list[Node]:
    """Return the expression and all its parts, the innermost first."""
    if isinstance(node, Operation):
        return [*(part for child in node.arguments for part in walk(child)), node]
    return [*walk(node.argument), node] if isinstance(node, Call) else [node]


MISSING: Final = "missing"
"""Function of a column that is 1 where its value is missing, and 0 elsewhere."""
MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 20
_CODINGS: Final = {
    "contr.treatment": "treatment",
    "contr.sum": "sum",
    "contr.helmert": "helmert",
    "contr.poly": "poly",
    "Treatment": "treatment",
    "Sum": "sum",
    "Helmert": "helmert",
    "Poly": "poly",
}
"""Codings of a factor by their names in R and in patsy, as the second argument of C()."""
CODED: Final = ("sum", "helmert", "poly")
"""Codings whose columns are not indicators of levels."""

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
    |(?P<column>`[^`\\\x00-\x1f\x7f]+`)
    |(?P<string>'[^'"\\`\x00-\x1f\x7f]*'|"[^'"\\`\x00-\x1f\x7f]*")
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>contr\.(?:treatment|sum|helmert|poly)\b|[^\W\d]\w*)
    |(?P<operator>\*\*|<=|>=|==|!=|\|\|?|[-+*/:^~(),=<>\[\]])
    """,
    re.VERBOSE,
)
_PREFIXED_CALL: Final = re.compile(r"\.([A-Za-z_]\w*)\s*\(([^()]{0,60})(\)?)")
_ADVICE: Final = {
    ".": "write the columns out; a name with a dot goes into backquotes, `a.b`",
    "{": "write a calculation as I(...)",
    "%": "write interactions with ':' and '*'",
    '"': "a string has no quotes or backslashes in it",
    "'": "a string has no quotes or backslashes in it",
    "`": "a name in backquotes has no backquote, backslash or control character",
}


class Token(NamedTuple):
    """A token of a formula."""

    kind: str
    text: str
    position: int
    """Number of its first character, counted from 1."""

    @property
    def nesting(self) -> int:
        """1 for an opening parenthesis, -1 for a closing one, else 0."""
        return (self.text in "([") - (self.text in ")]") if self.kind == "operator" else 0


def tokenize(text: object) -> list[Token]:
    """Cut a formula into tokens."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        found = f"{len(text)} characters" if isinstance(text, str) else type(text).__name__
        raise ConfigError(
            f"expected a formula as text up to {MAX_LENGTH} characters, found {found}"
            ": write a shorter text"
        )
    tokens: list[Token] = []
    position = depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            char = text[position]
            advice = _ADVICE.get(char, "leave it out, or quote a column name with backquotes")
            called = _PREFIXED_CALL.match(text, position)
            if called and tokens and tokens[-1].kind == "name":
                function, argument, closed = called.groups()
                argument = argument.strip() if closed else "..."
                advice = f"functions have no prefix; write {function}({argument})"
            raise refused(repr(char), position + 1, advice)
        kind, word = str(match.lastgroup), match.group()
        if kind == "name":
            if word == "as" and text.startswith("as.factor", position):
                raise refused("as.factor", position + 1, "write C(column)")
            _check_name(word, position + 1)
        token = Token(kind, word, position + 1)
        if kind != "space":
            tokens.append(token)
        depth += token.nesting
        if not 0 <= depth <= MAX_DEPTH:
            advice = f"close what is open, at most {MAX_DEPTH} deep"
            raise refused(repr(word), position + 1, advice)
        position = match.end()
    if depth:
        raise ConfigError(
            "expected every parenthesis of the formula closed, found one open"
            ": close it, or remove it"
        )
    return tokens


def refused(found: str, position: int, advice: str) -> ConfigError:
    """Return the error for text that a formula may not contain."""
    return ConfigError(
        f"expected columns, numbers, operators and known functions in the formula, found {found} "
        f"at character {position}: {advice}"
    )


def _check_name(word: str, position: int) -> None:
    if unicodedata.normalize("NFKC", word) != word:
        raise refused(repr(word), position, "put a column of this name into backquotes")
    if word.startswith("__") or (keyword.iskeyword(word) and word not in ("True", "False")):
        raise refused(repr(word), position, "put a column of this name into backquotes")


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
    MISSING: {},
    **{name: {} for name in DATES},
}
"""The options of each function after its first argument, in order, with their kinds."""

OUTER: Final = frozenset({"poly", "bs", "cr", "cc", "C", "offset"})
"""Functions that may not stand inside others."""

_SMOOTH: Final = "write bs({column}, df=10) or cr({column}, df=10), of fixed degrees of freedom"
_ELSEWHERE: Final = {
    **dict.fromkeys(
        ("Treatment", "Sum", "Poly", "Helmert"), "it is a coding of a factor: C(column, {name})"
    ),
    "Diff": "write C({column}) or C({column}, contr.helmert)",
    "Q": "write a column name in backquotes, `{text}`",
    **dict.fromkeys(("standardize", "zscore", "rescale"), "write scale({column})"),
    **dict.fromkeys(("factor", "ordered", "categorical"), "write C({column})"),
    "trials": "write y ~ ..., with --trials {column} (in Python trials='{column}')",
    "cbind": "write {column} ~ ..., and --trials (in Python trials=) with the column of successes "
    "and failures together",
    "weights": "write y ~ ..., and --weight {column} (in Python weight='{column}')",
    "exposure": "write offset(log({column})) as a term",
    "rate": "write y ~ ... + offset(log({column}))",
    **dict.fromkeys(("ns", "rcs"), "write cr({column}, df=4)"),
    **dict.fromkeys(("s", "te", "ti", "t2", "lo", "smooth"), _SMOOTH),
    "pow": "write I({column} ** 2)",
    "ifelse": "write a comparison, I({column} > 0), which is 0 or 1",
    "cut": "write a comparison, I({column} > 0), or a column of levels into the table",
    "Surv": "write {column} ~ ..., and --censored (in Python censored=) with a column that is 1 "
    "where there was no event",
    "cens": "write y ~ ..., with --censored {column} (in Python censored='{column}')",
    "gp": "take the family gaussian-process, with its columns alone",
    **dict.fromkeys(("wday", "dayofweek"), "write weekday({column}), Monday is 0"),
}
"""Functions of R, patsy, bambi and brms, with the form to write instead."""

_CHOICES: Final = {"extrapolation": ("raise", "clip", "zero", "extend"), "constraints": ("center",)}
_LIMITS: Final = {"df": 1000, "degree": 20}


def parse_expression(tokens: list[Token]) -> Node:
    """Return the node of a column or of a call with its arguments."""
    start = tokens[0].position
    names: dict[str, Column] = {}
    source = []
    for index, (kind, text, position) in enumerate(tokens):
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if kind == "column" or (kind == "name" and text not in ("True", "False")):
            if kind == "name" and following == "(":
                _check_function(tokens, index)
            elif text.startswith("contr.") or (text in _CODINGS and _is_option(tokens, index)):
                pass
            elif kind == "column" or following != "=":
                names[f"_c{index}_"] = Column(text.strip("`"))
                text = f"_c{index}_"
        elif text in (":", "^", "~"):
            advice = "write powers as ** inside a function, and no interactions"
            raise refused(repr(text), position, advice)
        source.append(text.replace("contr.", "_contr_") if text.startswith("contr.") else text)
    try:
        body = ast.parse(" ".join(source), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        shown = " ".join(token.text for token in tokens)[:60]
        raise refused(repr(shown), start, "write a complete expression") from None
    return _Reader(names, start).expression(body)


def _check_function(tokens: list[Token], index: int) -> None:
    """Refuse a call of an unknown function; ``tokens[index]`` is the name of the function."""
    _, name, position = tokens[index]
    if name in FUNCTIONS or (name in _CODINGS and _is_option(tokens, index)):
        return
    near = get_close_matches(name, FUNCTIONS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(FUNCTIONS)}"
    if name in _ELSEWHERE:
        inside = tokens[2 if tokens[0].text == "C" and index > 2 else index + 2 :]
        column = next((each.text for each in inside if each.kind in ("name", "column")), "x")
        text = next((each.text for each in inside if each.kind == "string"), "'name'")
        hint = _ELSEWHERE[name].format(column=column, name=name, text=text.strip("'\""))
    raise refused(f"the function {name!r}", position, hint)


def _is_option(tokens: list[Token], index: int) -> bool:
    """Return whether a token is the second argument of C(), or its option ``contrasts``."""
    before = tokens[index - 1].text if index else ""
    return tokens[0].text == "C" and (before == "," or before == "=")


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
        by_option: dict[str, ast.expr] = {}
        if len(node.args) - 1 > len(kinds):
            raise self._refused(node)
        for option, value in zip(kinds, node.args[1:], strict=False):
            by_option[option] = value
        for word in node.keywords:
            if word.arg not in kinds or word.arg in by_option:
                raise self._option(node, name, str(word.arg), "an option of it, once")
            by_option[word.arg] = word.value
        argument = self.expression(node.args[0])
        if not columns_of(argument):
            raise self._refused(node)
        if (name in DATES or name == MISSING) and not isinstance(argument, Column):
            what = "a column of dates" if name in DATES else "a column"
            advice = f"give {name}() {what}, and nothing else"
            raise refused(repr(self.unparse(node)[:60]), self._position, advice)
        inner = [part for part in walk(argument) if isinstance(part, Call)]
        if any(part.function in OUTER for part in inner):
            raise self._refused(node)
        options = [
            (option, self._value(node, name, option, kinds[option], value))
            for option, value in by_option.items()
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
        if kind == "contrasts":
            inner, words, values = node, list[ast.keyword](), list[ast.expr]()
            if isinstance(node, ast.Call):
                inner, words = node.func, node.keywords
                values = [*node.args, *(each.value for each in words)]
            coding = self._coding(inner)
            named = all(each.arg in ("base", "reference") for each in words)
            if coding == "treatment" and named and len(values) <= 1:
                return tuple(self._level(item) for item in values)
            if coding in CODED and not values:
                return coding
        expected = {
            "flag": "True or False",
            "integer": f"a whole number from 0 to {_LIMITS.get(option)}",
            "text": " or ".join(map(repr, _CHOICES.get(option, ()))),
            "contrasts": "contr.treatment('level'), contr.sum, contr.helmert or contr.poly",
        }.get(kind, "a list of values")
        raise self._option(call, name, option, expected)

    def _coding(self, node: ast.expr) -> str | None:
        """Return the coding of a factor that a name stands for."""
        name = node.id if isinstance(node, ast.Name) else ""
        return _CODINGS.get(name.replace("_contr_", "contr.", 1))

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
            elif isinstance(part, ast.Name):
                part.id = part.id.replace("_contr_", "contr.", 1)
        return ast.unparse(copied)

    def _option(self, node: ast.Call, name: str, option: str, expected: str) -> ConfigError:
        return ConfigError(
            f"expected {expected} for {option!r} of {name}() in the formula, found "
            f"{self.unparse(node)[:80]!r}: see the how-to on formulas"
        )

    def _refused(self, node: ast.expr) -> ConfigError:
        found = repr(self.unparse(node)[:60])
        return refused(found, self._position, "use columns, numbers and known functions")


_BARS = ("|", "||")


class Term(NamedTuple):
    """A product of expressions, times a number."""

    factors: tuple[Node, ...]
    """Empty for the intercept."""
    scale: str

    @property
    def label(self) -> str:
        """Return the term as text; it is the name of its column, if it is one of numbers."""
        own = ":".join(map(label, self.factors))
        return own if self.scale == "1" else f"{self.scale}:{own}"


@dataclass(frozen=True)
class GroupTerms:
    """The random effects of one grouping column: an intercept, slopes, or both."""

    column: str
    slopes: tuple[Term, ...] = ()
    """Terms of the formula, each a column of the design once its levels are known."""
    correlated: bool = True
    """Of several effects, whether these are."""
    parts: tuple[str, ...] = ()
    """Columns of the table whose labels are combined, ``a:b``; empty: ``column`` itself."""
    intercept: bool = True

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Return the columns of the table with the labels."""
        return self.parts or (self.column,)

    @property
    def terms(self) -> tuple[str, ...]:
        """``("1", name)`` with the names of the slopes' columns of the design, or without 1."""
        return (*(("1",) * self.intercept), *(slope.label for slope in self.slopes))

    def of_columns(self, names: Iterable[str]) -> GroupTerms:
        """Return the same effects with the columns of their slopes, by name."""
        return replace(self, slopes=tuple(Term((Column(name),), "1") for name in names))

    def describe(self) -> dict[str, Any]:
        """Return column and terms as in the attribute ``groups`` of a store."""
        return {"column": self.column, "terms": list(self.terms), "correlated": self.correlated}


class _Bar(NamedTuple):
    """One ``(... | g)`` of a formula."""

    column: str
    intercept: bool
    slopes: list[Term]
    double: bool
    parts: tuple[str, ...]
    """Columns whose labels together are those of ``column``."""


def cut_groups(tokens: list[Token]) -> tuple[list[Token], tuple[GroupTerms, ...]]:
    """Return the tokens of a formula without its random effects, and those of each column."""
    rest: list[Token] = []
    bars: list[_Bar] = []
    index = 0
    while index < len(tokens):
        if tokens[index].text == "(" and (end := _end(tokens, index)):
            bars += _read(tokens[index + 1 : end])
            if not rest or rest[-1].text not in ("+", "~"):
                raise _misplaced(tokens[index])
            following = tokens[end + 1].text if end + 1 < len(tokens) else ""
            if following not in ("", "+", "-"):
                raise _misplaced(tokens[end + 1])
            alone = rest[-1].text == "~"
            if not alone:
                rest.pop()
            index = end + 1 + (alone and following == "+")
            continue
        if tokens[index].kind == "operator" and tokens[index].text in _BARS:
            if index + 1 < len(tokens) and tokens[index + 1].text in _ELSEWHERE:  # y | trials(n)
                _check_function(tokens[index + 1 :], 0)
            raise _misplaced(tokens[index])
        rest.append(tokens[index])
        index += 1
    if bars and rest[-1].text == "~":
        rest.append(Token("number", "1", rest[-1].position))
    columns = dict.fromkeys(bar.column for bar in bars)
    return rest, tuple(_combine([bar for bar in bars if bar.column == name]) for name in columns)


def _end(tokens: list[Token], start: int) -> int:
    """Return the index of the end of the parenthesis at ``start`` if it has a bar, else 0."""
    depth, has_bar = 0, False
    for index in range(start, len(tokens)):
        kind, text, _ = tokens[index]
        if kind == "operator":
            depth += (text in "([") - (text in ")]")
            has_bar |= depth == 1 and text in _BARS
        if depth == 0:
            return index if has_bar else 0
    return 0


def _read(tokens: list[Token]) -> list[_Bar]:
    """Return the effects and the column of the text between the parentheses.

    ``a:b`` is one column of combined labels, ``a/b`` stands for ``a`` and ``a:b``.
    """
    middle = next(i for i, token in enumerate(tokens) if token.text in _BARS)
    right = tokens[middle + 1 :]
    names, between = right[::2], {token.text for token in right[1::2]}
    if len(right) % 2 == 0 or len(between) > 1 or not between <= {":", "/"} or any(
        token.kind not in ("name", "column") for token in names
    ):  # fmt: skip
        shown = " ".join(token.text for token in right)[:60]
        raise ConfigError(
            f"expected one column of labels right of '|' in the formula, found {shown!r}: name a "
            "column, or factors as a:b, combined labels, or a/b, those of b within a"
        )
    parts = [token.text.strip("`") for token in names]
    if between and any(":" in part for part in parts):
        raise ConfigError(
            f"expected columns without ':' in their names in a combined factor, found "
            f"{next(part for part in parts if ':' in part)!r}: rename it"
        )
    combined = [parts[: k + 1] for k in range(len(parts))] if between == {"/"} else [parts]
    intercept, slopes = _left(tokens[:middle], tokens[middle].position)
    double = tokens[middle].text == "||"
    return [_Bar(":".join(own), intercept, slopes, double, tuple(own)) for own in combined]


def _left(tokens: list[Token], position: int) -> tuple[bool, list[Term]]:
    """Return whether effects have an intercept, and their slopes, of the text left of a bar."""
    plain: list[Term] = []
    intercept, sums = True, True
    for part in _summands(tokens):
        text = " ".join(token.text for token in part)
        if not part:
            raise refused(repr(text), position, "write groups as (1 + x | g)")
        if text in ("0", "1"):
            intercept = text == "1"
        elif len(part) == 1 or (part[1].text == "(" and _closing(part, 1) == len(part) - 1):
            node = parse_expression(part)
            if not isinstance(node, (Column, Call)):
                raise refused(repr(text), position, "write groups as (1 + x | g)")
            plain.append(Term((node,), "1"))
        else:
            sums = False
    if sums:
        return intercept, plain
    nodes: dict[Node, str] = {}
    pieces = " ".join(_placeholders(tokens, nodes))
    by_name = {name: node for node, name in nodes.items()}
    text = " ".join(token.text for token in tokens)
    terms = [_term(each, by_name) for each in _parse(f"v_ ~ {pieces}", text).rhs]
    return any(not each.factors for each in terms), [each for each in terms if each.factors]


def _summands(tokens: list[Token]) -> list[list[Token]]:
    """Return the tokens between the plus signs outside of parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.nesting
        if token.text == "+" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _combine(bars: list[_Bar]) -> GroupTerms:
    """Return the effects of one grouping column."""
    column = bars[0].column
    slopes = [slope for bar in bars for slope in bar.slopes]
    twice = next((slope for slope in slopes if slopes.count(slope) > 1), None)
    intercepts = sum(bar.intercept for bar in bars)
    if intercepts > 1 or twice is not None:
        what = "intercept" if twice is None else f"slope of {twice.label!r}"
        slope = slopes[0].label if slopes else "x"
        raise ConfigError(
            f"expected one random {what} of {column!r} in the formula, found several: "
            f"write (1 | {column}), (1 + {slope} | {column}), or "
            f"(1 + {slope} || {column}) for an uncorrelated slope"
        )
    if not intercepts and not slopes:
        raise ConfigError(
            f"expected a random intercept or slopes of {column!r} in the formula, found neither: "
            f"write (1 | {column}), or (1 + x | {column})"
        )
    joint = [bar for bar in bars if len(bar.slopes) + bar.intercept > 1 and not bar.double]
    if len(bars) > 1 and joint:
        raise ConfigError(
            f"expected all effects of {column!r} correlated, in one term, or none of them, found "
            f"some correlated beside others: write (1 + {slopes[0].label} + ... | {column}), or "
            f"|| in place of |"
        )
    correlated = len(bars) == 1 and not (slopes and bars[0].double)
    parts = bars[0].parts if len(bars[0].parts) > 1 else ()
    return GroupTerms(column, tuple(slopes), correlated, parts, bool(intercepts))


def _misplaced(token: Token) -> ConfigError:
    advice = "write groups in parentheses as a term of their own, y ~ x + (1 | g)"
    return refused(repr(token.text), token.position, advice)


_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def with_placeholders(text: object, nodes: dict[Node, str]) -> list[str]:
    """Return the tokens of a formula with a placeholder for each column and call."""
    tokens, _ = cut_groups(tokenize(text))
    if not tokens:
        raise ConfigError(
            "expected a formula 'response ~ terms', found an empty one: write one such as 'y ~ x'"
        )
    return _placeholders(tokens, nodes)


def _placeholders(tokens: list[Token], nodes: dict[Node, str]) -> list[str]:
    """Return tokens with a placeholder for each column and call."""
    pieces: list[str] = []
    index = 0
    while index < len(tokens):
        kind, word, position = tokens[index]
        end = index + 1
        if kind in ("name", "column"):
            if pieces and pieces[-1] in nodes.values():
                advice, last = "write an operator such as + before it", tokens[index - 1]
                if kind == last.kind == "name":
                    name = f"`{last.text} {word}`"
                    advice += f", or one column whose name has spaces in backquotes: {name}"
                raise refused(repr(word), position, advice)
            if kind == "name" and end < len(tokens) and tokens[end].text == "(":
                end = _closing(tokens, end) + 1
            node = parse_expression(tokens[index:end])
            if isinstance(node, (Column, Call)):
                word = nodes.setdefault(node, f"v{len(nodes)}_")
            else:
                raise refused(repr(word), position, "write a calculation as I(...)")
        elif kind == "string" or word in (",", "=", "<", ">", "<=", ">=", "==", "!=", "[", "]"):
            advice = _outside(tokens, index)
            if word == "=" and all(token.text != "~" for token in tokens):
                advice = "write '~' between the response and the terms"
            raise refused(repr(word), position, advice)
        elif kind == "number" and not _DECIMAL.fullmatch(word):
            raise refused(repr(word), position, "write it without an exponent")
        pieces.append("**" if word == "^" else word)
        index = end
    return pieces


def _outside(tokens: list[Token], index: int) -> str:
    """Return the advice about an operator of calculations outside of a function."""
    if tokens[index].text not in ("<", ">", "<=", ">=", "==", "!="):
        return "combine only terms outside of a function"
    ends = [k for k, token in enumerate(tokens) if token.text in ("~", "+")]
    first = max((k + 1 for k in ends if k < index), default=0)
    last = min((k for k in ends if k > index), default=len(tokens))
    return f"write a comparison as I({' '.join(token.text for token in tokens[first:last])})"


def _closing(tokens: list[Token], start: int) -> int:
    """Return the index of the parenthesis that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    raise AssertionError("the tokens were checked")


_MOST: Final = 200
"""Terms of the longest sum that is expanded here."""


def summed(pieces: Sequence[str], names: Collection[str]) -> tuple[str, list[str]] | None:
    """Return the placeholder left of ``~`` and those of a sum right of it, else ``None``.

    The sum has an intercept; ``1 +`` may say so.
    """
    right = list(pieces[2:])
    if right[:2] == ["1", "+"]:
        right = right[2:]
    parts = right[::2]
    plain = (
        len(pieces) > 2
        and pieces[1] == "~"
        and pieces[0] in names
        and len(right) % 2 == 1
        and len(parts) <= _MOST
        and all(piece == "+" for piece in right[1::2])
        and all(part in names for part in parts)
    )
    return (pieces[0], list(dict.fromkeys(parts))) if plain else None


MAX_COLUMNS: Final = 4096
"""Largest number of columns of one formula."""


_MAX_TERMS: Final = 5000


@dataclass(frozen=True)
class Terms:
    """A formula expanded into its response, offsets and terms."""

    text: str
    response: Node
    offsets: tuple[Call, ...]
    terms: tuple[Term, ...]
    groups: tuple[GroupTerms, ...] = ()
    """The random effects of each grouping column; they are no terms."""

    @property
    def intercept(self) -> bool:
        """Whether the formula has an intercept."""
        return any(not term.factors for term in self.terms)

    @property
    def factors(self) -> list[Node]:
        """The different expressions of the right side."""
        return list(dict.fromkeys(factor for term in self.terms for factor in term.factors))

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are needed to encode the right side."""
        nodes = [*self.factors, *self.offsets]
        return list(dict.fromkeys(name for node in nodes for name in columns_of(node)))


def read_nodes(text: object) -> list[Node]:
    """Check the columns and calls of a formula and return them, without expanding its terms."""
    nodes: dict[Node, str] = {}
    with_placeholders(text, nodes)
    return list(nodes)


def read_groups(text: object) -> tuple[GroupTerms, ...]:
    """Return the random effects of a formula, of each grouping column."""
    return cut_groups(tokenize(text))[1]


def read_terms(text: object) -> Terms:
    """Check a formula and expand it into terms."""
    nodes: dict[Node, str] = {}
    pieces = with_placeholders(text, nodes)
    assert isinstance(text, str)
    if pieces.count("~") != 1 or pieces[0] == "~" or pieces[-1] == "~":
        raise ConfigError(
            f"expected a formula 'response ~ terms', found {text[:60]!r}: write one response left "
            "of one '~', and the terms right of it (1 for the intercept alone)"
        )
    by_name = {name: node for node, name in nodes.items()}
    plain = summed(pieces, by_name)
    if plain is not None:
        left, *sum_ = [Term((by_name[name],), "1") for name in (plain[0], *plain[1])]
        return _terms_of(text, [left], [Term((), "1"), *sum_])
    formula = _parse(" ".join(pieces), text)
    right = [_term(term, by_name) for term in formula.rhs]
    return _terms_of(text, [_term(term, by_name) for term in formula.lhs], right)


def _terms_of(text: str, left: list[Term], right: list[Term]) -> Terms:
    """Return both sides of a formula as :class:`Terms`; refuse what is not one model."""
    if len(left) != 1 or len(left[0].factors) != 1 or left[0].scale != "1":
        raise ConfigError(
            f"expected one response left of '~', found {text.split('~')[0].strip()[:60]!r}: "
            "write a calculation as I(...)"
        )
    offsets, terms = [], []
    for term in right:
        special = [
            node for node in term.factors if isinstance(node, Call) and node.function == "offset"
        ]
        if special and (len(term.factors) > 1 or term.scale != "1"):
            raise ConfigError(
                "expected offset(...) as a term of its own, found it in a product"
                ": write it as + offset(...)"
            )
        if special:
            offsets.append(special[0])
        else:
            terms.append(term)
    if not terms:
        raise ConfigError(
            "expected at least one term or the intercept right of '~', found none"
            ": add a term, or 1 for the intercept alone"
        )
    groups = read_groups(text)
    whole = Terms(text, left[0].factors[0], tuple(offsets), tuple(terms), groups)
    _check_response_and_names(whole)
    return whole


def refuse_powers(text: str) -> None:
    """Refuse ``x ** 2`` as a term: formula algebra reduces it to ``x``.

    Only new formulas are refused; stores that already have such a formula are still read.
    """
    tokens, depth = tokenize(text), 0
    for before, here, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        depth += (before.text == "(") - (before.text == ")")
        lone = before.kind in ("name", "column") and after.kind == "number" and depth == 0
        if lone and here.text in ("**", "^"):
            x, power = before.text, after.text
            advice = (
                f"a power of a term is the term itself; write I({x} ** {power}) or poly({x}, 2)"
            )
            raise refused(repr(here.text), here.position, advice)


@lru_cache(maxsize=16)
def _parse(source: str, text: str) -> Formula:
    """Return the terms of ``source``, the formula ``text`` with placeholders; nobody changes them.

    50 terms take 20 ms.
    """
    from formulaic import Formula
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(feature_flags={"twosided"})
    try:
        if _bound(parser.get_ast(source, context={})) > _MAX_TERMS:
            raise ConfigError(
                f"expected a formula of at most {_MAX_TERMS} terms, found more: leave out "
                "interactions, or write a lower power"
            )
        return Formula(source, _parser=parser)
    except RecursionError:
        raise ConfigError(
            "expected a formula of at most some hundred terms in a row, found more: put "
            "parentheses around groups of them"
        ) from None
    except (FormulaicError, ValueError, SyntaxError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"expected a formula that combines terms by + - : * / ** and ( ), found {text[:80]!r}: "
            "a number may only multiply a term, as in 2:x; write a product of columns with ':'"
        ) from None


def _bound(tree: Any) -> float:
    """Return an upper bound of the number of terms in the expansion of a syntax tree."""
    operator = getattr(tree, "operator", None)
    if operator is None:
        return 1
    sizes = [_bound(child) for child in tree.args]
    symbol = operator.symbol
    if symbol == "**" and len(sizes) == 2:
        power = str(tree.args[1])
        return float(min(sizes[0] ** int(power), 1e9)) if re.fullmatch("[0-9]{1,2}", power) else 1e9
    if symbol == ":":
        return prod(sizes)
    if symbol in ("*", "/"):
        return sum(sizes) + prod(sizes)
    return sum(sizes)


def _term(term: Any, by_name: dict[str, Node]) -> Term:
    nodes, scale = [], "1"
    for factor in term.factors:
        if factor.expr in by_name:
            nodes.append(by_name[factor.expr])
        else:
            scale = factor.expr
    return Term(tuple(nodes), scale)


def _check_response_and_names(terms: Terms) -> None:
    """Refuse a multi-column response, a response on both sides, and ambiguous names.

    A slope of the groups must also be a term.
    """
    response = terms.response
    slopes = [slope for groups in terms.groups for slope in groups.slopes]
    known = {(frozenset(each.factors), each.scale) for each in terms.terms}
    slope = next(
        (each for each in slopes if (frozenset(each.factors), each.scale) not in known), None
    )
    if slope is not None:
        raise ConfigError(
            f"expected the slope {slope.label!r} of the groups also as a term of the formula, "
            f"found none: add + {slope.label}"
        )
    if isinstance(response, Call) and response.function in OUTER:
        raise ConfigError(
            f"expected one number per row left of '~', found {label(response)!r}: "
            "write a column or a calculation"
        )
    own = columns_of(response)
    if len(own) == 1 and own[0] in terms.columns:
        raise ConfigError(
            f"expected the response only left of '~', found {own[0]!r} also right of it: "
            "leave it out there"
        )
    nodes: dict[str, Node] = {}
    numbers = {"1", *(term.scale for term in terms.terms)}
    for factor in [*terms.factors, *terms.offsets, response]:
        for node in walk(factor):
            if isinstance(node, (Call, Column)):
                name = label(node)
                if nodes.setdefault(name, node) != node or name in numbers:
                    raise ConfigError(
                        f"expected different names of columns and terms, found {name!r} as a "
                        "column and a term: rename the column"
                    )


_MAIN: Final = "--formula"


class Driven(NamedTuple):
    """The formula of a linear predictor."""

    parameter: str
    """Name of the parameter that it drives, its left side; empty: that of the response."""
    formula: str


def formula_of_all(formula: object, others: Sequence[str]) -> tuple[str, list[Driven]]:
    """Return the formula of the columns of several predictors, and the formula of each.

    Parameters
    ----------
    formula
        That of the response.
    others
        Formulas such as ``sigma ~ x``, each of a parameter.

    Raises
    ------
    ConfigError
        If a formula is wrong, has no intercept, offsets or groups; or drives no parameter of its
        own.
    """
    main = read_terms(formula)
    terms, driven = {_key(term): term for term in main.terms}, [Driven("", main.text)]
    _check_predictor(_MAIN, main)
    for text in others:
        left, tilde, _ = text.partition("~")
        name = left.strip()
        if not tilde or not name.isidentifier():
            raise ConfigError(
                f"expected --formula-for 'PARAMETER ~ terms', found {text[:60]!r}: write the name "
                "of a parameter left of '~', such as 'sigma ~ x'"
            )
        if any(name == each.parameter for each in driven):
            raise ConfigError(
                f"expected one formula for {name!r}, found two: leave out --formula-for "
                f"{text[:60]!r}, or write its terms into the other"
            )
        refuse_powers(text)
        own = read_terms(text)
        _check_predictor(f"--formula-for {text[:60]!r}", own)
        driven.append(Driven(name, own.text))
        for term in own.terms:
            terms.setdefault(_key(term), term)
    new = list(terms.values())[len(main.terms) :]
    more = [":".join(map(_written, term.factors)) for term in new]
    whole = " + ".join([main.text, *more])
    if {*map(_key, read_terms(whole).terms)} != {*terms}:
        raise ConfigError(
            f"expected terms that can be joined to {main.text[:60]!r}, found {more[0]!r}: write "
            "them into --formula too, or without numbers"
        )
    return whole, driven


def _key(term: Term) -> tuple[frozenset[Node], str]:
    """Return what a term is, in whatever order its factors are written."""
    return frozenset(term.factors), term.scale


def _check_predictor(where: str, terms: Terms) -> None:
    """Raise ConfigError unless a formula has an intercept, no groups, and in others no offset."""
    wrong = "" if terms.intercept else "no intercept"
    wrong = wrong or ("groups (1 | g)" if terms.groups else "")
    wrong = wrong or ("an offset" if terms.offsets and where != _MAIN else "")
    if wrong:
        raise ConfigError(
            f"expected an intercept and columns alone in formulas beside --formula-for, found "
            f"{wrong} in {where}: change it, or leave out --formula-for"
        )


def _written(node: Node) -> str:
    """Return an expression as a formula has it."""
    plain = not isinstance(node, Column) or node.name.isidentifier()
    return label(node) if plain else f"`{label(node)}`"
