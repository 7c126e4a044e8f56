"""Every registered model: to register is to be tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module

import mpmath
import numpy as np
import pytest
from families import FAMILIES, built

from streammc import registry
from streammc.errors import ConfigError
from streammc.models.check import check_model, evaluate
from streammc.numerics.prior import log_prior
from streammc.priors import flat, normal
from streammc.priors.scaled import with_defaults
from streammc.protocols import Matrix, Model, Rows, Vector
from streammc.runs.record import registered_model

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

OF_THETA = {
    "gaussian-mean",
    "gaussian-mixture",
    "gaussian-mixture-free",
    "gaussian-mixture-tied",
}
"""Models that see the columns themselves: tested apart."""

JOINT = {"gaussian-process"}
"""Models of rows that do not factorise: ``test_joint_contract.py``."""

names = pytest.mark.parametrize("name", sorted(set(registry.MODELS) - OF_THETA - JOINT))
one_predictor = pytest.mark.parametrize(
    "name", sorted(name for name, family in FAMILIES.items() if family.exact is not None)
)


def predictors(model: Model, first: Vector, rng: np.random.Generator) -> Matrix:
    """Return (p, m): ``first``, and the same numbers in another order for each other one."""
    others = [rng.permutation(first) for _ in range(model.n_linear + model.n_scalar - 1)]
    return np.array([first, *others])


def test_every_registered_model_has_its_truth_here() -> None:
    assert set(registry.MODELS) == set(FAMILIES) | OF_THETA | JOINT


@pytest.mark.trust(10)
@names
def test_model_agrees_with_itself(name: str) -> None:
    report = check_model(
        built(name), support=FAMILIES[name].support, centre=FAMILIES[name].centre, seed=3
    )
    assert report.passed, str(report)


@pytest.mark.parametrize("name", sorted(n for n, family in FAMILIES.items() if family.mean))
def test_mean_is_that_of_simulated_responses(name: str) -> None:
    model = built(name)
    rng = np.random.default_rng(11)
    for first in (-1.5, 0.0, 0.7):
        p = model.n_linear + model.n_scalar
        eta = np.tile(np.array([first, *[FAMILIES[name].shared] * (p - 1)])[:, None], 20_000)
        mean = model.mean(eta)
        assert (mean == mean[0]).all()
        y = model.simulate_trials(eta, np.ones(20_000), rng)
        if FAMILIES[name].below is not None:  # what is predicted is a quantile
            below = np.mean(y < mean[0])
            error = np.sqrt(below * (1.0 - below) / len(y))
            assert abs(below - FAMILIES[name].below) < 4.5 * error
            assert abs(below - 0.5) > 4.5 * error
            continue
        assert abs(y.mean() - mean[0]) < 4.5 * y.std() / np.sqrt(len(y))
        assert abs(y.mean() - mean[0] - 0.2 * y.std()) > 4.5 * y.std() / np.sqrt(len(y))


@pytest.mark.trust(10)
@one_predictor
def test_link_is_accurate_to_the_last_digits(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    family = FAMILIES[name]
    assert family.exact is not None
    rng = np.random.default_rng(5)
    some = np.concatenate([EXTREME, rng.normal(scale=5.0, size=300), rng.uniform(0, 700, 100)])
    eta = np.concatenate([some, -some])
    model = built(name)
    with mpmath.workdps(50):
        for y in family.responses:
            out = evaluate(model, eta[None, :], np.full(len(eta), y))
            for i, at in enumerate(eta):
                truth = family.exact(mpmath.mpf(float(at)), mpmath.mpf(y))
                size_of = family.size or (lambda *_: [abs(term) for term in truth])  # noqa: B023
                sizes = size_of(mpmath.mpf(float(at)), mpmath.mpf(y))
                for found, expected, size in zip(out[:, i], truth, sizes, strict=True):
                    if abs(expected) > mpmath.mpf(np.finfo(float).max):
                        assert found == np.copysign(np.inf, float(mpmath.sign(expected))), (at, y)
                    else:
                        # exp(x) for x < -708 is left at exp(-708).
                        assert abs(found - expected) <= 1e-15 * size + 4e-308, (at, y)
    record_property("figure", f"{name}: 1e-15 of 50 digits at predictors up to 1e4")


@pytest.mark.trust(10)
@names
def test_log_likelihood_is_never_nan_up_to_1e4(name: str) -> None:
    rng = np.random.default_rng(6)
    model = built(name)
    eta = np.concatenate([EXTREME, -np.array(EXTREME), np.linspace(-1e4, 1e4, 4001)])
    for y in FAMILIES[name].responses:
        for _ in range(1 if model.n_scalar == 0 else 5):
            out = evaluate(model, predictors(model, eta, rng), np.full(len(eta), y))
            assert not np.isnan(out).any()
            if FAMILIES[name].support is not None:
                assert (out[0] <= 0.0).all()


@names
def test_infinite_predictors_give_the_limit_and_nan_stays_nan(name: str) -> None:
    family = FAMILIES[name]
    for y in family.responses:
        model = built(name)
        p = model.n_linear + model.n_scalar
        eta = np.zeros((p, 3))
        eta[0] = [np.inf, -np.inf, np.nan]
        out = evaluate(model, eta, np.full(3, y))
        assert not np.isnan(out[0, :2]).any()
        assert np.isnan(out[:2, 2]).all()


@names
@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 31, 100])
def test_bits_of_a_row_do_not_depend_on_its_block(name: str, m: int) -> None:
    rng = np.random.default_rng(m)
    model = built(name)
    p = model.n_linear + model.n_scalar
    eta = 3.0 * rng.standard_normal((p, 101))
    y = rng.choice(FAMILIES[name].responses, size=101)
    whole = evaluate(model, eta, y)
    start = 101 - m
    part = evaluate(model, eta[:, start:], y[start:])
    np.testing.assert_array_equal(whole[:, start:], part)


@names
def test_every_order_writes_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(1)
    model = built(name)
    p = model.n_linear + model.n_scalar
    eta = 3.0 * rng.standard_normal((p, 101))
    y = rng.choice(FAMILIES[name].responses, size=101)
    full = evaluate(model, eta, y, 2)
    np.testing.assert_array_equal(full[0], evaluate(model, eta, y, 0)[0])
    np.testing.assert_array_equal(full[: 1 + p], evaluate(model, eta, y, 1)[: 1 + p])
    assert np.isnan(evaluate(model, eta, y, 0)[1:]).all()
    assert np.isnan(evaluate(model, eta, y, 1)[1 + p :]).all()


@names
def test_labels_have_one_name_per_component(name: str) -> None:
    model = built(name)
    labels = model.labels(["Intercept", "age"])
    assert model.dim(2) == len(labels) == 2 * model.n_linear + model.n_scalar
    plain = "beta[Intercept]" if model.n_linear == 1 else "beta[0, Intercept]"
    assert labels[0] == (FAMILIES[name].first or plain)


@names
def test_responses_outside_the_support_are_named(name: str) -> None:
    family = FAMILIES[name]
    model = built(name)
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
    model = built(name)
    eta = predictors(model, np.linspace(-30.0, 30.0, 500), np.random.default_rng(8))
    y = model.simulate(eta, np.random.default_rng(9))
    assert y.dtype == np.float64
    assert model.response_fault(y) is None
    np.testing.assert_array_equal(y, model.simulate(eta, np.random.default_rng(9)))


@names
def test_start_is_finite_and_has_a_finite_likelihood(name: str) -> None:
    rng = np.random.default_rng(2)
    model = built(name)
    X = rng.standard_normal((500, 4))
    X[:, 0] = 1.0
    X[:, 3] = X[:, 2]  # collinear
    offset = rng.normal(2.0, 1.0, 500)
    linear, shared = X @ [0.5, 1.0, -0.5, 0.0] + offset, np.zeros((model.n_scalar, 500))
    y = model.simulate(np.vstack([[linear] * model.n_linear, shared]), rng)
    start = model.start(Rows(X, y, offset, np.ones(500)))
    assert np.isfinite(start).all()
    assert len(start) == model.dim(4)
    first = 4 * model.n_linear
    shared += start[first:, None]
    eta = np.vstack([start[:first].reshape(-1, 4) @ X.T, shared])
    eta[0] += offset
    assert np.isfinite(evaluate(model, eta, y)).all()


@names
def test_description_is_json_and_tells_priors_apart(name: str) -> None:
    priors = (None, normal(2.0), normal({"*": 2.0}), flat())
    models = [built(name, prior=prior) for prior in priors]
    assert len({json.dumps(model.describe(), sort_keys=True) for model in models}) == 4
    described = models[0].describe()
    assert json.loads(json.dumps(described)) == described
    assert described["name"] == name
    assert registered_model(described).describe() == described


@names
def test_default_prior_of_a_slope_is_normal(name: str) -> None:
    X = np.c_[np.ones(100), np.linspace(-5.0, 5.0, 100)]
    y = np.tile(FAMILIES[name].pair, 50)
    rows = Rows(X, y, np.zeros(100), np.ones(100))
    model = with_defaults(built(name), rows, ["Intercept", "x"])
    unit = 0.5 if name in ("gaussian", "student-t", "lognormal", "quantile") else 1.0
    fault = model.response_fault(y)
    x = X[:, 1] if fault is None else np.delete(X[:, 1], fault[0])
    scale = FAMILIES[name].prior_scale or float(f"{2.5 * unit / x.std():.3g}")
    table = model.prior_table(model.labels(["Intercept", "x"]))
    if FAMILIES[name].prior_scale:
        assert [1.0, 0.0, scale] == table[1, :3].tolist()
        return
    # The density of the slope of a centred column, whatever the intercept is.
    low, high = np.zeros((2, len(table)))
    high[1] = 2.0 * scale
    fall = log_prior(high, table, np.zeros(len(table))) - log_prior(
        low, table, np.zeros(len(table))
    )
    assert -2.0 == pytest.approx(fall, rel=0.02)


@names
def test_number_in_place_of_a_prior_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"prior must be built by .* found float: write"):
        registry.model(name)(prior=2.5)


@names
def test_name_resolves_lazily_through_the_package(name: str) -> None:
    import streammc.models

    attribute = name.replace("-", "_")
    import_module(registry.MODELS[name].split(":")[0])  # a module of that name would hide it
    assert getattr(streammc.models, attribute) is registry.model(name)
    assert attribute in dir(streammc.models)
    assert attribute in streammc.models.__all__


def test_unknown_model_is_an_attribute_error() -> None:
    import streammc.models

    with pytest.raises(AttributeError, match="no attribute 'cauchit'"):
        _ = streammc.models.cauchit
