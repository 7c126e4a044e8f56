"""The mixtures against their formulas with many digits, and against themselves."""

from __future__ import annotations

import json
from itertools import permutations

import mpmath
import numpy as np
import pytest

import streammc
from streammc.control_variates import compute
from streammc.errors import ConfigError
from streammc.models import check_model, gaussian_mixture, gaussian_mixture_tied
from streammc.models.check import SIZES, evaluate
from streammc.priors import normal
from streammc.protocols import Rows
from streammc.samplers import hmc
from streammc.sampling.identity import registered_model

COVARIANCE = [[1.0, 0.4], [0.4, 2.0]]
MODELS = {
    "tied": gaussian_mixture_tied(),
    "two": gaussian_mixture(),
    "three in two columns": gaussian_mixture(3, COVARIANCE, weights=[1.0, 2.0, 5.0]),
    "one": gaussian_mixture(1, [1.0, 2.0, 3.0]),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def columns_of(model):
    return 1 if model.name.endswith("tied") else len(model.covariance)


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
    q = columns_of(model)
    covariance = mpmath.matrix([list(row) for row in model.covariance])
    precision, total = covariance**-1, mpmath.mpf(0)
    for k, weight in enumerate(model.weights):
        r = mpmath.matrix([x[j] - theta[k * q + j] for j in range(q)])
        total += weight * mpmath.exp(-(r.T * precision * r)[0] / 2)
    return mpmath.log(total / mpmath.sqrt((2 * mpmath.pi) ** q * mpmath.det(covariance)))


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
def test_a_nan_stays_one(model):
    theta = np.zeros((model.n_scalar, 2))
    theta[-1, 1] = np.nan
    out = evaluate(model, theta, np.zeros(2), 2, np.ones((columns_of(model), 2)))
    assert np.isfinite(out[:, 0]).all()
    assert np.isnan(out[0, 1])


@models
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
def test_there_is_no_response(model):
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
    log_post -= first.ravel() ** 2 / 20.0 + apart.ravel() ** 2 / 2.0
    weight = np.exp(log_post - log_post.max())
    theta = np.array([first.ravel(), apart.ravel()])
    return np.average(theta, axis=1, weights=weight), np.cov(theta, aweights=weight, ddof=0)


def test_hmc_finds_the_posterior_of_a_grid(tmp_path):
    rng = np.random.default_rng(4)
    X = np.sqrt(2.0) * rng.normal(size=2000) + rng.integers(0, 2, 2000)
    model = gaussian_mixture_tied()
    data = streammc.from_arrays(X[:, None])
    run = streammc.sample(data, model, sampler=hmc(), draws=1000, chains=2, seed=5)
    draws = np.stack([run["posterior"][name].values.ravel() for name in model.labels("x")])
    parameters = run.attrs["summary"]["parameters"].values()
    error = np.array([found["mcse_mean"] for found in parameters])
    ess = min(found["ess_bulk"] for found in parameters)
    mean, covariance = grid_posterior(X, model)
    off = np.abs(draws.mean(axis=1) - mean) / error
    assert off.max() < 4.5
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.std(axis=1) / sd - 1.0) < 4.5 / np.sqrt(2.0 * ess)).all()
    # Another variance would be noticed.
    wrong, _ = grid_posterior(X, gaussian_mixture_tied(variance=2.1))
    assert (np.abs(draws.mean(axis=1) - wrong) / error).max() > 4.5
