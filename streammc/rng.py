"""Random streams of a run: a tree from one seed by chain and role.

Chain ``k`` of four uses the same numbers as chain ``k`` of eight, and the subsample stream
does not depend on the use of the kernel stream, so that units can be drawn ahead of the
iterations that need them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np


class Role(IntEnum):
    """Purpose of a stream of random numbers."""

    KERNEL = 0
    """Proposals and decisions of a chain."""
    SUBSAMPLE = 1
    """Units of the subsample."""
    SWAP = 2
    """Swaps of replicas."""
    PLAN = 3
    """Samples of rows and pilots before the draws: seed 0, a number per purpose as ``chain``."""
    SIMULATE = 4
    """Simulated rows, the number of the block + 1 as ``chain``; draws of group effects."""
    SHUFFLE = 5
    """Order of the rows of a new store."""
    KNOTS = 6
    """Sample of rows from which the knots of a formula come."""
    COUNTS = 7
    """Poisson numbers of units in the blocks of the signed estimator."""
    RECALIBRATE = 8
    """Seed of the pilot chains whose draws give a new expansion."""
    PRIOR = 9
    """Draws of the prior at the hottest level of a ladder."""
    LADDER = 10
    """Seed of the pilot that chooses the levels of a ladder."""
    CHECK = 11
    """Posterior predictive checks."""
    POOL = 12
    """Rows that are drawn ahead, by sheet and first row of a piece; order of a sheet."""


def stream(seed: int, chain: int, role: Role, *part: int) -> np.random.Generator:
    """Return the generator of one role in one chain.

    Parameters
    ----------
    seed
        Seed of the run, in ``[0, 2**64)``.
    chain
        Index of the chain; ``0`` for roles that chains share, but see ``PLAN`` and ``SIMULATE``.
    role
        Purpose of the numbers.
    part
        Index of the stream, for a role with several independent streams.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(chain, int(role), *part))
    return np.random.Generator(np.random.PCG64(sequence))


def get_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return the state of ``generator`` as JSON."""
    state: dict[str, Any] = dict(generator.bit_generator.state)
    return state


def from_state(state: dict[str, Any]) -> np.random.Generator:
    """Return a generator that continues from a state of :func:`get_state`."""
    bits = np.random.PCG64(0)
    plain: Any = state
    bits.state = plain
    return np.random.Generator(bits)
