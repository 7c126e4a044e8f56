"""The Tweedie density at its mean, and its derivatives, against the series with many digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy import integrate, stats

from streammc.numerics.tweedie_series import tweedie_parts
from streammc.protocols import Vector


def log_f(v: mpf, u: mpf) -> mpf:
    """Return the log density at 1 of mean 1, ``phi = exp(v)`` and ``p = 1 + 1 / (1 + exp(-u))``.

    Dunn and Smyth 2005: a Poisson number of gamma variables, summed over that number.
    """
    s, r = 1 / (1 + mpmath.exp(-u)), 1 / (1 + mpmath.exp(u))
    rate, shape, scale = mpmath.exp(-v) / r, r / s, mpmath.exp(v) * s

    def term(j: int) -> mpf:
        chance = j * mpmath.log(rate) - mpmath.loggamma(j + 1)
        return chance - j * shape * mpmath.log(scale) - mpmath.loggamma(j * shape)

    middle = max(1, int(rate))
    top, total = term(middle), mpf(0)
    for way, j in ((1, middle), (-1, middle - 1)):
        while j >= 1:
            total += (part := mpmath.exp(term(j) - top))
            if part < mpf(10) ** -40:
                break
            j += way
    return top + mpmath.log(total) - rate - 1 / scale


def truth(v: float, u: float) -> list[mpf]:
    """Return value, gradient and upper Hessian by differences of 45 digits."""
    h = mpf(10) ** -10
    f = {(i, j): log_f(mpf(v) + i * h, mpf(u) + j * h)
         for i in (-1, 0, 1) for j in (-1, 0, 1)}  # fmt: skip
    mixed = f[1, 1] - f[1, -1] - f[-1, 1] + f[-1, -1]
    return [
        f[0, 0],
        (f[1, 0] - f[-1, 0]) / (2 * h),
        (f[0, 1] - f[0, -1]) / (2 * h),
        (f[1, 0] - 2 * f[0, 0] + f[-1, 0]) / h**2,
        mixed / (4 * h**2),
        (f[0, 1] - 2 * f[0, 0] + f[0, -1]) / h**2,
    ]


POINTS = [
    (-1.5033, -15.0),  # the larger neighbour of lambda is the farther one
    (-1.5033, -5.0),
    (-6.5, 0.5),  # expansion
    (-4.2, 0.0),
    (-4.2, 2.0),
    (-4.1, 0.0),  # steps above 1
    (-3.0, 2.0),
    (-1.0, 4.0),
    (-8.0, -7.5),  # terms around one whole number
    (-6.0, -6.0),
    (-1.0, -3.0),  # steps of 1
    (0.0, 0.0),
    (1.0, 2.0),
    (3.0, -1.0),
    (40.0, 1.0),  # one term
    (300.0, -2.0),
]


@pytest.mark.parametrize(("v", "u"), POINTS)
def test_value_and_derivatives_have_the_digits_of_45(v: float, u: float) -> None:
    """Errors of second derivatives are relative to ``lambda / s``, the largest of their terms."""
    found = tweedie_parts(v, u)
    with mpmath.workdps(45):
        exact = truth(v, u)
    largest = math.exp(-v) * (1.0 + math.exp(u)) * (1.0 + math.exp(-u))
    sizes = [1.0, 10.0, 10.0, *[1.0 + largest] * 3]
    for k, (one, other, size) in enumerate(zip(found, exact, sizes, strict=True)):
        assert abs(one - other) <= 2e-13 * max(size, abs(float(other))), k


def test_another_power_is_another_density() -> None:
    with mpmath.workdps(45):
        exact = float(log_f(mpf(0), mpf("1e-6")))
    assert abs(tweedie_parts(0.0, 0.0)[0] - exact) > 1e-9


def test_expansion_and_series_meet() -> None:
    """Either side of the limit values and derivatives agree up to the distance between them."""
    at = math.log(1.0 / 64.0)
    for u in np.linspace(-2.0, 5.0, 29):
        low, high = (np.array(tweedie_parts(at + e, u)) for e in (-1e-11, 1e-11))
        assert np.abs(high - low).max() < 1e-9


def densities(y: Vector, phi: float, u: float) -> Vector:
    """Return the density at y for the mean 1, from that at the mean."""
    s, r = 1.0 / (1.0 + math.exp(-u)), 1.0 / (1.0 + math.exp(u))
    log_xi = math.log(phi) - r * np.log(y)
    at_mean = np.array([tweedie_parts(each, u)[0] for each in log_xi]) - np.log(y)
    deviance = (y - y**r) / s + (1.0 - y**r) / r  # half of it
    density: Vector = np.exp(at_mean - deviance / phi)
    return density


@pytest.mark.parametrize(("phi", "u"), [(0.5, 0.0), (2.0, 1.0), (0.02, -1.0)])
def test_density_and_mass_at_zero_add_up_to_one(phi: float, u: float) -> None:
    r = 1.0 / (1.0 + math.exp(u))
    log_y = np.linspace(-60.0, 6.0, 6001)
    y = np.exp(log_y)
    mass = integrate.trapezoid(densities(y, phi, u) * y, log_y)
    zero = math.exp(-1.0 / (phi * r))
    assert abs(mass + zero - 1.0) < 1e-6
    assert abs(integrate.trapezoid(densities(y, phi, u) * y * y, log_y) - 1.0) < 1e-6


def test_power_near_2_is_the_gamma_density() -> None:
    """The limit of the log odds 30: ``exp(-v)`` is the shape."""
    for v in (-2.0, 0.0):
        shape = math.exp(-v)
        expected = stats.gamma.logpdf(1.0, shape, scale=1.0 / shape)
        assert abs(tweedie_parts(v, 30.0)[0] - expected) < 1e-10


def test_no_number_stays_none_and_extremes_are_numbers() -> None:
    for pair in ((math.nan, 0.0), (0.0, math.nan), (math.inf, 0.0)):
        assert np.isnan(tweedie_parts(*pair)).all()
    for v in (-1e6, -600.0, -40.0, 0.0, 40.0, 600.0, 1e6):
        for u in (-1e6, -30.0, -15.0, 0.0, 15.0, 30.0, 1e6):
            assert np.isfinite(tweedie_parts(v, u)).all(), (v, u)
