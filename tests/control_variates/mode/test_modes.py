"""Modes of a posterior: found, chosen and named; against densities on a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc.control_variates import compute
from streammc.control_variates.mode import modes
from streammc.control_variates.mode.modes import (
    corrected_evidence,
    laplace_evidence,
    log_posteriors,
)
from streammc.control_variates.mode.newton import in_memory, maximise
from streammc.likelihood.data_views import draw_subset
from streammc.models import (
    gaussian,
    gaussian_mixture,
    gaussian_mixture_free,
    gaussian_mixture_tied,
    logistic,
    negative_binomial,
    poisson,
)
from streammc.priors import half_student_t, laplace, normal, student_t
from streammc.stores import from_arrays

NARROW = {"*": normal(scale=10.0), "sigma": half_student_t(3, 10.0)}


def far_response(n, centre):
    """An intercept alone: ``y`` near ``centre`` with standard deviation 7."""
    y = centre + 7.0 * np.random.default_rng(0).normal(size=n)
    return from_arrays(np.ones((n, 1)), y), y


def grid_of_normal(y):
    """Mean and sd of (beta, sigma) under Normal(0, 10) and half-Student-t(3, 10), on a grid."""
    beta = np.concatenate([np.linspace(-60.0, 400.0, 1500), y.mean() + np.linspace(-10, 10, 1500)])
    log_sigma = np.linspace(np.log(2.0), np.log(4.0 * np.abs(y).max()), 1500)
    beta = np.unique(beta)
    width = np.gradient(beta)[:, None]
    square = (len(y) * (beta - y.mean()) ** 2 + ((y - y.mean()) ** 2).sum())[:, None]
    s = np.exp(log_sigma)[None]
    density = -len(y) * log_sigma - 0.5 * square / s**2 + stats.norm.logpdf(beta, 0, 10)[:, None]
    density = density + stats.t.logpdf(s / 10.0, 3) + log_sigma
    mass = np.exp(density - density.max()) * width
    mass /= mass.sum()
    moments = []
    for value in (beta[:, None], s):
        mean = (mass * value).sum()
        moments += [mean, np.sqrt((mass * (value - mean) ** 2).sum())]
    return moments


def spike_rows():
    rng = np.random.default_rng(5)
    x = rng.normal(size=2048)
    y = (rng.random(2048) < 1.0 / (1.0 + np.exp(-0.3 * x))).astype(float)
    return x[:, None], y


SPIKE = logistic(prior=student_t(3, 0.0, 0.001))


def grid_of_spike(x, y):
    """Mean and sd of the slope, and the mass within 0.03 of 0, on a grid."""
    slope = np.concatenate([np.linspace(-0.03, 0.03, 6001), np.linspace(0.0301, 0.6, 4000)])
    eta = slope[:, None] * x[:, 0]
    density = (y * eta - np.logaddexp(0.0, eta)).sum(axis=1) + stats.t.logpdf(slope / 0.001, 3)
    mass = np.exp(density - density.max()) * np.gradient(slope)
    mass /= mass.sum()
    mean = mass @ slope
    return mean, np.sqrt(mass @ (slope - mean) ** 2), mass[np.abs(slope) < 0.03].sum()


@pytest.mark.parametrize(("n", "centre"), [(30, 170.0), (2000, 1800.0), (2000, 10_000.0)])
def test_theta_star_is_where_prior_and_likelihood_have_the_mass(n, centre):
    store, y = far_response(n, centre)
    found = compute(store, gaussian(NARROW))
    mean, sd, scale, scale_sd = grid_of_normal(y)
    assert found.certificate["converged"]
    assert abs(found.theta_star[0] - mean) < 0.5 * sd
    assert abs(np.exp(found.theta_star[1]) - scale) < 0.5 * scale_sd


def test_theta_star_leaves_the_spike_of_a_prior():
    x, y = spike_rows()
    mean, sd, spike = grid_of_spike(x, y)
    assert spike < 0.1
    found = compute(from_arrays(x, y), SPIKE)
    assert abs(found.theta_star[0] - mean) < 1.5 * sd


def test_a_second_mode_is_named_with_its_evidence():
    x, y = spike_rows()
    lines = compute(from_arrays(x, y), SPIKE).certificate["warnings"]
    (line,) = [line for line in lines if "another mode" in line]
    assert "beta[x0] = 0.000" in line
    assert "--sampler pt" in line
    quiet = compute(from_arrays(x, y), logistic(prior=normal(scale=10.0)))
    assert [] == quiet.certificate["warnings"]


def test_evidence_is_the_mass_of_a_mode():
    x, y = spike_rows()
    store = from_arrays(x, y)
    table = SPIKE.prior_table(["beta[x0]"])
    rows = draw_subset(store, 2**27)
    look = in_memory(SPIKE, rows, 1.0)
    points = [maximise(look, np.array([start]), table) for start in (0.0, 0.3)]
    density = log_posteriors(SPIKE, rows, 1.0, table)
    spike, main = corrected_evidence(density, points, rows.X.size)
    mass = grid_of_spike(x, y)[2]
    # 800 draws with weights that vary little: 0.02 Monte Carlo standard errors.
    assert abs((spike - main) - np.log(mass / (1.0 - mass))) < 0.1
    # Laplace's formula alone would be noticed: the spike has heavier tails.
    crude = laplace_evidence(points[0]) - laplace_evidence(points[1])
    assert abs(crude - np.log(mass / (1.0 - mass))) > 0.1


@pytest.mark.parametrize(
    ("model", "runs"),
    [
        (logistic(), 1),
        (logistic(prior=laplace(scale=0.5)), 1),
        (poisson(), 1),
        (logistic(prior=student_t(3, 0.0, 1.0)), 2),
        (gaussian(NARROW), 2),
        (negative_binomial(), 2),
    ],
)
def test_a_concave_posterior_takes_one_newton_run(model, runs, monkeypatch):
    count = []
    monkeypatch.setattr(
        modes, "maximise", lambda *args, **kwargs: count.append(1) or maximise(*args, **kwargs)
    )
    rng = np.random.default_rng(2)
    X = np.c_[np.ones(200), rng.normal(size=200)]
    compute(from_arrays(X, (rng.random(200) < 0.5).astype(float)), model)
    assert len(count) == 1 if runs == 1 else len(count) > 1


def three_components():
    rng = np.random.default_rng(0)
    x = np.concatenate([centre + rng.normal(size=60) for centre in (-4.0, 0.0, 4.0)])[:, None]
    locations = (-1.5, 0.0, 1.0)
    prior = {f"mu[{k}, x0]": normal(location=at, scale=4.0) for k, at in enumerate(locations)}
    return from_arrays(x), gaussian_mixture(3, prior=prior)


def test_every_order_of_components_is_a_mode():
    store, model = three_components()
    found = compute(store, model)
    orders = {tuple(np.argsort(theta)) for theta in found.certificate["modes"]}
    assert len({*orders, tuple(np.argsort(found.theta_star))}) == 6
    # The likelihood is the same in every order: the prior puts the locations in theirs.
    assert (np.diff(found.theta_star) > 0.0).all()
    z = found.other_modes()
    np.testing.assert_allclose(
        found.theta_star + z @ found.factor.T, np.array(found.certificate["modes"])
    )


def test_modes_that_differ_by_labels_alone_are_one():
    store, _ = three_components()
    found = compute(store, gaussian_mixture(3, prior=normal(scale=10.0)))
    assert "modes" not in found.certificate
    assert found.other_modes() is None


@pytest.mark.parametrize(
    "model",
    [
        gaussian_mixture(3, weights=[1.0, 2.0, 3.0]),
        gaussian_mixture_tied(),
        gaussian_mixture_free(3),
        gaussian_mixture_free(2, ordered=False, scale=1.0),
    ],
)
def test_other_orders_of_components_have_the_same_likelihood(model):
    x = np.random.default_rng(0).normal(size=(50, 1))
    rows = draw_subset(from_arrays(x), 2**20)
    look = in_memory(model, rows, 1.0)
    theta = 0.5 * np.random.default_rng(1).normal(size=model.dim(1))
    others = model.relabelled(theta)
    assert others
    if getattr(model, "weights", ()) == ():
        for other in others:
            assert look(other)[0] == pytest.approx(look(theta)[0], rel=1e-12)
    else:  # known weights stay where they are
        assert look(others[0])[0] != pytest.approx(look(theta)[0], rel=1e-6)


def test_the_search_on_some_rows_finds_the_modes_of_all(monkeypatch):
    store, y = far_response(2000, 1800.0)
    monkeypatch.setattr(modes, "SEARCH_ROWS", 300)
    mean, sd, _, _ = grid_of_normal(y)
    assert abs(compute(store, gaussian(NARROW)).theta_star[0] - mean) < 0.5 * sd
