"""``mh-fixed``: minibatches of one size, and a correction for their standard deviation.

``Delta`` is the log acceptance ratio of a proposal: a part that takes no row, ``facts[KNOWN]``,
plus the mean over the units of the data of terms ``x_j``. ``Delta'`` is ``Delta`` with the mean
over a minibatch. ``S(Delta) = 1 / (1 + exp(-Delta))`` is the acceptance probability of Barker's
test on all terms, and ``P(Delta)`` that of the test on minibatches.

Chen, Seita, Pan and Canny 2016, Algorithm 1. ``K`` minibatches of ``m`` terms give ``K``
values of ``Delta'``, whose standard deviation is ``t``; one more, of its own, gives the
``Delta'`` that decides. The proposal is accepted where ``Delta' + X_corr > 0``, with the
correction for ``t``. They take the nearest of a table of corrections. Here there is one, for
the limit ``L`` of ``t``, and a normal variable with variance ``L^2 - t^2``: its sum with
``X_corr`` is the correction for ``t`` itself, so that no grid of ``t`` adds an error.

Terms are drawn with replacement, within a minibatch too; theirs are without, which is the
same where the data set is much larger than a minibatch.

The arguments of :func:`decide` are those of every acceptance test (``acceptance``). Rows 0 and 1 of
``table`` are positions of ``X_corr`` and its distribution function there, row 2 the errors by
:func:`spread_errors`. ``unless_dominated`` and ``unless_often_unknown`` replace an error that the
terms seen cannot tell, since a few rare ones are most of the variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.jit import f8, inline, jit, matrix, vector
from streammc.protocols import Vector
from streammc.samplers.common.options import builder, check_number
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    FORCED,
    HEAT_FACTOR,
    KNOWN,
    M2,
    MEAN,
    MORE,
    NORMAL,
    POPULATION,
    REJECT,
    STEP_FACTOR,
    SWEEP,
    SWEPT,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    UNIFORM,
    UNIFORM2,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
    accepts,
)
from streammc.samplers.metropolis.clt import skewness, unless_dominated, unless_often_unknown
from streammc.samplers.metropolis.correction import (
    Cells,
    Correction,
    correction,
    distribution,
    draw_correction,
)
from streammc.samplers.metropolis.options import MetropolisOptions

# The error from taking the standard deviation of ``Delta'`` from a few minibatches.
#
# Chen, Seita, Pan and Canny 2016 estimate it from ``K`` values, which leaves the variance of
# what is added to ``Delta'`` right on average and wrong every time. With ``s`` the standard
# deviation, ``t`` its estimate and ``L`` the largest that is accepted, a decision accepts with
#
#     P(Delta) = E[ F_(s^2 + L^2 - t^2)(Delta) | t < L ],   (K - 1) t^2 / s^2 ~ chi^2_(K-1),
#
# where ``F_v`` is the distribution function of ``N(0, v)`` plus the correction for ``L``. To
# look only at ``t < L`` makes ``t`` too small where ``s`` is near ``L``.


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


REMEDIES: Final = ("skip", "grow", "shrink", "heat")
_SKIP, _GROW, _SHRINK, _HEAT = range(4)
DEFAULT_SIZE: Final = 100
FEWEST_BATCHES: Final = 2
LARGEST_LIMIT: Final = 1.8
"""Below pi / sqrt(3), the standard deviation of the logistic distribution."""

_SIZE, _BATCHES, _LIMIT, _REMEDY, _SMOOTHING, _TABLE = range(6)
_NEXT, _DOUBLED, _COUNTED, _SUMMED, _DUE, _STD, _SUMS = range(7)
"""``memory``: the minibatch that comes next, how often their size has doubled, the terms and
their sum before it, the terms when it is complete, the standard deviation, and from ``_SUMS``
on the sums of the minibatches."""
MOST_BATCHES: Final = 50
"""Sums that ``memory`` has room for, and some to spare."""
_AVERAGE, _SEEN = range(2)
"""``carried``: a moving average of the standard deviation at ``m`` terms; whether there is one."""
_FASTEST: Final = 2.0
"""Largest factor on the temperature, and on one over the step size, of one decision."""
_MARGIN: Final = 1.1
"""Factor on the change that would have brought this standard deviation to the limit."""
_THIRD: Final = 1.0 / 48.0
"""``max |S'''| / 6``: error of the acceptance probability per third cumulant of ``Delta'``. The
variance of ``Delta'`` has no part in it: it is estimated from other terms."""


@jit(f8(vector, vector, f8), borrow=True)
def standard_deviation(settings, memory, size):  # type: ignore[no-untyped-def]
    """Return that of the means of the ``K`` minibatches of ``size`` terms."""
    k = int(settings[_BATCHES])
    mean = 0.0
    for j in range(k):
        mean += memory[_SUMS + j] / size / k
    squares = 0.0
    for j in range(k):
        squares += (memory[_SUMS + j] / size - mean) ** 2
    return math.sqrt(squares / (k - 1.0))


@jit(f8(vector, vector, vector, vector, matrix, f8), borrow=True)
def estimated_error(settings, facts, terms, memory, table, size):  # type: ignore[no-untyped-def]
    """Return the error of a decision: from the standard deviation, and from skewness.

    That of the standard deviation is tabulated over the true one, for which the variance of
    all the terms together stands; a moving average is compared with it directly.
    """
    variance = facts[M2] / (facts[COUNT] - 1.0) / size
    if settings[_SMOOTHING] > 0.0:
        error = CURVATURE * abs(memory[_STD] ** 2 - variance)
    else:
        place = math.sqrt(variance) / (settings[_LIMIT] * FURTHEST) * (POINTS - 1.0)
        i = int(min(place, POINTS - 2.0))
        part = min(place - i, 1.0)
        error = table[2, i] + part * (table[2, i + 1] - table[2, i])
    third = _THIRD * abs(skewness(facts)) * variance**1.5 / math.sqrt(size)
    return max(error, settings[_TABLE]) + unless_dominated(facts, terms, variance, third)


@inline
def ask(n, facts, memory, reply):  # type: ignore[no-untyped-def]
    """Ask for ``n`` terms: the next minibatch, or the terms that make one larger."""
    memory[_COUNTED] = facts[COUNT]
    memory[_SUMMED] = facts[COUNT] * facts[MEAN]
    memory[_DUE] = facts[COUNT] + n
    reply[WANTED] = n
    return MORE


@inline
def remedied(settings, facts, memory, carried, reply):  # type: ignore[no-untyped-def]
    """Reject without a decision, and change step size or temperature from now on.

    The way back has the same terms with the other sign, and is skipped as often: to stay
    where one is takes nothing from the target, and is no error of a decision.
    """
    excess = min(_MARGIN * memory[_STD] / settings[_LIMIT], _FASTEST)
    if settings[_REMEDY] == _SHRINK:
        reply[STEP_FACTOR] = 1.0 / excess
        carried[_AVERAGE] /= excess
    elif settings[_REMEDY] == _HEAT:
        reply[HEAT_FACTOR] = excess
        carried[_AVERAGE] /= excess
    reply[ERROR] = 0.0
    reply[FORCED] = 1.0
    reply[VARIANCE] = memory[_STD] ** 2
    reply[USED] = facts[COUNT]
    return REJECT


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Ask for one minibatch after another; with the last, decide."""
    reply[STEP_FACTOR] = reply[HEAT_FACTOR] = 1.0
    k = int(settings[_BATCHES])
    n = facts[COUNT]
    if facts[SWEPT] != 0.0:
        reply[ERROR] = 0.0
        reply[FORCED] = 1.0
        reply[VARIANCE] = 0.0
        reply[USED] = facts[POPULATION]
        exact = facts[KNOWN] + facts[SWEPT_MEAN]
        return ACCEPT if accepts(exact, draws[UNIFORM], 1) else REJECT
    if n == 0.0:
        if (k + 1) * settings[_SIZE] >= facts[POPULATION]:
            return SWEEP
        return ask(settings[_SIZE], facts, memory, reply)
    if n < memory[_DUE]:  # it came in pieces
        reply[WANTED] = memory[_DUE] - n
        return MORE
    size = settings[_SIZE] * 2.0 ** memory[_DOUBLED]
    batch = n * facts[MEAN] - memory[_SUMMED]
    current = int(memory[_NEXT])
    if current == k:
        error = estimated_error(settings, facts, terms, memory, table, size)
        reply[ERROR] = unless_often_unknown(carried, error)
        reply[FORCED] = 0.0
        reply[VARIANCE] = facts[M2] / (n - 1.0) / size
        reply[USED] = n
        room = settings[_LIMIT] ** 2 - memory[_STD] ** 2
        total = facts[KNOWN] + batch / size + math.sqrt(room) * draws[NORMAL]
        total += draw_correction(table, draws[UNIFORM2])
        return ACCEPT if total > 0.0 else REJECT
    memory[_SUMS + current] += batch
    memory[_NEXT] = current + 1.0
    if current + 1 < k:
        return ask(n - memory[_COUNTED], facts, memory, reply)
    at_first_size = math.sqrt(size / settings[_SIZE])
    spread = standard_deviation(settings, memory, size) * at_first_size
    if carried[_SEEN] != 0.0:
        spread += settings[_SMOOTHING] * (carried[_AVERAGE] - spread)
    memory[_STD] = spread / at_first_size
    if memory[_STD] >= settings[_LIMIT] and settings[_REMEDY] == _GROW:
        if n + (k + 2) * size >= facts[POPULATION]:
            return SWEEP
        memory[_DOUBLED] += 1.0
        memory[_NEXT] = 0.0
        return ask(size, facts, memory, reply)
    carried[_AVERAGE] = spread
    carried[_SEEN] = 1.0
    if memory[_STD] >= settings[_LIMIT]:
        unless_often_unknown(carried, estimated_error(settings, facts, terms, memory, table, size))
        return remedied(settings, facts, memory, carried, reply)
    return ask(size, facts, memory, reply)


@dataclass(frozen=True, kw_only=True)
class FixedMetropolis(MetropolisOptions):
    """Sampler ``mh-fixed``: Metropolis-Hastings with minibatches of one size (Chen et al. 2016).

    A decision takes ``batches + 1`` minibatches of ``subsample_size`` rows, with replacement:
    all but the last for the standard deviation of what they estimate, the last for Barker's
    test with a correction for it (Algorithm 1). The posterior, but for the error of each decision,
    which is recorded.

    Parameters
    ----------
    subsample_size
        Rows of a minibatch, m. ``None``: from the full pass; 100 without one.
    batches
        Minibatches that estimate the standard deviation of Delta', K, from 2 to 50; one more
        decides.
    limit
        Standard deviation of Delta', a log-ratio, from which on it is too large, at most 1.8.
    remedy
        What is done then: ``skip`` the decision, ``grow`` its minibatches to twice their size, or
        skip and, in the warm-up, ``shrink`` the step size or ``heat`` the temperature from then on;
        the draws keep both.
    smoothing
        Weight of earlier decisions in a moving average of the standard deviation, in [0, 1).

    Examples
    --------
    >>> from streammc.samplers import mh_fixed
    >>> mh_fixed(remedy="grow").limit
    1.2
    """

    batches: int = 5
    limit: float = 1.2
    remedy: Literal["skip", "grow", "shrink", "heat"] = "skip"
    smoothing: float = 0.0

    name: ClassVar[str] = "mh-fixed"
    decide: ClassVar[Any] = staticmethod(decide)
    paper: ClassVar[str] = (
        "Chen, Seita, Pan, Canny 2016, A simple minibatch acceptance test for MCMC"
    )

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        whole = isinstance(self.batches, int) and not isinstance(self.batches, bool)
        if not whole or not FEWEST_BATCHES <= self.batches <= MOST_BATCHES:
            raise ConfigError(
                f"batches must be a whole number from {FEWEST_BATCHES} to {MOST_BATCHES}, "
                f"found {self.batches!r}: give one, or leave it out"
            )
        check_number("limit", self.limit, f"(0, {LARGEST_LIMIT}]")
        check_number("smoothing", self.smoothing, "[0, 1)")

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`.

        The draws of ``shrink`` and ``heat`` skip: a chain that adapts to its past has no
        invariant density.
        """
        size, batches = DEFAULT_SIZE if m is None else m, self.batches
        made = correction(self.limit)
        errors = spread_errors(made, batches)[1]
        width = max(made.table.shape[1], errors.size)
        table = np.zeros((3, width))
        for row, values in zip(table, (*made.table, errors), strict=True):
            row[: values.size] = values
            row[values.size :] = values[-1]
        remedy = REMEDIES.index(self.remedy)
        settings = np.array([size, batches, self.limit, remedy, self.smoothing, made.error])
        frozen = settings.copy()
        if remedy in (_SHRINK, _HEAT):
            frozen[_REMEDY] = _SKIP
        whole = (batches + 1) * size  # a decision takes them all, but for a remedy
        first = whole if whole < population else 0
        return Prepared(settings, table, first, True, frozen=frozen)


mh_fixed = builder(FixedMetropolis)
