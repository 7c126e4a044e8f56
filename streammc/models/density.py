"""Links from log densities: the expression of a row becomes a compiled function with derivatives.

A log density is stated once, as text, in the response ``y``, the predictor ``eta`` and the shared
parameters:

    "0.5 * log(shape / (2 * pi * y**3)) - shape * (y / mu - 1)**2 / (2 * y)",  mu = "exp(eta)"

The text is parsed as Python and never evaluated: numbers, names, arithmetic, comparisons of the
response, conditional expressions and the functions below are all there is. Its first and second
derivatives are propagated through the expression by the chain rule, operation by operation (forward
mode, Griewank and Walther 2008, chapter 3); no term is rearranged, so that a stable statement has
stable derivatives. What expressions have in common is computed once, what only depends on shared
parameters once for all rows. The generated module is readable, and is kept beside the compiled code
that numba makes of it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.errors import ConfigError
from streammc.models.base import POSITIVE, REAL, Parameter
from streammc.numerics.dispatchers import cache_dir
from streammc.protocols import Matrix, Vector

Node = int
"""Place of an operation in a :class:`Graph`."""

MOST_CHARACTERS: Final = 4000
_MOST_DEPTH: Final = 60
_MOST_OPERATIONS: Final = 600
_DEEPEST: Final = 16
"""Operations inside each other in one line of a generated link."""
_CONSTANT, _INPUT = "constant", "input"


class Function(NamedTuple):
    """A function of an expression: its compiled form and its derivatives."""

    code: str
    """Source of a call, with the arguments as ``{0}`` and ``{1}``: sums, where it does not enclose
    them. Of a call with several values, and the place of one of them, it is written once."""
    module: str
    """Module that it is imported from; empty if it needs none."""
    first: Callable[..., Sequence[Node]] | None
    """Returns the first derivatives at ``(graph, arguments, value)``."""
    second: Callable[..., Sequence[Node]] | None
    """Returns the second derivatives: ``[aa]``, or ``[aa, ab, bb]``."""
    arguments: int = 1
    data: tuple[int, ...] = ()
    """Arguments that may not depend on parameters."""


@dataclass
class Graph:
    """Operations of an expression, each once, in the order of their evaluation."""

    operations: list[tuple[Any, ...]] = field(default_factory=list)
    _places: dict[tuple[Any, ...], Node] = field(default_factory=dict)

    def node(self, *operation: Any) -> Node:
        """Return the place of an operation, new if it is."""
        if operation not in self._places:
            self._places[operation] = len(self.operations)
            self.operations.append(operation)
        return self._places[operation]

    def number(self, value: float) -> Node:
        """Return a constant; ConfigError if float64 has no such number."""
        if math.isinf(value):
            raise ConfigError(
                "expected numbers below 1.8e308 in a log density and its derivatives, found a "
                "larger one: write smaller exponents and factors"
            )
        return self.node(_CONSTANT, float(value))

    def value(self, node: Node) -> float | None:
        """Return the value of a constant; ``None`` of anything else."""
        kind, first, *_ = self.operations[node]
        return first if kind == _CONSTANT else None

    def add(self, a: Node, b: Node) -> Node:
        """Return ``a + b``."""
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None:
            return self.number(x + y)
        if x == 0.0:
            return b
        return a if y == 0.0 else self.node("+", a, b)

    def subtract(self, a: Node, b: Node) -> Node:
        """Return ``a - b``."""
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None:
            return self.number(x - y)
        if y == 0.0:
            return a
        return self.negative(b) if x == 0.0 else self.node("-", a, b)

    def multiply(self, a: Node, b: Node) -> Node:
        """Return ``a * b``; a constant factor comes first."""
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None:
            return self.number(x * y)
        if 0.0 in (x, y):
            return self.number(0.0)
        if y is not None:
            a, b, x, y = b, a, y, None
        if x == 1.0:
            return b
        if x == -1.0:
            return self.negative(b)
        return self.node("*", a, b)

    def divide(self, a: Node, b: Node) -> Node:
        """Return ``a / b``."""
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None and y != 0.0:
            return self.number(x / y)
        kind, *arguments = self.operations[b]
        if kind == "exp":  # no quotient of two large numbers
            return self.multiply(a, self.call("exp", self.negative(arguments[0])))
        if x == 0.0:
            return a
        return a if y == 1.0 else self.node("/", a, b)

    def negative(self, a: Node) -> Node:
        """Return ``-a``."""
        x = self.value(a)
        if x is not None:
            return self.number(-x)
        kind, *arguments = self.operations[a]
        return arguments[0] if kind == "negative" else self.node("negative", a)

    def power(self, a: Node, exponent: float) -> Node:
        """Return ``a ** exponent``."""
        x = self.value(a)
        if x is not None and (x > 0.0 or (exponent.is_integer() and exponent >= 0.0)):
            try:
                return self.number(x**exponent)
            except OverflowError:
                return self.number(math.inf)
        if exponent == 0.0:
            return self.number(1.0)
        kind, *arguments = self.operations[a]
        if kind == "exp":
            return self.call("exp", self.multiply(self.number(exponent), arguments[0]))
        if exponent == 2.0:
            return self.multiply(a, a)
        return a if exponent == 1.0 else self.node("**", a, exponent)

    def call(self, name: str, *arguments: Node) -> Node:
        """Return a function of nodes."""
        return self.node(name, *arguments)

    def choose(self, condition: Node, a: Node, b: Node) -> Node:
        """Return ``a if condition else b``."""
        return a if a == b else self.node("choose", condition, a, b)


def _logistic_slope(g: Graph, a: Sequence[Node], v: Node) -> Sequence[Node]:
    return [g.multiply(v, g.call("logistic", g.negative(a[0])))]


def _logistic_curve(g: Graph, a: Sequence[Node], v: Node) -> Sequence[Node]:
    other = g.call("logistic", g.negative(a[0]))
    return [g.multiply(g.multiply(v, other), g.subtract(other, v))]


def _softplus_curve(g: Graph, a: Sequence[Node], _: Node) -> Sequence[Node]:
    return [g.multiply(g.call("logistic", a[0]), g.call("logistic", g.negative(a[0])))]


def _log_add_exp_slope(g: Graph, a: Sequence[Node], _: Node) -> Sequence[Node]:
    apart = g.subtract(a[0], a[1])
    return [g.call("logistic", apart), g.call("logistic", g.negative(apart))]


def _log_add_exp_curve(g: Graph, a: Sequence[Node], v: Node) -> Sequence[Node]:
    one, other = _log_add_exp_slope(g, a, v)
    both = g.multiply(one, other)
    return [both, g.negative(both), both]


def _log1mexp_slope(g: Graph, a: Sequence[Node], _: Node) -> Sequence[Node]:
    return [g.negative(_inverse(g, g.call("expm1", g.negative(a[0]))))]


def _log1mexp_curve(g: Graph, a: Sequence[Node], v: Node) -> Sequence[Node]:
    (slope,) = _log1mexp_slope(g, a, v)
    return [g.multiply(slope, g.subtract(g.number(1.0), slope))]


def _inverse(g: Graph, a: Node) -> Node:
    return g.divide(g.number(1.0), a)


def _square(g: Graph, a: Node) -> Node:
    return g.multiply(a, a)


_SPECIAL: Final = "streammc.numerics.special"
_SUMS: Final = "streammc.numerics.log_sums"
_TWEEDIE: Final = "streammc.numerics.tweedie_series"
FUNCTIONS: Final[dict[str, Function]] = {
    "exp": Function("exp({0})", _SPECIAL, lambda g, a, v: [v], lambda g, a, v: [v]),
    "log": Function(
        "log_of({0})",
        _SUMS,
        lambda g, a, v: [_inverse(g, a[0])],
        lambda g, a, v: [g.negative(_square(g, _inverse(g, a[0])))],
    ),
    "log1p": Function(
        "math.log1p({0})",
        "math",
        lambda g, a, v: [_inverse(g, g.add(g.number(1.0), a[0]))],
        lambda g, a, v: [g.negative(_square(g, _inverse(g, g.add(g.number(1.0), a[0]))))],
    ),
    "expm1": Function(
        "math.expm1({0})",
        "math",
        lambda g, a, v: [g.call("exp", a[0])],
        lambda g, a, v: [g.call("exp", a[0])],
    ),
    "sqrt": Function(
        "math.sqrt({0})",
        "math",
        lambda g, a, v: [g.divide(g.number(0.5), v)],
        lambda g, a, v: [g.divide(g.number(-0.25), g.multiply(v, a[0]))],
    ),
    "log1pexp": Function(
        "log1pexp({0})",
        _SUMS,
        lambda g, a, v: [g.call("logistic", a[0])],
        _softplus_curve,
    ),
    "logistic": Function("logistic({0})", _SUMS, _logistic_slope, _logistic_curve),
    "log_add_exp": Function(
        "log_add_exp({0}, {1})", _SUMS, _log_add_exp_slope, _log_add_exp_curve, 2
    ),
    "log1mexp": Function("log1mexp({0})", _SUMS, _log1mexp_slope, _log1mexp_curve),
    "log_ndtr": Function(
        "log_ndtr({0})",
        _SPECIAL,
        lambda g, a, v: [g.call("mills", a[0])],
        lambda g, a, v: [g.call("mills_slope", a[0])],
    ),
    "mills": Function("log_ndtr_parts({0})[1]", _SPECIAL, None, None),
    "mills_slope": Function("log_ndtr_parts({0})[2]", _SPECIAL, None, None),
    "excess": Function(
        "(math.expm1({0}) - ({0}))",
        "math",
        lambda g, a, v: [g.call("expm1", a[0])],
        lambda g, a, v: [g.call("exp", a[0])],
    ),
    "log_gamma": Function(
        "log_gamma({0})",
        _SPECIAL,
        lambda g, a, v: [g.call("digamma", a[0])],
        lambda g, a, v: [g.call("trigamma", a[0])],
    ),
    "digamma": Function("digamma({0})", _SPECIAL, lambda g, a, v: [g.call("trigamma", a[0])], None),
    "trigamma": Function("trigamma({0})", _SPECIAL, None, None),
    "log_gamma_ratio": Function(
        "log_gamma_ratio({0}, {1})",
        _SPECIAL,
        lambda g, a, v: [g.call("digamma_difference", *a), g.number(0.0)],
        lambda g, a, v: [g.call("trigamma_difference", *a), g.number(0.0), g.number(0.0)],
        2,
        (1,),
    ),
    "digamma_difference": Function("digamma_difference({0}, {1})", _SPECIAL, None, None, 2, (1,)),
    "trigamma_difference": Function("trigamma_difference({0}, {1})", _SPECIAL, None, None, 2, (1,)),
    "log_tweedie": Function(
        "tweedie_parts({0}, {1})[0]",
        _TWEEDIE,
        lambda g, a, v: [g.call(f"tweedie_{k}", *a) for k in "12"],
        lambda g, a, v: [g.call(f"tweedie_{k}", *a) for k in "345"],
        2,
    ),
    **{
        f"tweedie_{k}": Function(f"tweedie_parts({{0}}, {{1}})[{k}]", _TWEEDIE, None, None, 2)
        for k in range(1, 6)
    },
    "floor": Function("float(math.floor({0}))", "math", None, None, 1, (0,)),
    "abs": Function("math.fabs({0})", "math", None, None, 1, (0,)),
    "log_factorial": Function("log_factorial({0})", _SPECIAL, None, None, 1, (0,)),
    "within": Function(
        "within({0}, {1})",
        _SPECIAL,
        lambda g, a, v: [g.number(1.0), g.number(0.0)],
        lambda g, a, v: [g.number(0.0)] * 3,
        2,
        (1,),
    ),
}
"""Functions of an expression by name; ``log_gamma_ratio(a, y)`` is ``log Gamma(a + y) - log
Gamma(a)``, ``excess(x)`` is ``exp(x) - 1 - x``, ``log_ndtr`` the log of the normal distribution
function, ``log_tweedie(log_xi, logit_power)`` the log density of a Tweedie variable at its mean 1,
and ``within(x, c)`` clips values to ``[-c, c]`` and not derivatives."""

NAMES: Final = {"pi": math.pi}
_HIDDEN: Final = {
    "digamma_difference", "trigamma_difference", "mills", "mills_slope",
    *(f"tweedie_{k}" for k in range(1, 6)),
}  # fmt: skip
_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_LARGEST: Final = sys.float_info.max
_MOST: Final = 300.0
"""Logarithms of positive parameters are clipped to it, either way, in exponentials: the squares of
these are neither infinite nor 0."""


def checked_text(text: object, what: str) -> str:
    """Return an expression that is text of a length that is read; ConfigError otherwise."""
    if isinstance(text, str) and 0 < len(text) <= MOST_CHARACTERS:
        return text
    found = f"{len(text)} characters" if isinstance(text, str) else f"{text!r:.60}"
    raise ConfigError(
        f"expected the {what} as text of 1 to {MOST_CHARACTERS} characters, found {found}: write "
        "an expression of that length"
    )


class Statement:
    """The graph of an expression over the predictors of a row, with its derivatives.

    Parameters
    ----------
    text
        The expression.
    parameters
        Those of the model: coefficients stand for ``eta``, any later ones for ``eta_NAME``; shared
        ones for their names, of which positive ones are sampled as their logarithm.
    where
        Further names, each with its expression in those before it.
    what
        What the expression is called in messages.
    log_survival
        ``log P(y > t)``, likewise, at ``y = t``: for rows whose response is ``-t``, a time that is
        censored. ``None``: there are no such rows.

    Raises
    ------
    ConfigError
        If the text is no expression of these names and functions; nothing of it is evaluated.
    """

    def __init__(
        self,
        text: str,
        parameters: Sequence[Parameter],
        where: Mapping[str, str] | None = None,
        what: str = "log density",
        log_survival: str | None = None,
    ) -> None:
        self.graph = Graph()
        self.what = what
        self.inputs: list[str] = []
        """Names of the predictors, in the order of the rows of ``eta``."""
        self._names: dict[str, Node] = {}
        self._logarithms: dict[Node, Node] = {}
        self._add_parameters(parameters)
        response = self.graph.node(_INPUT, "y[i]")
        self._name("y", response if log_survival is None else self.graph.call("abs", response))
        for name, each in (where or {}).items():
            self._name(name, self._parsed(each))
        self.value = self._parsed(text)
        if len(self.graph.operations) > _MOST_OPERATIONS:
            raise ConfigError(
                f"expected a {self.what} of at most {_MOST_OPERATIONS} operations, found "
                f"{len(self.graph.operations)}: write a shorter one, or the link as a function"
            )
        if log_survival is not None:
            event = self.graph.node("compare", ">", response, self.graph.number(0.0))
            self.value = self.graph.choose(event, self.value, self._parsed(log_survival))
        self._depends = self.dependencies()

    def _add_parameters(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            if parameter.components or (parameter.per_feature and not parameter.n_linear):
                raise ConfigError(
                    f"expected coefficients and shared parameters of one number, found "
                    f"{parameter.name!r} with several: write the link as a function"
                )
            linear = bool(parameter.n_linear)
            name = parameter.name if not linear else f"eta_{parameter.name}" * bool(self.inputs)
            name = name or "eta"
            raw = self.graph.node(_INPUT, f"eta[{len(self.inputs)}, i]")
            self.inputs.append(name)
            if linear or parameter.support == REAL:
                self._name(name, raw)
            elif parameter.support == POSITIVE:
                bounded = self.graph.call("within", raw, self.graph.number(_MOST))
                value = self.graph.call("exp", bounded)
                self._logarithms[value] = raw
                self._name(name, value)
            else:
                raise ConfigError(
                    f"expected a parameter that is {REAL} or {POSITIVE}, found {name!r}, "
                    f"{parameter.support}: write the link as a function"
                )

    def _name(self, name: str, node: Node) -> None:
        if name in self._names or name in NAMES or name in FUNCTIONS or not name.isidentifier():
            raise ConfigError(
                f"expected a new name in the {self.what}, found {name!r}: choose another"
            )
        self._names[name] = node

    def _parsed(self, text: object) -> Node:
        text = checked_text(text, self.what)
        try:
            body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._refused(text, "it is no complete expression, correct it") from None
        return self._read(body, 0)

    def _read(self, node: ast.expr, depth: int) -> Node:
        """Return the node of a part of a syntax tree; refuse what is not in the allow-list."""
        g = self.graph
        if depth > _MOST_DEPTH:
            raise self._refused(
                ast.unparse(node),
                f"it is nested over {_MOST_DEPTH} deep, name parts of it in where",
            )

        def read(part: ast.expr) -> Node:
            return self._read(part, depth + 1)

        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() as value) if abs(value) <= _LARGEST:
                return g.number(float(value))
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Name(id=name) if name in NAMES:
                return g.number(NAMES[name])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return g.negative(read(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return read(operand)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return g.add(read(left), read(right))
            case ast.BinOp(op=ast.Sub(), left=left, right=right):
                return g.subtract(read(left), read(right))
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                return g.multiply(read(left), read(right))
            case ast.BinOp(op=ast.Div(), left=left, right=right):
                return g.divide(read(left), read(right))
            case ast.BinOp(op=ast.Pow(), left=left, right=right):
                base, exponent = read(left), read(right)
                power = g.value(exponent)
                if power is not None:
                    return g.power(base, power)
                return g.call("exp", g.multiply(exponent, self._log(base)))
            case ast.IfExp(test=ast.Compare(ops=[op]) as test, body=body, orelse=orelse):
                sides = read(test.left), read(test.comparators[0])
                if type(op) in _COMPARISONS and not any(map(self._of_parameters, sides)):
                    condition = g.node("compare", _COMPARISONS[type(op)], *sides)
                    return g.choose(condition, read(body), read(orelse))
                raise self._refused(
                    ast.unparse(test),
                    "a condition compares the response with numbers, write another",
                )
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if (
                name in FUNCTIONS and name not in _HIDDEN
            ):
                function = FUNCTIONS[name]
                if len(arguments) == function.arguments:
                    nodes = [read(each) for each in arguments]
                    if any(self._of_parameters(nodes[k]) for k in function.data):
                        place = f"argument {function.data[0] + 1} of {name}()"
                        raise self._refused(
                            ast.unparse(node), f"{place} is of the response alone, write another"
                        )
                    return self._log(nodes[0]) if name == "log" else g.call(name, *nodes)
            case _:
                pass
        names = ", ".join(name for name in self._names)
        functions = ", ".join(name for name in FUNCTIONS if name not in _HIDDEN)
        raise self._refused(
            ast.unparse(node), f"write it with {names}, numbers and the functions {functions}"
        )

    def _log(self, node: Node) -> Node:
        """Return the logarithm of a node: of a positive parameter what is sampled."""
        if node in self._logarithms:
            return self._logarithms[node]
        kind, *arguments = self.graph.operations[node]
        if kind == "exp":
            return int(arguments[0])
        value = self.graph.value(node)
        if value is not None and value > 0.0:
            return self.graph.number(math.log(value))
        return self.graph.call("log", node)

    def _refused(self, text: str, advice: str) -> ConfigError:
        return ConfigError(
            f"expected a {self.what} of known names and functions, found {text[:60]!r}: {advice}"
        )

    def has_response(self) -> bool:
        """Return whether the expression depends on the response."""
        response = self.graph.node(_INPUT, "y[i]")
        return response in self._needed([self.value])

    def _of_parameters(self, node: Node) -> bool:
        """Return whether a node depends on a predictor."""
        return bool(self.dependencies()[node])

    def _arguments(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that an operation is of."""
        kind, *arguments = self.graph.operations[node]
        if kind in (_CONSTANT, _INPUT):
            return ()
        if kind == "**":
            return (arguments[0],)
        return tuple(arguments[1:] if kind == "compare" else arguments)

    def dependencies(self) -> list[frozenset[int]]:
        """Return the predictors that each node depends on."""
        found: list[frozenset[int]] = []
        for node, (kind, *arguments) in enumerate(self.graph.operations):
            own: frozenset[int] = frozenset()
            if kind == _INPUT and arguments[0].startswith("eta"):
                own = frozenset([int(arguments[0][4:].partition(",")[0])])
            found.append(own.union(*(found[each] for each in self._arguments(node))))
        return found

    def derivatives(self) -> tuple[list[Node], list[Node]]:
        """Return the nodes of the gradient (p) and of the upper triangle of the Hessian."""
        g, p = self.graph, len(self.inputs)
        zero = g.number(0.0)
        slopes: dict[Node, dict[int, Node]] = {}
        curves: dict[Node, dict[tuple[int, int], Node]] = {}
        for node in self._needed([self.value]):
            kind, *_ = g.operations[node]
            if kind == _INPUT or not self._depends[node]:
                own = self._depends[node] if kind == _INPUT else ()
                slopes[node] = {a: g.number(1.0) for a in own}
                curves[node] = {}
                continue
            arguments = self._arguments(node)
            if kind == "choose":
                condition, yes, no = arguments
                slopes[node] = {
                    a: g.choose(condition, slopes[yes].get(a, zero), slopes[no].get(a, zero))
                    for a in {*slopes[yes], *slopes[no]}
                }
                curves[node] = {
                    k: g.choose(condition, curves[yes].get(k, zero), curves[no].get(k, zero))
                    for k in {*curves[yes], *curves[no]}
                }
                continue
            first, second = self._partials(node)
            terms: dict[int, Node] = {}
            bends: dict[tuple[int, int], Node] = {}
            for outer, u in zip(first, arguments, strict=True):
                for a, slope in slopes[u].items():
                    terms[a] = g.add(terms.get(a, zero), g.multiply(outer, slope))
                for key, curve in curves[u].items():
                    bends[key] = g.add(bends.get(key, zero), g.multiply(outer, curve))
            for (j, k), outer in second.items():
                for a, left in slopes[arguments[j]].items():
                    for b, right in slopes[arguments[k]].items():
                        if j == k and a > b:
                            continue
                        part = g.multiply(g.multiply(outer, left), right)
                        part = g.multiply(g.number(1.0 + (j != k and a == b)), part)
                        key = (min(a, b), max(a, b))
                        bends[key] = g.add(bends.get(key, zero), part)
            slopes[node], curves[node] = terms, bends
        top = self.value
        gradient = [slopes[top].get(a, zero) for a in range(p)]
        hessian = [curves[top].get((a, b), zero) for a in range(p) for b in range(a, p)]
        self._depends = self.dependencies()
        return gradient, hessian

    def _partials(self, node: Node) -> tuple[Sequence[Node], dict[tuple[int, int], Node]]:
        """Return the first derivatives of an operation in its arguments, and the second."""
        g = self.graph
        kind, *arguments = g.operations[node]
        one = g.number(1.0)
        if kind == "+":
            return [one, one], {}
        if kind == "-":
            return [one, g.number(-1.0)], {}
        if kind == "negative":
            return [g.number(-1.0)], {}
        if kind == "*":
            a, b = arguments
            if a == b:
                # Both arguments are the same node: each has half of the derivative.
                return [a, a], {(0, 1): one}
            return [b, a], {(0, 1): one}
        if kind == "/":
            a, b = arguments
            inverse = _inverse(g, b)
            slope = g.negative(g.multiply(node, inverse))
            cross = g.negative(_square(g, inverse))
            curve = g.multiply(g.number(-2.0), g.multiply(slope, inverse))
            return [inverse, slope], {(0, 1): cross, (1, 1): curve}
        if kind == "**":
            a, c = arguments
            slope = g.multiply(g.number(c), g.power(a, c - 1.0))
            return [slope], {(0, 0): g.multiply(g.number(c * (c - 1.0)), g.power(a, c - 2.0))}
        function = FUNCTIONS[kind]
        if function.first is None or function.second is None:
            raise self._refused(
                kind, f"derivatives of {kind}() in parameters are not known, use another"
            )
        first = function.first(g, arguments, node)
        second = function.second(g, arguments, node)
        pairs = [(0, 0)] if function.arguments == 1 else [(0, 0), (0, 1), (1, 1)]
        return first, {
            pair: each for pair, each in zip(pairs, second, strict=True) if g.value(each) != 0.0
        }

    def _needed(self, tops: Sequence[Node]) -> list[Node]:
        """Return the nodes that ``tops`` are made of, in the order of their evaluation."""
        found: set[Node] = set()
        left = list(tops)
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += self._arguments(node)
        return sorted(found)

    def evaluate(self, eta: Matrix, y: Vector | None = None) -> Vector:
        """Return the values (m,) of the expression at predictors (p, m) and responses (m,)."""
        inputs: dict[str, Any] = {f"eta[{k}, i]": row for k, row in enumerate(eta)} | {"y[i]": y}
        found: dict[Node, Any] = {}
        with np.errstate(all="ignore"):
            for node in self._needed([self.value]):
                kind, *arguments = self.graph.operations[node]
                if kind == _CONSTANT:
                    found[node] = arguments[0]
                elif kind == _INPUT:
                    found[node] = inputs[arguments[0]]
                elif kind == "compare":
                    left, right = (found[each] for each in arguments[1:])
                    found[node] = COMPARISONS[arguments[0]](left, right)
                elif kind == "**":
                    found[node] = np.power(found[arguments[0]], arguments[1])
                else:
                    parts = [found[each] for each in arguments]
                    found[node] = (_ARITHMETIC.get(kind) or _numpy(kind))(*parts)
        size = eta.shape[1] if y is None else len(y)
        values: Vector = np.broadcast_to(np.asarray(found[self.value], np.float64), size).copy()
        return values

    def source(self, title: str) -> str:
        """Return the module with the compiled link: ``link(eta, X, y, constants, order, out)``."""
        gradient, hessian = self.derivatives()
        orders = [[self.value], [self.value, *gradient], [self.value, *gradient, *hessian]]
        loops = [_Loop(self, tops).lines() for tops in orders]
        kinds = {self.graph.operations[node][0] for node in self._needed(orders[2])}
        imported = {(_SPECIAL, "select")} if "choose" in kinds else set()
        for function in (FUNCTIONS[kind] for kind in kinds if kind in FUNCTIONS):
            if function.module != "math":
                imported.add((function.module, function.code.partition("(")[0]))
        body = []
        for order, lines in enumerate(loops):
            head = ("if order == 0:", "elif order == 1:", "else:")[order]
            body += [f"    {head}", *(f"        {line}" for line in lines)]
        text = [
            repr(title),  # of any text that a user states
            "",
            "import math",
            "",
            "from streammc.numerics.jit import LINK_SIGNATURE, jit",
        ]
        for module in sorted({module for module, _ in imported}):
            names = sorted(name for origin, name in imported if origin == module)
            text.append(f"from {module} import {', '.join(names)}")
        text += [
            "",
            "",
            "@jit(LINK_SIGNATURE, borrow=True)",
            "def link(eta, X, y, constants, order, out):",
            *body,
            "",
        ]
        return "\n".join(text)


