from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import zeta
from scipy.stats import norm, t

from streammc.numerics.jit import f8, jit, vector
from streammc.samplers.metropolis import mh_austere
from streammc.samplers.metropolis.mh_austere import (
    DRIFTS,
    ERRORS,
    FIRST_PAIR,
    N_DRIFTS,
    TERMS,
    THRESHOLD,
    THRESHOLDS,
    at_drift,
    pair_table,
)


@jit(f8(vector, vector, f8))
def interpolated(drifts, values, drift):
    return at_drift(drifts, values, drift)


@pytest.mark.parametrize("drift", [-1.0, 0.0, 0.2, 0.5, 0.7, 1.9, 2.0, 3.0])
def test_errors_are_interpolated_between_drifts(drift: float) -> None:
    drifts, values = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.4, 0.3, 0.1, 0.02])
    expected = np.interp(drift, drifts, values)
    assert interpolated(drifts, values, drift) == pytest.approx(expected, rel=1e-14)
    assert values[0] == interpolated(drifts, values, math.nan)


def test_a_pair_that_is_given_has_students_quantiles_by_its_number_of_terms() -> None:
    settings, table = pair_table(5000, 60, 0.05, 0.1, True, False)
    assert 60 == settings[FIRST_PAIR + TERMS]
    assert settings[FIRST_PAIR + THRESHOLD] == pytest.approx(norm.isf(0.05))
    terms = np.arange(2, N_DRIFTS)
    expected = t.isf(0.05, terms - 1)
    np.testing.assert_allclose(table[1 + THRESHOLDS, 2:], expected, rtol=1e-8)
    found = mh_austere.sequential_test(5000, 60, 0.05, table[DRIFTS])
    np.testing.assert_array_equal(found.error, table[1 + ERRORS])


def test_the_overshoot_of_a_walk_is_chernoffs() -> None:
    expected = -zeta(0.5) / math.sqrt(2.0 * math.pi)
    assert mh_austere._OVERSHOOT == pytest.approx(expected, rel=1e-12)
