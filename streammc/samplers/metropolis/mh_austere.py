"""``mh-austere``: sequential t-tests of the mean term, after Korattikara et al. 2014.

A uniform u is drawn first; the proposal is accepted where the mean term exceeds
``mu_0 = log u - known``. After every ``m`` more terms, drawn without replacement,

    t = |mean - mu_0| / s,    s = s_l / sqrt(n) sqrt(1 - (n - 1) / (N - 1)),

and the sequence ends where ``1 - F_{n-1}(t) < epsilon``, F Student's distribution function
(their Algorithm 1), or, forced, with all N terms, where the decision is exact. What ``m``
and ``epsilon`` do together is ``acceptance.sequential_error``.

The error of a decision is that of its sequence: the probability, before any term is drawn,
that a sequence with this ``mu_std`` ends on the wrong side. All terms tell ``mu_std``; a
sequence that ends before tells a lower limit, by how far t exceeds its threshold by more than
1/2, and 3. So the mean of errors over decisions is what to compare with the share of wrong
ones, which it exceeds by little at ``mu_std = 0`` and by much far from there; and forced
decisions, though right, carry theirs.

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
from typing import Any, ClassVar, Final

from streammc.errors import ConfigError
from streammc.numerics.jit import inline, jit
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import check_number
from streammc.samplers.metropolis.acceptance.austere_search import (
    DRIFTS,
    ERRORS,
    FIRST_PAIR,
    PER_PAIR,
    SEARCH,
    SEARCH_NONE,
    TERMS,
    THRESHOLD,
    THRESHOLDS,
    at_drift,
    choose_pair,
    pair_table,
)
from streammc.samplers.metropolis.acceptance.interface import (
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

LEAST_EPSILON: Final = 1e-6
CHOSEN: Final = 0  # memory: 1 + the pair chosen for this decision; -1: none meets the limit
SKEWNESS, WEIGHT = range(2)  # carried
_FORGET: Final = 0.99
_EDGEWORTH: Final = 0.252
_BEYOND, _SURE = 0.5, 3.0


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
    """Add this decision to the running skewness; return its share of the error."""
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
    """Draw until a t-test decides; see ``acceptance.interface``."""
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
        for option in ("conservative", "given_uniform"):
            if not isinstance(getattr(self, option), bool):
                raise ConfigError(
                    f"{option} must be true or false, found {getattr(self, option)!r}"
                    ": use True or False"
                )
        check_number("epsilon", self.epsilon)
        check_number("max_error", self.max_error)
        if self.max_error is None or not 0.0 < self.max_error <= 0.5:
            raise ConfigError(
                f"max_error must be above 0 and at most 0.5, found {self.max_error!r}"
                ": give a number in this range"
            )
        if self.epsilon is not None and not LEAST_EPSILON <= self.epsilon < 0.5:
            raise ConfigError(
                f"epsilon must be at least {LEAST_EPSILON:g} and below 0.5, found {self.epsilon!r}"
                ": give a number in this range"
            )
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
