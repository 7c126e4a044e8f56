"""Vectorised special functions against 50 digits."""

from __future__ import annotations

import math

import mpmath
import numba
import numpy as np
import pytest

from streammc.numerics.jit import jit
from streammc.numerics.special import (
    exp,
    log,
    log1p_parts,
    log1p_unit,
    log1p_unit_parts,
    log_factorial,
)
from streammc.protocols import Matrix, Vector


@jit()
def _exp(x: Vector) -> Vector:
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = exp(x[i])
    return out


@jit()
def _log1p(x: Vector) -> Vector:
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = log1p_unit(x[i])
    return out


@jit()
def _log(x: Vector) -> Vector:
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = log(x[i])
    return out


@jit()
def _log1p_parts(x: Vector) -> Matrix:
    out = np.empty((4, x.shape[0]))
    for i in range(x.shape[0]):
        out[0, i], out[1, i], out[2, i], out[3, i] = log1p_parts(x[i], 1.0 + x[i])
    return out


@jit()
def _log1p_unit_parts(x: Vector) -> Matrix:
    out = np.empty((3, x.shape[0]))
    for i in range(x.shape[0]):
        out[0, i], out[1, i], out[2, i] = log1p_unit_parts(x[i])
    return out


@jit()
def _log_factorial(x: Vector) -> Vector:
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = log_factorial(x[i])
    return out


def worst(found: Vector, x: Vector, truth: object) -> float:
    """Return the largest relative error."""
    with mpmath.workdps(50):
        return max(
            float(abs(mpmath.mpf(float(f)) / truth(mpmath.mpf(float(at))) - 1))  # type: ignore[operator]
            for f, at in zip(found, x, strict=True)
        )


def test_exp_is_within_two_ulp() -> None:
    rng = np.random.default_rng(0)
    half = math.log(2) / 2
    edges = np.nextafter(np.arange(-20, 20)[:, None] * 2 * half + half, [-np.inf, np.inf]).ravel()
    x = np.concatenate(
        [rng.uniform(-708, 709.78, 4000), rng.normal(size=2000), edges, [0.0, 1e-300]]
    )
    assert worst(_exp(x), x, mpmath.exp) < 2 * np.finfo(float).eps


def test_exp_overflows_and_underflows_at_its_ends() -> None:
    x = np.array([0.0, -0.0, np.inf, 709.79, 1e300, np.nan])
    np.testing.assert_array_equal([1.0, 1.0, np.inf, np.inf, np.inf, np.nan], _exp(x))
    assert math.isfinite(_exp(np.array([709.78]))[0])
    low = _exp(np.array([-708.0, -709.0, -1e4, -np.inf]))
    assert (low == low[0]).all()
    assert 0.0 < low[0] < 4e-308


def test_log1p_is_within_two_ulp() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [rng.random(4000), 10.0 ** rng.uniform(-300, 0, 2000), [1.0, 5e-324 * 2**60]]
    )
    assert worst(_log1p(x), x, mpmath.log1p) < 2 * np.finfo(float).eps
    np.testing.assert_array_equal([0.0, np.nan], _log1p(np.array([0.0, np.nan])))


def test_log_factorial_meets_log_gamma() -> None:
    y = np.concatenate([np.arange(600.0), 10.0 ** np.arange(3, 16), [2.0**53]])
    found = _log_factorial(y)
    np.testing.assert_array_equal([0.0, 0.0], found[:2])
    assert worst(found[2:], y[2:], lambda v: mpmath.loggamma(v + 1)) < 2 * np.finfo(float).eps


@pytest.mark.parametrize("y", [-1.0, -0.5, np.nan, -np.inf])
def test_log_factorial_outside_its_domain_is_nan(y: float) -> None:
    assert math.isnan(_log_factorial(np.array([y]))[0])


def test_log_is_within_two_ulp() -> None:
    rng = np.random.default_rng(2)
    near = 1.0 + 1e-6 * rng.normal(size=1000)
    edges = np.sqrt([0.5, 2.0])[:, None] * [1 - 1e-15, 1.0, 1 + 1e-15]
    x = np.concatenate([10.0 ** rng.uniform(-300, 300, 2000), near, rng.random(500), edges.ravel()])
    assert worst(_log(x), x, mpmath.log) < 2 * np.finfo(float).eps
    at = np.array([1.0, np.inf, np.nan])
    np.testing.assert_array_equal([0.0, np.inf, np.nan], _log(at))


def test_log1p_minus_its_slope_keeps_its_digits() -> None:
    rng = np.random.default_rng(3)
    t = np.concatenate([10.0 ** rng.uniform(-140, 200, 500), rng.uniform(0, 4, 1000), [1.0]])
    truths = (
        mpmath.log1p,
        lambda v: mpmath.log1p(v) - v / (1 + v),
        lambda v: v / (1 + v),
        lambda v: 1 / (1 + v),
    )
    found = _log1p_parts(t)
    unit = t[t <= 1.0]
    found_unit = _log1p_unit_parts(unit)
    with mpmath.workdps(320):
        for k, truth in enumerate(truths):
            exact = [truth(mpmath.mpf(float(at))) for at in t]
            error = [
                abs(mpmath.mpf(float(f)) / e - 1) for f, e in zip(found[k], exact, strict=True)
            ]
            assert max(error) < 4 * np.finfo(float).eps
    np.testing.assert_allclose(found[[0, 1, 3]][:, t <= 1.0], found_unit, rtol=1e-15)
    np.testing.assert_array_equal(np.zeros(3), _log1p_parts(np.zeros(1))[:3, 0])
    assert np.isnan(_log1p_parts(np.array([np.nan]))).all()


def test_loops_over_exp_are_vectorised() -> None:
    """The reason these exist: a scalar loop is five times slower."""
    fresh = numba.njit(error_model="numpy")(_exp.py_func)  # a cached one has no assembly
    fresh(np.zeros(8))
    (assembly,) = fresh.inspect_asm().values()
    packed = [line for line in assembly.splitlines() if "mulpd" in line or ".2d" in line]
    assert packed, "no packed arithmetic in the loop"
