"""Rows in memory for the levels of a ladder, and their log-likelihood; no expansions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from streammc.errors import ModelError
from streammc.likelihood.blocks import SCRATCH_TYPE, TILE, allocate_rows
from streammc.likelihood.estimators import predictor_step
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import (
    JOINT_SIGNATURE,
    JOINT_TYPE,
    LINK_SIGNATURE,
    LINK_TYPE,
    f8,
    i8,
    index_vector,
    inline,
    jit,
    record_type,
    vector,
)
from streammc.protocols import Dataset, Index, Matrix, Model, Vector

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


@jit(JOINT_SIGNATURE, borrow=True)
def _no_joint(X, y, theta, constants, order, gradient):  # type: ignore[no-untyped-def]
    return 0.0


@jit(LINK_SIGNATURE, borrow=True)
def _no_link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        out[0, i] = 0.0


def pointers(model: Model) -> tuple[Any, Any]:
    """Return the compiled link and joint log-likelihood; the one not used is a placeholder."""
    if model.joint is not None:
        return _no_link, model.joint
    return model.link, _no_joint


@inline(reassociate=True)
def _predictors(held, theta, n_linear, start, w, eta):  # type: ignore[no-untyped-def]
    """Write the predictors (p, w) of the rows from ``start`` on."""
    design = held.design
    q = design.shape[0]
    for a in range(eta.shape[0]):
        if a < n_linear:
            predictor_step(design, theta, a * q, start, w, eta, a)
            if a == 0:
                for i in range(w):
                    eta[0, i] += held.offset[start + i]
        else:
            value = theta[n_linear * q + a - n_linear]
            for i in range(w):
                eta[a, i] = value


@inline
def _pull(design, out, a, lo, w, first, slope):  # type: ignore[no-untyped-def]
    """Add ``sum_i out[1 + a, i] x_i`` to ``slope[first : first + q]``."""
    for j in range(design.shape[0]):
        total = 0.0
        for i in range(w):
            total += out[1 + a, i] * design[j, lo + i]
        slope[first + j] += total


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, BASE_TYPE, HELD_TYPE, i8, i8, vector, i8, vector, SCRATCH_TYPE
    ),
    reassociate=True,
    borrow=True,
)  # fmt: skip
def log_likelihood(link, joint, base, held, lo, hi, theta, order, slope, scratch):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of the rows ``lo`` to ``hi`` at ``theta`` (d,).

    For ``order`` 1 its gradient is written into ``slope`` (d,). No rows: 0.
    """
    if lo < 0:  # never true: tells the compiler that no index is negative
        return 0.0
    d = theta.shape[0]
    if order >= 1:
        for j in range(d):
            slope[j] = 0.0
    if hi <= lo:
        return 0.0
    design, y, weight = held.design, held.y, held.weight
    if held.joint == 1:
        factor = weight[lo]
        value = joint(design[:, lo:hi], y[lo:hi], theta, base.constants, order, slope)
        if order >= 1:
            for j in range(d):
                slope[j] *= factor
        return factor * value
    n_linear, constants = base.n_linear, base.constants
    q = design.shape[0]
    p = n_linear + d - n_linear * q
    size = 1 + p
    total = 0.0
    for start in range(lo, hi, TILE):
        w = min(TILE, hi - start)
        eta = scratch.eta[: p * w].reshape((p, w))
        out = scratch.out[: size * w].reshape((size, w))
        _predictors(held, theta, n_linear, start, w, eta)
        link(eta, design[:, start : start + w], y[start : start + w], constants, order, out)
        for i in range(w):
            # A row of weight 0 must not turn inf * 0 into NaN.
            total += weight[start + i] * out[0, i] if weight[start + i] != 0.0 else 0.0
        if order >= 1:
            for a in range(p):
                if a < n_linear:
                    for i in range(w):
                        times = weight[start + i]
                        out[1 + a, i] = times * out[1 + a, i] if times != 0.0 else 0.0
                    _pull(design, out, a, start, w, a * q, slope)
                else:
                    pulled = 0.0
                    for i in range(w):
                        times = weight[start + i]
                        pulled += times * out[1 + a, i] if times != 0.0 else 0.0
                    slope[n_linear * q + a - n_linear] += pulled
    return total


@jit(
    types.void(
        LINK_TYPE, BASE_TYPE, HELD_TYPE, i8, i8, vector, SCRATCH_TYPE, vector, i8
    ),
    borrow=True,
)  # fmt: skip
def terms(link, base, held, lo, hi, theta, scratch, values, first):  # type: ignore[no-untyped-def]
    """Write the log-likelihood of each of the rows ``lo`` to ``hi`` to ``values[first:]``."""
    if lo < 0:
        return
    d, q = theta.shape[0], held.design.shape[0]
    n_linear = base.n_linear
    p = n_linear + d - n_linear * q
    for start in range(lo, hi, TILE):
        w = min(TILE, hi - start)
        eta = scratch.eta[: p * w].reshape((p, w))
        out = scratch.out[: (1 + p) * w].reshape((1 + p, w))
        _predictors(held, theta, n_linear, start, w, eta)
        link(
            eta, held.design[:, start : start + w], held.y[start : start + w], base.constants, 0,
            out,
        )  # fmt: skip
        for i in range(w):
            times = held.weight[start + i]
            values[first + start - lo + i] = times * out[0, i] if times != 0.0 else 0.0
