"""Where Newton's method starts for models with a scale."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.models import gaussian, negative_binomial, student_t
from streammc.models.check import evaluate
from streammc.protocols import Model, Rows, Vector

TRUTH = np.array([2.0, 0.4, -0.3])


def make(model: Model, scales: list[float], n: int = 4000, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    offset = rng.normal(scale=0.5, size=n)
    shared = np.log(scales)[:, None] + np.zeros(n)
    y = model.simulate(np.vstack([X @ TRUTH + offset, shared]), rng)
    return Rows(X, y, offset, np.ones(n))


def log_lik(model: Model, rows: Rows, theta: Vector) -> float:
    q = rows.X.shape[1]
    shared = theta[q:, None] + np.zeros(len(rows.y))
    eta = np.vstack([rows.X @ theta[:q] + rows.offset, shared])
    return float(rows.weight @ evaluate(model, eta, rows.y, 0)[0])


def test_gaussian_start_is_the_maximum_of_the_likelihood() -> None:
    rows = make(gaussian(), [0.7])
    start = gaussian().start(rows)
    best = log_lik(gaussian(), rows, start)
    for j in range(4):
        for step in (-1e-3, 1e-3):
            moved = start.copy()
            moved[j] += step
            assert log_lik(gaussian(), rows, moved) < best


def test_student_t_start_is_not_moved_by_outliers() -> None:
    rows = make(student_t(df=3.0), [0.7])
    rows.y[:40] = 1e6
    start = student_t(df=3.0).start(rows)
    np.testing.assert_allclose(TRUTH, start[:3], atol=0.1)
    assert abs(start[3] - np.log(0.7)) < 0.2
    assert np.abs(gaussian().start(rows)[:3] - TRUTH).max() > 100.0


def test_student_t_start_with_sampled_degrees_is_near() -> None:
    start = student_t().start(make(student_t(), [0.7, 4.0]))
    np.testing.assert_allclose([*TRUTH, np.log(0.7), np.log(5.0)], start, atol=0.2)


@pytest.mark.parametrize("phi", [0.3, 2.0, 50.0])
def test_negative_binomial_start_is_near(phi: float) -> None:
    start = negative_binomial().start(make(negative_binomial(), [phi], n=20_000))
    np.testing.assert_allclose([*TRUTH, np.log(phi)], start, atol=0.4)


def test_counts_without_overdispersion_start_at_a_large_phi() -> None:
    rows = make(negative_binomial(), [1e12])
    assert np.exp(negative_binomial().start(rows)[3]) > 50.0


@pytest.mark.parametrize("model", [gaussian(), student_t(), student_t(df=2), negative_binomial()])
def test_start_ignores_rows_without_weight(model: Model) -> None:
    rows = make(model, [1.0] * model.n_scalar, n=400)
    spoiled = rows.y.copy()
    spoiled[::2] = 1e9
    weight = np.ones(400)
    weight[::2] = 0.0
    half = Rows(rows.X[1::2], rows.y[1::2], rows.offset[1::2], weight[1::2])
    found = model.start(Rows(rows.X, spoiled, rows.offset, weight))
    np.testing.assert_allclose(model.start(half), found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [gaussian(), student_t(), negative_binomial()])
def test_a_response_that_never_changes_gives_a_finite_start(model: Model) -> None:
    rows = make(model, [1.0] * model.n_scalar, n=300)
    for level in (0.0, 7.0):
        constant = Rows(rows.X, np.full(300, level), np.zeros(300), rows.weight)
        start = model.start(constant)
        assert np.isfinite(start).all()
        assert np.isfinite(log_lik(model, constant, start))


@pytest.mark.parametrize("size", [1e-100, 1e100])
def test_gaussian_start_follows_the_unit_of_the_response(size: float) -> None:
    rows = make(gaussian(), [0.7])
    plain = Rows(rows.X, rows.y - rows.offset, np.zeros(len(rows.y)), rows.weight)
    scaled = Rows(plain.X, plain.y * size, plain.offset, plain.weight)
    found = gaussian().start(scaled)
    expected = gaussian().start(plain)
    np.testing.assert_allclose(expected[:3] * size, found[:3], rtol=1e-9)
    assert abs(found[3] - expected[3] - np.log(size)) < 1e-9
