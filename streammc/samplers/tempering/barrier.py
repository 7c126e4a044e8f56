"""The global barrier of a ladder from its swap rates, and levels at equal steps of it.

With r_m the probability that the pair ``(m - 1, m)`` rejects, ``Lambda = sum_m r_m`` is the
global barrier, which depends on the ends of the ladder and hardly on the levels between, and
``Lambda(beta)`` is its part from 1 down to beta. Round trips are most frequent where all pairs
reject equally often: levels at equal steps of ``Lambda(beta)`` (Syed et al. 2021, section 5).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.protocols import Vector

LEAST_REJECTION: Final = 0.01
"""A pair that never rejected counts as that much: the barrier must rise."""
FIRST_ROUND: Final = 25
"""Iterations; every further round of warm-up is twice as long."""


def cumulative(rejection: Vector) -> Vector:
    """Return (L,) ``Lambda(beta_m)`` from the (M,) rejection rates of neighbours."""
    return np.concatenate([[0.0], np.cumsum(rejection)])


def respaced(beta: Vector, rejection: Vector) -> Vector:
    """Return as many levels between the same ends, at equal steps of the barrier.

    ``Lambda`` is interpolated by a monotone cubic. The scale of beta is logarithmic, where
    powers of a peaked likelihood have a constant local barrier; down to a last level of 0
    it is that of ``log(1 + beta / beta_{M-1})``, since the prior ends the growth.

    Parameters
    ----------
    beta
        (L,) falling; its first and its last value are kept.
    rejection
        (M,) rates of the pairs ``(m - 1, m)``, in [0, 1]; not a number: never proposed.
    """
    if len(beta) < 3:
        return beta.copy()
    from scipy.interpolate import PchipInterpolator

    known = np.where(np.isfinite(rejection), rejection, np.nanmean(rejection))
    barrier = cumulative(np.maximum(known, LEAST_REJECTION))
    scale = beta[-2] if beta[-1] == 0.0 else 0.0
    place = np.log1p(beta / scale) if scale else np.log(beta)
    wanted = np.linspace(0.0, barrier[-1], len(beta))
    found = PchipInterpolator(barrier, place)(wanted)
    moved = np.asarray(scale * np.expm1(found) if scale else np.exp(found))
    moved[0], moved[-1] = beta[0], beta[-1]
    return moved


def round_end(iteration: int) -> int:
    """Return after how many iterations of warm-up the round under way there ends."""
    end, length = FIRST_ROUND, FIRST_ROUND
    while end <= iteration:
        length *= 2
        end += length
    return end
