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
    SUBSAMPLE = 1
    SWAP = 2
    PLAN = 3
    SIMULATE = 4
    SHUFFLE = 5
    KNOTS = 6
    COUNTS = 7
    RECALIBRATE = 8
    PRIOR = 9
    LADDER = 10
    CHECK = 11


def stream(seed: int, chain: int, role: Role, *part: int) -> np.random.Generator:
    """Return the generator of one role in one chain.

    Parameters
    ----------
    seed
        Seed of the run, in ``[0, 2**64)``.
    chain
        Index of the chain; ``0`` for roles that chains share.
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
