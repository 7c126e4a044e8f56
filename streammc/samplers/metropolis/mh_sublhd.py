"""``mh-sublhd``: a bound on the mean term that holds for every population, Bardenet et al. 2014.

A uniform u is drawn first; the proposal is accepted where the mean term exceeds
``psi = log u - known``. Terms are drawn without replacement, from one look to the next
``gamma`` times as many, and the sequence ends where ``|mean - psi| > c_t``, or, forced, with
all terms, where the decision is exact. At look t (1, 2, ...), with n terms of N, their
standard deviation ``s_n`` (divisor n), ``R = 2 C`` their range, C a bound on their size, and

    delta_t = (p - 1) / (p t^p) delta,    sum_t delta_t <= delta,

the empirical Bernstein-Serfling inequality (Bardenet and Maillard 2015, theorem 4.3) gives

    c_t = s_n sqrt(2 rho_n log(5 / delta_t) / n) + (7/3 + 3 / sqrt 2) R log(5 / delta_t) / n,
    rho_n = 1 - (n - 1) / N for n <= N / 2, else (1 - n / N)(1 + 1 / n),

and that of Bernstein (Audibert, Munos and Szepesvari 2009), which holds for fewer reasons
but has smaller constants, ``c_t = s_n sqrt(2 log(3 / delta_t) / n) + 3 R log(3 / delta_t) / n``.
A decision is wrong only if the mean leaves its interval on one side, so with probability at
most ``delta``, whatever the terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from streammc.numerics.jit import inline, jit
from streammc.samplers.common.options import builder, check_number
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    BOUND,
    COUNT,
    ERROR,
    FORCED,
    KNOWN,
    M2,
    MEAN,
    MORE,
    POPULATION,
    REJECT,
    SWEEP,
    SWEPT,
    SWEPT_LARGEST,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
)
from streammc.samplers.metropolis.options import MetropolisOptions

FIRST, GAMMA, POWER, DELTA, INEQUALITY, SOURCE = range(6)  # settings
BERNSTEIN_SERFLING: Final = "bernstein-serfling"
BERNSTEIN: Final = "bernstein"
INEQUALITIES: Final = (BERNSTEIN_SERFLING, BERNSTEIN)
PASS: Final = "pass"
MODEL: Final = "model"
BOUNDS: Final = (PASS, MODEL)
DEFAULT_SIZE: Final = 100
LOOKS: Final = 0  # memory
_KAPPA: Final = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)


@inline
def half_width(n, size, variance, largest, delta, inequality):  # type: ignore[no-untyped-def]
    """Return ``c_t``; ``inequality`` 0 is Bernstein-Serfling's, 1 Bernstein's."""
    if inequality == 1:
        log_term = math.log(3.0 / delta)
        return math.sqrt(2.0 * variance * log_term / n) + 6.0 * largest * log_term / n
    log_term = math.log(5.0 / delta)
    rho = 1.0 - (n - 1.0) / size
    if n > 0.5 * size:
        rho = (1.0 - n / size) * (1.0 + 1.0 / n)
    return math.sqrt(2.0 * rho * variance * log_term / n) + _KAPPA * 2.0 * largest * log_term / n


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Draw until the interval excludes the threshold; see ``metropolis.acceptance``."""
    size = facts[POPULATION]
    largest = facts[BOUND]
    if facts[SWEPT] != 0.0:
        largest = min(largest, facts[SWEPT_LARGEST])
    elif settings[SOURCE] == 0.0 or not largest < math.inf:
        return SWEEP
    n = facts[COUNT]
    if n == 0.0:
        reply[WANTED] = min(settings[FIRST], size)
        return MORE
    psi = math.log(draws[UNIFORM]) - facts[KNOWN]
    reply[ERROR], reply[FORCED], reply[VARIANCE] = 0.0, 1.0, 0.0
    if n < size:
        memory[LOOKS] += 1.0
        p = settings[POWER]
        delta = (p - 1.0) / (p * memory[LOOKS] ** p) * settings[DELTA]
        spread = facts[M2] / n
        width = half_width(n, size, spread, largest, delta, int(settings[INEQUALITY]))
        if not abs(facts[MEAN] - psi) > width:
            reply[WANTED] = max(min(size, math.ceil(settings[GAMMA] * n)) - n, 1.0)
            return MORE
        reply[ERROR], reply[FORCED] = settings[DELTA], 0.0
        reply[VARIANCE] = spread / n * (1.0 - (n - 1.0) / (size - 1.0))
    reply[USED] = n
    return ACCEPT if facts[MEAN] > psi else REJECT


@dataclass(frozen=True, kw_only=True)
class BoundedMetropolis(MetropolisOptions):
    """Sampler ``mh-sublhd``: Metropolis-Hastings with a concentration bound (Bardenet et al. 2014).

    Rows are drawn without replacement, ``gamma`` times as many at each look, until an
    empirical Bernstein-Serfling interval around the log-ratio excludes the threshold, or
    all rows are used. A decision differs from that on all rows with probability at most ``delta``,
    whatever the rows are, as long as no term exceeds its bound; ``bound='pass'`` evaluates all rows
    to make sure.

    Parameters
    ----------
    subsample_size
        Rows of the first look, m. ``None``: from the full pass; 100 without one.
    gamma
        How many times as many rows the next look has; above 1.
    p
        Look t has a share (p - 1) / (p t^p) of ``delta``; above 1.
    delta
        Bound on the probability that a decision is not that on all rows, in (0, 0.5].
    bound
        On the size of a term: ``pass`` evaluates all rows at every decision; ``model`` takes
        what the model says, and a pass where it says nothing.
    inequality
        ``bernstein-serfling``, or ``bernstein``, as published experiments had it.

    Examples
    --------
    >>> from streammc.samplers import mh_sublhd
    >>> mh_sublhd(delta=0.05).delta
    0.05
    """

    gamma: float = 2.0
    p: float = 2.0
    delta: float = 0.01
    bound: Literal["pass", "model"] = "pass"
    inequality: Literal["bernstein-serfling", "bernstein"] = BERNSTEIN_SERFLING

    name: ClassVar[str] = "mh-sublhd"
    decide: ClassVar[Any] = staticmethod(decide)
    paper: ClassVar[str] = "Bardenet, Doucet and Holmes 2014, Towards scaling up MCMC"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_number("gamma", self.gamma, "(1, inf)")
        check_number("p", self.p, "(1, inf)")
        check_number("delta", self.delta, "(0, 0.5]")

    @property
    def takes_bound(self) -> bool:
        """Whether the model bounds the terms: see :class:`MetropolisOptions`."""
        return self.bound == MODEL

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`."""
        first = min(DEFAULT_SIZE if m is None else m, population)
        inequality, source = INEQUALITIES.index(self.inequality), BOUNDS.index(self.bound)
        settings = np.array([first, self.gamma, self.p, self.delta, inequality, source])
        return Prepared(
            settings, np.zeros((0, 0)), first, False,
            sweeps=self.bound == PASS, barker=False,
        )  # fmt: skip


mh_sublhd = builder(BoundedMetropolis)
