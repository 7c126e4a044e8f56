"""Units of an accept-reject decision from a key: unit j does not depend on the others.

The number of units of a decision is not known in advance, so each decision has a stream of
its own, given by a 64-bit key: nothing has to be stored, skipped or drawn in order. With
replacement, unit ``j`` is a hash of the key and ``j``. Without replacement it is the image of
``j`` under a permutation that the key selects: a Feistel network (Black and Rogaway 2002) on
the smallest even power of two that is at least the number of units, repeated until the image
is a unit. Memory does not depend on the number of units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.numerics.jit import i8, index_vector, inline, jit
from streammc.protocols import Index

_ROUNDS = 8
_LEAST_BITS = 4
# With halves of two bits, some orders of five units were 1.3 times as frequent as others.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LANE = np.uint64(0xD1342543DE82EF95)
_ONE = np.uint64(1)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_TO_UNIT = 2.0**-53

key_vector: Any = types.Array(types.uint64, 1, "C")
Keys = NDArray[np.uint64]


@inline
def mix(x):  # type: ignore[no-untyped-def]
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014) of ``x``."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@inline
def _permuted(j, key, n, half, mask):  # type: ignore[no-untyped-def]
    x = np.uint64(j)
    while True:
        left, right = x >> half, x & mask
        round_key = key
        for _ in range(_ROUNDS):
            round_key += _GAMMA
            left, right = right, left ^ (mix(right ^ mix(round_key)) & mask)
        x = (left << half) | right
        if x < n:
            return x


@jit(types.void(key_vector, i8, i8, i8, i8, index_vector), borrow=True)
def keyed_units(keys, first, count, n_units, replace, out):  # type: ignore[no-untyped-def]
    """Write units ``first`` to ``first + count`` of every key, one key after the other.

    ``replace`` 0 draws without replacement: ``first + count`` is at most ``n_units``.
    """
    n = np.uint64(n_units)
    bits = _LEAST_BITS
    while (_ONE << np.uint64(2 * bits)) < n:
        bits += 1
    half = np.uint64(bits)
    mask = (_ONE << half) - _ONE
    place = 0
    for t in range(keys.shape[0]):
        key = keys[t]
        for j in range(first, first + count):
            if replace == 1:
                hashed = mix(key + _GAMMA * np.uint64(j + 1))
                out[place] = np.int64(float(hashed >> _S11) * _TO_UNIT * n_units)
            else:
                out[place] = np.int64(_permuted(j, key, n, half, mask))
            place += 1


@jit(types.void(types.uint64, i8, types.uint64, key_vector), borrow=True)
def _fill_keys(root, iteration, lane, out):  # type: ignore[no-untyped-def]
    for t in range(out.shape[0]):
        out[t] = mix(mix(root + _GAMMA * np.uint64(iteration + t + 1)) + _LANE * (lane + _ONE))


class KeyedUnits:
    """Units of the decisions of one chain.

    Parameters
    ----------
    n_units, unit_rows
        U units of b rows.
    seed, chain
        Seed of the run and number of the chain, which give the key of each decision.
    """

    def __init__(self, n_units: int, unit_rows: int, seed: int, chain: int) -> None:
        self.n_units = n_units
        self.unit_rows = unit_rows
        rng = streams.stream(seed, chain, streams.Role.SUBSAMPLE)
        self._root = rng.integers(0, 2**64, dtype=np.uint64)

    def draw(
        self, iteration: int, n: int, first: int, count: int, *, lane: int, replace: bool
    ) -> Index:
        """Return (n * count,) units: ``first`` to ``first + count`` of each of ``n`` iterations.

        Iterations are independent of each other, and so are the lanes of an iteration.
        """
        keys = np.empty(n, dtype=np.uint64)
        _fill_keys(self._root, iteration, np.uint64(lane), keys)
        out = np.empty(n * count, dtype=np.int64)
        keyed_units(keys, first, count, self.n_units, int(replace), out)
        return out
