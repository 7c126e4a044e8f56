"""Polynomials, splines and codings of factors, of which one column of the table makes several.

formulaic fits them: it places knots, and names their columns. From a fitted state :func:`basis`
computes the same values, to the last bit, by NumPy (SciPy solves for the natural cubic spline),
without the imports of formulaic and pandas.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Matrix, Vector
from streammc.stores.formula.parser import Call

State = dict[str, Any]
"""Fitted state of one expression, as plain JSON."""

BASES: Final = ("bs", "cc", "cr", "poly")


def transform(node: Call, x: Vector, state: State) -> Any:
    """Return the fields of formulaic's function at ``x`` (m,); formulaic may add to ``state``."""
    from formulaic.transforms import TRANSFORMS

    options = {
        name: list(value) if isinstance(value, tuple) else value for name, value in node.options
    }
    for key in ("alpha", "norms2"):  # by degree: lists in JSON, dictionaries in formulaic
        if key in state:
            state = state | {key: dict(enumerate(state[key]))}
    if "constraints" in state and state["constraints"] is not None:
        state = state | {"constraints": np.asarray(state["constraints"])}
    try:
        with np.errstate(all="ignore"):
            return TRANSFORMS[node.function](x, **options, _state=state)
    except ValueError as error:
        raise DataError(
            f"expected values and options that fit each other in {node.label!r} of the formula, "
            f"found: {' '.join(str(error).split())[:200].rstrip('.')}; change its options"
        ) from error


def as_matrix(computed: Any) -> Matrix:
    """Return fields in any form of formulaic as one array (fields, m)."""
    if isinstance(computed, dict) or isinstance(getattr(computed, "__wrapped__", None), dict):
        parts = [np.asarray(part, np.float64) for key, part in computed.items()]
        return np.stack(parts)
    array = np.asarray(computed, np.float64)
    return np.ascontiguousarray(array.T) if array.ndim == 2 else array[np.newaxis]


def extrapolation(node: Call) -> str:
    """Return the option ``extrapolation`` of a spline, or formulaic's default."""
    default = "raise" if node.function == "bs" else "extend"
    return str(dict(node.options).get("extrapolation", default))


def basis(node: Call, x: Vector, state: State) -> Matrix:
    """Return the fields (fields, m) of a polynomial or spline at finite ``x`` (m,).

    Where values outside of the bounds are to be refused, ``x`` has none.
    """
    with np.errstate(all="ignore"):
        if node.function == "poly":
            return _polynomials(node, x, state)
        outside = (x < state["lower_bound"]) | (x > state["upper_bound"])
        beyond = extrapolation(node)
        if beyond == "clip":
            x = np.clip(x, state["lower_bound"], state["upper_bound"])
        if node.function == "bs":
            return _b_splines(node, x, state["knots"])
        fields = _cubic_splines(node, x, state)
        if beyond == "zero":
            fields[:, outside] = 0.0
        return fields


@lru_cache(maxsize=16)
def coding_matrix(coding: str, n: int) -> Matrix:
    """Return the contrasts (n, n - 1) of the n levels of a factor, as R and formulaic have them.

    ``sum``: each level but the last against the mean of all; ``helmert``: each level but the first
    against the mean of those before it; ``poly``: orthonormal polynomials of the level's number.
    """
    matrix = np.eye(n, n - 1)
    if coding == "sum":
        matrix[-1] = -1.0
    elif coding == "helmert":
        matrix = -np.triu(np.ones((n, n - 1)))
        matrix[np.arange(1, n), np.arange(n - 1)] = np.arange(1.0, n)
    else:
        # Legendre polynomials: a recurrence is not orthogonal above 40 levels.
        q, r = np.linalg.qr(np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, n), n - 1))
        matrix = (q * np.sign(np.diag(r)))[:, 1:]
    matrix.setflags(write=False)
    return matrix


def _polynomials(node: Call, x: Vector, state: State) -> Matrix:
    """Return powers, or orthonormal polynomials by their three-term recurrence."""
    options = dict(node.options)
    degree = int(options.get("degree", 1))
    if options.get("raw", False):
        return np.stack([np.power(x, k) for k in range(1, degree + 1)]).astype(np.float64)
    alpha, norms = state["alpha"], state["norms2"]
    p = np.empty((degree + 1, len(x)))
    p[0] = 1.0
    for i in range(1, degree + 1):
        p[i] = (x - alpha[i - 1]) * p[i - 1]
        if i >= 2:
            p[i] -= norms[i - 1] / norms[i - 2] * p[i - 2]
    p /= np.sqrt(np.asarray(norms))[:, np.newaxis]
    return p[1:]


