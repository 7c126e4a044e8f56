"""Fitters of a formula: statistics of the whole table, computed block by block.

Bounds, means and standard deviations are exact; knots are quantiles of a seeded
uniform sample of the rows (all rows of a small table). An expression inside another is
fitted in an earlier pass over the table.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import Final, Protocol

import numpy as np

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.formula.nodes import Call, Node, walk
from streammc.stores.formula.values import State, as_matrix, transform
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
