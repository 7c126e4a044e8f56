"""Fitters of a formula: statistics of the whole table, computed block by block.

Levels, bounds, means and standard deviations are exact; knots are quantiles of a seeded
uniform sample of the rows (all rows of a small table). An expression inside another is
fitted in an earlier pass over the table.
"""

from __future__ import annotations

from difflib import get_close_matches
from math import fsum, sqrt
from typing import Any, Final, Protocol

import numpy as np

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.formula.full_rank import MAX_COLUMNS
from streammc.stores.formula.nodes import Call, Node, label, walk
from streammc.stores.formula.values import Level, State, as_matrix, level_of, transform
from streammc.stores.ingest.exact_values import Coder
from streammc.stores.ingest.moments import Moments
from streammc.stores.ingest.reservoir import Sample
from streammc.stores.ingest.table_blocks import block_rows

# Squared norm of a polynomial relative to the squares of its terms; below it is rounding error.
_CANCELLED: Final = 1e-20


class Fitter(Protocol):
    """Fitter of one expression: computes its state from blocks of rows."""

    def add(self, values: Vector) -> None:
        """Add the finite values (m,) of the next rows."""

    def finish(self) -> State | None:
        """Return the state after a pass, or ``None`` to request another pass."""


def fitter(node: Call, seed: int) -> Fitter:
    """Return the fitter of a call that has a numeric state."""
    options = dict(node.options)
    if node.function in ("center", "scale"):
        if node.function == "center":
            options = {"scale": False}
        return _Scale(**options)
    if node.function == "poly":
        return _Polynomial(int(options.get("degree", 1)))
    if node.function in ("bs", "cr", "cc"):
        return _Centred(node, seed) if "constraints" in options else _Spline(node, seed)
    raise AssertionError(node.function)


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


class _Scale:
    """Fitter of center() and scale(): the centre c and sqrt(sum (x - c)^2 / (n - ddof))."""

    def __init__(self, center: bool = True, scale: bool = True, ddof: float = 1.0) -> None:
        self._options = center, scale, ddof
        self._moments = Moments(1)

    def add(self, values: Vector) -> None:
        self._moments.add(values[np.newaxis])

    def finish(self) -> State:
        center, scale, ddof = self._options
        (mean,), (sd,) = self._moments.finish()
        n = self._moments.count
        square = sd * sd + (0.0 if center else mean * mean)
        if scale and (square == 0 or n <= ddof):
            raise DataError(
                "expected a column that varies in scale() of the formula, found a constant: "
                "leave it out"
            )
        return {
            "center": float(mean) if center else None,
            "scale": sqrt(square * (n / (n - ddof))) if scale else None,
        }


class _Polynomial:
    """Fitter of orthogonal polynomials by their recurrence: one pass for each degree."""

    def __init__(self, degree: int) -> None:
        self._degree = degree
        self._alpha: list[float] = []
        self._norms: list[float] = []
        self._sums: list[tuple[float, float, float]] = []

    def add(self, values: Vector) -> None:
        before, now, terms = np.zeros_like(values), np.ones_like(values), np.ones_like(values)
        for k, alpha in enumerate(self._alpha):
            beta = self._norms[k] / self._norms[k - 1] if k else 0.0
            product, rest = (values - alpha) * now, beta * before
            before, now, terms = now, product - rest, np.abs(product) + np.abs(rest)
        square = now * now
        size = np.dot(terms, terms)
        self._sums.append((float(square.sum()), float((values * square).sum()), float(size)))

    def finish(self) -> State | None:
        norm, moment, size = (fsum(column) for column in zip(*self._sums, strict=True))
        self._sums = []
        self._norms.append(norm)
        if not norm > _CANCELLED * size:
            raise DataError(
                f"expected more than {len(self._norms) - 1} different values in poly() of the "
                "formula, found fewer: lower its degree"
            )
        if len(self._norms) > self._degree:
            return {"alpha": self._alpha, "norms2": self._norms}
        self._alpha.append(moment / norm)
        return None


