"""Covariance of the gradient estimated from a subsample, averaged over posterior draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc import rng
from streammc.control_variates.coordinates import covering_draws
from streammc.control_variates.expansion import ControlVariates
from streammc.likelihood.blocks import TILE, allocate_scratch, expanded
from streammc.likelihood.data_views import fewer, gather
from streammc.likelihood.drawn_units import leave_out
from streammc.likelihood.estimators import remainders
from streammc.models.base import places, wide
from streammc.protocols import Dataset, Index, Matrix, Model, Vector

N_DRAWS = 16
"""Draws from the Laplace approximation."""
_MOST_ROWS = 2**14
_MOST_ENTRIES = 2**21
"""Entries of the design of the units that are evaluated."""


class GradientNoise(NamedTuple):
    """Noise of estimates from k units: gradient covariance and log-likelihood variance."""

    covariance: Matrix
    """(d, d) of the whitened gradient, averaged over draws from the Laplace approximation."""
    log_lik_variance: Vector
    """(S,) variance of the estimate of the log-likelihood, by draw."""


def gradient_noise(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    *,
    order: int,
    certainty_rows: Index,
    unit_rows: int,
    k: int,
    relative: NDArray[np.float32] | None = None,
) -> GradientNoise:
    """Return ``S' Cov(g) S`` for the gradient ``g`` of the log-likelihood from k units.

    ``g = (U / k) sum_j grad D_j / r_j``: U is the number of units, D_j the remainder of unit j, and
    r_j the probability with which it is drawn over the uniform one, 1 / U. Its covariance
    ``(U^2 / k) mean_j r_j (G_j / r_j - mean G)(G_j / r_j - mean G)'`` with ``G_j = grad D_j`` is
    computed from some units, all where they are few, and averaged over draws from the Laplace
    approximation. S is ``cv.factor``: S S' is the covariance of that approximation.

    ``order`` is that of the expansion that is subtracted, -1: none. The sorted ``certainty_rows``
    are left out. A unit has ``unit_rows``, and ``relative`` (U,) are the r, ``None``: all 1.
    """
    q, d = dataset.n_features, cv.dim
    n_units = -(-dataset.n_rows // unit_rows)
    # At most 16,384 rows (of a table of groups: groups of about so many), and 64 units or more.
    wanted = max(min(fewer(_MOST_ROWS, dataset), _MOST_ENTRIES // max(q, 1)) // unit_rows, 64)
    # 5 and 6 below are numbers of random streams, see ``rng.Role.PLAN``.
    if n_units <= wanted:
        units = np.arange(n_units, dtype=np.int64)
    else:
        generator = rng.stream(0, 5, rng.Role.PLAN)
        units = np.sort(generator.choice(n_units, size=wanted, replace=False, shuffle=False))
    starts = units.astype(np.int64) * unit_rows
    rows = gather(dataset, starts, unit_rows)  # rows past the end have weight 0
    leave_out(starts, unit_rows, certainty_rows, rows.weight)
    block = expanded(model, cv.theta_star, order, rows)
    p, m = block.eta_star.shape
    scratch, value, slope = allocate_scratch(p), np.zeros(m), np.zeros((p, m))
    n_linear, covariance, variance = model.n_linear, np.zeros((d, d)), np.zeros(N_DRAWS)
    at = places(model, q)
    D = d if at is None else n_linear * q + model.n_scalar
    kept = slice(None) if at is None else np.append(at, D)
    share = np.ones(len(units)) if relative is None else relative[units].astype(np.float64)
    both = np.empty((m, D + 1))  # gradient and value of each row's remainder
    shifts = wide(model, covering_draws(N_DRAWS, d, 6) @ cv.factor.T, q)
    for s, shift in enumerate(shifts):
        for lo in range(0, m, TILE):
            hi = min(lo + TILE, m)
            remainders(
                model.link, model.constants, block, shift, n_linear, lo, hi, scratch, value, slope
            )
        for a in range(p):
            if a < n_linear:
                np.multiply(block.design.T, slope[a][:, None], out=both[:, a * q : a * q + q])
            else:
                both[:, n_linear * q + a - n_linear] = slope[a]
        both[:, D] = value
        totals = both.reshape(len(units), unit_rows, D + 1).sum(axis=1)[:, kept]
        spread = totals / share[:, None] - totals.mean(axis=0)
        spread *= np.sqrt(share)[:, None]
        covariance += spread[:, :d].T @ spread[:, :d] / len(units)
        variance[s] = np.mean(spread[:, d] ** 2)
    covariance *= n_units * (n_units / k) / N_DRAWS
    whitened = cv.factor.T @ covariance @ cv.factor
    return GradientNoise(0.5 * (whitened + whitened.T), variance * (n_units * (n_units / k)))
