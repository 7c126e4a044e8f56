"""Keyed units: permutations are permutations, and uniform; hashes are uniform."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from streammc.likelihood.drawn_units import KeyedUnits

KEYS = 60_000


def draw(n_units: int, count: int, *, replace: bool, keys: int = KEYS, seed: int = 3) -> np.ndarray:
    stream = KeyedUnits(n_units, 1, seed, 0)
    return stream.draw(0, keys, 0, count, lane=0, replace=replace).reshape(keys, count)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 17, 1000, 65_537])
def test_every_unit_comes_once(n: int) -> None:
    for row in draw(n, n, replace=False, keys=3):
        np.testing.assert_array_equal(np.sort(row), np.arange(n))


@pytest.mark.parametrize("n", [4, 5])
def test_all_permutations_are_equally_likely(n: int) -> None:
    code = draw(n, n, replace=False) @ n ** np.arange(n)
    expected = [np.array(p) @ n ** np.arange(n) for p in permutations(range(n))]
    counts = np.array([(code == value).sum() for value in expected])
    assert counts.sum() == KEYS
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("replace", [True, False])
def test_pairs_are_uniform(replace: bool) -> None:
    units = draw(40, 20, replace=replace)
    for a, b in ((0, 1), (3, 19)):
        table = np.zeros((40, 40))
        np.add.at(table, (units[:, a], units[:, b]), 1)
        cells = np.ones((40, 40), bool) if replace else ~np.eye(40, dtype=bool)
        assert table[~cells].sum() == 0
        assert stats.chisquare(table[cells]).pvalue > 1e-4


@pytest.mark.parametrize("replace", [True, False])
def test_means_have_the_variance_of_the_design(replace: bool) -> None:
    n, count = 3000, 600
    x = np.random.default_rng(0).gamma(0.2, size=n)
    means = x[draw(n, count, replace=replace, keys=20_000)].mean(axis=1)
    variance = x.var(ddof=1) / count * (1.0 if replace else 1.0 - count / n)
    assert abs(means.mean() - x.mean()) < 4.5 * np.sqrt(variance / 20_000)
    ratio = means.var() / variance
    assert abs(ratio - 1.0) < 4.5 * np.sqrt(2.0 / 20_000)
    other = variance * ((1.0 - count / n) if replace else 1.0 / (1.0 - count / n))
    assert abs(means.var() / other - 1.0) > 10.0 * np.sqrt(2.0 / 20_000)


def test_iterations_lanes_chains_and_parts_do_not_interfere() -> None:
    stream = KeyedUnits(10_000, 1, 5, 0)
    whole = stream.draw(7, 3, 0, 50, lane=0, replace=False).reshape(3, 50)
    later = stream.draw(8, 1, 20, 30, lane=0, replace=False)
    np.testing.assert_array_equal(later, whole[1, 20:])
    others = (
        stream.draw(7, 1, 0, 50, lane=1, replace=False),
        KeyedUnits(10_000, 1, 5, 1).draw(7, 1, 0, 50, lane=0, replace=False),
        KeyedUnits(10_000, 1, 6, 0).draw(7, 1, 0, 50, lane=0, replace=False),
    )
    for other in others:
        assert (other == whole[0]).mean() < 0.1
