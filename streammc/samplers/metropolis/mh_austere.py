"""``mh-austere``: sequential t-tests of the mean term, after Korattikara et al. 2014.

A uniform u is drawn first; the proposal is accepted where the mean mu of the N terms exceeds
``mu_0 = log u - known``, with ``known`` the part of the log ratio that takes no row
(``metropolis.acceptance``). After every ``m`` more terms, drawn without replacement, with ``mean``
and standard deviation ``sd`` of the n so far,

    t = |mean - mu_0| / s,    s = sd / sqrt(n) sqrt(1 - (n - 1) / (N - 1)),

and the sequence ends where ``1 - F_{n-1}(t) < epsilon``, F Student's distribution function
(their Algorithm 1), or, forced, with all N terms, where the decision is exact. What ``m``
and ``epsilon`` do together is :func:`sequential_test`.

The error of a decision is that of its sequence: the probability, before any term is drawn, that a
sequence with this ``mu_std`` ends on the wrong side, where ``mu_std`` is the distance ``mu - mu_0``
in standard errors, see below. All terms tell ``mu_std``. A sequence that ends before tells a lower
limit, by how much t exceeds the larger of 3 and its threshold plus 1/2. So the mean of errors over
decisions is what to compare with the share of wrong ones, which it exceeds by little at ``mu_std =
0`` and by much far from there; and forced decisions, though right, carry theirs.

It assumes normal means. For skewness k there is added ``0.252 x + x^2 / 4``, ``x = |k| /
sqrt(m)``: twice the largest first Edgeworth term of a Studentised mean, because looks after
the first add to it, and a square that takes over where that expansion ends. k is the larger
of this decision's and of a running mean over decisions, weighted by their terms. Where t is
far beyond its threshold ``t_0`` this counts ``(t_0 / t)^2`` times, as by Chebyshev's
inequality, but no less than ``(2 x)^4`` times: terms without their tail have no spread. This
is an estimate: no test on some terms can know of a tail that it has not met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numba import types

from streammc.errors import ConfigError
from streammc.numerics.jit import f8, i8, inline, jit, vector
from streammc.numerics.special import exp
from streammc.protocols import Matrix, Vector
from streammc.samplers.common.options import builder, check_number
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    FORCED,
    KNOWN,
    M2,
    M3,
    MEAN,
    MORE,
    POPULATION,
    REJECT,
    SWEEP,
    SWEPT,
    SWEPT_M2,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
)
from streammc.samplers.metropolis.options import MetropolisOptions

# Error and rows used of a sequence of tests on the mean, rows drawn without replacement.
#
# The mean of the first ``n`` of ``N`` terms has variance ``sigma^2 (N - n) / (n (N - 1))``
# and, since the order is exchangeable, the same covariance with every earlier mean. So the
# statistics ``z_j = (mean_j - mu_0) / sd(mean_j)`` are, as far as means are normal, a Brownian
# motion with drift looked at in the times ``tau = n / (N - n)``,
#
#     z_j = W(tau_j) / sqrt(tau_j),   W(tau) = B(tau) + mu_std tau,
#     mu_std = (mu - mu_0) sqrt(N - 1) / sigma,
#
# which is the recursion of Korattikara, Chen and Welling (2014, supplement B) in other words.
# The test ends at the first look with ``|z_j| >= G = Phi^-1(1 - epsilon)``, and with all rows,
# ``tau = inf``, where it is right. Two things make tables cheap. By Girsanov's theorem a path
# without drift counts ``exp(mu_std W - mu_std^2 tau / 2)`` times under a drift: one recursion
# serves all ``mu_std``. And in the time ``log tau`` the process without drift is stationary:
# where looks follow each other more closely than ``LEAST_STEP``, some are left out and the
# boundary is moved inwards by ``0.5826`` times what the standard deviation of a step has grown
# (Siegmund 1985, Broadie, Glasserman and Kou 1997), so that 2e6 looks cost 600 steps.


LEAST_STEP: Final = 0.02
"""In ``log tau``: errors within 0.1 % and rows within 0.4 % of those with all looks, measured
for ``N`` up to 3e5."""
N_DRIFTS: Final = 96
"""Values of ``mu_std`` in a table: the K of :func:`drift_grid`."""
_OVERSHOOT: Final = 0.5825971579390106  # -zeta(1/2) / sqrt(2 pi)
_RESOLUTION: Final = 2.93  # the middle nodes lie closer than the sd of the shortest step
_ROOT_HALF: Final = 0.7071067811865476
_RECIPROCAL_ROOT_2PI: Final = 0.3989422804014327
_REACH: Final = 8.5
"""Standard deviations beyond which a normal tail is 0."""
_NEGLIGIBLE: Final = 1e-14
"""Probability of having no decision yet that counts as 0."""


class SequentialTest(NamedTuple):
    """Error and terms used of the tests with one ``m`` and ``epsilon``, by ``mu_std``."""

    error: Vector
    """(K,) probability of a wrong decision at ``drifts``, the same for either sign."""
    rows: Vector
    """(K,) expected terms used."""


@inline
def _upper(x):  # type: ignore[no-untyped-def]
    """``1 - Phi(x)``."""
    return 0.5 * math.erfc(x * _ROOT_HALF)


@jit(types.void(i8, i8, f8, f8, vector, vector, vector, vector, vector))
def _recurse(population, m, threshold, least, nodes, weights, drifts, error, rows):  # type: ignore[no-untyped-def]
    """Write error and rows used (K,) of a sequence at ``drifts`` >= 0 of ``mu_std``.

    ``threshold`` is G, ``least`` the shortest step in ``log tau``; ``nodes`` and ``weights`` are of
    a quadrature on [-1, 1].
    """
    n_nodes, n_drifts = nodes.shape[0], drifts.shape[0]
    mass = np.zeros(n_nodes)  # f(z_k) w_k without drift, not yet decided
    after = np.zeros(n_nodes)
    alive = np.ones(n_drifts)
    mass[0] = 1.0
    at = np.zeros(n_nodes)  # z_k; before the first look all mass is at z = 0
    error[:] = 0.0
    rows[:] = 0.0
    n = 0
    tau = 0.0
    last = (population - 1) // m * m
    while n < last:
        looks = 1
        if n > 0:
            further = tau * math.exp(least)
            wanted = population * further / (1.0 + further)
            looks = max(1, math.ceil((min(wanted, last) - n) / m - 1e-9))
        following = n + looks * m
        tau_next = following / (population - following)
        keep = tau / tau_next
        rho, sd = math.sqrt(keep), math.sqrt(1.0 - keep)
        edge = threshold
        if looks > 1:
            previous = following - m
            single = math.sqrt(1.0 - previous / (population - previous) / tau_next)
            edge -= _OVERSHOOT * (sd - single)
        root = math.sqrt(tau_next)
        for d in range(n_drifts):
            if alive[d] < _NEGLIGIBLE:
                continue
            # Across -edge under the drift: a normal tail, times what the path counts.
            mu = drifts[d] * root
            for k in range(n_nodes):
                centre = rho * at[k]
                beyond = (edge + centre + mu * sd * sd) / sd
                if mass[k] > 0.0 and beyond < _REACH:
                    weight = math.exp(mu * centre + 0.5 * mu * mu * (sd * sd - 1.0))
                    error[d] += mass[k] * weight * _upper(beyond)
        scale = _RECIPROCAL_ROOT_2PI / sd
        for i in range(n_nodes):
            here = edge * nodes[i]
            total = 0.0
            for k in range(n_nodes):
                off = (here - rho * at[k]) / sd
                total += mass[k] * exp(-0.5 * off * off)
            after[i] = total * scale * weights[i] * edge
        for k in range(n_nodes):
            mass[k] = after[k]
            at[k] = edge * nodes[k]
        for d in range(n_drifts):
            if alive[d] < _NEGLIGIBLE:
                continue
            mu = drifts[d] * root
            left = 0.0
            for k in range(n_nodes):
                left += mass[k] * exp(mu * (at[k] - 0.5 * mu))
            left = min(left, alive[d])
            # Every look before this one asked for m more; survivors between are interpolated.
            rows[d] += m * (looks * alive[d] + 0.5 * (looks - 1.0) * (left - alive[d]))
            alive[d] = left
        n = following
        tau = tau_next
    for d in range(n_drifts):
        rows[d] += alive[d] * (population - n)


def drift_grid(population: int) -> Vector:
    """Return (K,) values of ``mu_std`` >= 0, dense where error and rows change.

    They change with the logarithm of ``mu_std``, from where the last looks see it,
    ``sqrt(m / N)``, to where the first decides, about ``9 sqrt(N / m)``.
    """
    smallest = min(1.0, math.sqrt(50.0 / population))
    largest = max(9.0 * math.sqrt(population / 25.0), 20.0)
    return smallest * np.sinh(np.linspace(0.0, math.asinh(largest / smallest), N_DRIFTS))


@cache
def _rule(n: int) -> tuple[Vector, Vector]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return nodes, weights


def sequential_test(
    population: int,
    m: int,
    epsilon: float,
    drifts: Vector | None = None,
    least_step: float = LEAST_STEP,
) -> SequentialTest:
    """Return error and expected rows of a sequential test.

    Parameters
    ----------
    population
        Terms, N.
    m
        Terms more at each look; the last takes what is left.
    epsilon
        Threshold of every look, in (0, 1/2).
    drifts
        (K,) values of ``mu_std`` >= 0; by default those of :func:`drift_grid`.
    least_step
        Looks closer than this in ``log tau`` are left out; 0: none is.
    """
    from scipy.special import ndtri

    drifts = drift_grid(population) if drifts is None else np.asarray(drifts, dtype=np.float64)
    error, rows = np.zeros(len(drifts)), np.zeros(len(drifts))
    threshold = float(-ndtri(epsilon))
    closest = math.sqrt(-math.expm1(-max(least_step, 4.0 * m / (population + 4.0 * m))))
    nodes, weights = _rule(max(48, math.ceil(_RESOLUTION * threshold / closest)))
    _recurse(population, m, threshold, least_step, nodes, weights, drifts, error, rows)
    return SequentialTest(error, rows)


@cache
def tabulated(population: int, m: int, epsilon: float) -> SequentialTest:
    """Return :func:`sequential_test` on :func:`drift_grid`, kept in memory."""
    return sequential_test(population, m, epsilon)


# Choice of ``m`` and ``epsilon`` of a sequential test, once or at every decision.
#
# Korattikara et al. 2014, section 5.3: the pair with the fewest expected terms among those
# within a bound on the error, from tables of :func:`sequential_test`. The grid is that
# of Seita et al. 2017, appendix B.2.1. Given mean ``D`` and standard deviation ``sigma`` of
# all terms the standardised mean of a decision is ``mu_std = (D - log u) sqrt(N - 1) / sigma``,
# so that an average over u is a sum over the cells of the table, each with the probability
# that ``mu_std`` falls into it; it is signed, because an error where u < P(accept) rejects and
# one where u > P(accept) accepts.


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
    """Return the error in the probability of acceptance, and expected terms, averaged over u.

    ``delta`` is the log ratio from all terms; ``scale`` turns a distance from it into ``mu_std``.
    """
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


LEAST_EPSILON: Final = 1e-6
"""Smallest ``epsilon`` that may be given."""
CHOSEN: Final = 0
"""``memory``: 1 + the pair chosen for this decision; 0 before, and where none meets the limit."""
SKEWNESS, WEIGHT = range(2)
"""``carried``: sums over decisions of terms times skewness, and of terms."""
_FORGET: Final = 0.99  # of these sums, what a decision leaves of those before it
_EDGEWORTH: Final = 0.252
_BEYOND, _SURE = 0.5, 3.0  # the 1/2 and the 3 of the lower limit of mu_std


@inline
def student_threshold(normal, n, exact):  # type: ignore[no-untyped-def]
    """Return the quantile of Student's t with ``n - 1`` degrees of freedom.

    ``normal`` is that of the normal distribution. From a table, and above its end by the
    expansion in ``1 / (n - 1)`` (Abramowitz and Stegun 1964, 26.7.5).
    """
    if n < exact.shape[0]:
        return exact[int(n)]
    g, v = normal, 1.0 / (n - 1.0)
    q = g * g
    a = g * (q + 1.0) / 4.0
    b = g * ((5.0 * q + 16.0) * q + 3.0) / 96.0
    c = g * (((3.0 * q + 19.0) * q + 17.0) * q - 15.0) / 384.0
    return g + v * (a + v * (b + v * c))


@inline
def _skewness_term(facts, carried, m, near):  # type: ignore[no-untyped-def]
    """Add this decision to the running skewness; return what skewness adds to the error.

    ``near`` is ``(t_0 / t)^2``; at most 1.
    """
    n = facts[COUNT]
    here = 0.0
    if facts[M2] > 0.0:
        here = abs(facts[M3]) / n / (facts[M2] / n) ** 1.5
    carried[SKEWNESS] = _FORGET * carried[SKEWNESS] + n * here
    carried[WEIGHT] = _FORGET * carried[WEIGHT] + n
    x = max(here, carried[SKEWNESS] / carried[WEIGHT]) / math.sqrt(m)
    return x * (_EDGEWORTH + 0.25 * x) * max(near, min(1.0, 16.0 * x**4))


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Draw until a t-test decides; see ``metropolis.acceptance``."""
    size = facts[POPULATION]
    mu_0 = math.log(draws[UNIFORM]) - facts[KNOWN]
    pair = 0
    if settings[SEARCH] != SEARCH_NONE:
        if facts[SWEPT] == 0.0:
            return SWEEP
        if memory[CHOSEN] == 0.0:
            memory[CHOSEN] = 1.0 + choose_pair(settings, facts, mu_0, table)
        pair = int(memory[CHOSEN]) - 1
        if pair < 0:
            reply[ERROR], reply[FORCED], reply[VARIANCE], reply[USED] = 0.0, 1.0, 0.0, size
            return ACCEPT if facts[SWEPT_MEAN] > mu_0 else REJECT
    n = facts[COUNT]
    m = min(settings[FIRST_PAIR + PER_PAIR * pair + TERMS], size)
    row = 1 + PER_PAIR * pair
    if n < m:
        reply[WANTED] = m - n
        return MORE
    distance = abs(facts[MEAN] - mu_0)
    near = 1.0
    if n < size:
        variance = facts[M2] / (n - 1.0) / n * (1.0 - (n - 1.0) / (size - 1.0))
        t = distance / math.sqrt(variance)
        normal = settings[FIRST_PAIR + PER_PAIR * pair + THRESHOLD]
        threshold = student_threshold(normal, n, table[row + THRESHOLDS])
        if not t > threshold:  # also where there is no spread and no distance
            reply[WANTED] = min(m, size - n)
            return MORE
        reply[VARIANCE] = variance
        near = (threshold / t) ** 2
        drift = max(0.0, t - max(threshold + _BEYOND, _SURE)) * math.sqrt((size - n) / n)
    else:
        reply[VARIANCE] = 0.0
        drift = distance * math.sqrt((size - 1.0) * size / facts[M2])
    if facts[SWEPT] != 0.0:
        away = abs(facts[SWEPT_MEAN] - mu_0)
        drift = away * math.sqrt((size - 1.0) * size / facts[SWEPT_M2])
    sequential = at_drift(table[DRIFTS], table[row + ERRORS], drift)
    reply[ERROR] = min(1.0, sequential + _skewness_term(facts, carried, m, near))
    reply[FORCED] = 0.0 if n < size else 1.0
    reply[USED] = n
    return ACCEPT if facts[MEAN] > mu_0 else REJECT


