"""The shape of the steps is that of the last whole window, however its positions arrive."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.samplers.common.tuning import StepShape

STAR, FACTOR = np.array([1.0, -2.0]), np.array([[2.0, 0.0], [0.5, 0.3]])


def positions() -> np.ndarray:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(300, 2)) @ np.array([[1.0, 0.6], [0.0, 0.4]]) + 3.0
    z[:100] *= 20.0
    return STAR + z @ FACTOR.T


def learnt(theta: np.ndarray, kind: str, batch: int) -> tuple[StepShape, list[int]]:
    shape, ends, done = StepShape(2, kind), [], 0
    while done < len(theta):
        n = min(batch, shape.left(done), len(theta) - done)
        if shape.learn(theta[done : done + n], STAR, FACTOR, done + n):
            ends.append(done + n)
        done += n
    return shape, ends


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_the_shape_is_that_of_the_last_window(kind: str) -> None:
    theta = positions()
    shape, ends = learnt(theta, kind, 7)
    assert ends == [100, 300]
    z = np.linalg.solve(FACTOR, (theta[100:] - STAR).T)
    covariance = np.cov(z)
    ridge = 5.0 * np.diag(covariance).mean() * np.eye(2)
    if kind == "diagonal":
        covariance = np.diag(np.diag(covariance))
    expected = np.linalg.cholesky((200 * covariance + ridge) / 205)
    np.testing.assert_allclose(shape.factor, expected, rtol=1e-10)
    np.testing.assert_array_equal(shape.factor, learnt(theta, kind, 1000)[0].factor)


def test_window_of_a_constant_chain_leaves_the_shape_unchanged() -> None:
    shape, ends = learnt(np.tile(STAR, (100, 1)), "full", 30)
    assert ends == []
    np.testing.assert_array_equal(shape.factor, np.eye(2))