_ARITHMETIC: Final[dict[str, Callable[..., Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "negative": np.negative,
    "choose": np.where,
}
COMPARISONS: Final[dict[str, Callable[..., Any]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_OPERATORS: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "negative": 3, "**": 4}


class _Loop:
    """Writer of a loop over rows that computes some nodes of a statement."""

    def __init__(self, statement: Statement, tops: Sequence[Node]) -> None:
        self._graph, self._tops = statement.graph, tops
        self._order = statement._needed(tops)
        self._statement = statement
        self._uses = dict.fromkeys(self._order, 0)
        for node in self._order:
            for each in statement._arguments(node):
                self._uses[each] += 1
        for node in tops:
            self._uses[node] += 1
        self._shared: set[Node] = set()
        self._shared.update(node for node in self._order if self._is_shared(node))
        self._written: dict[Node, str] = {}
        # A branch without a predictor would hide that it is NaN.
        choices = [
            self._graph.operations[node][2:]
            for node in self._order
            if self._graph.operations[node][0] == "choose"
        ]
        deep = statement.dependencies()
        self._may_miss_nan = any(0 not in deep[a] & deep[b] for a, b in choices)

    def _is_shared(self, node: Node) -> bool:
        """Return whether a node, of nodes before it, depends on shared parameters alone."""
        kind, *arguments = self._graph.operations[node]
        if kind != _INPUT:
            return all(each in self._shared for each in self._statement._arguments(node))
        if not arguments[0].startswith("eta["):
            return bool(arguments[0] != "y[i]")
        name = self._statement.inputs[int(arguments[0][4:].partition(",")[0])]
        return name != "eta" and not name.startswith("eta_")

    def lines(self) -> list[str]:
        """Return the lines of the loop."""
        operations = self._graph.operations
        used_by_rows = {
            each
            for node in self._order
            if node not in self._shared
            for each in self._statement._arguments(node)
        } | {*self._tops}
        costly = {node for node in self._shared if operations[node][0] not in (_CONSTANT, _INPUT)}
        kept = [node for node in self._order if node in costly and node in used_by_rows]
        once: list[str] = []
        rows: list[str] = []
        inputs = sorted(
            {
                operations[each][1]
                for node in kept
                for each in self._statement._needed([node])
                if operations[each][0] == _INPUT and operations[each][1].startswith("eta")
            }
        )
        depth = dict.fromkeys(self._order, 0)
        calls: dict[str, str] = {}  # of functions with several values, each once
        for node in self._order:
            shared = node in costly
            into = once if shared else rows
            parts = self._statement._arguments(node)
            depth[node] = 1 + max((depth[each] for each in parts), default=0)
            if operations[node][0] in (_CONSTANT, _INPUT, "compare"):
                continue
            kind = operations[node][0]
            several = kind in FUNCTIONS and FUNCTIONS[kind].code.endswith("]")
            named = self._uses[node] > 1 or node in kept or kind == "choose" or several
            if named or depth[node] > _DEEPEST:
                depth[node] = 0
                text = self._text(node)
                if several:
                    call, _, place = text.rpartition("[")
                    if call not in calls:
                        calls[call] = f"parts{node}"
                        into.append(f"{calls[call]} = {call}")
                    text = f"{calls[call]}[{place}"
                self._written[node] = f"t{node}"
                into.append(f"t{node} = {text}")
        lines = []
        if kept:
            lines.append(
                " = ".join(
                    [
                        *(f"t{node}" for node in sorted(costly & {*self._written})),
                        *(f"last{k}" for k in range(len(inputs))),
                    ]
                )
                + " = math.nan"
            )
        lines.append("for i in range(y.shape[0]):")
        if kept and inputs:
            test = " or ".join(f"{name} != last{k}" for k, name in enumerate(inputs))
            lines.append(f"    if {test}:")
            lines += [f"        last{k} = {name}" for k, name in enumerate(inputs)]
            lines += [f"        {line}" for line in once]
        else:
            lines = [*once, *lines[bool(kept) :]]
        lines += [f"    {line}" for line in rows]
        for row, node in enumerate(self._tops):
            text = self._text(node)
            if self._may_miss_nan:
                text = f"select(eta[0, i] == eta[0, i], {text}, math.nan)"
            lines.append(f"    out[{row}, i] = {text}")
        return lines

    def _text(self, node: Node, level: int = 0) -> str:
        """Return the source of a node, in parentheses inside an operation that binds more."""
        if node in self._written:
            return self._written[node]
        kind, *arguments = self._graph.operations[node]
        if kind == _CONSTANT:
            return f"({arguments[0]!r})" if arguments[0] < 0 and level else repr(arguments[0])
        if kind == _INPUT:
            return str(arguments[0])
        if kind == "compare":
            return f"{self._text(arguments[1])} {arguments[0]} {self._text(arguments[2])}"
        if kind == "choose":
            condition, yes, no = (self._text(each) for each in arguments)
            return f"select({condition}, {yes}, {no})"
        if kind in _OPERATORS:
            own = _OPERATORS[kind]
            if kind == "negative":
                text = f"-{self._text(arguments[0], own)}"
            elif kind == "**":
                text = f"{self._text(arguments[0], own + 1)} ** {arguments[1]!r}"
            else:
                left, right = self._text(arguments[0], own), self._text(arguments[1], own + 1)
                text = f"{left} {kind} {right}"
            return f"({text})" if own < level else text
        return FUNCTIONS[kind].code.format(*(self._text(each) for each in arguments))


def _numpy(name: str) -> Callable[..., Any]:
    """Return a function of an expression, of arrays."""
    from scipy import special

    def log_tweedie(log_xi: Vector, log_odds: Vector) -> Vector:
        from streammc.numerics import tweedie_series  # compiled for those alone that use it

        each = np.vectorize(tweedie_series.log_tweedie, otypes=[np.float64])
        values: Vector = each(log_xi, log_odds)
        return values

    own: dict[str, Callable[..., Any]] = {
        "log1pexp": lambda x: np.logaddexp(0.0, x),
        "logistic": special.expit,
        "log_add_exp": np.logaddexp,
        "log1mexp": lambda x: np.where(
            x > -math.log(2.0), np.log(-np.expm1(x)), np.log1p(-np.exp(x))
        ),
        "excess": lambda x: np.expm1(x) - x,
        "log_gamma": special.gammaln,
        "digamma": special.digamma,
        "trigamma": lambda x: special.polygamma(1, x),
        "log_gamma_ratio": lambda a, y: special.gammaln(a + y) - special.gammaln(a),
        "log_factorial": lambda y: special.gammaln(y + 1.0),
        "log_ndtr": special.log_ndtr,
        "log_tweedie": log_tweedie,
        "within": lambda x, bound: np.clip(x, -bound, bound),
    }
    found: Callable[..., Any] = own.get(name) or getattr(np, name)
    return found


def _module(source: str) -> Any:
    """Return a module with this source, written once beside the compiled code."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:20]
    name = f"streammc_link_{digest}"
    if name not in sys.modules:
        folder = Path(cache_dir()) / "links"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{name}.py"
        if not path.is_file() or path.read_text() != source:
            part = folder / f"{name}.{os.getpid()}.partial"
            part.write_text(source)
            part.replace(path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@cache
def link_of(
    log_density: str,
    parameters: tuple[Parameter, ...],
    where: tuple[tuple[str, str], ...],
    log_survival: str | None = None,
) -> Any:
    """Return the link of a log density; one object for each."""
    title = f"Link of the log density ``{log_density}``"
    if log_survival is not None:
        title += f", of a censored time ``{log_survival}``"
    title += "".join(f"; ``{name} = {text}``" for name, text in where)
    statement = Statement(log_density, parameters, dict(where), log_survival=log_survival)
    return _module(statement.source(f"{title}.")).link


@cache
def function_of(
    text: str,
    parameters: tuple[Parameter, ...],
    where: tuple[tuple[str, str], ...],
    what: str = "mean response",
) -> Callable[..., Vector]:
    """Return a function of predictors with the values of an expression, or of responses.

    Without ``parameters`` the expression is of the response alone, with them of anything else.
    """
    statement = Statement(text, parameters, dict(where), what=what)
    if parameters and statement.has_response():
        raise ConfigError(
            f"expected predictors and shared parameters in the {what}, found the response y in "
            f"{text[:60]!r}: write it without y"
        )
    return statement.evaluate


@cache
def predictors_in(
    text: str, parameters: tuple[Parameter, ...], where: tuple[tuple[str, str], ...]
) -> frozenset[int]:
    """Return the predictors that an expression depends on."""
    stated = Statement(text, parameters, dict(where), what="mean response")
    return stated.dependencies()[stated.value]


SIMULATORS: Final = {
    "beta": 2,
    "exponential": 1,
    "gamma": 2,
    "laplace": 2,
    "logistic": 2,
    "lognormal": 2,
    "negative_binomial": 2,
    "normal": 2,
    "poisson": 1,
    "standard_t": 1,
    "uniform": 2,
    "wald": 2,
    "weibull": 1,
}
"""Distributions of ``numpy.random.Generator`` that draw responses, with their numbers of
arguments."""


@cache
def condition_of(text: str) -> tuple[tuple[str, Callable[..., Vector], Callable[..., Vector]], ...]:
    """Return the comparisons of a condition of ``y``, all of which have to hold."""
    advice = "compare y with numbers, as in 'y > 0' or '0 < y < 1 and y == floor(y)'"
    error = ConfigError(f"expected a condition of the response y, found {text[:60]!r}: {advice}")
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise error from None
    parts = body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]
    found = []
    for part in parts:
        if not isinstance(part, ast.Compare):
            raise error
        sides = [ast.unparse(each) for each in (part.left, *part.comparators)]
        values = [function_of(each, (), (), "condition of the response") for each in sides]
        for op, left, right in zip(part.ops, values[:-1], values[1:], strict=True):
            if type(op) not in _COMPARISONS:
                raise error
            found.append((_COMPARISONS[type(op)], left, right))
    return tuple(found)


@cache
def draw_of(
    text: str, parameters: tuple[Parameter, ...], where: tuple[tuple[str, str], ...]
) -> Callable[[Matrix, np.random.Generator], Vector]:
    """Return a function of predictors (p, m) and a generator that draws responses (m,).

    The text is an expression of one distribution, ``exp(eta) * weibull(shape)``.
    """
    try:
        body: ast.AST = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = ast.Constant(None)
    found = [
        (node, node.func.id)
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and SIMULATORS.get(node.func.id) == len(node.args)
        and not node.keywords
    ]
    outside = ast.unparse(body) if len(found) != 1 else _without(body, found[0][0])
    if len(found) != 1 or re.search(r"\by\b", outside):
        known = ", ".join(f"{name} of {count}" for name, count in SIMULATORS.items())
        raise ConfigError(
            f"expected an expression of one distribution to draw responses from, found "
            f"{text[:60]!r}: write one of numpy's, with its number of arguments ({known})"
        )
    ((call, name),) = found
    what = f"argument of {name}()"
    numbers = [function_of(ast.unparse(node), parameters, where, what) for node in call.args]
    rest = outside.replace(_DRAWN, "y")  # the response is what was drawn
    of_drawn = Statement(rest, parameters, dict(where), what="simulated response").evaluate

    def draw(eta: Matrix, rng: np.random.Generator) -> Vector:
        drawn = getattr(rng, name)(*(each(eta) for each in numbers))
        return of_drawn(eta, np.asarray(drawn, np.float64))

    return draw


_DRAWN: Final = "__drawn__"


def _without(body: ast.AST, call: ast.Call) -> str:
    """Return an expression with a name in place of one of its calls."""

    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.Name(_DRAWN) if node is call else self.generic_visit(node)

    return ast.unparse(Replacer().visit(body))
