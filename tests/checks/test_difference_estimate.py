"""Totals from a sample of rows: unbiased, with the standard error that is stated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streammc.checks.difference_estimate import (
    Sample,
    difference_total,
    exact_total,
    paired_difference,
)

N, M, SETS = 3000, 200, 600


def population():
    rng = np.random.default_rng(6)
    values = -rng.exponential(size=N)
    return values, values + 0.1 * rng.normal(size=N) + 0.05 * (rng.random(N) < 0.02)


def sample_of(seed, always=0):
    rng = np.random.default_rng(seed)
    first = np.arange(always)
    others = always + np.sort(rng.choice(N - always, M, replace=False))
    return Sample(np.concatenate([first, others]), np.arange(M + always) < always, N)


def estimates(always, missing=0):
    values, surrogate = population()
    seen = surrogate[missing:]
    sums = float(seen.sum()), float(seen @ seen), float(N)
    found = []
    for seed in range(SETS):
        sample = sample_of(seed, always)
        at = sample.rows
        found.append(difference_total(values[at], surrogate[at], np.ones(len(at)), sums, sample))
    return np.array(found), exact_total(values, np.ones(N))


@pytest.mark.parametrize("always", [0, 50])
def test_totals_are_unbiased_with_the_stated_error(always):
    found, exact = estimates(always)
    error = found[:, 0].std(ddof=1)
    assert abs(found[:, 0].mean() - exact.total) < 4.5 * error / math.sqrt(SETS)
    assert math.sqrt((found[:, 2] ** 2).mean()) == pytest.approx(error, rel=0.15)
    assert math.sqrt((found[:, 1] ** 2).mean()) == pytest.approx(exact.se, rel=0.02)


def test_a_sum_of_surrogates_that_misses_rows_is_caught():
    found, exact = estimates(0, missing=200)
    error = found[:, 0].std(ddof=1) / math.sqrt(SETS)
    assert abs(found[:, 0].mean() - exact.total) > 4.5 * error


def test_surrogates_of_other_rows_leave_a_large_error():
    values, surrogate = population()
    sums, sample = (float(surrogate.sum()), float(surrogate @ surrogate), float(N)), sample_of(1)
    good, wrong = (
        difference_total(values[sample.rows], each[sample.rows], np.ones(M), sums, sample).error
        for each in (surrogate, np.roll(surrogate, 1))
    )
    assert wrong > 8 * good


def test_differences_of_two_models_are_paired():
    values, surrogate = population()
    rng = np.random.default_rng(3)
    away = 0.05 * rng.normal(size=N)
    other, other_surrogate = values + away, surrogate + away
    totals, errors, spreads = [], [], []
    for seed in range(SETS):
        sample = sample_of(seed)
        at = sample.rows
        found = paired_difference(
            (other - values)[at],
            (other_surrogate - surrogate)[at],
            float((other_surrogate - surrogate).sum()),
            np.ones(M),
            sample,
        )
        totals.append(found.total)
        errors.append(found.error)
        spreads.append(found.se)
    exact = paired_difference(away, None, 0.0, np.ones(N), Sample(np.arange(N), np.ones(N), N))
    np.testing.assert_allclose(totals, exact.total, rtol=1e-9)
    np.testing.assert_allclose(errors, 0.0, atol=1e-9)
    assert np.mean(spreads) == pytest.approx(exact.se, rel=0.02)
    assert exact.se == pytest.approx(math.sqrt(N) * away.std(), rel=1e-9)


def test_rows_of_weight_zero_do_not_count_in_the_spread():
    used = (np.arange(N) % 2).astype(float)
    values = np.where(used > 0, -1.0, 0.0)
    assert exact_total(values, used).se == 0.0
    sample = sample_of(2)
    at = sample.rows
    found = difference_total(
        values[at], values[at], used[at], (values.sum(), float(values @ values), N / 2), sample
    )
    assert found.se == pytest.approx(0.0, abs=1e-6)


def test_a_row_of_several_observations_counts_as_these():
    values, surrogate = population()
    count = 1.0 + np.arange(N) % 4
    times = count.astype(int)
    exact = exact_total(count * values, count)
    repeated = exact_total(np.repeat(values, times), np.ones(times.sum()))
    assert exact.total == pytest.approx(repeated.total, rel=1e-12)
    assert exact.se == pytest.approx(repeated.se, rel=1e-12)
    assert exact.se != pytest.approx(exact_total(count * values, np.ones(N)).se, rel=0.1)
    sample = sample_of(1)
    at = sample.rows
    sums = float(count @ surrogate), float(count @ surrogate**2), float(count.sum())
    found = difference_total((count * values)[at], (count * surrogate)[at], count[at], sums, sample)
    assert abs(found.total - exact.total) < 4.5 * found.error
    assert found.se == pytest.approx(exact.se, rel=0.02)
