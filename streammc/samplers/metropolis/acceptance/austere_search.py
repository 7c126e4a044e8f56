"""Choice of ``m`` and ``epsilon`` of a sequential test, once or at every decision.

Korattikara et al. 2014, section 5.3: the pair with the fewest expected terms among those
within a bound on the error, from tables of ``acceptance.sequential_error``. The grid is that
of Seita et al. 2017, appendix B.2.1. Given mean ``D`` and standard deviation ``sigma`` of
all terms the standardised mean of a decision is ``mu_std = (D - log u) sqrt(N - 1) / sigma``,
so that an average over u is a sum over the cells of the table, each with the probability
that ``mu_std`` falls into it; it is signed, because an error where u < P(accept) rejects and
one where u > P(accept) accepts.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.jit import inline
from streammc.protocols import Matrix, Vector
from streammc.samplers.metropolis.acceptance.interface import (
    KNOWN,
    POPULATION,
    SWEPT_M2,
    SWEPT_MEAN,
)
from streammc.samplers.metropolis.acceptance.sequential_error import (
    N_DRIFTS,
    drift_grid,
    sequential_test,
    tabulated,
)

EPSILONS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.2)
SIZES: Final = tuple(range(50, 501, 50))
SMALLER: Final = (1e-4, 1e-5, 1e-6)
"""Tried where no pair of the grid meets the bound: N above 1e6 or so."""

SEARCH, LIMIT, N_PAIRS, FIRST_PAIR = range(4)
"""``settings``: how pairs are chosen, the bound, their number, and where they begin."""
SEARCH_NONE, SEARCH_AVERAGE, SEARCH_GIVEN = range(3)
TERMS, THRESHOLD = range(2)
"""Columns of a pair in ``settings``: m, and the normal quantile of 1 - epsilon."""
DRIFTS: Final = 0
ERRORS, ROWS, THRESHOLDS = range(3)
"""Rows of a pair in ``table``: error and terms used at the drifts of row 0, and Student's
quantiles by the number of terms."""
PER_PAIR: Final = 3


@inline
def at_drift(drifts, values, drift):  # type: ignore[no-untyped-def]
    """Interpolate; the last value beyond the end and for NaN the first."""
    if not drift > drifts[0]:
        return values[0]
    low, high = 0, drifts.shape[0] - 1
    if drift >= drifts[high]:
        return values[high]
    while high - low > 1:
        middle = (low + high) // 2
        if drifts[middle] < drift:
            low = middle
        else:
            high = middle
    share = (drift - drifts[low]) / (drifts[high] - drifts[low])
    return values[low] + share * (values[high] - values[low])


@inline
def _average(table, row, delta, scale):  # type: ignore[no-untyped-def]
    """Return the error in the probability of acceptance, and expected terms; mu in 1 / scale."""
    drifts, errors, rows = table[DRIFTS], table[row + ERRORS], table[row + ROWS]
    error = used = 0.0
    low = high = math.exp(min(0.0, delta))  # the u that decides
    for k in range(drifts.shape[0] - 1):
        step = drifts[k + 1] / scale
        next_low = math.exp(min(0.0, delta - step))
        next_high = math.exp(min(0.0, delta + step))
        accepts, rejects = low - next_low, next_high - high
        error += (rejects - accepts) * 0.5 * (errors[k] + errors[k + 1])
        used += (rejects + accepts) * 0.5 * (rows[k] + rows[k + 1])
        low, high = next_low, next_high
    return abs(error), used + (low + 1.0 - high) * rows[rows.shape[0] - 1]


@inline
def choose_pair(settings, facts, mu_0, table):  # type: ignore[no-untyped-def]
    """Return the pair for the terms that a sweep has seen, or -1 where none is good enough."""
    size = facts[POPULATION]
    scale = math.sqrt((size - 1.0) * size / facts[SWEPT_M2])
    delta = facts[KNOWN] + facts[SWEPT_MEAN]
    drift = abs(facts[SWEPT_MEAN] - mu_0) * scale
    best, least = -1, size
    for pair in range(int(settings[N_PAIRS])):
        row = 1 + PER_PAIR * pair
        if settings[SEARCH] == SEARCH_GIVEN:
            error = at_drift(table[DRIFTS], table[row + ERRORS], drift)
            used = at_drift(table[DRIFTS], table[row + ROWS], drift)
        else:
            error, used = _average(table, row, delta, scale)
        if error <= settings[LIMIT] and used < least:
            best, least = pair, used
    return best


def conservative_pair(
    population: int, m: int | None, epsilon: float | None, max_error: float
) -> tuple[int, float]:
    """Return the ``(m, epsilon)`` with the fewest expected terms at ``mu_std = 0``.

    Raises
    ------
    ConfigError
        If none has an error of at most ``max_error`` there.
    """
    worst = np.zeros(1)
    sizes = SIZES if m is None else (m,)
    lowest = math.inf
    for epsilons in ((epsilon,),) if epsilon is not None else (EPSILONS, SMALLER):
        found = []
        for value in epsilons:
            for size in sizes:
                test = sequential_test(population, size, value, worst)
                lowest = min(lowest, float(test.error[0]))
                if test.error[0] <= max_error:
                    found.append((float(test.rows[0]), size, value))
        if found:
            _, size, value = min(found)
            return size, value
    raise ConfigError(
        f"expected a sequential test with an error of at most {max_error:g} on {population} "
        f"units, found {lowest:.3g} at best: raise max_error, or subsample_size"
    )


def pair_table(
    population: int,
    m: int | None,
    epsilon: float | None,
    max_error: float,
    conservative: bool,
    given_uniform: bool,
) -> tuple[Vector, Matrix]:
    """Return ``settings`` and ``table`` with the pairs that decisions choose from."""
    from scipy.special import ndtri, stdtrit

    search = SEARCH_NONE
    if m is not None and epsilon is not None:
        pairs = [(m, epsilon)]
    elif conservative:
        pairs = [conservative_pair(population, m, epsilon, max_error)]
    else:
        search = SEARCH_GIVEN if given_uniform else SEARCH_AVERAGE
        epsilons = EPSILONS if epsilon is None else (epsilon,)
        pairs = [(size, value) for value in epsilons for size in (SIZES if m is None else (m,))]
    pairs = [(max(size, 2), value) for size, value in pairs]
    settings = np.zeros(FIRST_PAIR + PER_PAIR * len(pairs))
    settings[[SEARCH, LIMIT, N_PAIRS]] = search, max_error, len(pairs)
    table = np.zeros((1 + PER_PAIR * len(pairs), N_DRIFTS))
    table[DRIFTS] = drift_grid(population)
    freedom = np.maximum(np.arange(N_DRIFTS) - 1.0, 1.0)
    for index, (size, value) in enumerate(pairs):
        row, at = 1 + PER_PAIR * index, FIRST_PAIR + PER_PAIR * index
        table[row + ERRORS], table[row + ROWS] = tabulated(population, size, value)
        table[row + THRESHOLDS] = stdtrit(freedom, 1.0 - value)
        settings[at + TERMS], settings[at + THRESHOLD] = size, -ndtri(value)
    return settings, table
