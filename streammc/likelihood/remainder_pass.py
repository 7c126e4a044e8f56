"""Full pass that sums the remainders ``l_i - q_i`` of all rows at many draws of theta.

A remainder is small, since the Taylor terms are subtracted row by row: its sum keeps its
precision over a billion rows.

With one predictor the remainder of a row is a function of one number, the distance
``s = x . delta`` of the predictor from the expansion point. Between the smallest and the
largest ``s`` of all draws it is interpolated by the polynomial of degree 8 through 9
Chebyshev points, for families whose log-likelihood is analytic: 9 evaluations of the link
in place of 400. The last two Chebyshev coefficients bound the error of the polynomial
(Trefethen 2013, chapter 8). A tile where they exceed the tolerance is evaluated draw by
draw, and so are all other families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numba import types

from streammc.likelihood.blocks import (
    BLOCK_TYPE,
    ROWS_TYPE,
    SCRATCH_TYPE,
    TILE,
    Block,
    ExpansionPoint,
    Scratch,
    allocate_block,
    allocate_scratch,
    expand,
)
from streammc.models.base import wide
from streammc.numerics.dispatchers import make_ready
from streammc.numerics.jit import LINK_TYPE, f8, i8, jit, matrix, record_type, vector
from streammc.numerics.summation import merge_compensated, two_sum
from streammc.protocols import Dataset, Matrix, Model, PassTask, RowBlock, Rows, Vector

NODES: Final = 9
_POINTS: Final = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
# From values at the points to coefficients of powers, and to the last two Chebyshev coefficients.
POWERS: Final = np.ascontiguousarray(np.linalg.inv(np.vander(_POINTS, increasing=True)))
TAIL: Final = np.ascontiguousarray(
    2.0 / NODES * np.cos(np.outer([NODES - 2, NODES - 1], np.arccos(_POINTS)))
)
_cube: Any = types.Array(f8, 3, "C")


@jit(f8(LINK_TYPE, vector, BLOCK_TYPE, i8, SCRATCH_TYPE), borrow=True, reassociate=True)
def sum_values(link, constants, tile, w, scratch):  # type: ignore[no-untyped-def]
    """Return the sum over ``w`` rows of the remainders at the predictors in ``scratch``."""
    expansion, weight = tile.expansion, tile.weight
    p = tile.eta_star.shape[0]
    size = expansion.shape[0]
    eta = scratch.eta[: p * w].reshape((p, w))
    step = scratch.step[: p * w].reshape((p, w))
    out = scratch.out[: size * w].reshape((size, w))
    link(eta, tile.design[:, :w], tile.y[:w], constants, 0, out)
    total = 0.0
    if p == 1:
        for i in range(w):
            s = step[0, i]
            l = weight[i] * out[0, i] if weight[i] != 0.0 else 0.0
            total += l - expansion[0, i] - s * (expansion[1, i] + 0.5 * expansion[2, i] * s)
        return total
    value = out[0]
    for i in range(w):
        value[i] = (weight[i] * value[i] if weight[i] != 0.0 else 0.0) - expansion[0, i]
    h = 1 + p
    for a in range(p):
        for i in range(w):
            value[i] -= expansion[1 + a, i] * step[a, i]
        for b in range(a, p if size > 1 + p else a):
            half = 0.5 if a == b else 1.0
            for i in range(w):
                value[i] -= half * expansion[h, i] * step[a, i] * step[b, i]
            h += 1
    for i in range(w):
        total += value[i]
    return total


@jit(types.b1(LINK_TYPE, vector, BLOCK_TYPE, i8, SCRATCH_TYPE, matrix, f8, matrix, matrix, matrix),
     borrow=True, reassociate=True)  # fmt: skip
def interpolate(link, constants, tile, w, scratch, steps, tolerance, powers, tail, poly):  # type: ignore[no-untyped-def]
    """Write the polynomials of ``w`` rows into ``poly``; return whether the tolerance is met.

    ``poly`` is (2 NODES + 1, TILE). ``poly[NODES]`` is the inverse of the largest step of each
    row over all draws, ``poly[:NODES]`` the coefficients of powers of ``step poly[NODES]``.
    """
    expansion, weight, eta_star = tile.expansion, tile.weight, tile.eta_star
    n = powers.shape[0]
    size = expansion.shape[0]
    reach = poly[n]
    for i in range(w):
        reach[i] = 0.0
    for s in range(steps.shape[0]):
        for i in range(w):
            reach[i] = max(reach[i], abs(steps[s, i]))
    eta = scratch.eta[:w].reshape((1, w))
    out = scratch.out[: size * w].reshape((size, w))
    design, y = tile.design[:, :w], tile.y[:w]
    for k in range(n):
        point = np.cos(np.pi * (k + 0.5) / n)
        for i in range(w):
            eta[0, i] = eta_star[0, i] + point * reach[i]
        link(eta, design, y, constants, 0, out)
        values = poly[n + 1 + k]
        for i in range(w):
            s = point * reach[i]
            l = weight[i] * out[0, i] if weight[i] != 0.0 else 0.0
            values[i] = l - expansion[0, i] - s * (expansion[1, i] + 0.5 * expansion[2, i] * s)
    left = 0.0
    rounding = 0.0
    for i in range(w):
        rounding += abs(expansion[0, i])
        one = 0.0
        other = 0.0
        for k in range(n):
            one += tail[0, k] * poly[n + 1 + k, i]
            other += tail[1, k] * poly[n + 1 + k, i]
        left += abs(one) + abs(other)
    # The coefficients contain the rounding errors of the values.
    if not left <= tolerance * w + 1e-15 * rounding:
        return False
    for j in range(n):
        for i in range(w):
            total = 0.0
            for k in range(n):
                total += powers[j, k] * poly[n + 1 + k, i]
            poly[j, i] = total
    for i in range(w):
        reach[i] = 1.0 / reach[i] if reach[i] > 1e-300 else 0.0
    return True


@jit(types.void(matrix, i8, i8, matrix, vector), borrow=True, reassociate=True)
def add_polynomials(steps, first, w, poly, totals):  # type: ignore[no-untyped-def]
    """Write the sums over ``w`` rows of the polynomials at the four draws from ``first`` on."""
    if first < 0:
        return
    t0 = t1 = t2 = t3 = 0.0
    for i in range(w):
        scale = poly[9, i]
        a = steps[first, i] * scale
        b = steps[first + 1, i] * scale
        c = steps[first + 2, i] * scale
        d = steps[first + 3, i] * scale
        top = poly[8, i]
        v0, v1, v2, v3 = top, top, top, top
        for k in range(7, -1, -1):
            coefficient = poly[k, i]
            v0 = v0 * a + coefficient
            v1 = v1 * b + coefficient
            v2 = v2 * c + coefficient
            v3 = v3 * d + coefficient
        t0 += v0
        t1 += v1
        t2 += v2
        t3 += v3
    totals[first] = t0
    totals[first + 1] = t1
    totals[first + 2] = t2
    totals[first + 3] = t3


class Draws(NamedTuple):
    """Draws of theta at which remainders are summed, and settings of the interpolation."""

    slopes: Annotated[Any, _cube]
    """(n_linear, S', q) coefficients minus theta_star; S' is S rounded up to fours."""
    scalars: Matrix
    """(S', n_scalar) parameters shared by all rows, minus theta_star."""
    tolerance: float
    """Tolerance of the interpolation, per row; negative: never interpolate."""
    powers: Matrix
    tail: Matrix


class Buffers(NamedTuple):
    """Scratch arrays of a pass."""

    tile: Block
    """``TILE`` rows with their expansions."""
    scratch: Scratch
    steps: Annotated[Any, _cube]
    """(n_linear, S', TILE) changes of the linear predictors at the draws."""
    poly: Matrix
    """(2 NODES + 1, TILE) polynomials of the rows; see :func:`interpolate`."""
    totals: Vector
    """(S',) sums over the tile at the draws."""


@jit(
    types.void(
        LINK_TYPE, vector, vector, i8, ROWS_TYPE, record_type(Draws), record_type(Buffers), matrix
    )
)
def add_remainders(link, constants, theta_star, order, rows, draws_at, buffers, sums):  # type: ignore[no-untyped-def]
    """Add the remainders of ``rows`` at every draw to ``sums`` (2, S), tile by tile."""
    slopes, scalars, tolerance = draws_at.slopes, draws_at.scalars, draws_at.tolerance
    tile, scratch, steps = buffers.tile, buffers.scratch, buffers.steps
    poly, totals = buffers.poly, buffers.totals
    powers, tail = draws_at.powers, draws_at.tail
    n_linear, padded = slopes.shape[0], slopes.shape[1]
    p = n_linear + scalars.shape[1]
    draws = sums.shape[1]
    m = rows.y.shape[0]
    point = ExpansionPoint(theta_star, constants, n_linear, order)
    for lo in range(0, m, TILE):
        w = min(TILE, m - lo)
        expand(link, point, rows, lo, w, tile, 0, scratch)
        for a in range(n_linear):
            np.dot(slopes[a], tile.design, steps[a])
        smooth = False
        if tolerance >= 0.0:
            smooth = interpolate(
                link, constants, tile, w, scratch, steps[0], tolerance, powers, tail, poly
            )
        if smooth:
            for s in range(0, padded, 4):
                add_polynomials(steps[0], s, w, poly, totals)
        else:
            eta = scratch.eta[: p * w].reshape((p, w))
            step = scratch.step[: p * w].reshape((p, w))
            for s in range(draws):
                for a in range(p):
                    if a < n_linear:
                        for i in range(w):
                            step[a, i] = steps[a, s, i]
                    else:
                        for i in range(w):
                            step[a, i] = scalars[s, a - n_linear]
                    for i in range(w):
                        eta[a, i] = tile.eta_star[a, i] + step[a, i]
                totals[s] = sum_values(link, constants, tile, w, scratch)
        for s in range(draws):
            sums[0, s], error = two_sum(sums[0, s], totals[s])
            sums[1, s] += error


_CALL_EVALUATIONS: Final = 2**25
_PIECE_ENTRIES: Final = 2**21
_SUM_ERROR: Final = 1e-5
"""Largest error of a sum of remainders from interpolation over draws."""


@dataclass(frozen=True)
class RemainderTask(PassTask[Matrix]):
    """Sum of ``l_i - q_i`` over all rows at several draws; see ``protocols.PassTask``."""

    model: Model
    theta_star: Vector
    deltas: Matrix
    """(S, d) draws minus theta_star."""
    order: int
    tolerance: float = -1.0
    """Tolerance of the interpolation over draws, per row; negative: every draw is evaluated."""

    def make_ready(self) -> None:
        """Compile or load the functions of :meth:`map`, so that its first call can be timed."""
        make_ready(add_remainders, self.model.link)

    def map(self, block: RowBlock) -> Matrix:
        """Return (2, S): sums over the rows of a block, and their compensations."""
        model = self.model
        n, p, q = model.n_linear, model.n_linear + model.n_scalar, block.X.shape[1]
        deltas, draws = wide(model, self.deltas, q), len(self.deltas)
        padded = -(-draws // 4) * 4
        slopes, scalars = np.zeros((n, padded, q)), np.zeros((padded, p - n))
        for a in range(n):
            slopes[a, :draws] = deltas[:, a * q : (a + 1) * q]
        scalars[:draws] = deltas[:, n * q :]
        sums = np.zeros((2, draws))
        buffers = Buffers(
            allocate_block(TILE, q, p),
            allocate_scratch(p),
            np.empty((n, padded, TILE)),
            np.empty((2 * NODES + 1, TILE)),
            np.empty(padded),
        )
        smooth = p == 1 and n == 1 and model.analytic
        tolerance = self.tolerance if smooth else -1.0
        wanted = Draws(slopes, scalars, tolerance, POWERS, TAIL)
        fit = min(_PIECE_ENTRIES // max(q, 1), _CALL_EVALUATIONS // max(draws, 1))
        step = max(fit // TILE, 1) * TILE
        for lo in range(0, len(block.y), step):
            parts = (block.X, block.y, block.offset, block.weight)
            rows = Rows(*(np.array(part[lo : lo + step], np.float64, order="C") for part in parts))
            add_remainders(
                model.link,
                model.constants,
                wide(model, self.theta_star, q),
                self.order,
                rows,
                wanted,
                buffers,
                sums,
            )
        return sums

    def combine(self, left: Matrix, right: Matrix) -> Matrix:
        """Return the compensated sums of two neighbouring blocks."""
        return merge_compensated(left, right)


def remainder_task(
    dataset: Dataset, model: Model, theta_star: Vector, order: int, theta: Matrix
) -> RemainderTask:
    """Return the task of a pass that sums the remainders at draws ``theta`` (..., d)."""
    d = theta.shape[-1]
    deltas = np.ascontiguousarray(theta.reshape(-1, d) - theta_star)
    return RemainderTask(model, theta_star, deltas, order, _SUM_ERROR / dataset.n_rows)


def remainder_sums(
    dataset: Dataset,
    model: Model,
    theta_star: Vector,
    order: int,
    theta: Matrix,
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Vector:
    """Return the sums (S,) of remainders at draws ``theta`` (..., d), from one full pass."""
    task = remainder_task(dataset, model, theta_star, order, theta)
    sums = dataset.reduce(task, scheduler=scheduler, progress=progress)
    total: Vector = sums[0] + sums[1]
    return total
