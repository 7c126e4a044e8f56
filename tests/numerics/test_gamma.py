"""Log-gamma, its derivatives and their differences against many digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from streammc.numerics.special import (
    digamma,
    digamma_difference,
    gamma_normalizer,
    log_gamma,
    log_gamma_ratio,
    rising,
    trigamma,
    trigamma_difference,
)

RNG = np.random.default_rng(0)
POSITIVE = np.concatenate([10.0 ** RNG.uniform(-10, 15, 500), RNG.uniform(0, 12, 300)])
FUNCTIONS = {
    "log_gamma": (log_gamma, mpmath.loggamma, special.gammaln),
    "digamma": (digamma, mpmath.digamma, special.digamma),
    "trigamma": (trigamma, lambda x: mpmath.psi(1, x), lambda x: special.polygamma(1, x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_right_to_1e_14(name: str) -> None:
    ours, exact, scipys = FUNCTIONS[name]
    with mpmath.workdps(40):
        for x in POSITIVE:
            truth = exact(mpmath.mpf(float(x)))
            assert abs(ours(x) - truth) <= 1e-14 * max(abs(truth), 1 if name != "trigamma" else 0)
    found = np.array([ours(x) for x in POSITIVE])
    np.testing.assert_allclose(scipys(POSITIVE), found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("x", [0.0, -1.0, math.nan])
def test_function_outside_its_domain_is_nan(name: str, x: float) -> None:
    assert math.isnan(FUNCTIONS[name][0](x))


@pytest.mark.parametrize("x", [1e-300, 1e300])
def test_functions_do_not_overflow(x: float) -> None:
    assert math.isfinite(log_gamma(x))
    assert math.isfinite(digamma(x))


def exact_rising(a: float, y: float) -> list[mpmath.mpf]:
    """Return the five numbers of ``rising`` from their definitions."""
    big, more = mpmath.mpf(a), mpmath.mpf(y)
    ratio = mpmath.loggamma(big + more) - mpmath.loggamma(big)
    first = mpmath.digamma(big + more) - mpmath.digamma(big)
    second = mpmath.psi(1, big + more) - mpmath.psi(1, big)
    slope = big * first
    return [ratio, ratio - more * mpmath.log(big), slope, more - slope, slope + big**2 * second]


@pytest.mark.parametrize("kind", ["half", "small whole", "whole", "real"])
def test_differences_keep_their_digits(kind: str) -> None:
    rng = np.random.default_rng(1)
    with mpmath.workdps(100):
        for i in range(150):
            a = float(10.0 ** (rng.uniform(-12, 12) if i % 2 else rng.uniform(-1, 3)))
            y = {
                "half": 0.5,
                "small whole": float(rng.integers(2, 16)),
                "whole": float(rng.integers(16, 1000)),
                "real": float(10.0 ** rng.uniform(-1, 6)),
            }[kind]
            ratio, excess, slope, shortfall, bend = exact_rising(a, y)
            found = rising(a, math.log(a), y)
            scale = max(abs(y * math.log(a)), 1)
            assert abs(found[0] - ratio) <= 2e-15 * max(scale, abs(ratio)), (a, y)
            assert abs(found[1] - excess) <= 2e-15 * max(abs(excess), 1, scale * (a < 10)), (a, y)
            # A sum over a whole y is of terms of order one.
            assert abs(found[2] / slope - 1) <= 2e-15, (a, y)
            assert abs(found[3] / shortfall - 1) <= 1e-13, (a, y)
            assert abs(found[4] / bend - 1) <= 1e-13, (a, y)


def test_huge_a_and_small_y_lose_nothing() -> None:
    a = 1e8
    with mpmath.workdps(60):
        for y in (1e-3, 0.5, 1.0, 7.0, 33.3, 100.0):
            big, more = mpmath.mpf(a), mpmath.mpf(y)
            pairs = [
                (log_gamma_ratio(a, y), mpmath.loggamma(big + more) - mpmath.loggamma(big)),
                (digamma_difference(a, y), mpmath.digamma(big + more) - mpmath.digamma(big)),
                (trigamma_difference(a, y), mpmath.psi(1, big + more) - mpmath.psi(1, big)),
            ]
            for found, truth in pairs:
                assert abs(found / truth - 1) < 1e-15, y
    # What subtracting loses, so that the bound above means something.
    assert abs((log_gamma(a + 0.5) - log_gamma(a)) / log_gamma_ratio(a, 0.5) - 1) > 1e-12


@pytest.mark.parametrize("a", [0.05 / 2, 1.0, 10.0, 1e4, 1e8 / 2])
def test_half_step_of_the_t_density_and_its_derivatives_in_log_nu(a: float) -> None:
    with mpmath.workdps(60):

        def step(log_nu: mpmath.mpf) -> mpmath.mpf:
            half = mpmath.exp(log_nu) / 2
            ratio = mpmath.loggamma(half + mpmath.mpf(0.5)) - mpmath.loggamma(half)
            return ratio - mpmath.log(half) / 2

        at = mpmath.log(2 * mpmath.mpf(a))
        _, excess, _, shortfall, bend = rising(a, math.log(a), 0.5)
        assert abs(excess / step(at) - 1) < 1e-13
        assert abs(-shortfall / mpmath.diff(step, at) - 1) < 1e-13
        assert abs(bend / mpmath.diff(step, at, 2) - 1) < 1e-13


def test_rising_factorial_of_zero_steps_is_zero_with_its_derivatives() -> None:
    for a in (1e-300, 0.3, 5.0, 1e8):
        assert rising(a, math.log(a), 0.0) == (0.0,) * 5


@pytest.mark.parametrize("a", [math.exp(-700.0), 1e-3, 1.0, math.exp(700.0)])
@pytest.mark.parametrize("y", [0.0, 0.5, 1.0, 15.0, 16.0, 1e6, 2.0**53])
def test_rising_is_finite_at_the_ends(a: float, y: float) -> None:
    assert np.isfinite(rising(a, math.log(a), y)).all()


def test_rising_of_nan_is_nan() -> None:
    for arguments in [(math.nan, math.nan, 0.5), (math.nan, math.nan, 3.0), (2.0, 0.7, math.nan)]:
        assert np.isnan(rising(*arguments)).all(), arguments


def test_normalizer_keeps_its_digits_where_its_terms_cancel() -> None:
    with mpmath.workdps(400):
        for a in (1e-300, 1e-20, 1e-5, 0.1, 1.0, 2.5, 9.999, 10.0, 10.001, 50.0, 1e8, 1e150):
            x = mpmath.mpf(a)
            log_x = mpmath.log(x)
            slope = x * (log_x - mpmath.digamma(x))
            truth = (
                x * (log_x - 1) - mpmath.loggamma(x),
                slope,
                slope + x - x**2 * mpmath.psi(1, x),
            )
            for found, expected in zip(gamma_normalizer(a, float(log_x)), truth, strict=True):
                assert abs(found - expected) <= 1e-14 * max(1, abs(expected)), a
    naive = 1e8 * math.log(1e8) - 1e8 - special.gammaln(1e8)
    assert abs(naive - gamma_normalizer(1e8, math.log(1e8))[0]) > 1e-8
