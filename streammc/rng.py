"""One seed, one tree of streams: run -> chain -> role.

Chain ``k`` of four draws the same numbers as chain ``k`` of eight, and the
subsample stream never depends on what the kernel stream has used, so that units
can be drawn ahead of the draws that need them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np


class Role(IntEnum):
    """What a stream of random numbers is for."""

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


def stream(seed: int, chain: int, role: Role, *part: int) -> np.random.Generator:
    """Return the generator of one role in one chain.

    Parameters
    ----------
    seed
        Seed of the run, in ``[0, 2**64)``.
    chain
        Index of the chain; ``0`` for roles that chains share.
    role
        What the numbers are for.
    part
        Which part of them, where a role has several independent ones.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(chain, int(role), *part))
    return np.random.Generator(np.random.PCG64(sequence))


def get_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return the state of ``generator`` as plain JSON types."""
    state: dict[str, Any] = dict(generator.bit_generator.state)
    return state


def from_state(state: dict[str, Any]) -> np.random.Generator:
    """Return a generator that continues from :func:`get_state`."""
    bits = np.random.PCG64(0)
    plain: Any = state
    bits.state = plain
    return np.random.Generator(bits)
