"""The model class of mixed models: parameters, priors, refusals, the table's scale."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from mixed_groups import CORRELATED, FEATURES, INNER, INTERCEPT, SLOPE, Groups, model_of
from scipy import integrate, stats

from streammc import models, priors
from streammc.errors import ConfigError
from streammc.models.mixed.mixed_model import mixed
from streammc.models.table_scale import transform
from streammc.numerics.prior import HALF_NORMAL, HALF_STUDENT_T, KIND, LKJ, SCALE, SHAPE, log_prior
from streammc.priors.scaled import with_defaults
from streammc.protocols import Rows

TAUS = ("tau[carrier:Intercept]", "tau[carrier:x]")


def data(n: int = 400) -> Rows:
    """Return rows of three columns, the last of scale 4."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), rng.normal(size=n), 4.0 * rng.normal(size=n)])
    return Rows(X, (rng.random(n) < 0.3).astype(float), np.zeros(n), np.ones(n))


@pytest.mark.parametrize("name", INNER)
def test_labels_are_those_of_the_regression_and_of_the_groups(name: str) -> None:
    inner = INNER[name][0]()
    own = inner.labels(FEATURES)
    expected = {
        INTERCEPT: ("tau[carrier]",),
        SLOPE: TAUS,
        CORRELATED: (*TAUS, "rho[carrier]"),
    }
    for groups, labels in expected.items():
        model = mixed(inner, groups, FEATURES)
        assert model.labels(FEATURES) == (*own, *labels)
        assert (model.n_linear, model.n_scalar) == (0, model.dim(3))
        assert model.dim(3) == len(own) + len(labels)


def test_deviations_and_correlation_are_reported_as_such() -> None:
    model = model_of("gaussian", "correlated")
    theta = np.array([[0.1, 0.2, 0.3, -1.0, 0.5, -0.5, 0.7]])
    values = model.constrain(theta)
    expected = [0.1, 0.2, 0.3, *np.exp([-1.0, 0.5, -0.5]), math.tanh(0.7)]
    assert values[0] == pytest.approx(expected)
    assert model.unconstrain(values) == pytest.approx(theta)


def test_default_priors_scale_with_the_columns() -> None:
    rows = data()
    model = with_defaults(
        mixed(models.logistic(), Groups(terms=("1", "w")), FEATURES), rows, FEATURES
    )
    table = model.prior_table(model.labels(FEATURES))
    assert [*table[3:, KIND]] == [HALF_STUDENT_T] * 2
    assert [*table[3:, SHAPE]] == [3.0, 3.0]
    assert table[3, SCALE] == 2.5
    assert table[4, SCALE] == pytest.approx(2.5 / rows.X[:, 2].std(), rel=5e-3)
    assert table[2, SCALE] == pytest.approx(table[4, SCALE], rel=5e-3)


def test_scale_of_a_gaussian_response_is_that_of_the_response() -> None:
    rows = data()._replace(y=1000.0 * data().X[:, 1])
    model = with_defaults(mixed(models.gaussian(), INTERCEPT, FEATURES), rows, FEATURES)
    table = model.prior_table(model.labels(FEATURES))
    assert table[4, SCALE] == table[3, SCALE] == pytest.approx(2.5 * rows.y.std(), rel=5e-3)


def test_priors_by_name_reach_the_groups() -> None:
    named = {"tau[carrier*": priors.parse("half_normal(1)"), "rho[carrier]": priors.parse("lkj(4)")}
    model = mixed(models.logistic({**named, "*": priors.normal(5.0)}), CORRELATED, FEATURES)
    table = model.prior_table(model.labels(FEATURES))
    assert [*table[3:, KIND]] == [HALF_NORMAL, HALF_NORMAL, LKJ]
    assert table[5, SHAPE] == 4.0


def test_one_prior_for_all_coefficients_leaves_the_correlation_its_default() -> None:
    model = mixed(models.logistic(priors.normal(5.0)), CORRELATED, FEATURES)
    table = model.prior_table(model.labels(FEATURES))
    assert [*table[3:, KIND]] == [HALF_STUDENT_T, HALF_STUDENT_T, LKJ]
    assert table[5, SHAPE] == 2.0


