"""``mh-penalty``: an acceptance test in one file, as a user of the family would write it.

Ceperley and Dewing 1999, "The penalty method for random walks with uncertain energies": with a
normal estimate ``d`` of the log acceptance ratio from ``m`` terms, and ``v`` the estimated variance
of the estimate, a proposal is accepted with probability

    min(1, exp(d - v / 2 - v^2 / (4 (m + 1)))),

which leaves the posterior invariant up to terms of order ``v^3 / m^2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streammc.numerics.jit import jit
from streammc.samplers.common.options import builder
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    FORCED,
    KNOWN,
    MEAN,
    MORE,
    REJECT,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
)
from streammc.samplers.metropolis.clt import variance_of_mean
from streammc.samplers.metropolis.options import MetropolisOptions

DEFAULT_SIZE = 100


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Ask for ``m`` terms, once; accept by their mean less the penalty."""
    m = settings[0]
    if facts[COUNT] < m:
        reply[WANTED] = m - facts[COUNT]
        return MORE
    v = variance_of_mean(facts)
    reply[USED], reply[VARIANCE], reply[FORCED] = facts[COUNT], v, 0.0
    reply[ERROR] = v * v * v / (3.0 * (m + 1.0) * (m + 3.0))  # the first term left out
    delta = facts[KNOWN] + facts[MEAN] - 0.5 * v - v * v / (4.0 * (m + 1.0))
    return ACCEPT if math.log(draws[UNIFORM]) < delta else REJECT


@dataclass(frozen=True, kw_only=True)
class Penalty(MetropolisOptions):
    """Sampler ``mh-penalty``: Metropolis-Hastings with a penalty for the noise of a minibatch.

    Parameters
    ----------
    subsample_size
        Rows of a decision, m. ``None``: from the full pass; 100 without one.
    """

    name: ClassVar[str] = "mh-penalty"
    decide: ClassVar[Any] = staticmethod(decide)
    paper: ClassVar[str] = "Ceperley and Dewing 1999, The penalty method"

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`."""
        size = DEFAULT_SIZE if m is None else m
        return Prepared(np.array([float(size)]), np.zeros((0, 0)), size, True, barker=False)


mh_penalty = builder(Penalty)
