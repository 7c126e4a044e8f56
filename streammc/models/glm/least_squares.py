"""Where Newton's method starts: weighted least squares, also robust."""

from __future__ import annotations

import math

import numpy as np

from streammc.protocols import Matrix, Rows, Vector


def least_squares(X: Matrix, target: Vector, weight: Vector) -> Vector:
    """Return the shortest minimiser of ``sum w (target - X beta)^2``, (q,)."""
    weighted = X * weight[:, None]
    beta = np.linalg.lstsq(X.T @ weighted, weighted.T @ target, rcond=1e-12)[0]
    return beta.astype(np.float64)


def location_scale(rows: Rows, df: float = math.inf, steps: int = 0) -> tuple[Vector, float]:
    """Return coefficients (q,) and the log of the scale of ``y - offset``.

    Least squares, then ``steps`` steps of EM for the t distribution with ``df`` degrees
    of freedom (Lange, Little and Taylor 1989): outliers lose their weight. A fit without
    residuals has a scale of 1e-8 of the response.
    """
    used = rows.weight > 0.0
    target = np.where(used, rows.y - rows.offset, 0.0)
    total = float(rows.weight.sum())
    trust = np.ones_like(target)
    floor = 1e-8 * float(np.abs(target).max(initial=0.0)) or 1.0
    for step in range(steps + 1):
        beta = least_squares(rows.X, target, rows.weight * trust)
        square = np.square(target - rows.X @ beta)
        mean = float(rows.weight @ (trust * square)) / max(total, 1e-300)
        scale = max(math.sqrt(mean), floor)
        if step < steps:
            trust = (df + 1.0) / (df + square / (scale * scale))
    return beta, math.log(scale)