@pytest.mark.parametrize(
    ("prior", "fault"),
    [
        ({"tau[carrier*": priors.flat()}, "must be proper, found flat"),
        ({"tau[carrier:x]": priors.normal(1.0)}, "density of a positive number, found normal"),
        ({"tau[carrier:x]": priors.lkj(1.0)}, "density of a positive number, found lkj"),
        ({"rho[carrier]": priors.normal(1.0)}, "density of a correlation, found normal"),
        ({"rho[carrier]": priors.flat()}, "density of a correlation, found flat"),
        ({"x": priors.lkj(2.0)}, "density on the whole line, found lkj"),
    ],
)
def test_priors_that_do_not_fit_are_refused(prior: Any, fault: str) -> None:
    model = mixed(models.logistic({**prior, "*": priors.normal(5.0)}), CORRELATED, FEATURES)
    with pytest.raises(ConfigError, match=fault):
        model.prior_table(model.labels(FEATURES))


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 7.0])
def test_prior_of_a_correlation_is_the_beta_density_with_its_jacobian(shape: float) -> None:
    table = priors.lkj(shape).rows(["rho"], [2])

    def density(z: float) -> float:
        return math.exp(log_prior(np.array([z]), table, np.zeros(1)))

    for z in (-2.0, 0.0, 0.3, 1.4):
        rho = math.tanh(z)
        exact = stats.beta.pdf(0.5 * (rho + 1.0), shape, shape) * 0.5 * (1.0 - rho**2)
        assert density(z) == pytest.approx(exact, rel=1e-12)
    assert integrate.quad(density, -40.0, 40.0)[0] == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize(
    ("inner", "groups", "options", "fault"),
    [
        (models.network(), INTERCEPT, {}, "expected one of logistic, .* found 'network'"),
        (models.gaussian_mean(), INTERCEPT, {}, "found 'gaussian-mean'"),
        (models.logistic(), Groups(terms=("x",)), {}, "expected a random intercept"),
        (models.logistic(), Groups(terms=("1", "x", "w")), {}, "found the terms 1, x, w"),
        (models.logistic(), Groups(terms=("1", "z")), {}, "found 'z', which is none of Intercept"),
        (
            models.logistic(),
            INTERCEPT,
            {"nodes": 2},
            "expected 3 to 61 quadrature nodes, or 0 for panels, found 2",
        ),
        (models.logistic(), INTERCEPT, {"nodes": 62}, "found 62"),
    ],
)
def test_models_that_cannot_be_integrated_are_refused(
    inner: Any, groups: Groups, options: Any, fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        mixed(inner, groups, FEATURES, **options)


def test_descriptions_differ_in_everything_that_decides() -> None:
    base = model_of("logistic", "intercept")
    others = [
        model_of("probit", "intercept"),
        model_of("logistic", "slope"),
        model_of("logistic", "correlated"),
        model_of("logistic", "intercept", 21),
        mixed(models.logistic(), Groups(column="airport"), FEATURES),
        mixed(models.logistic(priors.normal(3.0)), INTERCEPT, FEATURES),
        model_of("student-t", "intercept"),
        model_of("student-t of 5", "intercept"),
    ]
    found = [str(each.describe()) for each in (base, *others)]
    assert len(found) == len({*found})


@pytest.mark.parametrize("name", INNER)
def test_start_is_finite_and_begins_with_that_of_the_regression(name: str) -> None:
    rows = data()
    if name in ("gamma", "student-t", "gaussian", "student-t of 5"):
        rows = rows._replace(y=np.exp(rows.X[:, 1]))
    model = model_of(name, "correlated")
    start = model.start(rows)
    inner = INNER[name][0]().start(rows)
    assert start[: len(inner)] == pytest.approx(inner)
    assert np.isfinite(start).all()
    assert len(start) == model.dim(3)


def test_predictions_are_those_of_the_regression() -> None:
    model, eta = model_of("poisson", "intercept"), np.array([[0.0, 1.0]])
    assert model.mean(eta) == pytest.approx(np.exp(eta[0]))
    assert model.simulate(eta, np.random.default_rng(1)).shape == (2,)
    assert model.response_fault(np.array([1.0, -1.0]))[0] == [1]  # type: ignore[index]


@pytest.mark.parametrize("kind", ["intercept", "slope", "correlated"])
def test_effects_on_the_scale_of_the_table(kind: str) -> None:
    model = model_of("logistic", kind)
    labels = list(model.labels(FEATURES))
    attributes = {
        "features": FEATURES,
        "standardization": {"mean": [0.0, 30.0, -2.0], "scale": [1.0, 4.0, 0.5]},
    }
    theta = np.array([[[0.3, 0.5, -0.1, 1.5, 0.4, -0.6]]])[..., : len(labels)]
    moved, names = transform(theta, labels, attributes, model.table_scale(FEATURES))
    assert names == [*labels, *(["rho[carrier]"] if kind == "slope" else [])]
    if kind == "intercept":
        assert moved[0, 0, 3] == 1.5
        return
    rho = -0.6 if kind == "correlated" else 0.0
    covariance = np.array([[1.5**2, rho * 0.6], [rho * 0.6, 0.4**2]])
    change = np.array([[1.0, -30.0 / 4.0], [0.0, 1.0 / 4.0]])
    exact = change @ covariance @ change.T
    sds = np.sqrt(np.diag(exact))
    assert moved[0, 0, 3:5] == pytest.approx(sds, rel=1e-13)
    assert moved[0, 0, 5] == pytest.approx(exact[0, 1] / sds.prod(), rel=1e-13)


def test_uncorrelated_effects_of_a_column_of_mean_0_stay_so() -> None:
    model = model_of("logistic", "slope")
    labels = list(model.labels(FEATURES))
    scaled = {"mean": [0.0] * 3, "scale": [1.0, 4.0, 0.5]}
    theta = np.array([[[0.3, 0.5, -0.1, 1.5, 0.4]]])
    attributes = {"features": FEATURES, "standardization": scaled}
    assert transform(theta, labels, attributes, model.table_scale(FEATURES))[1] == labels


def test_model_for_other_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected 3 columns, found 1"):
        model_of("logistic", "intercept").labels(["x"])


def test_own_prior_is_replaced_and_nothing_else() -> None:
    model = model_of("logistic", "correlated")
    other = dataclasses.replace(model, prior=priors.normal(1.0))
    assert (other.inner, other.effects, other.nodes) == (model.inner, model.effects, model.nodes)
