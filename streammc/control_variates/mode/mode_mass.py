"""Posterior mass around a mode: Laplace's formula, corrected by importance sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from streammc.control_variates.mode.newton import Point
from streammc.numerics.prior import log_prior, smooth
from streammc.protocols import Matrix, Model, Rows, Vector

_DF: Final = 4.0
_DRAWS: Final = 400
_FEWEST: Final = 100
_MOST_ENTRIES: Final = 4e8
"""Entries of the design that all draws together may touch: about 0.5 s."""
_MOST_PARAMETERS: Final = 20
_LEAST_ESS: Final = 20.0


def laplace_evidence(point: Point) -> float:
    """Return ``log p + sum log diag(S) + d / 2 log(2 pi)`` at a mode, the log mass around it."""
    volume = float(np.log(np.diag(point.factor)).sum())
    return point.log_posterior + volume + 0.5 * len(point.theta) * math.log(2.0 * math.pi)


def log_posteriors(
    model: Model, rows: Rows, scale: float, table: Matrix
) -> Callable[[Matrix], Vector]:
    """Return the function thetas (S, d) -> (S,) log posterior of ``rows`` counted ``scale`` times.

    The prior is smoothed by :func:`streammc.numerics.prior.smooth`, as in Newton's method.
    Values that are not finite become minus infinity.
    """
    used = rows.weight > 0.0
    X, y, offset = rows.X[used], np.ascontiguousarray(rows.y[used]), rows.offset[used]
    weight = rows.weight[used] * scale
    columns = np.ascontiguousarray(X.T)
    n, q = model.n_linear, X.shape[1]
    table = smooth(table)
    constants = model.constants

    def evaluate(thetas: Matrix) -> Vector:
        values = np.empty(len(thetas))
        eta, out = np.empty((n + model.n_scalar, len(y))), np.empty((1, len(y)))
        for s, theta in enumerate(thetas):
            for a in range(n):
                np.matmul(X, theta[a * q : (a + 1) * q], out=eta[a])
            if n:
                eta[0] += offset
            eta[n:] = theta[n * q :, None]
            model.link(eta, columns, y, constants, 0, out)
            values[s] = weight @ out[0] + log_prior(theta, table, np.zeros_like(theta))
        return np.where(np.isfinite(values), values, -np.inf)

    return evaluate


def corrected_evidence(
    log_posterior: Callable[[Matrix], Vector], points: Sequence[Point], entries: int
) -> Vector:
    """Return the log masses around several modes, (K,).

    Importance sampling from a mixture of Student t distributions with 4 degrees of freedom,
    one at every mode with the shape of its Laplace approximation; a draw belongs to the
    mode whose component is densest there. Laplace's formula stays where a mode has fewer
    than 20 effective draws, above 20 parameters, and where rows are too many.

    Parameters
    ----------
    log_posterior
        See :func:`log_posteriors`.
    points
        The modes.
    entries
        Rows times columns: the cost of one evaluation.
    """
    evidence = np.array([laplace_evidence(point) for point in points])
    d, K = len(points[0].theta), len(points)
    draws = min(_DRAWS, int(_MOST_ENTRIES / max(entries, 1)) // K)
    if d > _MOST_PARAMETERS or draws < _FEWEST:
        return evidence
    rng = np.random.default_rng(0)
    thetas = np.concatenate(
        [
            point.theta
            + (rng.standard_normal((draws, d)) @ point.factor.T)
            / np.sqrt(rng.chisquare(_DF, size=(draws, 1)) / _DF)
            for point in points
        ]
    )
    density = np.stack([_log_t(thetas, point) for point in points])
    logw = log_posterior(thetas) - (logsumexp(density, axis=0) - math.log(K))
    nearest = np.argmax(density, axis=0)
    for k in range(K):
        own = logw[nearest == k]
        own = own[np.isfinite(own)]
        if not len(own):
            continue
        ess = math.exp(2.0 * logsumexp(own) - logsumexp(2.0 * own))
        if ess >= _LEAST_ESS:
            evidence[k] = logsumexp(own) - math.log(len(thetas))
    return evidence


def _log_t(thetas: Matrix, point: Point) -> Vector:
    """Return the log density (S,) of the Student t around a mode."""
    d = len(point.theta)
    z = solve_triangular(point.factor, (thetas - point.theta).T, lower=True)
    constant = (
        math.lgamma(0.5 * (_DF + d))
        - math.lgamma(0.5 * _DF)
        - 0.5 * d * math.log(_DF * math.pi)
        - float(np.log(np.diag(point.factor)).sum())
    )
    out: Vector = constant - 0.5 * (_DF + d) * np.log1p((z * z).sum(axis=0) / _DF)
    return out
