"""Registered models whose likelihood is that of a set of rows: to register is to be tested."""

from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pytest
from crossed_tables import SAMPLERS_OF_ROWS
from scipy import stats

import streammc
from streammc import registry
from streammc.control_variates import compute
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.contiguous_rows import hold
from streammc.models import gaussian_process
from streammc.priors import gamma, normal
from streammc.protocols import Rows
from streammc.runs.record import registered_model
from streammc.runs.setup import decide
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.tempering.options import TemperedOptions

MODELS = {
    "gaussian-process": gaussian_process(),
    "variance": gaussian_process(noise="variance"),
    "one length": gaussian_process(ard=False),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
OTHERS = [
    name for name in SAMPLERS_OF_ROWS if not isinstance(registry.sampler(name)(), TemperedOptions)
]


def covariance(model, X, theta):
    """As in a textbook, X (n, q)."""
    *lengths, height, noise = np.exp(theta)
    away = (X[:, None, :] - X[None, :, :]) / np.array(lengths)
    K = height**2 * np.exp(-0.5 * (away**2).sum(axis=2))
    return K + (noise if model.noise == "variance" else noise**2) * np.eye(len(X))


def evaluate(model, X, y, theta, order=1):
    gradient = np.full(len(theta), np.nan)
    args = np.array(theta, dtype=np.float64), model.constants, order, gradient
    return model.joint(X.T, y, *args), gradient


def some_rows(n, q=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, q)), rng.normal(size=n)


def some_theta(model, q=3, seed=1):
    return np.random.default_rng(seed).normal(scale=0.4, size=model.dim(q))


def store(n=30, **options):
    X, y = some_rows(n)
    return streammc.from_arrays(X, y, feature_names=["a", "b", "c"], **options)


def test_every_joint_model_of_the_registry_is_here():
    joint = {model.name for model in MODELS.values()}
    assert all(registry.model(name)().joint is not None for name in joint)
    for name in set(registry.MODELS) - joint:
        assert registry.model(name)().joint is None


@models
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 150])
def test_a_subset_has_the_density_of_its_margin(model, n):
    X, y = some_rows(150)
    theta = some_theta(model)
    whole = covariance(model, X, theta)
    at = np.random.default_rng(n).permutation(150)[:n]
    value, _ = evaluate(model, X[at], y[at], theta)
    expected = stats.multivariate_normal(np.zeros(n), whole[np.ix_(at, at)]).logpdf(y[at])
    assert value == pytest.approx(expected, abs=1e-10)


@models
def test_no_rows_have_likelihood_one(model):
    value, gradient = evaluate(model, np.zeros((0, 3)), np.zeros(0), some_theta(model))
    assert value == 0.0
    assert (gradient == 0.0).all()


@models
@pytest.mark.parametrize("n", [1, 40, 100])
def test_gradient_is_that_of_differences(model, n):
    X, y = some_rows(n)
    theta = some_theta(model)
    _, gradient = evaluate(model, X, y, theta)
    h = 2.0**-9
    for j in range(len(theta)):
        found = 0.0
        for step, factor in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
            moved = theta.copy()
            moved[j] += step * h
            found += factor * evaluate(model, X, y, moved)[0]
        assert gradient[j] == pytest.approx(found / (12.0 * h), rel=1e-8, abs=1e-8)


@models
def test_bits_depend_neither_on_the_order_asked_for_nor_on_memory(model):
    X, y = some_rows(100)
    theta = some_theta(model)
    value, gradient = evaluate(model, X, y, theta)
    assert evaluate(model, X, y, theta, 0)[0] == value
    again, same = evaluate(model, np.asfortranarray(X), y, theta)
    assert again == value
    np.testing.assert_array_equal(gradient, same)


@models
def test_density_is_finite_or_zero_at_extreme_parameters(model):
    X, y = some_rows(20)
    for bad in (np.nan, np.inf, -np.inf, 1e4, -1e4, 400.0, -400.0):
        for j in range(model.dim(3)):
            theta = some_theta(model)
            theta[j] = bad
            value, gradient = evaluate(model, X, y, theta)
            assert value < np.inf
            assert np.isfinite(gradient).all()
            if np.isnan(bad):
                assert value == -np.inf
    # Rows that are equal, and no noise: singular.
    theta[:-2], theta[-2:] = 0.0, [0.0, -50.0]
    assert evaluate(model, np.zeros((4, 3)), np.arange(4.0), theta)[0] == -np.inf


@models
def test_start_has_a_density_and_follows_the_units(model):
    X, y = some_rows(60)
    ones = np.ones(60)
    start = model.start(Rows(X, y, 0 * ones, ones))
    assert start.shape == (model.dim(3),)
    assert np.isfinite(evaluate(model, X, y, start)[0])
    scaled = model.start(Rows(8.0 * X, 4.0 * y, 0 * ones, ones))
    moved = np.log([8.0] * (model.dim(3) - 2) + [4.0, 16.0 if model.noise == "variance" else 4.0])
    np.testing.assert_allclose(start + moved, scaled)
    assert np.isfinite(model.start(Rows(np.ones((9, 3)), np.zeros(9), ones[:9], ones[:9]))).all()


