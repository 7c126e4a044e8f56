"""Gamma regression: density, start, and the posterior against a grid."""

from __future__ import annotations

from functools import partial

import mpmath
import numpy as np
import pytest
from families import gamma_log_lik
from problems import batch_z
from scipy import stats

from streammc import from_arrays, sample
from streammc.models import gamma
from streammc.models.check import evaluate
from streammc.priors import lognormal, normal
from streammc.protocols import Rows


def test_log_density_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    eta = rng.normal(size=(2, 200))
    y = gamma().simulate(eta, rng)
    shape, mu = np.exp(eta[1]), np.exp(eta[0])
    expected = stats.gamma(shape, scale=mu / shape).logpdf(y)
    np.testing.assert_allclose(expected, evaluate(gamma(), eta, y)[0], rtol=1e-12, atol=1e-12)


def test_density_and_derivatives_keep_their_digits_for_large_and_small_shapes() -> None:
    for log_shape in (-30.0, -2.0, 0.0, 2.3, 2.4, 10.0, 30.0):
        width = min(1.0, np.exp(-0.5 * log_shape))
        eta = np.array([[0.3, 0.3 + width, 0.3 - 2.0 * width], [log_shape] * 3])
        y = np.full(3, np.exp(0.3))
        out = evaluate(gamma(), eta, y)
        with mpmath.workdps(60):
            f = partial(gamma_log_lik, mpmath.mpf(y[0]))
            for i, (log_mu, log_a) in enumerate(eta.T):
                at = mpmath.mpf(log_mu), mpmath.mpf(log_a)

                orders = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
                truth = [mpmath.diff(f, at, n) if any(n) else f(*at) for n in orders]
                # r = log y - log mu is rounded, and counts shape times.
                size = float(mpmath.exp(log_a)) * 2.0**-52
                for found, expected in zip(out[:, i], truth, strict=True):
                    slack = 1e-13 * max(1.0, abs(float(expected))) + 4.0 * size
                    assert abs(found - float(expected)) < slack, (log_shape, i)


def test_start_is_near_the_mode_and_sees_weights_and_offsets() -> None:
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(2000), rng.normal(size=2000)]
    offset, weight = rng.normal(size=2000), (rng.random(2000) < 0.5) * 1.0
    y = gamma().simulate(np.array([X @ [0.5, -0.4] + offset, np.full(2000, np.log(5.0))]), rng)
    y[weight == 0.0] = 1e6
    start = gamma().start(Rows(X, y, offset, weight))
    np.testing.assert_allclose([0.5, -0.4, np.log(5.0)], start, atol=0.15)


def grid_posterior(y: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """Return means and deviations of intercept and log shape, by enumeration on a grid."""
    b, s = np.meshgrid(np.linspace(-1.5, 2.5, 601), np.linspace(-1.5, 3.5, 601), indexing="ij")
    shape, log = np.exp(s), stats.norm(0.0, 2.0).logpdf(b) + stats.norm(0.5, 1.0).logpdf(s)
    for value, w in zip(y, weight, strict=True):
        log += w * stats.gamma(shape, scale=np.exp(b) / shape).logpdf(value)
    density = np.exp(log - log.max())
    density /= density.sum()
    found = {}
    for name, axis in (("b", b), ("s", s)):
        found[name] = float((density * axis).sum())
        found[f"sd_{name}"] = float(np.sqrt((density * (axis - found[name]) ** 2).sum()))
    return found


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_posterior_is_that_of_enumeration(power: float) -> None:
    rng = np.random.default_rng(5)
    y, weight = rng.gamma(2.0, 0.8, 30), rng.integers(1, 3, 30) * 1.0
    store = from_arrays(np.ones((30, 1)), y, weight=weight, feature_names=["Intercept"])
    model = gamma({"Intercept": normal(2.0), "shape": lognormal(0.5, 1.0)})
    run = sample(store, model, draws=4000, warmup=500, chains=2, seed=7)
    exact = grid_posterior(y, weight**power)  # power 2: other weights, which must be seen
    draws = run["posterior"]
    z = [
        (draws["beta"].values[..., 0].ravel() - exact["b"]) / exact["sd_b"],
        (np.log(draws["shape"].values).ravel() - exact["s"]) / exact["sd_s"],
    ]
    worst = max(abs(batch_z(part, 0.0)) for part in z)
    spread = max(abs(batch_z(part**2, 1.0)) for part in z)
    assert (max(worst, spread) < 4.5) == (power == 1.0), (worst, spread)
