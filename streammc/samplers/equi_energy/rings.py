"""Energy rings: past states of a level, by their energy, in bounded memory.

A ring holds at most ``C`` states. They are a uniform sample, without replacement, of all that
were ever added to it (reservoir sampling, Vitter 1985, Algorithm R).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.numerics.jit import f8, i8, inline, jit, vector
from streammc.numerics.records import record_type
from streammc.protocols import Vector

RING_BYTES: Final = 2**30
"""Largest address space of the rings of one chain; pages without states take no memory."""


class Rings(NamedTuple):
    """Rings of every level: ``K`` levels, ``K`` energies, at most ``C`` states in each."""

    z: Annotated[NDArray[np.float64], 4]
    """(K, K, C, d) whitened positions."""
    value: Annotated[NDArray[np.float64], 3]
    """(K, K, C) their values ``V``: minus sums of terms, see ``energies``."""
    held: Annotated[NDArray[np.int64], 2]
    """(K, K) how many states there are."""
    seen: Annotated[NDArray[np.int64], 2]
    """(K, K) how many there have been."""


_counts: Any = types.Array(i8, 2, "C")
RINGS_TYPE: Any = record_type(Rings)


def allocate_rings(levels: int, capacity: int, d: int) -> Rings:
    """Return empty rings; where their room would exceed ``RING_BYTES`` they hold fewer."""
    most = RING_BYTES // (8 * (d + 1) * levels * levels)
    capacity = max(min(capacity, most), 1)
    counts = np.zeros((2, levels, levels), dtype=np.int64)
    shape = (levels, levels, capacity)
    return Rings(np.zeros((*shape, d)), np.zeros(shape), counts[0], counts[1])


def pack(rings: Rings) -> dict[str, NDArray[Any]]:
    """Return the states that are held, as arrays to be saved."""
    full = np.arange(rings.value.shape[2]) < rings.held[:, :, None]
    return {
        "ring_z": rings.z[full],
        "ring_value": rings.value[full],
        "ring_held": rings.held.copy(),
        "ring_seen": rings.seen.copy(),
    }


def unpack(rings: Rings, arrays: Any) -> None:
    """Write what :func:`pack` returned into ``rings``."""
    rings.held[...] = arrays["ring_held"]
    rings.seen[...] = arrays["ring_seen"]
    full = np.arange(rings.value.shape[2]) < rings.held[:, :, None]
    rings.z[full] = arrays["ring_z"]
    rings.value[full] = arrays["ring_value"]


def energy_levels(lowest: float, width: float, temperatures: Vector) -> Vector:
    """Return (K + 1,) ``H_0 < ... < H_K``: ``H_(k + 1) = H_k + c T_k``, the last infinite."""
    levels = lowest + width * np.concatenate([[0.0], np.cumsum(temperatures)])
    levels[-1] = math.inf
    return levels


@jit(i8(vector, f8), borrow=True)
def ring_of(levels, energy):  # type: ignore[no-untyped-def]
    """Return j with ``H_j <= energy < H_(j + 1)``; 0 below ``H_0``."""
    ring = 0
    for j in range(1, levels.shape[0] - 1):
        if energy >= levels[j]:
            ring = j
    return ring


@jit(types.void(RINGS_TYPE, i8, i8, vector, f8, f8), borrow=True)
def add(rings, level, ring, z, value, uniform):  # type: ignore[no-untyped-def]
    """Add a state to a ring; in a full one ``uniform`` in [0, 1) decides which it replaces."""
    capacity = rings.value.shape[2]
    rings.seen[level, ring] += 1
    slot = rings.held[level, ring]
    if slot < capacity:
        rings.held[level, ring] += 1
    else:
        slot = int(uniform * rings.seen[level, ring])
        if slot >= capacity:
            return
    for j in range(z.shape[0]):
        rings.z[level, ring, slot, j] = z[j]
    rings.value[level, ring, slot] = value


@inline
def truncated(energy, floor, temperature):  # type: ignore[no-untyped-def]
    """Return ``log pi_k`` without the prior: ``-max(h, H_k) / T_k``."""
    return -max(energy, floor) / temperature


@jit(f8(f8, f8, f8, f8, f8, f8, f8, f8), borrow=True)
def jump_ratio(now, now_above, new, new_above, floor, temperature, floor_above, temperature_above):  # type: ignore[no-untyped-def]
    """Return ``log pi_k(x') pi_(k+1)(x) / (pi_k(x) pi_(k+1)(x'))`` (Algorithm 2, line 19).

    ``now`` and ``new`` are the energies of x and x' under level k, ``now_above`` and
    ``new_above`` under level k + 1. The prior is that of both levels and cancels.
    """
    return (
        truncated(new, floor, temperature)
        - truncated(now, floor, temperature)
        + truncated(now_above, floor_above, temperature_above)
        - truncated(new_above, floor_above, temperature_above)
    )
