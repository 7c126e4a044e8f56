"""Derivatives of a model against differences of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from streammc.models.differences import differences
from streammc.protocols import Matrix, Model, Vector

DERIVATIVE_LIMIT: Final = 1e-9
"""Largest error of a derivative, relative to it, beyond what the difference may be off."""
DOUBT: Final = 8.0
"""Times the estimated error of a difference: the most that it is off."""
NOISE: Final = 16.0
"""Times the rounding of a derivative that shows at the shortest steps: the most allowed."""
UNKNOWN: Final = 1e-3
"""Of value, derivatives and 1: a difference that may be off by more says nothing; it fails."""


@dataclass(frozen=True)
class Finding:
    """One check: the worst case against its limit."""

    name: str
    worst: float
    limit: float
    detail: str

    @property
    def passed(self) -> bool:
        """Whether the worst case is within the limit; NaN is not."""
        return self.worst <= self.limit


class Place(NamedTuple):
    """Predictors (p, m), responses (m,) and a design (q, m)."""

    eta: Matrix
    y: Vector
    X: Matrix


def evaluate(
    model: Model, eta: Matrix, y: Vector, order: int = 2, X: Matrix | None = None
) -> Matrix:
    """Return ``out`` (1 + p + p(p+1)/2, m) of the link; NaN where it writes nothing."""
    p, m = eta.shape
    out = np.full((1 + p + p * (p + 1) // 2, m), np.nan)
    model.link(
        np.ascontiguousarray(eta, dtype=np.float64),
        np.zeros((0, m)) if X is None else X,
        np.ascontiguousarray(y, dtype=np.float64),
        model.constants,
        order,
        out,
    )
    return out


def _worst(name: str, at: Place, error: Matrix) -> Finding:
    """Return the finding for errors (k, m) of derivatives."""
    error = np.where(np.isnan(error), np.inf, error)
    i = int(np.argmax(error.max(axis=0)))
    return Finding(
        name,
        float(error.max()),
        DERIVATIVE_LIMIT,
        f"at eta {at.eta[:, i].tolist()}, y {at.y[i]:g}",
    )


def derivatives(model: Model, at: Place, floor: float = 0.0) -> tuple[Finding, Finding]:
    """Compare first and second derivatives with differences of value and first derivatives.

    The error of a derivative, relative to it, is what its distance from the difference
    exceeds: eight times the error of the difference, the rounding of the derivative itself,
    and ``floor`` times the largest of value, derivatives and 1.
    """
    eta, y, X = at
    p = len(eta)
    out = evaluate(model, eta, y, 2, X)
    scale = np.maximum(1.0, np.abs(out).max(axis=0))
    own = [1 + p + a * p - a * (a - 1) // 2 for a in range(p)]
    found = []
    for a in range(p):
        # Sixteen standard deviations, if the second derivative is right.
        with np.errstate(all="ignore"):
            width = 16.0 / np.sqrt(np.abs(out[own[a]]))
        longest = np.fmin(0.25 * np.maximum(1.0, np.abs(eta[a])), width)
        found.append(differences(lambda moved: evaluate(model, moved, y, 2, X), eta, a, longest))

    def error(row: int, a: int, of: int) -> Vector:
        """Return the errors (m,) of ``out[row]`` as the derivative of ``out[of]`` in eta[a]."""
        slope, doubt = found[a].slope[of], found[a].error[of]
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(out[row]), np.abs(slope))
            allowed = DOUBT * doubt + NOISE * found[a].noise[row] + floor * scale
            excess = np.abs(out[row] - slope) - allowed
            unknown = DOUBT * doubt > UNKNOWN * np.maximum(size, scale)
            result = np.where(excess > 0.0, excess / size, 0.0 * np.abs(excess))
        return np.where(unknown, np.inf, result)

    first = [error(1 + a, a, 0) for a in range(p)]
    pairs = [(a, b) for a in range(p) for b in range(a, p)]
    second = [
        error(1 + p + row, *way)
        for row, (a, b) in enumerate(pairs)
        for way in ((a, 1 + b), (b, 1 + a))
    ]
    return (
        _worst("first derivatives", at, np.array(first)),
        _worst("second derivatives", at, np.array(second)),
    )
