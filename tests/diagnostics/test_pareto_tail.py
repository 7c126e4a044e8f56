from __future__ import annotations

import numpy as np
import pytest
from arviz_stats.base import array_stats

from streammc.diagnostics.weights import smoothed_rows, tail_count


def weights(shape: float, n: int, seed: int) -> np.ndarray:
    return shape * np.random.default_rng(seed).exponential(size=n)


@pytest.mark.parametrize("n", [25, 225, 226, 4000])
@pytest.mark.parametrize("shape", [0.01, 0.4, 0.8, 3.0, 40.0])
def test_weights_and_shape_are_those_of_arviz(n: int, shape: float) -> None:
    log_weight = weights(shape, n, 5)
    with np.errstate(all="ignore"):
        expected, k = array_stats.psislw(-log_weight)
    found, own = (each[0] for each in smoothed_rows(log_weight[None]))
    assert own == pytest.approx(float(k), rel=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    assert np.ptp(found - log_weight) > 1e-4  # something is smoothed


def test_only_the_tail_is_smoothed_and_the_weights_sum_to_one() -> None:
    log_weight = weights(0.8, 1000, 6)
    found = smoothed_rows(log_weight[None])[0][0]
    order = np.argsort(log_weight)
    moved = found - log_weight
    assert tail_count(1000) == 94
    assert np.ptp(moved[order[:-94]]) < 1e-12
    assert np.ptp(moved[order[-94:]]) > 1e-3
    assert np.exp(found).sum() == pytest.approx(1.0, rel=1e-12)


def test_weights_of_zero_keep_out_of_the_tail() -> None:
    log_weight = np.where(np.arange(1000) < 500, -np.inf, weights(0.5, 1000, 7))
    with np.errstate(all="ignore"):
        expected, k = array_stats.psislw(-log_weight)
    found, own = (each[0] for each in smoothed_rows(log_weight[None]))
    assert own == pytest.approx(float(k), rel=1e-10)
    assert np.array_equal(np.isneginf(expected), np.isneginf(found))
