"""The error of a sequence of tests: against enumeration, simulated paths and published tables."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import norm

from streammc.samplers.metropolis import mh_austere
from streammc.samplers.metropolis.mh_austere import conservative_pair, drift_grid, sequential_test

PUBLISHED = {
    (50, 0.001): (0.031258, 251.35),
    (500, 0.001): (0.012836, 25.648),
    (100, 0.005): (0.095591, 116.18),
    (200, 0.01): (0.13258, 55.196),
    (450, 0.01): (0.099666, 25.784),
    (50, 0.05): (0.43297, 94.586),
    (300, 0.1): (0.46089, 13.815),
    (50, 0.2): (0.49999, 6.1591),
}
"""Error and looks at ``mu_std = 0`` for N = 13,000: from the repository of Seita et al. 2017,
computed there with 100 bins."""


def test_means_of_a_permutation_have_the_covariance_of_a_brownian_motion() -> None:
    x = np.array([0.3, -1.0, 2.0, 5.0, 1.0, -0.4])
    size = len(x)
    orders = np.array(list(permutations(x)))
    means = np.cumsum(orders, axis=1)[:, :-1] / np.arange(1, size)
    found = np.cov(means.T, ddof=0)
    n = np.arange(1, size)
    variance = x.var() * (size - n) / (n * (size - 1))
    np.testing.assert_allclose(found, np.minimum.outer(variance, variance), atol=1e-12)
    tau = n / (size - n)
    correlation = np.sqrt(np.minimum.outer(tau, tau) / np.maximum.outer(tau, tau))
    scale = np.sqrt(variance)
    np.testing.assert_allclose(found / np.outer(scale, scale), correlation, atol=1e-12)
    replaced = np.sqrt(np.minimum.outer(n, n) / np.maximum.outer(n, n))
    assert np.abs(found / np.outer(scale, scale) - replaced).max() > 0.1


@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_error_and_terms_are_those_of_simulated_paths(mu: float) -> None:
    size, m, epsilon, n_paths = 1000, 100, 0.02, 1_000_000
    rng = np.random.default_rng(1)
    threshold = norm.isf(epsilon)

    def simulate(finite: bool) -> tuple[float, float, float]:
        w, tau_before = np.zeros(n_paths), 0.0
        open_, wrong, used = np.ones(n_paths, bool), 0, np.full(n_paths, float(size))
        for n in range(m, size, m):
            tau = n / (size - n) if finite else n / size
            step = tau - tau_before
            w += mu * step + math.sqrt(step) * rng.standard_normal(n_paths)
            z = w / math.sqrt(tau)
            ends = open_ & (np.abs(z) >= threshold)
            wrong += int((ends & (z < 0.0)).sum())
            used[ends] = n
            open_ &= ~ends
            tau_before = tau
        return wrong / n_paths, used.mean(), used.std() / math.sqrt(n_paths)

    test = sequential_test(size, m, epsilon, np.array([mu]))
    for finite in (True, False):
        error, used, mcse = simulate(finite)
        near = abs(error - test.error[0]) <= 4.5 * math.sqrt(error * (1 - error) / n_paths)
        assert bool(near) is finite
        assert bool(abs(used - test.rows[0]) <= 4.5 * mcse) is finite
        assert abs(error - epsilon) > 0.002


@pytest.mark.parametrize(("m", "epsilon"), PUBLISHED)
def test_worst_cases_are_those_published(m: int, epsilon: float) -> None:
    size = 13_000
    test = sequential_test(size, m, epsilon, np.zeros(1))
    error, looks = PUBLISHED[m, epsilon]
    assert test.error[0] == pytest.approx(error, rel=0.006)
    # The last look has what is left, and is counted there as one more.
    forced = 1.0 - 2.0 * test.error[0]
    whole = test.rows[0] + forced * (-size % m)
    assert whole / m == pytest.approx(looks, rel=2e-3)


@pytest.mark.parametrize(
    ("size", "bound", "chosen"),
    [(13_007, 0.1, (450, 0.01)), (100_000, 0.2, (300, 0.01)), (13_007, 0.05, (50, 0.001))],
)
def test_search_finds_the_published_pairs(
    size: int, bound: float, chosen: tuple[int, float]
) -> None:
    """Table 5 of Seita et al. 2017; the last is ours."""
    assert chosen == conservative_pair(size, None, None, bound)


@pytest.mark.parametrize("epsilon", [0.001, 0.05])
def test_looks_left_out_change_little(epsilon: float) -> None:
    size, m, drifts = 40_000, 50, np.array([0.0, 0.5, 3.0])
    every = sequential_test(size, m, epsilon, drifts, least_step=0.0)
    some = sequential_test(size, m, epsilon, drifts, least_step=0.04)
    fewer = sequential_test(size, 4 * m, epsilon, drifts, least_step=0.0)
    np.testing.assert_allclose(some.error, every.error, rtol=3e-3)
    np.testing.assert_allclose(some.rows, every.rows, rtol=8e-3)
    assert (np.abs(fewer.error / every.error - 1.0) > 0.02).all()


@pytest.mark.parametrize("epsilon", [0.001, 0.01])
def test_nodes_resolve_the_shortest_step(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    size, m = 1000, 5
    found = sequential_test(size, m, epsilon)
    monkeypatch.setattr(mh_austere, "_RESOLUTION", 6.0)
    fine = sequential_test(size, m, epsilon)
    monkeypatch.setattr(mh_austere, "_RESOLUTION", 2.6)
    coarse = sequential_test(size, m, epsilon)
    assert np.abs(found.error - fine.error).max() < 4e-8
    assert np.abs(coarse.error - fine.error).max() > 6e-8


def test_error_and_rows_fall_with_the_drift_to_one_look() -> None:
    for size in (60, 3_000, 10**8):
        drifts = drift_grid(size)
        test = sequential_test(size, 50, 0.01)
        assert (np.diff(test.error) <= 1e-12).all()
        assert (np.diff(test.rows) <= 1e-6 * size).all()
        assert 0.0 < test.error[0] < 0.5
        assert test.error[-1] == pytest.approx(0.0, abs=1e-9)
        assert test.rows[-1] == pytest.approx(50.0, rel=0.01 if size > 60 else 0.2)
        assert drifts[0] == 0.0
        assert (np.diff(drifts) > 0.0).all()


def test_a_population_of_one_look_is_always_right() -> None:
    test = sequential_test(40, 50, 0.01)
    assert (test.error == 0.0).all()
    assert (test.rows == 40.0).all()
