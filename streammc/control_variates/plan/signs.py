"""Forecast of a block-Poisson product: the variance of its logarithm, and its mean sign.

``log |L^|`` is a sum over Poisson(lambda) factors ``A = (d_f - a) / lambda``: its variance
is ``lambda E[(log |A|)^2]``, and under the density that the sampler visits the mean sign
is ``exp(-2 lambda E[max(-A, 0)])`` (``likelihood.block_poisson``). Quiroz et al. 2018
evaluate the first for normal ``d_f``; here both are averages over the mini-batches that
the pilot holds, so heavy tails count. With the bound ``a`` at the sampled remainder less
``lambda``, and mini-batches of ``g`` units, ``A - 1`` is about ``sum_f U D_j / k``: the
variance is that of the difference estimator from the same ``k`` units, ``V``, and the
mini-batch only decides how often ``A`` is negative: least often for one unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammc import rng
from streammc.control_variates.plan.pilot import Pilot
from streammc.protocols import Vector

GROWTH = 2.0
"""Standard deviations of a factor that the soft bound keeps positive, at any distance."""
LEAST_SIGN = 0.2
"""Smallest mean sign of a run: errors grow with its reciprocal."""


@dataclass(frozen=True)
class SignForecast:
    """Variance and mean sign of a block-Poisson product, per draw of the pilot (S,)."""

    variance: Vector
    """Variance of ``log |L^|``."""
    mean_sign: Vector
    """Mean sign under the density proportional to ``|L^|``."""


def variance_target(dim: int, n_blocks: int) -> float:
    """Return the target of the variance V: ``dim / n_blocks``, between 0.1 and 1.

    Given the subsample, the centre of the posterior is shifted by at most ``V / dim``
    posterior variances along each direction, and the subsample is renewed in about
    ``n_blocks`` iterations: the inefficiency grows by at most ``n_blocks V / dim``,
    which is 1 at ``V = dim / n_blocks``.
    """
    return min(max(dim / n_blocks, 0.1), 1.0)


def edge(dim: int, order: int) -> float:
    """Return the growth of remainders out to the 99.9 % radius of a Gaussian posterior.

    ``r^(order + 1)``, with r^2 the chi-square quantile over d (Wilson and Hilferty 1931).
    """
    square = (1.0 - 2.0 / (9.0 * dim) + 3.09 * math.sqrt(2.0 / (9.0 * dim))) ** 3
    return float(square ** (0.5 * (order + 1)))


def forecast(pilot: Pilot, unit_rows: int, k: int, units: int, remainder: float) -> SignForecast:
    """Return the forecast for ``k`` expected units in factors of ``units`` units.

    Parameters
    ----------
    pilot
        Pilot without the certainty rows.
    remainder
        The sampled remainder around which the soft bound is chosen.
    """
    intensity = k / units
    n_units = -(-pilot.n_rows // unit_rows)
    bound = remainder - intensity
    variance, sign = [], []
    shares = pilot.shares(unit_rows)
    for totals in pilot.totals(unit_rows):
        generator = rng.stream(0, 4, rng.Role.PLAN)
        if pilot.relative is None:
            shuffled = generator.permutation(totals)
        else:
            shuffled = generator.choice(totals, size=len(totals), p=shares / shares.sum())
        groups = max(len(totals) // units, 1)
        means = shuffled[: groups * units].reshape(groups, -1).mean(axis=1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            factor = (n_units * means - bound) / intensity
            variance.append(intensity * float(np.mean(np.log(np.abs(factor)) ** 2)))
            sign.append(float(np.exp(-2.0 * intensity * np.mean(np.maximum(-factor, 0.0)))))
    return SignForecast(
        np.nan_to_num(np.array(variance), nan=np.inf, posinf=np.inf), np.nan_to_num(np.array(sign))
    )


def predicted(pilot: Pilot, unit_rows: int, k: int, units: int, totals: Vector) -> dict[str, Any]:
    """Return the forecast of a product of ``k`` expected units, ``units`` a factor, as JSON.

    ``totals`` (S,) are the sampled remainders of all rows at the draws of the pilot.
    """
    middle = float(np.median(totals))
    found = forecast(pilot, unit_rows, k, units, middle)
    return {
        "variance": float(np.quantile(found.variance, 0.9)),
        "variance_by_draw": [float(v) for v in found.variance],
        "remainder": middle,
        "mean_sign": float(found.mean_sign.mean()),
    }
