"""Rows in memory for the levels of a ladder: contiguous, without Taylor expansions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.errors import ModelError
from streammc.likelihood.blocks import allocate_rows
from streammc.numerics.jit import i8, index_vector, jit
from streammc.numerics.records import record_type
from streammc.protocols import Dataset, Index, Matrix, Vector

_SLICE = 8192


class Held(NamedTuple):
    """``N`` rows in memory, without expansions; a level uses a contiguous part."""

    design: Matrix
    """(q, N) transposed design."""
    y: Vector
    """(N,) response."""
    offset: Vector
    """(N,) offset of the first linear predictor."""
    weight: Vector
    """(N,) weight of the log-likelihood of each row."""
    joint: int
    """1 if the likelihood is one of all rows together (``protocols.Model.joint``), else 0."""


HELD_TYPE: Any = record_type(Held)


def allocate_held(n: int, q: int, *, joint: bool = False) -> Held:
    """Return ``n`` rows of zeros with ``q`` columns."""
    return Held(np.zeros((q, n)), np.zeros(n), np.zeros(n), np.zeros(n), int(joint))


def held_bytes(n: int, q: int) -> int:
    """Return the size of ``n`` rows in memory, in bytes."""
    return 8 * n * (q + 3)


def hold(dataset: Dataset, *, joint: bool = False) -> Held:
    """Return all rows of ``dataset`` in memory, in the order of the data set.

    Raises
    ------
    ModelError
        If the likelihood is one of all rows together, and these have offsets or unequal
        weights, which it cannot use. Equal weights are an inverse temperature.
    """
    held = allocate_held(dataset.n_rows, dataset.n_features, joint=joint)
    source = dataset.rows()
    for start in range(0, dataset.n_rows, _SLICE):
        stop = min(start + _SLICE, dataset.n_rows)
        rows = allocate_rows(stop - start, dataset.n_features)
        source.gather(np.arange(start, stop), 1, rows)
        held.design[:, start:stop] = rows.X.T
        held.y[start:stop] = rows.y
        held.offset[start:stop] = rows.offset
        held.weight[start:stop] = rows.weight
    if joint and (held.offset.any() or (held.weight != held.weight[0]).any()):
        what = "offsets" if held.offset.any() else "unequal weights"
        raise ModelError(
            f"expected rows that count once in {dataset.address!r}, found {what}: a likelihood of "
            "all rows together has no place for them; ingest without"
        )
    return held


@jit(types.void(HELD_TYPE, index_vector, i8, i8, HELD_TYPE, i8), borrow=True)
def copy_held(source, order, first, count, target, start):  # type: ignore[no-untyped-def]
    """Copy the rows ``order[first : first + count]`` to ``target`` from ``start`` on."""
    for j in range(source.design.shape[0]):
        for i in range(count):
            target.design[j, start + i] = source.design[j, order[first + i]]
    for i in range(count):
        row = order[first + i]
        target.y[start + i] = source.y[row]
        target.offset[start + i] = source.offset[row]
        target.weight[start + i] = source.weight[row]


def gather(source: Held, rows: Index) -> Held:
    """Return a copy of the rows of ``source`` with the indices ``rows``."""
    target = allocate_held(len(rows), len(source.design), joint=bool(source.joint))
    copy_held(source, np.asarray(rows, dtype=np.int64), 0, len(rows), target, 0)
    return target
