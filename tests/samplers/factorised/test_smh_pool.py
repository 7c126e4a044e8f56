"""Reads of ``smh``: which rows stay in memory, and how often the others are drawn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from streammc.control_variates.mode.search import LARGEST_DECREMENT
from streammc.models import logistic
from streammc.priors import normal
from streammc.protocols import RowBlock, Rows
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.factorised import pool
from streammc.stores import from_arrays

N, RADIUS = 30, 5.0


def read(monkeypatch, rate=200.0):
    """Return rows, their bounds and what a read keeps of them, in pieces of seven rows."""
    monkeypatch.setattr(pool, "_SLICE", 7)
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(N), rng.normal(size=N)]
    rows = Rows(X, (rng.random(N) < 0.5).astype(float), 0.1 * rng.normal(size=N), np.ones(N))
    at = pool.Whitening(logistic(prior=normal(2.0)), np.array([0.2, -0.4]), 0.3 * np.eye(2))
    bound = pool.bounds(at, RADIUS, rows).bound
    plan = pool.PoolPlan(RADIUS, float(np.median(bound)), rate, 0.0, 0.0, 0.0)
    task = pool.PoolTask(at, plan, seed=1, chains=2, first=3, last=5)
    return rows, bound, plan, task.map(RowBlock(0, 0, *rows))


def test_rows_with_large_bounds_stay_in_memory_and_the_others_are_drawn(monkeypatch):
    rows, bound, plan, found = read(monkeypatch)
    large = bound >= plan.threshold
    (certain,) = found.certain
    np.testing.assert_array_equal(rows.y[large], certain.y)
    np.testing.assert_array_equal(bound[large], certain.bound)
    assert bound[~large].sum() == pytest.approx(found.total.sum(), rel=1e-14)
    assert [(0, 3), (0, 4), (1, 3), (1, 4)] == sorted(found.sheets)
    for parts in found.sheets.values():
        assert set(np.concatenate([part.bound for part in parts])) <= set(bound[~large])


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_rows_are_drawn_in_proportion_to_their_bounds(monkeypatch, power):
    """A Poisson number of each; proportions to another power of the bounds are caught."""
    rate = 1e6
    _, bound, plan, found = read(monkeypatch, rate)
    drawn = np.concatenate([part.bound for parts in found.sheets.values() for part in parts])
    small = np.sort(bound[bound < plan.threshold])
    count = np.array([(drawn == each).sum() for each in small])
    expected = small**power
    expected *= 4 * rate * small.sum() / expected.sum()
    p = stats.chi2.sf(((count - expected) ** 2 / expected).sum(), len(small))
    assert (p > 1e-5) == (power == 1.0)


def test_the_radius_holds_all_but_a_small_mass_of_a_gaussian_around_its_centre():
    alone = pool.needed_radius(np.zeros(3))
    assert pool.OUTSIDE == pytest.approx(stats.chi2.sf(alone**2, 3), rel=1e-9)
    assert 5.0 + alone == pytest.approx(pool.needed_radius(np.array([3.0, 0.0, -4.0])))


@pytest.mark.parametrize(
    ("decrements", "stretch", "serves"),
    [(1.0, 1.049, True), (2.0, 1.049, False), (0.0, 1.051, False)],
)
def test_the_read_of_the_certifying_pass_serves_all_that_it_may_certify(
    decrements, stretch, serves
):
    """A mode at most a Newton decrement away, and a Gaussian at most 5 % wider."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(N, 2)), (rng.random(N) < 0.5).astype(float)
    theta, factor = np.array([0.2, -0.4]), 0.3 * np.eye(2)
    request = RunRequest(from_arrays(X, y), logistic(prior=normal(2.0)), chains=1, seed=1)
    ahead = pool.Ahead(request, np.inf)
    task = ahead.task(SimpleNamespace(theta=theta, factor=factor))
    ahead.take(task.map(RowBlock(0, 0, X, y, np.zeros(N), np.ones(N))))
    wider = stretch * factor
    step = wider @ [decrements * LARGEST_DECREMENT, 0.0]
    found = ahead.around(SimpleNamespace(theta_star=theta, factor=wider, newton_step=step))
    assert serves == (found is not None)