@dataclass(frozen=True, kw_only=True)
class AustereMetropolis(MetropolisOptions):
    """Sampler ``mh-austere``: Metropolis-Hastings with sequential t-tests.

    After every ``subsample_size`` more rows, drawn without replacement, a t-test at level
    ``epsilon`` asks whether the log-ratio of the rows so far decides; a decision that no
    test makes takes all rows (Korattikara, Chen and Welling 2014). The error of the whole
    sequence, not of one test, is recorded as ``decision_error``; where terms are skewed it says
    so.

    Parameters
    ----------
    subsample_size
        Rows that each look adds, m. ``None``: chosen together with ``epsilon``.
    conservative
        ``True``: choose ``subsample_size`` and ``epsilon`` once, for the worst case; ``False``: at
        every decision, for the mean and variance of all rows, which it evaluates.
    epsilon
        Threshold of each t-test, a probability from 1e-6 up to 0.5. ``None``: chosen. With
        ``subsample_size`` given too, nothing is chosen.
    max_error
        Bound within which the cheapest pair is chosen, in (0, 0.5]: on the probability of a wrong
        decision in the worst case, or, not conservative, on the error in the probability of
        acceptance.
    given_uniform
        Not conservative: choose for the uniform number that was drawn, not on average over it.

    Examples
    --------
    >>> from streammc.samplers import mh_austere
    >>> mh_austere(max_error=0.05).target
    'approximate'
    """

    conservative: bool = True
    epsilon: float | None = None
    max_error: float = 0.1
    given_uniform: bool = False

    name: ClassVar[str] = "mh-austere"
    decide: ClassVar[Any] = staticmethod(decide)
    chooses_size: ClassVar[bool] = True
    paper: ClassVar[str] = "Korattikara, Chen and Welling 2014, Austerity in MCMC land"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_number("epsilon", self.epsilon, f"[{LEAST_EPSILON:g}, 0.5)")
        check_number("max_error", self.max_error, "(0, 0.5]")
        fixed = self.subsample_size is not None and self.epsilon is not None
        if fixed and not self.conservative:
            raise ConfigError(
                "conservative=False needs subsample_size or epsilon to choose at every decision, "
                "found both given; leave one of them out"
            )
        if self.given_uniform and self.conservative:
            raise ConfigError(
                "given_uniform=True needs conservative=False, found conservative=True: change one"
            )

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`.

        Both ``m`` and ``epsilon`` given: no search. Else they are chosen from 50, 100, ..., 500
        and from 0.001, 0.005, 0.01, 0.05, 0.1, 0.2: the pair with the fewest expected terms among
        those whose error is at most ``max_error``.

        Raises
        ------
        ConfigError
            If no pair meets the bound in the worst case, with ``epsilon`` down to 1e-6.
        """
        settings, table = pair_table(
            population, m, self.epsilon, self.max_error, self.conservative, self.given_uniform
        )
        searches = bool(settings[SEARCH] != SEARCH_NONE)
        first = 0 if searches else min(int(settings[FIRST_PAIR + TERMS]), population)
        return Prepared(settings, table, first, False, sweeps=searches, barker=False)


mh_austere = builder(AustereMetropolis)
