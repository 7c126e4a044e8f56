"""Bounds on the terms of an acceptance test from the lengths of the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streammc.control_variates.full_pass.row_norms import LargestNorms, term_bound
from streammc.models import logistic, poisson, student_t
from streammc.protocols import RowBlock
from streammc.stores import from_arrays


def values(X: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    eta = X @ theta
    return y * eta - np.logaddexp(0.0, eta)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("unit_rows", [1, 3])
def test_no_term_exceeds_its_bound_and_some_come_near(order: int, unit_rows: int) -> None:
    rng = np.random.default_rng(order)
    n, d = 30, 2
    X = rng.standard_normal((n, d)) * rng.gamma(1.0, size=(n, 1))
    y = (rng.random(n) < 0.5).astype(float)
    weight = rng.integers(1, 4, n).astype(float)
    data = from_arrays(X, y, weight=weight)
    bound = term_bound(data, logistic(), order, unit_rows)
    star = np.zeros(d)  # where the third derivative is smallest, the others largest
    nearest = 0.0
    for _ in range(3000):
        scale = 10.0 ** rng.uniform(-2.0, 1.0)
        theta = star + scale * rng.standard_normal(d)
        new = theta + scale * rng.standard_normal(d)
        change = values(X, y, new) - values(X, y, theta)
        p = 1.0 / (1.0 + np.exp(-X @ star))
        before, after = X @ (theta - star), X @ (new - star)
        if order >= 1:
            change -= (y - p) * (after - before)
        if order >= 2:
            change += 0.5 * p * (1.0 - p) * (after**2 - before**2)
        units = (weight * change).reshape(-1, unit_rows).sum(axis=1)
        terms = np.abs(units) * len(units)
        farthest = max(np.linalg.norm(theta - star), np.linalg.norm(new - star))
        limit = bound * farthest**order * np.linalg.norm(new - theta)
        assert terms.max() <= limit * (1.0 + 1e-12)
        nearest = max(nearest, terms.max() / limit)
    if unit_rows == 1:
        assert nearest > (0.5, 0.3, 0.05)[order]


def test_model_without_a_bounded_derivative_has_no_row_bound() -> None:
    rng = np.random.default_rng(0)
    data = from_arrays(rng.standard_normal((10, 2)), np.ones(10))
    assert term_bound(data, poisson(), 0, 1) == math.inf
    assert term_bound(data, student_t(), 0, 1) == math.inf
    assert term_bound(data, logistic(), 3, 1) == math.inf
    assert term_bound(data, logistic(), 0, 1) < math.inf


def test_row_norms_of_blocks_combine() -> None:
    rng = np.random.default_rng(1)
    X, weight = rng.standard_normal((50, 3)).astype(np.float32), rng.random(50)
    task = LargestNorms()
    zero = np.zeros(50)
    parts = [
        task.map(RowBlock(k, 25 * k, X[25 * k :][:25], zero[:25], zero[:25], weight[25 * k :][:25]))
        for k in range(2)
    ]
    norms = np.linalg.norm(X.astype(np.float64), axis=1)
    wanted = [(weight * norms**p).max() for p in (1, 2, 3)]
    np.testing.assert_allclose(task.combine(*parts), wanted, rtol=1e-12)
