from __future__ import annotations

import itertools

import numpy as np
import pytest
from passes import table

from streammc import models
from streammc.control_variates import compute
from streammc.control_variates.plan.pilot import remainders
from streammc.likelihood import remainder_pass
from streammc.likelihood.data_views import gather
from streammc.likelihood.remainder_pass import RemainderTask
from streammc.protocols import RowBlock
from streammc.runs import audit
from streammc.runs.audit import audit_draws
from streammc.stores import from_arrays


@pytest.mark.parametrize("family", ["logistic", "poisson", "gaussian"])
@pytest.mark.parametrize("pieces", [2**21, 600])
def test_the_pass_adds_up_the_remainders_of_every_row(family, pieces, monkeypatch):
    monkeypatch.setattr(remainder_pass, "_PIECE_ENTRIES", pieces)
    rows = table(family, n=2000, q=3)
    cv = compute(rows.store, rows.model)
    shifts = np.random.default_rng(1).standard_normal((7, cv.dim)) @ cv.factor.T * 3
    everything = gather(rows.store, np.arange(2000, dtype=np.int64))
    expected = remainders(cv, rows.model, everything, shifts).sum(axis=1)
    task = RemainderTask(rows.model, cv.theta_star, shifts, cv.order)
    found = rows.store.reduce(task).sum(axis=0)
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_fewer_draws_are_looked_at_where_a_pass_is_long():
    assert [400, 400, 40, 40] == [audit_draws(n) for n in (1, 10**8, 10**9, 10**11)]


@pytest.mark.parametrize("family", ["logistic", "probit", "binomial", "poisson"])
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0, 400.0])
def test_interpolation_over_draws_keeps_its_tolerance(family, spread):
    """Draws near the mode and far out: sums as they are without it, to 1e-5."""
    rng = np.random.default_rng(2)
    n, q, draws = 2000, 3, 50
    X = np.c_[np.ones(n), rng.normal(size=(n, q - 1))]
    model = getattr(models, family)()
    theta_star = np.array([0.2, -0.3, 0.1])
    y = {
        "poisson": rng.poisson(1.2, n),
        "binomial": rng.integers(0, 5, n) / 4,
    }.get(family, rng.integers(0, 2, n)).astype(float)
    weight = rng.integers(0, 4, n).astype(float)
    block = RowBlock(0, 0, X, y, 0.1 * rng.normal(size=n), weight)
    deltas = spread / np.sqrt(n) * rng.normal(size=(draws, q))
    exact = RemainderTask(model, theta_star, deltas, 2).map(block).sum(axis=0)
    task = RemainderTask(model, theta_star, deltas, 2, 1e-5 / n)
    found = task.map(block).sum(axis=0)
    assert np.abs(exact).max() > 1e-7
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-5)


def test_interpolation_without_its_check_exceeds_the_tolerance(monkeypatch):
    monkeypatch.setattr(remainder_pass, "TAIL", np.zeros_like(remainder_pass.TAIL))
    with pytest.raises(AssertionError, match="tolerance"):
        test_interpolation_over_draws_keeps_its_tolerance("logistic", 40.0)


def test_interpolation_is_used_near_the_mode(monkeypatch):
    """With a polynomial of nothing the sums are nothing."""
    monkeypatch.setattr(remainder_pass, "POWERS", np.zeros_like(remainder_pass.POWERS))
    with pytest.raises(AssertionError):
        test_interpolation_over_draws_keeps_its_tolerance("logistic", 3.0)


def test_seconds_of_an_audit_do_not_include_compilation(monkeypatch):
    clock = itertools.accumulate(itertools.repeat(1.0))
    monkeypatch.setattr(audit, "thread_time", lambda: next(clock))
    order = []

    def make_ready(task):
        order.append(("compiled", audit.thread_time()))

    def run(task, block):
        order.append(("timed", audit.thread_time()))
        return np.zeros((2, len(task.deltas)))

    monkeypatch.setattr(RemainderTask, "make_ready", make_ready)
    monkeypatch.setattr(RemainderTask, "map", run)
    rng = np.random.default_rng(1)
    store = from_arrays(rng.normal(size=(500, 2)), rng.integers(0, 2, 500))
    model = models.logistic()
    cv = compute(store, model)
    found = audit.audit_seconds(store, model, cv, cv.theta_star[None], "sync")
    # The clock is read by the compilation, before the call, by the call, and after it.
    assert [("compiled", 1.0), ("timed", 3.0)] == order
    assert 2.0 == found


def test_seconds_of_an_audit_are_those_of_some_rows(monkeypatch):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(9000, 3)), rng.integers(0, 2, 9000)
    store, model = from_arrays(X, y, chunk_rows=4096), models.logistic()
    cv = compute(store, model)
    theta = cv.theta_star + np.zeros((2, 3, 3))
    clock = itertools.count()
    monkeypatch.setattr(audit, "thread_time", lambda: float(next(clock)))
    blocks = -(-9000 // store.block_rows())
    assert blocks == 3
    for scheduler, threads in (("sync", 1), (2, 2), (64, blocks)):
        found = audit.audit_seconds(store, model, cv, theta, scheduler)
        assert found == pytest.approx(9000 / 512 / threads)
    slow = itertools.count(0.0, 0.001)
    monkeypatch.setattr(audit, "thread_time", lambda: next(slow))
    found = audit.audit_seconds(store, model, cv, theta, "sync")
    assert found == pytest.approx(0.001), "all rows, as they are so few"
