"""The prior of effects with a sampled scale: density, normalisation and derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc.numerics.prior import CONSTANT, EFFECT, KIND, LOCATION, log_prior, prior_curvature
from streammc.priors import half_normal, normal
from streammc.priors.densities import POSITIVE


def table():
    """A coefficient, two effects, and the log of their scale."""
    out = np.zeros((4, 5))
    out[0] = normal(2.0).table(("",))[0]
    out[1:3, KIND] = EFFECT
    out[1:3, LOCATION] = 3
    out[1:3, CONSTANT] = -0.5 * np.log(2 * np.pi)
    out[3] = half_normal(0.8).rows(("",), [POSITIVE])[0]
    return out


THETAS = np.random.default_rng(0).normal(size=(6, 4)) * [1.0, 1.0, 0.3, 1.5]


@pytest.mark.parametrize("theta", THETAS)
def test_effects_are_normal_with_the_sampled_scale(theta):
    tau = np.exp(theta[3])
    expected = stats.norm(0, 2).logpdf(theta[0]) + stats.norm(0, tau).logpdf(theta[1:3]).sum()
    expected += stats.halfnorm(scale=0.8).logpdf(tau) + theta[3]
    assert expected == pytest.approx(log_prior(theta, table(), np.zeros(4)), rel=1e-12)


@pytest.mark.parametrize("theta", THETAS)
def test_the_gradient_reaches_the_scale(theta):
    gradient, h = np.ones(4), 1e-6
    log_prior(theta, table(), gradient)
    nothing = np.zeros(4)
    slopes = [
        (log_prior(theta + s, table(), nothing) - log_prior(theta - s, table(), nothing)) / (2 * h)
        for s in h * np.eye(4)
    ]
    assert gradient - 1.0 == pytest.approx(slopes, rel=1e-6, abs=1e-6)


def test_the_density_of_an_effect_and_its_scale_is_normalised():
    v, t = np.linspace(-8, 8, 41), np.linspace(-14, 1.5, 156)
    prior, gradient = table(), np.zeros(4)
    of_others = stats.norm(0, 2).logpdf(0.0)
    total = 0.0
    for log_tau in t:
        tau = np.exp(log_tau)
        thetas = [np.array([0.0, a * tau, 0.0, log_tau]) for a in v]
        line = np.array([log_prior(theta, prior, gradient) for theta in thetas])
        known = of_others + stats.norm(0, tau).logpdf(0.0)  # coefficient, and the other effect
        total += np.exp(line - known).sum() * tau * (v[1] - v[0]) * (t[1] - t[0])
    assert total == pytest.approx(1.0, abs=1e-4)


def test_the_curvature_of_an_effect_is_its_precision():
    out = np.empty(4)
    prior_curvature(THETAS[0], table(), out)
    assert out[1:3] == pytest.approx(np.exp(-2.0 * THETAS[0][3]))
