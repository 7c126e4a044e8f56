"""The error from taking the standard deviation of ``Delta'`` from a few minibatches.

Chen, Seita, Pan and Canny 2016 estimate it from ``K`` values, which leaves the variance of
what is added to ``Delta'`` right on average and wrong every time. With ``s`` the standard
deviation, ``t`` its estimate and ``L`` the largest that is accepted, a decision accepts with

    P(Delta) = E[ F_(s^2 + L^2 - t^2)(Delta) | t < L ],   (K - 1) t^2 / s^2 ~ chi^2_(K-1),

where ``F_v`` is the distribution function of ``N(0, v)`` plus the correction for ``L``. To
look only at ``t < L`` makes ``t`` too small where ``s`` is near ``L``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.protocols import Vector
from streammc.samplers.metropolis.acceptance.correction import Correction
from streammc.samplers.metropolis.acceptance.deconvolution import Cells, distribution

POINTS: Final = 41
"""Standard deviations that are tabulated, from 0 to ``FURTHEST`` times the limit."""
FURTHEST: Final = 2.0
CURVATURE: Final = 0.0482
"""``max |S''| / 2``: what a variance that is wrong by 1 does to the acceptance probability."""


def spread_errors(made: Correction, batches: int) -> tuple[Vector, Vector]:
    """Return standard deviations and ``max |P - S|`` at each, for ``K`` batches: (41,) twice."""
    from scipy.special import expit
    from scipy.stats import chi2

    delta = np.linspace(0.0, 8.0, 33)
    exact = expit(delta)
    limit = made.sigma
    # Averages over t^2 from a table over the variance, in which the function is smooth.
    variance = np.linspace(0.0, (FURTHEST**2 + 1.0) * limit**2, 201)[1:]
    curves = np.array([_sum(made, delta, float(v)) for v in variance])
    quantiles = chi2.ppf((np.arange(2000) + 0.5) / 2000, batches - 1) / (batches - 1)
    spread = np.linspace(0.0, FURTHEST * limit, POINTS)
    errors = np.full(POINTS, made.error)
    for i in range(1, POINTS):
        squares = quantiles * spread[i] ** 2
        # The part of a quantile's cell that is below the limit matters where few are.
        squares = squares[squares < limit**2]
        if squares.size == 0:
            errors[i:] = 0.5
            break
        total = spread[i] ** 2 + limit**2 - squares
        mean = np.array([np.interp(total, variance, curve).mean() for curve in curves.T])
        errors[i] = max(made.error, float(np.abs(mean - exact).max()))
    return spread, errors


def _sum(made: Correction, x: Vector, variance: float) -> Vector:
    """Distribution function of ``N(0, variance)`` plus the correction, (n,)."""
    edges = made.table[0].reshape(-1, 2)
    values = made.table[1].reshape(-1, 2)
    width = float(edges[0, 1] - edges[0, 0])
    cells = Cells(edges.mean(axis=1), values[:, 1] - values[:, 0], width)
    return distribution(x, cells, variance**0.5)
