from __future__ import annotations

import math

import numpy as np
import pytest

from streammc.control_variates.plan.pilot import Pilot, add_by_group, unit_moments


def remainders(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(5, (3, 400)).astype(np.float32)


def test_sums_by_group_have_the_bits_of_numpy():
    values = remainders()
    group = np.random.default_rng(2).integers(0, 7, 400)
    sums, maxima = np.zeros((3, 8, 3)), np.zeros((3, 8))
    add_by_group(values, group, sums, maxima)
    for s, value in enumerate(values.astype(np.float64)):
        for power in range(3):
            expected = np.bincount(group, [value, value**2, value**2 * value][power], 8)
            np.testing.assert_array_equal(expected, sums[s, :, power])
        expected = [np.abs(value[group == g]).max(initial=0.0) for g in range(8)]
        np.testing.assert_array_equal(expected, maxima[s])


@pytest.mark.parametrize("unit_rows", [1, 4])
@pytest.mark.parametrize("scored", [False, True])
def test_moments_of_units_are_those_of_numpy(unit_rows, scored):
    values, n_rows = remainders().reshape(3, 50, 8), 395
    left_out = np.random.default_rng(3).uniform(size=(50, 8)) < 0.1
    share = np.random.default_rng(4).uniform(0.5, 2.0, -(-n_rows // unit_rows)).astype(np.float32)
    pilot = Pilot(
        np.arange(0, 400, 8), 8, values, n_rows, left_out, relative=share if scored else None
    )
    kept = np.where(left_out, 0.0, values.astype(np.float64)).reshape(3, -1, unit_rows).sum(axis=2)
    omega = share.astype(np.float64) if scored else np.ones(len(share))
    totals = kept[:, : len(share)] / omega
    weight = omega / omega.mean()
    mean = (weight * totals).mean(axis=1)
    away = totals - mean[:, None]
    second, third, fourth = ((weight * away**p).mean(axis=1) for p in (2, 3, 4))
    found = pilot.units(unit_rows)
    np.testing.assert_allclose(mean, found.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(second, found.variance, rtol=1e-12)
    np.testing.assert_allclose(third / second**1.5, found.skewness, rtol=1e-10)
    np.testing.assert_allclose(fourth / second**2, found.kurtosis, rtol=1e-12)
    np.testing.assert_allclose(np.abs(away).max(axis=1), found.largest, rtol=1e-13)


def test_an_infinite_remainder_leaves_no_moment_that_is_a_number():
    values = remainders()
    values[1, 7] = np.inf
    moments, ones = np.empty((5, 3)), np.ones(400)
    unit_moments(values, np.zeros(400, np.bool_), 1, ones, ones, np.empty(400), moments)
    assert np.isfinite(moments[:, [0, 2]]).all()
    assert all(math.isnan(moment) for moment in moments[:4, 1])
    assert math.inf == moments[4, 1]
