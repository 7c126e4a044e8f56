"""Interface of the acceptance tests: the facts of a decision, and the verdict on it.

The log acceptance ratio of a proposal is a sum over the ``U`` units of the data plus a
part that takes no row,

    Delta = known + (1 / U) sum_j x_j,        x_j = U (D_j(theta') - D_j(theta)) / T,

where ``known`` holds prior, Hastings correction, the sums of the control variates and the
certainty rows. A test is asked once before any term has been seen, and again whenever
what it asked for has been added up:

    verdict = decide(settings, facts, terms, draws, memory, carried, reply, table)

Where a test ``carries``, ``x_j = U D_j(theta') / T`` are terms of the proposal alone, and
``known`` has the estimate at the position subtracted: that of the decision which accepted it.
It is a function without side effects but on ``memory``, ``carried`` and ``reply``, and all
its random numbers are ``draws``, so that it can be tested by itself.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from numba import types

from streammc.numerics.jit import f8, i8, inline, jit, matrix, vector
from streammc.protocols import Matrix, Vector

REJECT, ACCEPT, MORE, SWEEP = range(4)
"""The verdicts. ``MORE``: ``reply[WANTED]`` further terms, drawn as the sampler draws them.
``SWEEP``: all terms, each once; what was drawn before stays as it is."""

KNOWN, POPULATION, COUNT, MEAN, M2, M3, BATCH, KEPT, SWEPT, SWEPT_MEAN, SWEPT_M2, SWEPT_LARGEST = (
    range(12)
)
"""``facts``: the part of Delta that takes no row; U; the number of terms drawn, n; their mean,
and sums of squared and of cubed deviations from it; the mean of those that came last; how many
of them are in ``terms``; whether all terms have been seen, and then mean, sum of squared
deviations and largest absolute value of all."""
BOUND: Final = 12
"""``facts``: what the model says that no ``|x_j|`` exceeds; infinite where it says nothing."""
N_FACTS: Final = 13

UNIFORM, NORMAL, UNIFORM2 = range(3)
"""``draws``: independent of each other and of everything else, new for every decision."""
N_DRAWS: Final = 3

WANTED, ERROR, FORCED, VARIANCE, USED, STEP_FACTOR, HEAT_FACTOR = range(7)
"""``reply``: terms wanted with ``MORE``; with a verdict the probability that it is not that of
the test on all terms, as the test estimates it (NaN: it cannot tell); whether it was forced to
look at all terms or to skip; the variance of the estimate of Delta; the terms it rests on; and
factors, 1 by default, by which step size and temperature change from now on."""
N_REPLY: Final = 7

N_MEMORY: Final = 64
"""``memory``: zeros when a decision begins, the test's own until it ends."""
N_CARRIED: Final = 8
"""``carried``: zeros when a chain begins, the test's own; saved with a checkpoint."""
ESTIMATE, ESTIMATED = range(2)
"""``carried`` where a test ``carries``: the estimate of the sum of the remainders at the position,
at T = 1, which the loop writes on acceptance; and, written by the test, whether there is one.
Where there is none the position itself is proposed."""
N_TERMS: Final = 4096
"""``terms``: the first of this decision, as many as fit."""

TEST_SIGNATURE: Any = i8(vector, vector, vector, vector, vector, vector, vector, matrix)
"""``decide(settings, facts, terms, draws, memory, carried, reply, table)``."""
TEST_TYPE: Any = types.FunctionType(TEST_SIGNATURE)


METROPOLIS, BARKER = range(2)
"""Acceptance functions."""


@inline
def accepts(delta, u, barker):  # type: ignore[no-untyped-def]
    """Return whether a uniform ``u`` accepts ``delta``.

    With probability ``min(1, exp(delta))``, or ``1 / (1 + exp(-delta))`` where ``barker``
    is 1 (Barker 1965; Seita et al. 2017, eq. 9): then ``logit(u) < delta``.
    """
    if barker == 1:
        return math.log(u) - math.log1p(-u) < delta
    return math.log(u) < delta


class Prepared(NamedTuple):
    """An acceptance test with its options, for one data set."""

    settings: Vector
    table: Matrix
    first: int
    """Terms that every decision asks for first: drawn ahead. 0: not known before."""
    replace: bool
    """Whether terms are drawn with replacement."""
    sweeps: bool = False
    """Whether every decision looks at all rows: they are then held in memory if they fit."""
    carries: bool = False
    """Whether the estimate at the position is carried along, and not made again."""
    frozen: Vector | None = None
    """Settings of the draws, which change neither step size nor temperature; ``None``: the same."""
    barker: bool = True
    """Whether the acceptance function is Barker's, not that of Metropolis."""

    def settings_of(self, warmup: bool) -> Vector:
        """Return the settings of an iteration of the warm-up, or of the draws."""
        return self.settings if warmup or self.frozen is None else self.frozen


@jit(types.void(vector, i8, f8, vector, vector), borrow=True)
def add_terms(x, n, factor, facts, terms):  # type: ignore[no-untyped-def]
    """Add ``n`` terms ``factor x_j`` to the moments in ``facts``, and keep what fits.

    Two passes over the batch, then the pairwise update of Chan, Golub and LeVeque (1979)
    and, for the cubes, Pebay (2008).
    """
    if n <= 0:
        return
    mean = 0.0
    for j in range(n):
        mean += factor * x[j]
    mean /= n
    second = third = 0.0
    for j in range(n):
        deviation = factor * x[j] - mean
        second += deviation * deviation
        third += deviation * deviation * deviation
    before = facts[COUNT]
    total = before + n
    shift = mean - facts[MEAN]
    facts[M3] += (
        third
        + shift**3 * before * n * (before - n) / (total * total)
        + 3.0 * shift * (before * second - n * facts[M2]) / total
    )
    facts[M2] += second + shift * shift * before * n / total
    facts[MEAN] += shift * n / total
    facts[COUNT] = total
    facts[BATCH] = mean
    kept = int(facts[KEPT])
    room = min(n, terms.shape[0] - kept)
    for j in range(room):
        terms[kept + j] = factor * x[j]
    facts[KEPT] = kept + room


@jit(types.void(vector, i8, f8, f8, vector), borrow=True)
def sweep_terms(x, n, factor, before, facts):  # type: ignore[no-untyped-def]
    """Add ``n`` terms to the moments of a sweep that has seen ``before`` of them."""
    if n <= 0:
        return
    mean = 0.0
    for j in range(n):
        mean += factor * x[j]
    mean /= n
    second = 0.0
    largest = facts[SWEPT_LARGEST]
    for j in range(n):
        term = factor * x[j]
        second += (term - mean) * (term - mean)
        largest = max(largest, abs(term))
    total = before + n
    shift = mean - facts[SWEPT_MEAN]
    facts[SWEPT_M2] += second + shift * shift * before * n / total
    facts[SWEPT_MEAN] += shift * n / total
    facts[SWEPT_LARGEST] = largest
