from __future__ import annotations

import math
import pickle
from functools import reduce

import numpy as np
import pytest
from passes import table

from streammc.control_variates.full_pass.block_pass import ExpansionPass, RowSums, raise_fault
from streammc.errors import ModelError
from streammc.stores import from_arrays
from streammc.stores.reduction import run
from streammc.stores.rows.row_blocks import MemoryBlock

KINDS = ["logistic", "poisson", "gaussian", "gaussian-2"]


def make(rows, shifts=0, order=2, cap=50, check=False, seed=5):
    rng = np.random.default_rng(seed)
    d = rows.model.dim(rows.X.shape[1])
    theta = rng.normal(size=d) * 0.2
    return ExpansionPass(rows.model, theta, rng.normal(size=(shifts, d)) * 0.3, order, cap, check)


def whole(rows, task, size=10**9):
    return reduce(task.combine, [task.map(block) for block in rows.blocks(size)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_log_likelihood_is_the_exact_sum(kind, dtype):
    rows = table(kind, dtype=dtype)
    task = make(rows)
    expected = math.fsum(rows.log_lik(task.theta))
    found, _, _ = whole(rows, task).expansion(len(task.theta))
    assert found == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_and_hessian_are_derivatives_of_the_sum(kind):
    rows = table(kind, n=700)
    task = make(rows)
    _, gradient, hessian = whole(rows, task).expansion(len(task.theta))
    h = 1e-5
    steps = h * np.eye(len(task.theta))
    slopes, curves = [], []
    for step in steps:
        plus = ExpansionPass(rows.model, task.theta + step, task.shifts, 2, 0, False)
        minus = ExpansionPass(rows.model, task.theta - step, task.shifts, 2, 0, False)
        up, down = whole(rows, plus).expansion(len(step)), whole(rows, minus).expansion(len(step))
        slopes.append((up[0] - down[0]) / (2 * h))
        curves.append((up[1] - down[1]) / (2 * h))
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(hessian, curves, rtol=1e-6, atol=1e-4)


def test_sums_keep_their_digits_where_a_running_sum_loses_them():
    rows = table("gaussian", n=400_000, q=2)
    rows.weight[:] = 1.0
    rows.y[:] = 1e8 + np.random.default_rng(0).normal(size=len(rows.y))
    task = make(rows)
    values = rows.log_lik(task.theta)
    exact = math.fsum(values)
    running = float(np.cumsum(values)[-1])
    found, _, _ = whole(rows, task, 65_536).expansion(3)
    assert abs(found / exact - 1) < 1e-15
    assert abs(running / exact - 1) > 1e-15


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_root_mean_square_of_the_remainders(kind, order):
    rows = table(kind, n=900)
    task = make(rows, shifts=8, order=order, cap=900)
    sums = whole(rows, task)
    expected = np.sqrt(np.mean(rows.remainders(task.theta, task.shifts, order) ** 2, axis=0))
    found = np.zeros(900)
    found[sums.rows] = sums.scores
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.all(np.diff(sums.scores) <= 0)


def test_remainders_are_tiny_where_the_expansion_is_exact():
    rows = table("gaussian", n=500)
    task = make(rows, shifts=3)
    task.shifts[:, -1] = 0.0  # the scale stays: the log-likelihood is quadratic in the rest
    assert whole(rows, task).scores.max() < 1e-12


def test_histogram_holds_power_sums_of_the_remainders():
    rows = table("poisson", n=2000, heavy=True)
    task = make(rows, shifts=8, cap=2000)
    sums = whole(rows, task, 600)
    remainders = np.empty((8, 2000))
    exact = RowSums(rows.model, task.theta, task.shifts, 2, 4)
    squares = np.empty(2000)
    exact.add(rows.X, rows.y, rows.offset, rows.weight, squares, remainders)
    remainders = remainders.T
    counts, moments, maxima = sums.histogram.below()
    assert counts[-1] == 2000
    assert len(sums.rows) == np.count_nonzero(squares)  # rows without weight are no candidates
    for t in np.flatnonzero(np.diff(counts) * (2000 - counts[:-1] <= len(sums.rows))):
        left = np.ones(2000, bool)
        left[sums.rows[: 2000 - counts[t]]] = False
        assert left.sum() == counts[t]
        for power in range(4):
            np.testing.assert_allclose(
                moments[t, :, power],
                (remainders[left] ** (power + 1)).sum(axis=0),
                rtol=1e-9,
                atol=1e-12 * np.abs(remainders[left] ** (power + 1)).sum(),
            )
        if counts[t]:
            np.testing.assert_array_equal(maxima[t], np.abs(remainders[left]).max(axis=0))


def test_small_remainders_survive_beside_huge_ones():
    rows = table("poisson", n=2000, q=2)
    rows.X[7, 1] = 60.0  # exp(60 x 0.3): a remainder of 1e7 against 1e-3
    task = make(rows, shifts=8, cap=2000)
    counts, moments, _ = whole(rows, task).histogram.below()
    without = int(np.flatnonzero(counts < 2000)[-1])
    rest = np.delete(np.arange(2000), 7)
    few = table("poisson", n=2000, q=2).reordered(rest)
    expected = whole(few, task).histogram.below()[1][-1]
    assert counts[without] == 1999
    np.testing.assert_allclose(moments[without], expected, rtol=1e-9)
    through_totals = moments[-1, :, 3] - (moments[-1] - moments[without])[:, 3]
    assert not np.allclose(through_totals, expected[:, 3], rtol=1e-9)


@pytest.mark.parametrize("size", [64, 1000, 5000])
def test_result_does_not_depend_on_the_blocks(size):
    rows = table(n=5000)
    task = make(rows, shifts=8, cap=300)
    one, many = whole(rows, task), whole(rows, task, size)
    np.testing.assert_allclose(
        one.totals.sum(axis=0), many.totals.sum(axis=0), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(one.rows, many.rows)
    np.testing.assert_array_equal(one.histogram.counts, many.histogram.counts)
    assert len(many.summaries) == -(-5000 // size)


def test_equal_scores_are_ranked_by_row():
    rows = table(n=400)
    twice = rows.reordered(np.r_[np.arange(400), np.arange(400)])
    sums = whole(twice, make(twice, shifts=8, cap=100), 333)
    assert len(sums.rows) == 100
    np.testing.assert_array_equal(sums.rows[::2] + 400, sums.rows[1::2])


@pytest.mark.parametrize("scheduler", ["sync", 1, 2])
def test_any_number_of_threads_gives_the_same_bits(scheduler):
    rows = table(n=40_000, dtype=np.float32)
    task = make(rows, shifts=8)
    blocks = [
        MemoryBlock(b.index, b.start, len(b.y), b.X, b.y, b.offset, b.weight)
        for b in rows.blocks(4096)
    ]
    reference = run(task, blocks, scheduler="sync")
    found = run(task, blocks, scheduler=scheduler)
    assert found.totals.tobytes() == reference.totals.tobytes()
    assert found.histogram.moments.tobytes() == reference.histogram.moments.tobytes()
    assert found.scores.tobytes() == reference.scores.tobytes()
    assert found.terms.tobytes() == reference.terms.tobytes()


def test_task_survives_pickling():
    rows = table(n=200)
    task = make(rows, shifts=2)
    again = pickle.loads(pickle.dumps(task))
    assert whole(rows, again).totals.tobytes() == whole(rows, task).totals.tobytes()


def test_rows_without_weight_change_nothing():
    rows = table(n=500)
    some = rows.reordered(np.flatnonzero(rows.weight > 0))
    task = make(rows, shifts=4)
    np.testing.assert_allclose(
        whole(rows, task).totals.sum(axis=0), whole(some, task).totals.sum(axis=0), rtol=1e-12
    )


def test_bad_responses_are_counted_over_all_blocks():
    rows = table(n=1000)
    rows.y[[250, 251, 900]] = 2.0
    fault = whole(rows, make(rows, check=True), 100).fault
    assert (fault.first, fault.count, fault.found) == (250, 3, "2")
    with pytest.raises(ModelError, match=r"'won', found 2 in .*row_id 250 .* 2 more rows"):
        raise_fault(fault, rows.model, from_arrays(rows.X, rows.y, response="won"))


def test_infinite_log_likelihood_names_its_row():
    rows = table("poisson", n=1000)
    rows.X[640, 1] = 1e6
    task = make(rows)
    task.theta[1] = 1.0
    fault = whole(rows, task, 128).fault
    assert (fault.first, fault.count) == (640, 1)
