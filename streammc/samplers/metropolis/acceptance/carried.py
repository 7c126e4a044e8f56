r"""``mint``: a minibatch for the proposal, and the estimate that the position was accepted with.

Li and Wong 2017, Algorithm 1. With ``m`` of ``n`` rows, ``tau = log m / log n`` and
``lambda < tau`` the log-likelihood is replaced by ``n^lambda mu^(theta) = (n / m) sum_j l_j / T``,
``T = n^(1 - lambda)``: an unbiased estimate of the log-likelihood at temperature ``T``, which the
data set has (``likelihood.tempered``). A proposal gets one from rows of its own; the position
keeps the one that it was accepted with. So the chain lives on theta and the minibatch together,
where it is exact, and theta alone has the density

    p(theta) E exp(n^lambda mu^(theta)) = p(theta) exp(n^lambda mu + v / 2 + g v^1.5 / 6 + ...)

with the variance ``v`` and the skewness ``g`` of the estimate. For rows with replacement
``v = n^(2 lambda - tau) var(l_i)``, ``g = skew(l_i) / sqrt(m)``, and the expectation is
``((1 / n) sum_i exp(n^(lambda - tau) l_i))^m`` without any expansion. Without replacement ``v``
has the factor ``1 - m / n``, and ``g`` has ``(1 - 2 m / n) / sqrt(1 - m / n)``. With control
variates ``l_i`` is what they leave.

What would be wrong is to estimate again where the chain is: that is no Metropolis chain.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streammc.numerics.jit import f8, inline, jit, vector
from streammc.samplers.metropolis.acceptance.clt import skewness, unless_dominated, variance_of_mean
from streammc.samplers.metropolis.acceptance.interface import (
    ACCEPT,
    COUNT,
    ERROR,
    ESTIMATED,
    FORCED,
    KNOWN,
    MEAN,
    MORE,
    POPULATION,
    REJECT,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
)

DEFAULT_SIZE: Final = 1000
NORMALITY: Final = 1.0 / 6.0 / math.sqrt(2.0 * math.pi)
"""``max_y |1 - y^2| phi(y) / 6 = 0.0665``."""

_SIZE, _FINITE = range(2)
_VARIANCE, _ERROR = 2, 3
"""``carried``, after those of the loop: of the estimate at the position."""


@jit(f8(vector, vector, f8, f8), borrow=True)
def distance_from_normal(facts, terms, variance, part):  # type: ignore[no-untyped-def]
    """Return how far ``P(sqrt(m) (mu^ - mu) <= x)`` is from normal, by the first Edgeworth term.

    ``0.0665 |g|`` with the skewness ``g`` of the mean of terms that are ``part`` of all there
    are (0: with replacement); the mean is not studentised (``acceptance.clt``), so that it is
    half as far as theirs. NaN where one term is most of a variance that is not small.
    """
    if part >= 1.0 or facts[COUNT] < 2.0:
        return 0.0
    skewed = abs(skewness(facts) * (1.0 - 2.0 * part)) / math.sqrt(facts[COUNT] * (1.0 - part))
    return unless_dominated(facts, terms, variance, NORMALITY * skewed)


@inline
def stay(carried, reply):  # type: ignore[no-untyped-def]
    """Write what is known of the estimate at the position."""
    reply[FORCED] = 0.0
    reply[VARIANCE] = carried[_VARIANCE]
    reply[ERROR] = carried[_ERROR]


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Ask for ``m`` terms, once; accept with ``min(1, exp(known + their mean))``."""
    reply[USED] = facts[COUNT]
    if not math.isfinite(facts[KNOWN]):
        stay(carried, reply)
        return REJECT
    if facts[COUNT] < settings[_SIZE]:
        reply[WANTED] = settings[_SIZE] - facts[COUNT]
        return MORE
    delta = facts[KNOWN] + facts[MEAN]
    verdict = REJECT
    if math.isfinite(delta) and (carried[ESTIMATED] == 0.0 or math.log(draws[UNIFORM]) < delta):
        part = facts[COUNT] / facts[POPULATION] if settings[_FINITE] == 1.0 else 0.0
        carried[ESTIMATED] = 1.0
        carried[_VARIANCE] = variance_of_mean(facts) * (1.0 - part)
        carried[_ERROR] = distance_from_normal(facts, terms, carried[_VARIANCE], part)
        verdict = ACCEPT
    stay(carried, reply)
    return verdict


def prepare(population: int, *, m: int | None = None, replace: bool = True) -> Prepared:
    """Return what the test is given.

    Parameters
    ----------
    population
        U, terms in the data set.
    m
        Terms of a minibatch; 1000 by default, at most U without replacement.
    replace
        Whether the terms of a minibatch are drawn with replacement.
    """
    size = DEFAULT_SIZE if m is None else m
    if not replace:
        size = min(size, population)
    settings = np.array([size, float(not replace)])
    return Prepared(settings, np.zeros((0, 0)), size, replace, carries=True)
