"""The compiled pass against dense formulas in NumPy, and against itself in other cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from passes import table

from streammc.control_variates.full_pass.block_kernel import (
    LOWEST_OCTAVE,
    N_BINS,
    find_bins,
    tile_rows,
)
from streammc.control_variates.full_pass.block_pass import (
    ExpansionPass,
    HighScores,
    RowSums,
    expansion_of,
)
from streammc.numerics.jit import LINK_SIGNATURE, jit


@jit(LINK_SIGNATURE)
def coupled_link(eta, X, y, constants, order, out):
    """``y e_0 - exp(0.3 sum(e)) + e_0 e_last / 2``: every derivative differs."""
    p = eta.shape[0]
    for i in range(y.shape[0]):
        total = 0.0
        for a in range(p):
            total += eta[a, i]
        s = math.exp(0.3 * total)
        first, last = eta[0, i], eta[p - 1, i]
        out[0, i] = y[i] * first - s + 0.5 * first * last
        if order >= 1:
            for a in range(p):
                out[1 + a, i] = -0.3 * s
            out[1, i] += y[i] + 0.5 * last
            out[p, i] += 0.5 * first
        if order == 2:
            at = 1 + p
            for a in range(p):
                for b in range(a, p):
                    out[at, i] = -0.09 * s
                    if a == 0 and b == p - 1:
                        out[at, i] += 1.0 if p == 1 else 0.5
                    at += 1


@dataclass(frozen=True)
class Coupled:
    n_linear: int
    n_scalar: int
    constants = np.zeros(0)
    designs = ()

    @property
    def link(self):
        return coupled_link

    def terms(self, eta, y):
        """Value (n,), derivatives (p, n), Hessian (p, p, n), in NumPy."""
        p = len(eta)
        s = np.exp(0.3 * eta.sum(axis=0))
        value = y * eta[0] - s + 0.5 * eta[0] * eta[-1]
        slope = np.tile(-0.3 * s, (p, 1))
        slope[0] += y + 0.5 * eta[-1]
        slope[-1] += 0.5 * eta[0]
        curve = np.tile(-0.09 * s, (p, p, 1))
        curve[0, -1] += 0.5
        curve[-1, 0] += 0.5
        return value, slope, curve


def rows_of(n, q, dtype=np.float64, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)).astype(dtype) / math.sqrt(q)
    y, offset = rng.normal(size=n), 0.2 * rng.normal(size=n)
    weight = rng.integers(0, 4, size=n) / 2.0
    return X, y, offset, weight


def dense(model, theta, shifts, order, X, y, offset, weight):
    """Value, gradient (d,), Hessian (d, d), remainders (S, n), second-order terms (S, n)."""
    n, q = X.shape
    X, L = X.astype(float), model.n_linear
    p, d = L + model.n_scalar, L * q + model.n_scalar
    J = np.zeros((p, n, d))
    for a in range(L):
        J[a, :, a * q : (a + 1) * q] = X
    for a in range(L, p):
        J[a, :, L * q + a - L] = 1.0
    eta = J @ theta
    if L:
        eta[0] += offset
    value, slope, curve = model.terms(eta, y)
    remainders, bends = [], []
    for shift in shifts:
        step = J @ shift
        moved = model.terms(eta + step, y)[0]
        linear = (slope * step).sum(axis=0)
        bend = 0.5 * np.einsum("abn,an,bn->n", curve, step, step)
        rest = moved - value - (order >= 1) * linear - (order == 2) * bend
        remainders.append(weight * rest)
        bends.append(weight * bend)
    gradient = np.einsum("n,an,anj->j", weight, slope, J)
    hessian = np.einsum("n,abn,ani,bnj->ij", weight, curve, J, J, optimize=True)
    return weight @ value, gradient, hessian, np.array(remainders), np.array(bends)


SHAPES = [(1, 0), (1, 1), (2, 0), (1, 2), (2, 1), (3, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("q", [1, 5, 8])
@pytest.mark.parametrize(("n_linear", "n_scalar"), SHAPES)
@pytest.mark.parametrize("n", [1, 512, 1061])
def test_sums_and_remainders_are_those_of_dense_formulas(n, n_linear, n_scalar, q, dtype):
    model, data = Coupled(n_linear, n_scalar), rows_of(n, q, dtype)
    rng = np.random.default_rng(n + q)
    d = n_linear * q + n_scalar
    theta, shifts = 0.5 * rng.normal(size=d), 0.3 * rng.normal(size=(3, d))
    check(model, data, theta, shifts, 2)


@pytest.mark.parametrize("order", [0, 1])
def test_lower_orders_leave_their_terms_in_the_remainder(order):
    rng = np.random.default_rng(order)
    check(Coupled(2, 1), rows_of(700, 3), rng.normal(size=7), 0.2 * rng.normal(size=(5, 7)), order)


@pytest.mark.parametrize(("q", "tile"), [(200, 256), (784, 64)])
@pytest.mark.parametrize("n_linear", [1, 2])
def test_many_columns_have_short_tiles_and_the_same_sums(q, tile, n_linear):
    rng = np.random.default_rng(q)
    d = n_linear * q
    assert tile == tile_rows(q)
    check(Coupled(n_linear, 0), rows_of(3 * 512 + 77, q), rng.normal(size=d), np.empty((0, d)), 2)


def check(model, data, theta, shifts, order):
    n, q = data[0].shape
    sums = RowSums(model, theta, shifts, order, q)
    remainders, squares = np.empty((len(shifts), n)), np.empty(n)
    assert sums.add(*data, squares, remainders) == (-1, 0)
    value, gradient, hessian, rest, bends = dense(model, theta, shifts, order, *data)
    found = expansion_of(sums.totals, len(theta))
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-11, atol=1e-12 * n)
    np.testing.assert_allclose(found[2], hessian, rtol=1e-11, atol=1e-12 * n)
    if not len(shifts):
        return
    np.testing.assert_allclose(remainders, rest, rtol=1e-11, atol=1e-13)
    scores = np.sqrt(np.mean(rest**2, axis=0))
    np.testing.assert_allclose(np.sqrt(squares), scores, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(sums.terms[1], bends.sum(axis=1), rtol=1e-11, atol=1e-12 * n)
    np.testing.assert_allclose(sums.terms[2], (bends**2).sum(axis=1), rtol=1e-11)
    tile, full = tile_rows(q), n // tile_rows(q)
    assert full == sums.tiles
    runs = bends[:, : full * tile].reshape(len(shifts), full, tile).sum(axis=2)
    np.testing.assert_allclose(sums.terms[3], (runs**2).sum(axis=1), rtol=1e-9)
    histogram = sums.histogram()
    for power in range(4):
        total = histogram.moments[:, :, power].sum(axis=0)
        np.testing.assert_allclose(total, (rest ** (power + 1)).sum(axis=1), rtol=1e-8, atol=1e-12)
    largest = np.abs(rest).max(axis=1)
    np.testing.assert_allclose(histogram.maxima.max(axis=0), largest, rtol=1e-10, atol=1e-14)


def test_a_row_that_counts_zero_times_may_be_infinite():
    model, (X, y, offset, weight) = Coupled(1, 1), rows_of(600, 2)
    offset[17], weight[17] = 1e5, 0.0
    rng = np.random.default_rng(0)
    theta, shifts = rng.normal(size=3), rng.normal(size=(2, 3))
    some = np.delete(np.arange(600), 17)
    results = []
    for chosen in (np.arange(600), some):
        sums = RowSums(model, theta, shifts, 2, 2)
        part = [array[chosen] for array in (X, y, offset, weight)]
        assert sums.add(*part, np.empty(len(chosen))) == (-1, 0)
        results.append(sums)
    np.testing.assert_allclose(results[0].totals.sum(0), results[1].totals.sum(0), rtol=1e-12)
    assert np.all(np.isfinite(results[0].histogram().moments))


def test_rows_that_are_not_finite_are_counted_and_the_first_is_named():
    model, (X, y, offset, weight) = Coupled(1, 0), rows_of(2000, 2)
    offset[[600, 601, 1999]], weight[[600, 601, 1999]] = 1e5, 1.0
    sums = RowSums(model, np.zeros(2), np.empty((0, 2)), 2, 2)
    assert sums.add(X, y, offset, weight, np.empty(2000)) == (600, 3)


@pytest.mark.parametrize("q", [4, 200])
def test_rows_in_pieces_give_the_bits_of_rows_at_once(q):
    rows = table(n=3 * 4096 + 100, q=q, dtype=np.float32)
    rng = np.random.default_rng(0)
    task = ExpansionPass(
        rows.model, 0.1 * rng.normal(size=q), 0.1 * rng.normal(size=(3, q)), 2, 200, False
    )
    (block,) = rows.blocks(10**9)
    whole, cut = task.map(block), task.map_pieces(iter(rows.blocks(4096)))
    assert whole.totals.tobytes() == cut.totals.tobytes()
    assert whole.terms.tobytes() == cut.terms.tobytes()
    assert whole.histogram.moments.tobytes() == cut.histogram.moments.tobytes()
    assert whole.scores.tobytes() == cut.scores.tobytes()
    np.testing.assert_array_equal(whole.rows, cut.rows)
    np.testing.assert_allclose(whole.summaries, cut.summaries, rtol=1e-12)


def test_histogram_bins_are_quarters_of_octaves():
    edges = 2.0 ** (np.arange(4 * LOWEST_OCTAVE, 97) / 4)
    inside = np.sqrt(edges[:-1] * edges[1:])
    scores = np.r_[0.0, edges[0] * 0.9, inside, edges[-1] * 1.1, 1e150, np.inf]
    bins = np.empty(len(scores), np.int64)
    find_bins((scores**2).view(np.int64), 0, bins)
    np.testing.assert_array_equal(bins[:2], 0)
    np.testing.assert_array_equal(bins[2:-3], 1 + np.arange(len(inside)))
    np.testing.assert_array_equal(bins[-3:], N_BINS - 1)


@pytest.mark.parametrize("cap", [0, 1, 50, 5000])
@pytest.mark.parametrize("levels", [3, 10**6])
def test_high_scores_are_the_best_with_ties_by_row(cap, levels):
    rng = np.random.default_rng(cap)
    squares = rng.integers(0, levels, size=30_000).astype(float)
    squares[rng.integers(0, 30_000, size=5)] = np.inf
    best = HighScores(cap)
    for start in range(0, 30_000, 7000):
        part = squares[start : start + 7000]
        room = best.room(len(part))
        room[:] = part
        best.add(start, room)
    rows, found = best.finish()
    order = np.lexsort((np.arange(30_000), -squares))
    expected = order[squares[order] > 0.0][:cap]
    np.testing.assert_array_equal(expected, rows)
    np.testing.assert_array_equal(squares[expected], found)
