"""The normal distribution function in both tails."""

from __future__ import annotations

import mpmath
import numpy as np
from scipy import special

from streammc.numerics.jit import jit
from streammc.numerics.special import log_ndtr, log_ndtr_parts
from streammc.protocols import Matrix, Vector


@jit()
def _parts(x: Vector) -> Matrix:
    out = np.empty((3, x.shape[0]))
    for i in range(x.shape[0]):
        out[0, i], out[1, i], out[2, i] = log_ndtr_parts(x[i])
    return out


@jit()
def _log_ndtr(x: Vector) -> Vector:
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = log_ndtr(x[i])
    return out


def exact(a: float) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """Return log Phi, phi / Phi and the derivative of that."""
    at = mpmath.mpf(a)
    if at < -30:
        # Laplace's continued fraction: phi / Phi = x + 1 / (x + 2 / (x + 3 / ...)), x = -a.
        tail = -at
        for k in range(200, 1, -1):
            tail = -at + k / tail
        mills = -at + 1 / tail
        value = -at * at / 2 - mpmath.log(2 * mpmath.pi) / 2 - mpmath.log(mills)
        return value, mills, -mills / tail
    upper = mpmath.erfc(at / mpmath.sqrt(2)) / 2
    lower = mpmath.erfc(-at / mpmath.sqrt(2)) / 2
    mills = mpmath.exp(-at * at / 2) / mpmath.sqrt(2 * mpmath.pi) / lower
    return mpmath.log1p(-upper) if at > 0 else mpmath.log(lower), mills, -mills * (at + mills)


def test_log_ndtr_and_its_derivatives_are_right_to_4e_15_in_both_tails() -> None:
    rng = np.random.default_rng(0)
    a = np.concatenate(
        [
            rng.uniform(-40.0, 37.5, 600),
            -(10.0 ** rng.uniform(1, 6, 100)),
            [0.0, 1e-300, -1e-300, 1e-9, -1e-9, -1e6],
        ]
    )
    found = _parts(a)
    with mpmath.workdps(60):
        for i, at in enumerate(a):
            for ours, truth in zip(found[:, i], exact(float(at)), strict=True):
                # 2.0e-15 with fused multiply-add, 2.4e-15 on processors without it.
                assert abs(ours / truth - 1) < 4e-15, at


def test_values_are_those_of_scipy() -> None:
    a = np.concatenate([np.linspace(-1e3, -40.0, 50), np.linspace(-40.0, 37.0, 400), [-1e6]])
    np.testing.assert_allclose(special.log_ndtr(a), _log_ndtr(a), rtol=1e-12)
    np.testing.assert_allclose(
        np.sqrt(2 / np.pi) / special.erfcx(-a[a < 5] / np.sqrt(2)), _parts(a)[1][a < 5], rtol=1e-13
    )


def test_no_nan_or_overflow_at_the_ends() -> None:
    value, mills, slope = _parts(np.array([-np.inf, -1e300, -1e200, -1e6, 40.0, 1e300, np.inf]))
    np.testing.assert_array_equal([-np.inf] * 3, value[:3])
    np.testing.assert_array_equal([np.inf, 1e300, 1e200], mills[:3])
    np.testing.assert_allclose([-1.0] * 4, slope[:4], rtol=1e-11)
    for tail in (value, mills, slope):
        np.testing.assert_array_equal([0.0] * 3, np.abs(tail[4:]))
    assert np.isnan(_parts(np.array([np.nan]))).all()
