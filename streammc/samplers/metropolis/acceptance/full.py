"""``mh``: the acceptance test on all rows, with the function of Metropolis or of Barker."""

from __future__ import annotations

import math

import numpy as np

from streammc.numerics.jit import inline, jit
from streammc.samplers.metropolis.acceptance.interface import (
    ACCEPT,
    ERROR,
    FORCED,
    KNOWN,
    POPULATION,
    REJECT,
    SWEEP,
    SWEPT,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    Prepared,
)

METROPOLIS, BARKER = range(2)


@inline
def accepts(delta, u, barker):  # type: ignore[no-untyped-def]
    """Return whether a uniform ``u`` accepts ``delta``.

    With probability ``min(1, exp(delta))``, or ``1 / (1 + exp(-delta))`` where ``barker``
    is 1 (Barker 1965; Seita et al. 2017, eq. 9): then ``logit(u) < delta``.
    """
    if barker == 1:
        return math.log(u) - math.log1p(-u) < delta
    return math.log(u) < delta


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Sweep, and accept with the exact probability; ``settings``: 0 Metropolis, 1 Barker."""
    if facts[SWEPT] == 0.0:
        return SWEEP
    reply[ERROR] = 0.0
    reply[FORCED] = 0.0
    reply[VARIANCE] = 0.0
    reply[USED] = facts[POPULATION]
    delta = facts[KNOWN] + facts[SWEPT_MEAN]
    return ACCEPT if accepts(delta, draws[UNIFORM], int(settings[0])) else REJECT


def prepare(population: int, *, m: int | None = None, barker: bool) -> Prepared:
    """Return what the test is given: its acceptance function. It has no use for ``m``."""
    return Prepared(np.array([float(barker)]), np.zeros((0, 0)), 0, False, sweeps=True)