def _b_splines(node: Call, x: Vector, knots: list[float]) -> Matrix:
    """Return B-splines by the recurrence of Cox and de Boor; the end is in the last interval."""
    options = dict(node.options)
    degree, last = int(options.get("degree", 3)), len(knots) - int(options.get("degree", 3)) - 1
    extended = extrapolation(node) == "extend"
    now: list[Any] = []
    for i, (low, high) in enumerate(itertools.pairwise(knots)):
        if extended:
            above = x >= (low if i != degree else -np.inf)
            below = x < (high if i + 1 != last else np.inf)
        else:
            above, below = x >= low, x < high if i + 1 != last else x <= high
        now.append((above & below).astype(float))

    def share(i: int, d: int) -> Any:
        width = knots[i + d] - knots[i]
        return (x - knots[i]) / width if knots[i + d] != knots[i] else 0

    for d in range(1, degree + 1):
        now = [
            share(i, d) * now[i] + (1 - share(i + 1, d)) * now[i + 1]
            for i in range(len(knots) - d - 1)
        ]
    return np.stack(now[0 if options.get("include_intercept", False) else 1 :])


def _cubic_splines(node: Call, x: Vector, state: State) -> Matrix:
    """Return cubic regression splines, natural or cyclic (Wood 2006, pp. 145-147)."""
    knots, cyclic = np.asarray(state["knots"], np.float64), node.function == "cc"
    n = knots.size - cyclic
    if cyclic:
        low, high = knots.min(), knots.max()
        x = x.copy()
        x[x > high] = low + (x[x > high] - high) % (high - low)
        x[x < low] = high - (low - x[x < low]) % (high - low)
    j = np.clip(np.searchsorted(knots, x) - 1, 0, knots.size - 2)
    width = (knots[1:] - knots[:-1])[j]
    right, left = knots[j + 1] - x, x - knots[j]
    of_right = right * right * right / (6.0 * width)
    of_right[x > knots.max()] = 0.0
    of_left = left * left * left / (6.0 * width)
    of_left[x < knots.min()] = 0.0
    after = j + 1
    if cyclic:
        after[after == n] = 0
    unit, curvature = np.identity(n), _cyclic(knots) if cyclic else _natural(knots)
    fields = (
        right / width * unit[j].T
        + left / width * unit[after].T
        + (of_right - width * right / 6.0) * curvature[j].T
        + (of_left - width * left / 6.0) * curvature[after].T
    )
    if state["constraints"] is None:
        return np.ascontiguousarray(fields)
    constraints = np.asarray(state["constraints"], np.float64)
    q, _ = np.linalg.qr(constraints.T, mode="complete")
    return np.ascontiguousarray(np.dot(fields.T, q[:, len(constraints) :]).T)


def _cyclic(knots: Vector) -> NDArray[np.float64]:
    """Return the matrix from the values of a cyclic spline at its knots to second derivatives."""
    h = knots[1:] - knots[:-1]
    n = len(h)
    b, d = np.zeros((2, n, n))
    b[0, 0] = (h[n - 1] + h[0]) / 3.0
    b[0, n - 1] = b[n - 1, 0] = h[n - 1] / 6.0
    d[0, 0] = -1.0 / h[0] - 1.0 / h[n - 1]
    d[0, n - 1] = d[n - 1, 0] = 1.0 / h[n - 1]
    for i in range(1, n):
        b[i, i] = (h[i - 1] + h[i]) / 3.0
        b[i, i - 1] = b[i - 1, i] = h[i - 1] / 6.0
        d[i, i] = -1.0 / h[i - 1] - 1.0 / h[i]
        d[i, i - 1] = d[i - 1, i] = 1.0 / h[i - 1]
    return np.asarray(np.linalg.solve(b, d), np.float64)


def _natural(knots: Vector) -> NDArray[np.float64]:
    """Return the matrix from the values of a natural spline at its knots to second derivatives."""
    from scipy.linalg import solve_banded

    h = knots[1:] - knots[:-1]
    beside = h[1:-1] / 6.0
    banded = np.array([np.r_[0.0, beside], (h[:-1] + h[1:]) / 3.0, np.r_[beside, 0.0]])
    d = np.zeros((knots.size - 2, knots.size))
    for i in range(knots.size - 2):
        d[i, i] = 1.0 / h[i]
        d[i, i + 2] = 1.0 / h[i + 1]
        d[i, i + 1] = -d[i, i] - d[i, i + 2]
    ends = np.zeros(knots.size)
    return np.vstack([ends, solve_banded((1, 1), banded, d), ends])
