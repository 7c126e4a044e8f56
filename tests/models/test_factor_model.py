"""Models with factors as columns: labels, priors, the table's scale, their description."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streammc import models
from streammc.errors import ConfigError
from streammc.models.base import FactorBlock
from streammc.models.mixed.mixed_model import with_factors
from streammc.numerics.prior import (
    COLUMNS,
    EFFECT,
    HALF_NORMAL,
    HALF_STUDENT_T,
    JOINT_NORMAL,
    KIND,
    LOCATION,
)
from streammc.priors import flat, half_normal, normal
from streammc.priors.scaled import with_defaults
from streammc.protocols import Rows
from streammc.runs.record import describe_priors, registered_model

NAMES = ["Intercept", "x", "u[g=a]", "u[g=b]", "tau[g]", "u[h=1]", "u[h=2]", "u[h=3]", "tau[h]"]
FACTORS = (FactorBlock("g", 2, 2), FactorBlock("h", 5, 3))
STATED = [
    {"column": "g", "first": 2, "levels": 2},
    {"column": "h", "first": 5, "levels": 3},
]
LABELS = ("beta[Intercept]", "beta[x]", *NAMES[2:])


def rows(n=500):
    rng = np.random.default_rng(1)
    X = np.zeros((n, len(NAMES)))
    X[:, 0], X[:, 1] = 1.0, rng.normal(size=n) * 3.0
    X[np.arange(n), 2 + rng.integers(0, 2, n)] = 1.0
    X[np.arange(n), 5 + rng.integers(0, 3, n)] = 1.0
    y = 2.0 * rng.normal(size=n)
    return Rows(X, y, np.zeros(n), np.ones(n))


def made(prior=None, build=models.gaussian):
    return with_defaults(replace(build(prior=prior), factors=FACTORS), rows(), NAMES)


def test_effects_and_scales_have_the_names_of_their_columns():
    assert made().labels(NAMES) == (*LABELS, "sigma")
    assert made().dim(len(NAMES)) == len(NAMES) + 1


def test_scales_are_reported_as_they_are():
    theta = np.linspace(-1.0, 1.0, len(NAMES) + 1)
    values = made().constrain(theta[None])
    positive = [4, 8, 9]
    assert values[0, positive] == pytest.approx(np.exp(theta[positive]))
    assert np.delete(values[0], positive) == pytest.approx(np.delete(theta, positive))
    assert made().unconstrain(values)[0] == pytest.approx(theta)


def test_effects_take_their_scale_from_theta():
    table = made().prior_table((*LABELS, "sigma"))
    assert table[:, KIND].tolist() == [
        *[JOINT_NORMAL] * 2, *[EFFECT] * 2, HALF_STUDENT_T, *[EFFECT] * 3, *[HALF_STUDENT_T] * 2,
    ]  # fmt: skip
    assert table[[2, 3, 5, 6, 7], LOCATION].tolist() == [4, 4, 8, 8, 8]


def test_default_priors_are_those_without_the_factors():
    plain_rows = rows()
    X = np.ascontiguousarray(plain_rows.X[:, :2])
    plain = with_defaults(models.gaussian(), plain_rows._replace(X=X), NAMES[:2])
    expected = plain.prior_table(["beta[Intercept]", "beta[x]", "sigma"])
    table = made().prior_table((*LABELS, "sigma"))
    assert np.array_equal(expected[:, :COLUMNS], table[[0, 1, 9], :COLUMNS])
    precision = table[:, COLUMNS:]
    assert np.array_equal(expected[:2, COLUMNS : COLUMNS + 2], precision[:2, :2])
    assert 4 == np.count_nonzero(precision)
    # 2.5 units of the response, as of sigma
    assert np.array_equal(table[4], table[9])


def test_a_prior_by_name_is_that_of_the_scale():
    table = made({"tau[g]": half_normal(1.0)}).prior_table((*LABELS, "sigma"))
    assert table[[4, 8], KIND].tolist() == [HALF_NORMAL, HALF_STUDENT_T]


@pytest.mark.parametrize("build", [models.gaussian, models.logistic])
def test_a_prior_of_every_coefficient_leaves_the_effects_alone(build):
    model = replace(build(prior=normal(3.0)), factors=FACTORS)
    table = model.prior_table(model.labels(NAMES))
    assert table[[2, 3, 5], KIND].tolist() == [EFFECT] * 3
    assert table[4, KIND] == HALF_STUDENT_T


def test_a_flat_prior_of_a_scale_is_refused():
    with pytest.raises(ConfigError, match=r"'tau\[h\]' must be proper, found flat.*half_student_t"):
        made({"tau[h]": flat()}).prior_table((*LABELS, "sigma"))


@pytest.mark.parametrize("name", ["u[g=a]", "u[h*"])
def test_a_prior_of_an_effect_is_refused(name):
    with pytest.raises(ConfigError, match=r"an effect of '.', which is Normal\(0, tau\[.\]\)"):
        made({name: normal(1.0)}).prior_table((*LABELS, "sigma"))


def test_effects_are_not_among_the_texts_of_priors():
    texts = describe_priors(made(), (*LABELS, "sigma"))["parameters"]
    assert ["beta[Intercept]", "beta[x]", "tau[g]", "tau[h]", "sigma"] == list(texts)


def test_the_description_restores_the_model():
    model = made(build=models.logistic)
    again = registered_model(model.describe())
    assert again.factors == FACTORS
    assert again.describe() == model.describe()
    assert "factors" not in models.logistic(prior=normal(1.0)).describe()


def test_the_factors_of_a_store_are_bound_once():
    model = with_factors(models.logistic(), {"factors": STATED})
    assert model.factors == FACTORS
    assert with_factors(model, {"factors": STATED}) is model
    assert with_factors(models.logistic(), {}).factors == ()


@pytest.mark.parametrize("name", ["network", "gaussian-mean"])
def test_a_model_without_a_linear_predictor_is_refused(name):
    from streammc import registry

    built = registry.model(name)
    model = built(hidden=(2,)) if name == "network" else built([[1.0]])
    with pytest.raises(ConfigError, match=r"expected one of logistic.* for the effects of 'g'"):
        with_factors(model, {"factors": STATED})