def test_too_many_rows_are_refused():
    n = 8193
    with pytest.raises(ModelError, match="expected at most 8192 rows"):
        gaussian_process().start(Rows(np.zeros((n, 1)), np.zeros(n), np.zeros(n), np.ones(n)))


@models
def test_parameters_are_positive_and_sampled_as_logarithms(model):
    theta = some_theta(model)
    np.testing.assert_allclose(np.exp(theta), model.constrain(theta))
    np.testing.assert_allclose(theta, model.unconstrain(model.constrain(theta)))


@models
def test_default_priors_are_those_of_the_paper(model):
    from streammc.numerics.prior import log_prior

    labels = model.labels(["a", "b"])
    theta = some_theta(model, 2)
    v = np.exp(theta)
    expected = stats.lognorm(s=1.0, scale=np.exp(0.5)).logpdf(v[:-2]).sum()
    expected += stats.gamma(4.0).logpdf(v[-2]) + stats.gamma(2.0, scale=0.5).logpdf(v[-1])
    found = log_prior(theta, model.prior_table(labels), np.zeros(len(theta)))
    assert found == pytest.approx(expected + theta.sum(), abs=1e-12)
    # What a mapping leaves out stays.
    other = registered_model({**model.describe(), "prior": {"family": "by_name", "priors": {
        "sigma_f": gamma(4.0, 1.0).describe()}}})  # fmt: skip
    np.testing.assert_array_equal(model.prior_table(labels), other.prior_table(labels))


@models
def test_description_rebuilds_the_model(model):
    assert model == registered_model(json.loads(json.dumps(model.describe())))


def test_descriptions_tell_options_apart():
    assert len({json.dumps(model.describe()) for model in MODELS.values()}) == len(MODELS)


@pytest.mark.parametrize(
    "options",
    [
        {"noise": "precision"},
        {"noise": ["sd"]},
        {"ard": "yes"},
        {"prior": normal(scale=1.0)},
        {"prior": {"*": normal(scale=1.0)}},
        {"prior": 2.5},
    ],
)
def test_wrong_options_are_refused_in_one_line(options):
    with pytest.raises(ConfigError) as caught:
        gaussian_process(**options)
    assert "\n" not in str(caught.value)


@models
@pytest.mark.parametrize("names", [["Intercept", "a"], []])
def test_intercept_column_of_a_process_is_refused(model, names):
    with pytest.raises(ConfigError, match="ingest with --no-intercept"):
        model.labels(names)


@models
def test_responses_that_are_no_numbers_are_named(model):
    at, _ = model.response_fault(np.array([0.0, np.nan, 1.0, np.inf]))
    assert at.tolist() == [1, 3]
    assert model.response_fault(np.zeros(2)) is None


@models
def test_process_refuses_link_mean_and_simulation_of_single_rows(model):
    with pytest.raises(ModelError, match="pt, tt, spt or stt"):
        _ = model.link
    with pytest.raises(ModelError, match="cannot predict"):
        model.mean(np.zeros((0, 3)))
    with pytest.raises(ModelError, match="simulate"):
        model.simulate(np.zeros((0, 3)), np.random.default_rng(0))


@pytest.mark.parametrize("name", OTHERS)
def test_samplers_that_add_up_rows_refuse_it_before_reading_one(name):
    sampler = registry.sampler(name)()
    with pytest.raises(ConfigError, match="sample it with pt, tt, spt or stt") as caught:
        decide(RunRequest(store(), gaussian_process(), sampler, None))
    assert "\n" not in str(caught.value)


def test_metropolis_without_a_pass_refuses_it():
    with pytest.raises(ConfigError, match="sample it with pt, tt, spt or stt"):
        sampler = registry.sampler("mh")(control_variate="none")
        decide(RunRequest(store(), gaussian_process(), sampler, None))


def test_the_full_pass_refuses_it():
    with pytest.raises(ConfigError, match="sample it with pt, tt, spt or stt"):
        compute(store(), gaussian_process())


def test_a_store_without_a_response_is_refused():
    from streammc.control_variates.bound import bind
    from streammc.control_variates.certify import without_pass

    X, _ = some_rows(30)
    data = streammc.from_arrays(X, feature_names=["a", "b", "c"])
    with pytest.raises(ModelError, match="expected a response"):
        without_pass(bind(data, gaussian_process()))


@pytest.mark.parametrize("what", ["offset", "weight"])
def test_rows_that_do_not_count_once_are_refused(what):
    uneven = np.r_[np.ones(29), 2.0]
    with pytest.raises(ModelError, match=r"expected rows that count once .* found"):
        hold(store(**{what: uneven}), joint=True)
    assert hold(store(**{what: uneven})).y.shape == (30,)
    assert hold(store(), joint=True).joint == 1


def test_name_resolves_lazily_through_the_package():
    import streammc.models

    for name in {model.name for model in MODELS.values()}:
        attribute = name.replace("-", "_")
        import_module(registry.MODELS[name].split(":")[0])
        assert getattr(streammc.models, attribute) is registry.model(name)
        assert attribute in streammc.models.__all__
