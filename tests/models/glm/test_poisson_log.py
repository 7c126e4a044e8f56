"""Where Newton's method starts for counts."""

from __future__ import annotations

import numpy as np

from streammc.models import poisson
from streammc.models.check import evaluate
from streammc.protocols import Rows, Vector


def log_lik(rows: Rows, beta: Vector) -> float:
    eta = (rows.X @ beta + rows.offset)[None, :]
    return float(rows.weight @ evaluate(poisson(), eta, rows.y)[0])


def make(n: int = 4000, intercept: float = 3.0, seed: int = 0) -> tuple[Rows, Vector]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    beta = np.array([intercept, 0.4, -0.3])
    offset = rng.normal(scale=0.5, size=n)
    y = rng.poisson(np.exp(X @ beta + offset)).astype(float)
    return Rows(X, y, offset, np.ones(n)), beta


def test_start_is_near_the_truth_where_counts_are_large() -> None:
    rows, beta = make()
    np.testing.assert_allclose(poisson().start(rows), beta, atol=0.05)


def test_start_ignores_rows_without_weight() -> None:
    rows, _ = make()
    spoiled = rows.y.copy()
    spoiled[::2] = 1e6
    weight = np.ones(len(spoiled))
    weight[::2] = 0.0
    half = Rows(rows.X[1::2], rows.y[1::2], rows.offset[1::2], weight[1::2])
    start = poisson().start(Rows(rows.X, spoiled, rows.offset, weight))
    np.testing.assert_allclose(start, poisson().start(half), rtol=1e-9)


def test_start_beats_zeros_where_the_rate_is_far_from_one() -> None:
    rows, _ = make(intercept=8.0)
    start = poisson().start(rows)
    assert log_lik(rows, start) > log_lik(rows, np.zeros(3))


def test_constant_rate_is_found_without_an_intercept_column() -> None:
    rng = np.random.default_rng(4)
    level = rng.integers(0, 3, size=3000)
    X = np.eye(3)[level]  # the columns add up to one, none of them is constant
    y = rng.poisson(np.exp(-6.0), size=3000).astype(float)
    rows = Rows(X, y, np.zeros(3000), np.ones(3000))
    assert log_lik(rows, poisson().start(rows)) > log_lik(rows, np.full(3, -5.0)) - 2.0


def test_heavy_tailed_covariate_leaves_a_finite_likelihood() -> None:
    rng = np.random.default_rng(5)
    x = np.exp(rng.standard_t(2, size=2000).clip(-30, 30))
    X = np.column_stack([np.ones(2000), x])
    y = rng.poisson(0.01, size=2000).astype(float)
    y[np.argsort(x)[1000:1010]] = 5000.0
    rows = Rows(X, y, np.zeros(2000), np.ones(2000))
    assert np.isfinite(log_lik(rows, poisson().start(rows)))


def test_large_offsets_do_not_overflow_the_start() -> None:
    rows, _ = make(intercept=-2.0)
    moved = Rows(rows.X, rows.y, rows.offset + 800.0, rows.weight)
    start = poisson().start(moved)
    assert np.isfinite(log_lik(moved, start))
    assert abs(start[0] + 802.0) < 1.0


def test_no_events_at_all_gives_a_finite_start() -> None:
    rows, _ = make()
    empty = Rows(rows.X, np.zeros(len(rows.y)), rows.offset, rows.weight)
    assert np.isfinite(log_lik(empty, poisson().start(empty)))
