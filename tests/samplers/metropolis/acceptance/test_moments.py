"""Moments of terms: against NumPy, and where the naive formula in float32 fails."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.samplers.metropolis.acceptance import (
    BATCH,
    COUNT,
    KEPT,
    M2,
    M3,
    MEAN,
    N_FACTS,
    SWEPT_LARGEST,
    SWEPT_M2,
    SWEPT_MEAN,
    accepts,
    add_terms,
    sweep_terms,
)


def moments(x: np.ndarray, batches: list[int], factor: float = 1.0) -> tuple[np.ndarray, ...]:
    facts, terms = np.zeros(N_FACTS), np.zeros(50)
    swept = np.zeros(N_FACTS)
    start = 0
    for size in batches:
        piece = np.ascontiguousarray(x[start : start + size])
        add_terms(piece, size, factor, facts, terms)
        sweep_terms(piece, size, factor, float(start), swept)
        start += size
    return facts, terms, swept


@pytest.mark.parametrize("u", [1e-6, 0.3, 0.8])
def test_a_uniform_accepts_the_differences_above_its_logarithm_or_its_logit(u: float) -> None:
    for barker, least in ((0, np.log(u)), (1, np.log(u / (1.0 - u)))):
        assert [accepts(least + step, u, barker) for step in (-1e-6, 1e-6)] == [False, True]


@pytest.mark.parametrize("batches", [[100], [1, 99], [30, 1, 0, 40, 29]])
def test_moments_of_batches_are_those_of_all_terms(batches: list[int]) -> None:
    x = np.random.default_rng(0).gamma(0.3, size=100) - 5.0
    facts, terms, swept = moments(x, batches, 2.0)
    d = 2.0 * (x - x.mean())
    assert facts[COUNT] == 100
    assert facts[KEPT] == 50
    np.testing.assert_allclose(
        facts[[MEAN, M2, M3]], [2.0 * x.mean(), (d**2).sum(), (d**3).sum()], rtol=1e-12
    )
    np.testing.assert_allclose(facts[BATCH], 2.0 * x[100 - batches[-1] :].mean(), rtol=1e-14)
    np.testing.assert_array_equal(terms, 2.0 * x[:50])
    np.testing.assert_allclose(swept[[SWEPT_MEAN, SWEPT_M2]], facts[[MEAN, M2]], rtol=1e-12)
    assert swept[SWEPT_LARGEST] == np.abs(2.0 * x).max()


def test_the_variance_survives_a_large_mean() -> None:
    """Terms near 3e4 with sd 1: sums of squares in float32 lose the variance altogether."""
    x = 3e4 + np.random.default_rng(1).standard_normal(1000)
    facts, _, _ = moments(x, [100] * 10)
    right = x.var(ddof=1)
    assert facts[M2] / 999 == pytest.approx(right, rel=1e-9)
    single = x.astype(np.float32)
    mean = np.cumsum(single, dtype=np.float32)[-1] / np.float32(1000)
    squares = np.cumsum(single * single, dtype=np.float32)[-1] / np.float32(1000)
    naive = float(squares - mean * mean)
    assert not 0.5 * right < naive < 2.0 * right
