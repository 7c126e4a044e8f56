"""Values of the expressions of a formula on a block of rows, by NumPy alone.

Splines and polynomials are computed from their fitted states (``state_fitters``). Nothing is
compiled or evaluated as Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Index, Matrix, Vector
from streammc.stores.formula.bases import BASES, State, basis, coding_matrix, extrapolation
from streammc.stores.formula.parser import (
    MISSING,
    Call,
    Column,
    Node,
    Number,
    Operation,
    Text,
    argument_of,
    coding_of,
    label,
    walk,
)
from streammc.stores.iso_words import DATES, date_number, iso_word

_ELEMENTWISE: Final[dict[str, Callable[[Vector], Vector]]] = {
    "log": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "I": lambda values: values,
    "offset": lambda values: values,
}
_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
    "negative": np.negative,
    "positive": np.positive,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


@dataclass(frozen=True)
class Codes:
    """A block of a text column: float64 codes (m,), whole numbers that index its values."""

    codes: Vector
    values: Sequence[str]
    """Values of the whole column."""


Values = Mapping[str, Vector | Codes]
Report = Callable[[str, str, NDArray[np.bool_], Any], None]
"""Called with the kind of fault, the column or term, the mask of bad rows, and their values."""


def filled(values: Values, stand_ins: Mapping[str, State]) -> Values:
    """Return values of columns with what stands for missing ones, and their ``missing(x)``.

    ``stand_ins`` has the ``value`` for each column that may have missing ones: a number, or the
    text of a level.
    """
    whole = dict(values)
    for name, state in stand_ins.items():
        column, value = values.get(name), state["value"]
        if column is None:
            continue
        gone = np.isnan(column.codes if isinstance(column, Codes) else column)
        if isinstance(column, Codes):
            words = column.values if value in column.values else [*column.values, value]
            whole[name] = Codes(np.where(gone, words.index(value), column.codes), words)
        else:
            whole[name] = np.where(gone, value, column)
        whole[_mask(name)] = gone.astype(np.float64)
    return whole


def _mask(name: str) -> str:
    """Return the key under which values have the missing ones of a column as 1."""
    return f"{MISSING}({name})"


def numbers(node: Node, values: Values, states: Mapping[str, State]) -> Vector:
    """Return the values (m,) of a numeric expression, which may be infinite or NaN.

    A constant expression has one value, without an axis.
    """
    if isinstance(node, Number):
        return np.float64(node.value)  # type: ignore[return-value]
    if isinstance(node, Column):
        column = values[node.name]
        assert not isinstance(column, Codes)
        return column
    if isinstance(node, Call) and node.function == MISSING:
        assert isinstance(node.argument, Column)
        gone, own = values.get(_mask(node.argument.name)), values[node.argument.name]
        if gone is None:  # of a value that was set
            gone = np.zeros_like(own.codes if isinstance(own, Codes) else own)
        assert not isinstance(gone, Codes)
        return gone
    if isinstance(node, Call) and node.function in DATES:
        assert isinstance(node.argument, Column)
        dates = values[node.argument.name]
        assert isinstance(dates, Codes)
        used, place = np.unique(dates.codes, return_inverse=True)
        words = [dates.values[int(code)] for code in used]
        return np.array([date_number(node.function, word) for word in words])[place]
    if isinstance(node, Call):
        inner = numbers(node.argument, values, states)
        if node.function in ("center", "scale"):
            state = states[node.label]
            inner = inner if state["center"] is None else inner - state["center"]
            return inner if state["scale"] is None else inner / state["scale"]
        return _ELEMENTWISE[node.function](inner)
    assert isinstance(node, Operation)
    left, right = node.arguments[0], node.arguments[-1]
    if isinstance(right, Text):
        assert isinstance(left, Column)
        text = values[left.name]
        assert isinstance(text, Codes)
        word = iso_word(right.value)
        wanted = [code for code, value in enumerate(text.values) if value == word]
        same = np.isin(text.codes, wanted)
        return (same if node.operator == "==" else ~same).astype(np.float64)
    sides = [numbers(child, values, states) for child in node.arguments]
    return np.asarray(_OPERATIONS[node.operator](*sides), np.float64)


def fields(node: Node, values: Values, states: Mapping[str, State], report: Report) -> Matrix:
    """Return the numeric fields or 0/1 levels of an expression, (fields, m) float64.

    Of a factor with another coding the columns of its contrasts follow the levels.

    Values that are not finite, outside the bounds of a spline or of an unknown level are
    reported.
    """
    state = states.get(label(node), {})
    if "levels" in state:
        return _indicators(node, values, states, report)
    if not isinstance(node, Call) or node.function not in BASES:
        return finite(node, values, states, report)[np.newaxis]
    x = finite(node.argument, values, states, report, node.label)
    if node.function != "poly" and extrapolation(node) == "raise":
        outside = (x < state["lower_bound"]) | (x > state["upper_bound"])
        report("values out of bounds", node.label, outside, x)
        x = np.clip(x, state["lower_bound"], state["upper_bound"])
    return basis(node, x, state)


def finite(
    node: Node, values: Values, states: Mapping[str, State], report: Report, name: str | None = None
) -> Vector:
    """Return the values (m,) of a numeric expression; report non-finite ones and make them 0.

    They are reported under ``name``; ``None`` for the label of the node.
    """
    with np.errstate(all="ignore"):
        results = numbers(node, values, states)
    bad = ~np.isfinite(results)
    if bad.any():
        report("undefined results", name or label(node), bad, results)
        results = np.where(bad, 0.0, results)
    return results


def _indicators(node: Node, values: Values, states: Mapping[str, State], report: Report) -> Matrix:
    """Return 0/1 rows, one per level of a factor (levels, m); report unseen levels."""
    index = level_index(node, values, states, report)
    matrix = np.zeros((len(states[label(node)]["levels"]), index.size))
    matrix[index, np.arange(index.size)] = 1.0
    coding = coding_of(node)
    if coding is None:
        return matrix
    return np.concatenate([matrix, coding_matrix(coding, len(matrix))[index].T])


def level_index(node: Node, values: Values, states: Mapping[str, State], report: Report) -> Index:
    """Return the number of the level of a factor in each row (m,); report unseen levels.

    Rows of unseen levels get the first level: their report becomes an error.
    """
    levels = states[label(node)]["levels"]
    inner = argument_of(node)
    column = values.get(inner.name) if isinstance(inner, Column) else None
    if isinstance(column, Codes):
        # Levels of an earlier version are as they were written.
        place = {iso_word(level): index for index, level in enumerate(levels)}
        table = np.array([place.get(value, -1) for value in column.values] or [-1])
        index = table[column.codes.astype(np.int64)]
        shown: Any = _TextByRow(column)
    else:
        shown = finite(inner, values, states, report, label(node))
        sorter = np.argsort(np.asarray(levels, np.float64), kind="stable")
        ordered = np.asarray(levels, np.float64)[sorter]
        place_in = np.minimum(np.searchsorted(ordered, shown), ordered.size - 1)
        index = np.where(ordered[place_in] == shown, sorter[place_in], -1)
    unseen = index < 0
    if unseen.any():
        report(
            "unseen levels", inner.name if isinstance(inner, Column) else label(node), unseen, shown
        )
    levels_of_rows: Index = np.maximum(index, 0)
    return levels_of_rows


class _TextByRow:
    """Text of a coded column by row, for examples in messages."""

    def __init__(self, column: Codes) -> None:
        self._column = column

    def __getitem__(self, position: int) -> str:
        return self._column.values[int(self._column.codes[position])]


def remembers(node: Node) -> bool:
    """Return whether an expression is a call with a numeric state."""
    if not isinstance(node, Call):
        return False
    if node.function == "poly":
        return not dict(node.options).get("raw", False)
    return node.function in ("center", "scale", "bs", "cr", "cc")


def fitted_parts(node: Node) -> list[Call]:
    """Return the calls inside an expression that have a numeric state, innermost first."""
    return [part for part in walk(node) if isinstance(part, Call) and remembers(part)]