class _Spline:
    """Fitter of a spline: bounds, and knots from a sample of the rows."""

    def __init__(self, node: Call, seed: int) -> None:
        self._node = node
        self._sample = Sample(seed)
        self._low, self._high = np.inf, -np.inf

    def add(self, values: Vector) -> None:
        self._sample.add(values)
        self._low = min(self._low, float(values.min()))
        self._high = max(self._high, float(values.max()))

    def finish(self) -> State | None:
        options = dict(self._node.options)
        low, high = options.get("lower_bound", self._low), options.get("upper_bound", self._high)
        state: State = {"lower_bound": low, "upper_bound": high}
        x = self._sample.values
        if options.get("extrapolation", "raise") == "raise":
            x = x[(x >= low) & (x <= high)]
        if not low < high or x.size == 0:
            raise DataError(
                f"expected values between the bounds {low:g} and {high:g} of "
                f"{self._node.label!r} in the formula, found none that differ: change the bounds"
            )
        outside = [knot for knot in options.get("knots", ()) if not low < knot < high]
        if outside:
            raise DataError(
                f"expected the knots of {self._node.label!r} between the bounds {low:g} and "
                f"{high:g}, found {outside[0]:g}: change the knots, or give bounds"
            )
        transform(self._node, x, state)
        kept: State = {"knots": [float(knot) for knot in state["knots"]]}
        if self._node.function != "bs":
            kept |= {"constraints": None, "cyclic": self._node.function == "cc"}
        sampled = self._sample.seen > self._sample.values.size
        return {**state, **kept, "sampled": bool(sampled and "df" in options)}


class _Centred:
    """Fitter of a cubic spline with columns of mean zero; the means take a second pass."""

    def __init__(self, node: Call, seed: int) -> None:
        self._node = node
        self._spline: _Spline | None = _Spline(node, seed)
        self._state: State = {}
        self._moments: Moments | None = None

    def add(self, values: Vector) -> None:
        if self._moments is None:
            assert self._spline is not None
            self._spline.add(values)
        else:
            free = self._state | {"constraints": None}
            step = block_rows(self._moments.minimum.size)
            for start in range(0, values.size, step):
                part = values[start : start + step]
                self._moments.add(as_matrix(transform(self._node, part, free)))

    def finish(self) -> State | None:
        if self._moments is None:
            assert self._spline is not None
            self._state = self._spline.finish() or {}
            self._moments = Moments(len(self._state["knots"]) - (self._node.function == "cc"))
            return None
        mean, _ = self._moments.finish()
        return self._state | {"constraints": [mean.tolist()]}


class Distinct:
    """Fitter of a numeric factor: its distinct values.

    Parameters
    ----------
    node
        The factor.
    boolean
        Whether the levels 0 and 1 are written as False and True.
    """

    def __init__(self, node: Node, boolean: bool) -> None:
        self._node = node
        self._boolean = boolean
        self._values: Vector = np.empty(0)

    def add(self, values: Vector) -> None:
        """Add the values (m,) of the next rows.

        Raises
        ------
        DataError
            If there are more levels than a formula may have columns.
        """
        self._values = np.union1d(self._values, values)
        _check_levels(self._node, self._values.size)

    def finish(self) -> State:
        """Return the levels and the reference level."""
        levels = [level_of(float(value), self._boolean) for value in self._values]
        return factor_state(self._node, levels)


class TextLevels:
    """Fitter of a text factor: its distinct values in the rows in use."""

    def __init__(self, node: Node, coder: Coder) -> None:
        self._node = node
        self._coder = coder
        self._codes: Vector = np.empty(0)

    def add(self, values: Vector) -> None:
        """Add the codes (m,) of the next rows."""
        self._codes = np.union1d(self._codes, values)

    def finish(self) -> State:
        """Return the levels and the reference level."""
        levels = self._coder.ordered(self._codes.astype(int).tolist())
        _check_levels(self._node, len(levels))
        return factor_state(self._node, levels)


def factor_state(node: Node, found: list[Level]) -> State:
    """Return the levels and the reference level of a factor, checked against its options.

    Raises
    ------
    DataError
        If a level in the data is not in the list ``levels``, or the reference is not a level.
    """
    options = dict(node.options) if isinstance(node, Call) else {}
    levels = found
    if "levels" in options:
        levels = [_whole(level) for level in options["levels"]]
        for level in found:
            if level not in levels:
                raise DataError(
                    f"expected only the levels listed in {label(node)!r} of the formula, found "
                    f"{level!r} in the data: add it to levels=[...], or leave out the list"
                )
    base = options.get("contrasts", ())
    reference = _whole(base[0]) if base else levels[0]
    if reference not in levels:
        near = get_close_matches(str(reference), map(str, levels), n=1)
        shown = ", ".join(map(repr, levels[:8])) + (", ..." if len(levels) > 8 else "")
        hint = f"did you mean {near[0]!r}?" if near else f"choose among {shown}"
        raise DataError(
            f"expected a level of the data as the reference of {label(node)!r}, found "
            f"{reference!r}: {hint}"
        )
    return {"levels": levels, "reference": reference}


def _whole(level: Any) -> Level:
    if isinstance(level, float) and level.is_integer():
        return int(level)
    found: Level = level
    return found


def _check_levels(node: Node, count: int) -> None:
    if count > MAX_COLUMNS:
        raise DataError(
            f"expected at most {MAX_COLUMNS} levels in {label(node)!r} of the formula, found "
            f"{count}: group rare levels, or take the column as a number"
        )
