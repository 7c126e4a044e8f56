"""Bias of ``mint``: how the noise of the carried log-likelihood estimate changes the density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.likelihood.temperature import (
    temperature_of,
)
from streammc.samplers.metropolis.mint import NORMALITY, Mint
from streammc.trace.finite import (
    finite_or_none,
)
from streammc.trace.run_directory import RunDirectory

LEAST_SHARE: Final = 0.05
"""Effective share of the draws below which their weights tell nothing."""


def tempered_facts(
    run: RunDirectory, sampler: Mint, n_rows: int, labels: Sequence[str]
) -> dict[str, Any]:
    """Return exponents, temperature and noise of a run of ``mint``, as JSON.

    Returns
    -------
    dict
        ``tau``, ``lambda``, ``alpha``, ``subsample_size`` and ``temperature``;
        ``noise_variance``, the mean over the draws of ``v = n^(2 lambda - tau) var(l_i)`` times
        ``finite_factor``: 1 - m / n, or 1 with replacement; ``third_order``, the mean of
        ``|g| v^1.5 / 6``, what the logarithm of the marginal has beyond ``v / 2``;
        ``chains_that_never_moved``; and ``marginal``: see :func:`without_noise`.
    """
    tau, exponent = sampler.exponents(n_rows)
    m = sampler.rows_of(n_rows)
    stats = run.read_group("sample_stats")
    variance, moved = stats["log_lik_variance"], stats["acceptance_rate"].sum(axis=1) > 0.0
    third = stats["decision_error"] / (6.0 * NORMALITY) * variance**1.5
    known = third[np.isfinite(third)]
    return {
        "tau": tau,
        "lambda": exponent,
        "alpha": exponent / tau,
        "subsample_size": m,
        "temperature": temperature_of(run.identity, run.attributes),
        "finite_factor": 1.0 if sampler.replace else 1.0 - m / n_rows,
        "noise_variance": finite_or_none(float(variance.mean())),
        "third_order": float(known.mean()) if known.size else None,
        "chains_that_never_moved": int((~moved).sum()),
        "marginal": without_noise(run.draws_matrix(), variance, labels),
    }


def without_noise(
    draws: NDArray[np.float64], variance: NDArray[np.float64], labels: Sequence[str]
) -> dict[str, dict[str, float | None]] | None:
    """Return by parameter what the factor ``exp(v / 2)`` in the density of the draws does.

    Parameters
    ----------
    draws
        (chain, draw, d).
    variance
        (chain, draw) v of the estimate that each was accepted with.

    Returns
    -------
    dict or None
        ``variance_ratio``: the variance of the draws over that with weights ``exp(-v / 2)``,
        which take the factor away; ``shift``: what it adds to the mean, in standard deviations
        of the draws. ``None`` where the weights are too uneven to tell.
    """
    theta = draws.reshape(-1, draws.shape[-1])
    half = 0.5 * variance.ravel()
    if not np.isfinite(half).all():
        return None
    weight = np.exp(half.min() - half)
    weight /= weight.sum()
    if len(theta) < 2 or 1.0 / np.square(weight).sum() < LEAST_SHARE * len(theta):
        return None
    mean = weight @ theta
    spread = weight @ np.square(theta - mean)
    plain = theta.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, shift = plain / spread, (theta.mean(axis=0) - mean) / np.sqrt(plain)
    return {
        label: {"variance_ratio": finite_or_none(r), "shift": finite_or_none(s)}
        for label, r, s in zip(labels, ratio, shift, strict=True)
    }
