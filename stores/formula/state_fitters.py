"""Fitters of the states of expressions of a formula: levels, means, polynomials, knots.

A state is fitted block by block over the whole table. Bounds, means and standard deviations are
exact; knots are quantiles of a seeded uniform sample of the rows (all rows of a small table). An
expression inside another is fitted in an earlier pass over the table. formulaic places knots.
"""

from __future__ import annotations

from difflib import get_close_matches
from math import fsum, sqrt
from typing import Any, Final, Protocol

import numpy as np

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.rng import Role, stream
from streammc.stores.formula.bases import State, as_matrix, transform
from streammc.stores.formula.parser import MAX_COLUMNS, Call, Node, label
from streammc.stores.ingest.column_values import Coder, LevelOrder
from streammc.stores.ingest.table_blocks import Moments, block_rows
from streammc.stores.iso_words import iso_word

Level = str | int | float | bool
"""A level of a factor."""

SAMPLE_ROWS: Final = 100_000


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
        fitted: State = {"knots": [float(knot) for knot in state["knots"]]}
        if self._node.function != "bs":
            fitted |= {"constraints": None, "cyclic": self._node.function == "cc"}
        sampled = self._sample.seen > self._sample.values.size
        return {**state, **fitted, "sampled": bool(sampled and "df" in options)}


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


def level_of(value: float, boolean: bool) -> Level:
    """Return a number as a level: a boolean, an integer if it is whole, or a float."""
    if boolean and value in (0, 1):
        return bool(value)
    return int(value) if float(value).is_integer() else float(value)


class Distinct:
    """Fitter of a numeric factor: its distinct values.

    With ``boolean`` the levels 0 and 1 are written as False and True. Without an ``order`` the
    levels are sorted.
    """

    def __init__(self, node: Node, boolean: bool, order: LevelOrder | None = None) -> None:
        self._node = node
        self._boolean = boolean
        self._order = order
        self._values: Vector = np.empty(0)

    def add(self, values: Vector) -> None:
        """Add the values (m,) of the next rows."""
        self._values = np.union1d(self._values, values)
        _check_levels(self._node, self._values.size)

    def finish(self) -> State:
        """Return the levels and the reference level."""
        values = self._values.tolist()
        if self._order is not None and not _listed(self._node):
            values = self._order.arrange(values)
        levels = [level_of(value, self._boolean) for value in values]
        return factor_state(self._node, levels)


class TextLevels:
    """Fitter of a text factor: its distinct values in the rows in use.

    The level ``last`` follows all others: it is never the reference unless that is asked for.
    """

    def __init__(self, node: Node, coder: Coder, last: str | None = None) -> None:
        self._node = node
        self._coder, self._last = coder, last
        self._codes: Vector = np.empty(0)

    def add(self, values: Vector) -> None:
        """Add the codes (m,) of the next rows."""
        self._codes = np.union1d(self._codes, values)

    def finish(self) -> State:
        """Return the levels and the reference level."""
        codes = self._codes.astype(int).tolist()
        if _listed(self._node):
            levels = sorted(self._coder.values[code] for code in codes)
        else:
            levels = sorted(self._coder.ordered(codes), key=lambda level: level == self._last)
        _check_levels(self._node, len(levels))
        return factor_state(self._node, levels)


def _listed(node: Node) -> bool:
    """Return whether a factor lists its levels, ``C(column, levels=[...])``."""
    return isinstance(node, Call) and "levels" in dict(node.options)


def factor_state(node: Node, in_data: list[Level]) -> State:
    """Return the levels and the reference level of a factor, checked against its options."""
    options = dict(node.options) if isinstance(node, Call) else {}
    levels = in_data
    if "levels" in options:
        levels = [_whole(level) for level in options["levels"]]
        for level in in_data:
            if level not in levels:
                raise DataError(
                    f"expected only the levels listed in {label(node)!r} of the formula, found "
                    f"{level!r} in the data: add it to levels=[...], or leave out the list"
                )
    base = options.get("contrasts", ())
    reference = _whole(base[0]) if base and isinstance(base, tuple) else levels[0]
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
    if isinstance(level, str):
        return iso_word(level)
    if isinstance(level, float) and level.is_integer():
        return int(level)
    value: Level = level
    return value


def _check_levels(node: Node, count: int) -> None:
    if count > MAX_COLUMNS:
        raise DataError(
            f"expected at most {MAX_COLUMNS} levels in {label(node)!r} of the formula, found "
            f"{count}: group rare levels, or take the column as a number"
        )


class Sample:
    """A uniform random sample of fixed size from a stream of rows.

    Row number i replaces a random row of the sample with probability ``size / (i + 1)``
    (Vitter 1985, algorithm R). The sample depends on the seed, not on the cuts into blocks.
    """

    def __init__(self, seed: int, size: int | None = None) -> None:
        self._rng = stream(seed, 0, Role.KNOTS)
        self._size = SAMPLE_ROWS if size is None else size
        self._values = np.empty(self._size)
        self.seen = 0

    @property
    def values(self) -> Vector:
        """Values of the rows in the sample; fewer than ``size`` for a short stream."""
        return self._values[: min(self.seen, self._size)]

    def add(self, values: Vector) -> None:
        """Add the values (m,) of the next rows."""
        fill = min(values.size, max(0, self._size - self.seen))
        self._values[self.seen : self.seen + fill] = values[:fill]
        rest = values[fill:]
        if rest.size:
            row = self.seen + fill + np.arange(rest.size)
            place = (self._rng.random(rest.size) * (row + 1)).astype(np.int64)
            taken = place < self._size
            self._values[place[taken]] = rest[taken]  # the last row of an equal place stays
        self.seen += values.size
