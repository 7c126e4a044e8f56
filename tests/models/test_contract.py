"""Every registered model: to register is to be tested."""

from __future__ import annotations

import json

import mpmath
import numpy as np
import pytest
from families import FAMILIES
from scipy import stats

from streammc import registry
from streammc.errors import ConfigError
from streammc.models.check import check_model, evaluate
from streammc.priors import flat, normal
from streammc.protocols import Rows

EXTREME = [
    0.0,
    -0.0,
    1e-300,
    1e-9,
    0.3,
    1.0,
    36.0,
    37.5,
    100.0,
    700.0,
    708.5,
    709.7,
    710.0,
    746.0,
    1e4,
]
"""Every predictor is used with both signs."""

OF_THETA = {"gaussian-mean"}
"""Models that see the columns themselves: tested apart."""

names = pytest.mark.parametrize("name", sorted(set(registry.MODELS) - OF_THETA))


def test_every_registered_model_has_its_truth_here() -> None:
    assert set(registry.MODELS) == set(FAMILIES) | OF_THETA


@names
def test_model_agrees_with_itself(name: str) -> None:
    report = check_model(registry.model(name)(), support=FAMILIES[name].support, seed=3)
    assert report.passed, str(report)


@names
def test_link_is_accurate_to_the_last_digits(name: str) -> None:
    family = FAMILIES[name]
    rng = np.random.default_rng(5)
    some = np.concatenate([EXTREME, rng.normal(scale=5.0, size=300), rng.uniform(0, 700, 100)])
    eta = np.concatenate([some, -some])
    model = registry.model(name)()
    with mpmath.workdps(50):
        for y in family.responses:
            out = evaluate(model, eta[None, :], np.full(len(eta), y))
            for i, at in enumerate(eta):
                truth = family.exact(mpmath.mpf(float(at)), mpmath.mpf(y))
                sizes = family.size(mpmath.mpf(float(at)), mpmath.mpf(y))
                for found, expected, size in zip(out[:, i], truth, sizes, strict=True):
                    if abs(expected) > mpmath.mpf(np.finfo(float).max):
                        assert found == -np.inf, (at, y)
                    else:
                        # exp(x) for x < -708 is left at exp(-708).
                        assert abs(found - expected) <= 1e-15 * size + 4e-308, (at, y)


@names
def test_log_likelihood_is_never_nan_up_to_1e4(name: str) -> None:
    eta = np.concatenate([EXTREME, -np.array(EXTREME), np.linspace(-1e4, 1e4, 4001)])
    for y in FAMILIES[name].responses:
        out = evaluate(registry.model(name)(), eta[None, :], np.full(len(eta), y))
        assert not np.isnan(out).any()
        assert (out[0] <= 0.0).all()


@names
def test_infinite_predictors_give_the_limit_and_nan_stays_nan(name: str) -> None:
    family = FAMILIES[name]
    for y in family.responses:
        out = evaluate(registry.model(name)(), np.array([[np.inf, -np.inf, np.nan]]), np.full(3, y))
        assert not np.isnan(out[0, :2]).any()
        assert np.isnan(out[:2, 2]).all()


@names
@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 31, 100])
def test_bits_of_a_row_do_not_depend_on_its_block(name: str, m: int) -> None:
    rng = np.random.default_rng(m)
    model = registry.model(name)()
    eta = 3.0 * rng.standard_normal((1, 101))
    y = rng.choice(FAMILIES[name].responses, size=101)
    whole = evaluate(model, eta, y)
    start = 101 - m
    part = evaluate(model, eta[:, start:], y[start:])
    np.testing.assert_array_equal(whole[:, start:], part)


@names
def test_every_order_writes_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(1)
    model = registry.model(name)()
    eta = 3.0 * rng.standard_normal((1, 101))
    y = rng.choice(FAMILIES[name].responses, size=101)
    full = evaluate(model, eta, y, 2)
    np.testing.assert_array_equal(full[0], evaluate(model, eta, y, 0)[0])
    np.testing.assert_array_equal(full[:2], evaluate(model, eta, y, 1)[:2])
    assert np.isnan(evaluate(model, eta, y, 0)[1:]).all()
    assert np.isnan(evaluate(model, eta, y, 1)[2:]).all()


@names
def test_labels_have_one_name_per_component(name: str) -> None:
    model = registry.model(name)()
    labels = model.labels(["Intercept", "age"])
    assert model.dim(2) == len(labels) == 2 * model.n_linear + model.n_scalar
    assert labels[0] == "beta[Intercept]"


@names
def test_responses_outside_the_support_are_named(name: str) -> None:
    family = FAMILIES[name]
    model = registry.model(name)()
    good = np.array(family.responses)
    assert model.response_fault(good) is None
    for bad in family.bad:
        fault = model.response_fault(np.concatenate([good, [bad, good[0], bad]]))
        assert fault is not None, bad
        at, expected = fault
        assert [len(good), len(good) + 2] == at.tolist()
        assert "\n" not in expected


@names
def test_simulated_responses_are_in_the_support_and_follow_the_seed(name: str) -> None:
    model = registry.model(name)()
    eta = np.linspace(-30.0, 30.0, 500)[None, :]
    y = model.simulate(eta, np.random.default_rng(9))
    assert y.dtype == np.float64
    assert model.response_fault(y) is None
    np.testing.assert_array_equal(y, model.simulate(eta, np.random.default_rng(9)))


@names
def test_start_is_finite_and_has_a_finite_likelihood(name: str) -> None:
    rng = np.random.default_rng(2)
    model = registry.model(name)()
    X = rng.standard_normal((500, 4))
    X[:, 0] = 1.0
    X[:, 3] = X[:, 2]  # collinear
    offset = rng.normal(2.0, 1.0, 500)
    y = model.simulate((X @ [0.5, 1.0, -0.5, 0.0] + offset)[None, :], rng)
    start = model.start(Rows(X, y, offset, np.ones(500)))
    assert np.isfinite(start).all()
    eta = (X @ start + offset)[None, :]
    assert np.isfinite(evaluate(model, eta, y)).all()


@names
def test_description_is_json_and_tells_priors_apart(name: str) -> None:
    build = registry.model(name)
    described = {
        json.dumps(model.describe(), sort_keys=True)
        for model in (build(), build(normal(2.0)), build(normal({"*": 2.0})), build(flat()))
    }
    assert len(described) == 4
    assert json.loads(json.dumps(build().describe())) == build().describe()
    assert build().describe()["name"] == name


@names
def test_default_prior_is_normal_with_scale_10(name: str) -> None:
    assert build_table(name)[0].tolist() == [1.0, 0.0, 10.0, 0.0, stats.norm(0, 10).logpdf(0)]


def build_table(name: str) -> np.ndarray:
    model = registry.model(name)()
    return model.prior.table(model.labels(["Intercept"]))


@names
def test_something_that_is_not_a_prior_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"prior must be built by .* found float: write"):
        registry.model(name)(2.5)


@names
def test_name_resolves_lazily_through_the_package(name: str) -> None:
    import streammc.models

    assert getattr(streammc.models, name) is registry.model(name)
    assert name in dir(streammc.models)


def test_unknown_model_is_an_attribute_error() -> None:
    import streammc.models

    with pytest.raises(AttributeError, match="no attribute 'probit'"):
        _ = streammc.models.probit
