"""The mixtures against their formulas with many digits, and against themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import mpmath
import numpy as np
import pytest
from problems import batch_z
from scipy import stats

import streammc
from streammc.control_variates import compute
from streammc.errors import ConfigError
from streammc.models import (
    check_model,
    gaussian_mixture,
    gaussian_mixture_free,
    gaussian_mixture_tied,
)
from streammc.models.check import SIZES, evaluate
from streammc.numerics.prior import log_prior
from streammc.priors import flat, half_normal, laplace, normal
from streammc.protocols import Rows
from streammc.runs.record import registered_model
from streammc.samplers import hmc

COVARIANCE = [[1.0, 0.4], [0.4, 2.0]]
MODELS = {
    "tied": gaussian_mixture_tied(),
    "two": gaussian_mixture(),
    "three in two columns": gaussian_mixture(3, COVARIANCE, weights=[1.0, 2.0, 5.0]),
    "one": gaussian_mixture(1, [1.0, 2.0, 3.0]),
    "free": gaussian_mixture_free(),
    "free, not ordered": gaussian_mixture_free(ordered=False),
    "free, one scale": gaussian_mixture_free(scale=1.5),
    "free, three": gaussian_mixture_free(3, concentration=[1.0, 2.0, 3.0]),
    "free, one": gaussian_mixture_free(1),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
FREE = [name for name in MODELS if name.startswith("free")]
free = pytest.mark.parametrize("model", [MODELS[name] for name in FREE], ids=FREE)
known = pytest.mark.parametrize("model", [MODELS[n] for n in MODELS if n not in FREE])


def columns_of(model):
    return 1 if model.name.endswith(("tied", "free")) else len(model.covariance)


def rows_of(X):
    return Rows(X, np.zeros(len(X)), np.zeros(len(X)), np.ones(len(X)))


def some_rows(model, n=40, scale=2.0):
    return rows_of(scale * np.random.default_rng(0).normal(size=(n, columns_of(model))))


def log_density(model, theta, x):
    """As in a textbook, with many digits; derivatives by mpmath."""
    if model.name.endswith("tied"):
        s, means = mpmath.mpf(model.variance), (theta[0], theta[0] + theta[1])
        terms = [mpmath.exp(-((x[0] - mean) ** 2) / (2 * s)) for mean in means]
        return mpmath.log(sum(terms) / (2 * mpmath.sqrt(2 * mpmath.pi * s)))
    if model.name.endswith("free"):
        return free_log_density(model, list(theta), x[0])
    q = columns_of(model)
    covariance = mpmath.matrix([list(row) for row in model.covariance])
    precision, total = covariance**-1, mpmath.mpf(0)
    for k, weight in enumerate(model.weights):
        r = mpmath.matrix([x[j] - theta[k * q + j] for j in range(q)])
        total += weight * mpmath.exp(-(r.T * precision * r)[0] / 2)
    return mpmath.log(total / mpmath.sqrt((2 * mpmath.pi) ** q * mpmath.det(covariance)))


def free_log_density(model, theta, x):
    K = model.components
    means, u = theta[:K], theta[len(theta) - K + 1 :]
    if model.ordered:
        half = mpmath.exp(theta[1]) / 2
        means = [theta[0] - half, theta[0] + half]
    logs = theta[K : 2 * K] if model.scale is None else [mpmath.log(model.scale)] * K
    left, total = mpmath.mpf(1), mpmath.mpf(0)
    for k in range(K):
        v = 1 / (1 + mpmath.exp(-u[k])) if k < K - 1 else 1
        s = mpmath.exp(logs[k])
        total += left * v * mpmath.exp(-(((x - means[k]) / s) ** 2) / 2) / s
        left *= 1 - v
    return mpmath.log(total / mpmath.sqrt(2 * mpmath.pi))


@models
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_link_is_the_formula_to_the_last_digits(model, scale):
    rng = np.random.default_rng(1)
    p, q = model.n_scalar, columns_of(model)
    with mpmath.workdps(80):
        for _ in range(4):
            theta, x = scale * rng.normal(size=p), scale * rng.normal(size=q)
            out = evaluate(model, theta[:, None], np.zeros(1), 2, x[:, None])[:, 0]

            def value(*at, x=x):
                return log_density(model, at, [mpmath.mpf(v) for v in x])

            at = [mpmath.mpf(v) for v in theta]
            units = np.eye(p, dtype=int)
            expected = [value(*at)]
            expected += [mpmath.diff(value, at, tuple(unit)) for unit in units.tolist()]
            for a in range(p):
                for b in range(a, p):
                    expected.append(mpmath.diff(value, at, tuple((units[a] + units[b]).tolist())))
            size = max(1.0, *(float(abs(v)) for v in expected))
            assert np.abs(out - np.array(expected, dtype=float)).max() < 1e-14 * size


@models
def test_model_agrees_with_itself(model):
    report = check_model(model, rows=some_rows(model))
    assert report.passed, str(report)


@models
def test_nothing_is_nan_up_to_1e4(model):
    rng = np.random.default_rng(2)
    grid = np.array([*(-size for size in SIZES), *SIZES])
    theta, X = rng.choice(grid, (model.n_scalar, 4096)), rng.choice(grid, (columns_of(model), 4096))
    out = evaluate(model, theta, np.zeros(4096), 2, X)
    assert np.isfinite(out).all()


@models
def test_nan_in_a_predictor_gives_nan(model):
    theta = np.zeros((model.n_scalar, 2))
    theta[-1, 1] = np.nan
    out = evaluate(model, theta, np.zeros(2), 2, np.ones((columns_of(model), 2)))
    assert np.isfinite(out[:, 0]).all()
    assert np.isnan(out[0, 1])


@free
def test_start_of_free_mixtures_is_near_the_truth(model):
    rng = np.random.default_rng(3)
    K = model.components
    centres, weights = np.array([-6.0, 1.0, 9.0])[:K], np.array([5.0, 3.0, 2.0])[:K]
    weights /= weights.sum()
    scales = np.array([0.5, 1.0, 2.0])[:K] if model.scale is None else np.full(K, model.scale)
    which = rng.choice(K, 5000, p=weights)
    start = model.start(rows_of((centres[which] + scales[which] * rng.normal(size=5000))[:, None]))
    expected = np.r_[centres, scales if model.scale is None else [], weights[:-1]]
    np.testing.assert_allclose(expected, model.constrain(start), atol=0.2)


@free
def test_unconstrain_inverts_constrain(model):
    theta = 2.0 * np.random.default_rng(5).normal(size=(4, 6, model.n_scalar))
    values = model.constrain(theta)
    np.testing.assert_allclose(theta, model.unconstrain(values), rtol=1e-12, atol=1e-12)
    K = model.components
    if model.ordered:
        assert (values[..., 0] < values[..., 1]).all()
    left = 1.0 - values[..., len(values[0, 0]) - K + 1 :].sum(axis=-1)
    assert ((left > 0.0) & (left <= 1.0)).all()


def density_of_theta(model, theta):
    labels = model.labels(["x"])
    return log_prior(theta, model.prior_table(labels), np.zeros(len(theta)))


def density_of_values(model, theta, means):
    """By scipy, with the Jacobian of ``constrain`` by differences."""
    values, K = model.constrain(theta), model.components
    jacobian, h = np.empty((len(theta), len(theta))), 1e-6
    for j in range(len(theta)):
        step = h * np.eye(len(theta))[j]
        jacobian[:, j] = (model.constrain(theta + step) - model.constrain(theta - step)) / (2.0 * h)
    weights = values[len(theta) - K + 1 :]
    total = means.logpdf(values[:K]).sum() + np.log(2.0 if model.ordered else 1.0)
    if model.scale is None:
        total += stats.halfnorm(scale=2.0).logpdf(values[K : 2 * K]).sum()
    if K > 1:
        whole = np.append(weights, 1.0 - weights.sum())
        total += stats.dirichlet(model.concentration).logpdf(whole)
    return total + np.linalg.slogdet(jacobian)[1]


@free
def test_prior_of_theta_is_that_of_the_reported_parameters(model):
    sampled = {} if model.scale is not None else {"sigma*": half_normal(scale=2.0)}
    one = replace(model, prior={"*": normal(scale=1.7, location=0.4), **sampled})
    rng = np.random.default_rng(6)
    for _ in range(5):
        theta = rng.normal(size=model.n_scalar)
        expected = density_of_values(one, theta, stats.norm(0.4, 1.7))
        assert density_of_theta(one, theta) == pytest.approx(expected, abs=1e-7)
        # The prior of one mean for its coordinate would be another density.
        wrong = density_of_values(one, theta, stats.norm(0.4, 1.9))
        assert density_of_theta(one, theta) != pytest.approx(wrong, abs=1e-3)


def test_flat_ordered_means_are_flat():
    model = gaussian_mixture_free(scale=1.0, prior=flat())
    theta = np.array([0.3, -1.2, 0.5])
    expected = theta[1] + stats.logistic.logpdf(0.5)  # density 1 of the distance; Beta(1, 1)
    assert density_of_theta(model, theta) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "prior",
    [
        {"mu[0]": normal(1.0), "mu[1]": normal(2.0)},
        {"mu*": laplace(scale=1.0)},
        {"weight[0]": normal(1.0)},
        {"mu[0]": normal(1.0)},
    ],
)
def test_priors_that_ordered_means_cannot_have_are_refused(prior):
    model = gaussian_mixture_free(prior=prior)
    with pytest.raises(ConfigError) as caught:
        model.prior_table(model.labels(["x"]))
    assert "\n" not in str(caught.value)


def test_only_scales_are_called_logarithms():
    model = gaussian_mixture_free()
    rng = np.random.default_rng(7)
    x = np.r_[rng.normal(-3.0, 1.0, 500), rng.normal(3.0, 1.0, 500)]
    found = compute(streammc.from_arrays(x[:, None]), model)
    assert found.certificate["logarithms"] == ["sigma[0]", "sigma[1]"]


@known
def test_start_is_near_the_truth(model):
    rng = np.random.default_rng(3)
    q, K = columns_of(model), 2 if model.name.endswith("tied") else len(model.weights)
    centres = np.array([[-6.0, 5.0, 1.0], [7.0, -4.0, 0.0], [20.0, 9.0, 0.0]])[:K, :q]
    weights = [0.5, 0.5] if model.name.endswith("tied") else model.weights
    which = rng.choice(K, 5000, p=weights)
    covariance = [[model.variance]] if model.name.endswith("tied") else model.covariance
    X = centres[which] + rng.multivariate_normal(np.zeros(q), covariance, 5000)
    start = model.start(rows_of(X))
    found = np.cumsum(start)[:, None] if model.name.endswith("tied") else start.reshape(K, q)
    away = [np.abs(found[list(order)] - centres).max() for order in permutations(range(K))]
    assert min(away) < 0.3


@models
def test_start_of_equal_rows_is_finite(model):
    start = model.start(rows_of(np.full((10, columns_of(model)), 3.0)))
    assert np.isfinite(start).all()
    assert len(start) == model.n_scalar


@models
def test_description_rebuilds_the_model(model):
    assert model == registered_model(json.loads(json.dumps(model.describe())))


@models
def test_mixture_accepts_a_store_without_response(model):
    assert model.response_fault(np.array([np.nan])) is None
    assert (model.simulate(np.zeros((model.n_scalar, 3)), np.random.default_rng(0)) == 0.0).all()


def test_labels_are_variables_of_arviz():
    assert MODELS["tied"].labels(["x"]) == ("theta1", "theta2")
    assert gaussian_mixture(2, dim=2).labels("ab") == (
        "mu[0, a]",
        "mu[0, b]",
        "mu[1, a]",
        "mu[1, b]",
    )


def test_priors_of_tied_means_are_those_of_the_paper():
    def scales(**priors):
        model = gaussian_mixture_tied(prior=priors or None)
        return model.prior_table(model.labels(["x"]))[:, 2].tolist()

    assert scales() == [10.0**0.5, 1.0]
    assert scales(theta1=normal(3.0)) == [3.0, 1.0]
    assert scales(**{"*": normal(3.0)}) == [3.0, 3.0]
    assert scales(**{"theta*": normal(3.0)}) == [3.0, 3.0]


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (gaussian_mixture_tied, {"variance": 0.0}),
        (gaussian_mixture_tied, {"variance": "two"}),
        (gaussian_mixture_tied, {"prior": {"theta3": normal(1.0)}}),
        (gaussian_mixture, {"components": 0}),
        (gaussian_mixture, {"components": 2.5}),
        (gaussian_mixture, {"weights": [1.0]}),
        (gaussian_mixture, {"weights": [1.0, 0.0]}),
        (gaussian_mixture, {"weights": "equal"}),
        (gaussian_mixture, {"covariance": -1.0}),
        (gaussian_mixture, {"components": 129, "dim": 2}),
        (gaussian_mixture_free, {"components": 0}),
        (gaussian_mixture_free, {"components": 100}),
        (gaussian_mixture_free, {"components": 3, "ordered": True}),
        (gaussian_mixture_free, {"ordered": "yes"}),
        (gaussian_mixture_free, {"scale": 0.0}),
        (gaussian_mixture_free, {"concentration": [1.0, 2.0, 3.0]}),
        (gaussian_mixture_free, {"concentration": -1.0}),
        (gaussian_mixture_free, {"concentration": "many"}),
    ],
)
def test_wrong_options_are_refused_in_one_line(build, options):
    with pytest.raises(ConfigError) as caught:
        build(**options)
    assert "\n" not in str(caught.value)


@models
def test_wrong_number_of_columns_is_refused(model):
    data = streammc.from_arrays(np.ones((10, columns_of(model) + 1)))
    with pytest.raises(ConfigError, match=r"expected (one|\d) column"):
        compute(data, model)


def grid_posterior(X, model):
    """Mean and covariance of theta on a grid around the mode with ``theta2 > 0``."""
    first, apart = np.meshgrid(np.linspace(-0.6, 0.6, 61), np.linspace(0.2, 2.0, 61))
    one, other = (
        -((X[:, None] - mean.ravel()) ** 2) / (2.0 * model.variance)
        for mean in (first, first + apart)
    )
    log_post = np.logaddexp(one, other).sum(axis=0)
    log_post -= first.ravel() ** 2 / 20.0 + (apart.ravel() - 1.0) ** 2 / 0.18
    weight = np.exp(log_post - log_post.max())
    theta = np.array([first.ravel(), apart.ravel()])
    return np.average(theta, axis=1, weights=weight), np.cov(theta, aweights=weight, ddof=0)


@pytest.mark.slow
def test_hmc_finds_the_posterior_of_a_grid(tmp_path):
    rng = np.random.default_rng(4)
    X = np.sqrt(2.0) * rng.normal(size=2000) + rng.integers(0, 2, 2000)
    # A prior that leaves the mode with theta2 < 0, the components exchanged, no mass.
    prior = {"theta2": normal(location=1.0, scale=0.3)}
    model = gaussian_mixture_tied(prior=prior)
    data = streammc.from_arrays(X[:, None])
    run = streammc.sample(data, model, sampler=hmc(), draws=1000, chains=2, seed=5)
    draws = np.stack([run["posterior"][name].values.ravel() for name in model.labels("x")])
    parameters = streammc.facts(run)["summary"]["parameters"].values()
    error = np.array([found["mcse_mean"] for found in parameters])
    mean, covariance = grid_posterior(X, model)
    off = np.abs(draws.mean(axis=1) - mean) / error
    assert off.max() < 4.5
    squares = np.square(draws - mean[:, None]) / np.diag(covariance)[:, None]
    assert max(abs(batch_z(each, 1.0, batches=40)) for each in squares) < 4.5
    # Another variance would be noticed.
    wrong, _ = grid_posterior(X, gaussian_mixture_tied(variance=2.1, prior=prior))
    assert (np.abs(draws.mean(axis=1) - wrong) / error).max() > 4.5
