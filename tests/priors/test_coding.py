"""Default priors of coefficients are those of the fitted function, whatever codes its columns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streammc import control_variates, from_arrays, from_table, models
from streammc.priors import scaled
from streammc.priors.densities import JointNormal
from streammc.priors.scaled import Level, coefficients
from streammc.protocols import Rows

N = 240
RNG = np.random.default_rng(1)
TABLE = pd.DataFrame(
    {
        "year": RNG.integers(1990, 2021, N).astype(float),
        "a": RNG.uniform(60, 70, N),
        "k": RNG.uniform(290, 300, N),
        "g": RNG.choice(list("abcdef"), N, p=[0.4, 0.3, 0.15, 0.1, 0.04, 0.01]),
        "h": RNG.choice(["u", "v", "w"], N),
        "b": RNG.integers(0, 2, N).astype(float),
        "y": RNG.normal(size=N),
    }
)
TABLE = TABLE.assign(
    late=TABLE.year - 2005.0, c=TABLE.a - 65.0, d=TABLE.k - 295.0, coded=3.0 * TABLE.b + 7.0
)
LEVEL = Level(0.3, 1.0, 5.0)
CODINGS = {
    "power": ("year + I(year**2)", "late + I(late**2)"),
    "polynomial": ("year + I(year**2)", "poly(year, 2)"),
    "product": ("a * k", "c * d"),
    "reference": ("C(g)", "C(g, contr.treatment('f'))"),
    "levels without an intercept": ("C(g)", "0 + C(g)"),
    "slopes by level": ("g * year", "C(g, contr.treatment('e')) * late"),
    "two factors": ("g * h", "C(g, contr.treatment('f')) * C(h, contr.treatment('w'))"),
    "cells": ("g * h", "g:h"),
    "slopes alone": ("year + g:year", "g:year"),
    "0 and 1": ("b * year", "coded * late"),
    "numbers or levels": ("b + g", "C(b) + g"),
    "sum contrasts": ("g", "C(g, contr.sum)"),
    "Helmert contrasts": ("g", "C(g, contr.helmert)"),
    "polynomial contrasts": ("g", "C(g, contr.poly)"),
    "contrasts and slopes": ("g * year", "C(g, contr.sum) * late"),
    "contrasts of two factors": ("g * h", "C(g, contr.sum) * C(h, contr.poly)"),
    "contrasts of one factor of two": ("g * h", "C(g, contr.helmert) * h"),
    "contrasts without an intercept": ("0 + h + g", "0 + h + C(g, contr.sum)"),
    "nested contrasts": ("g / h", "g / C(h, contr.sum)"),
    "contrasts in cells": ("g:h", "C(g, contr.sum):C(h, contr.sum)"),
    "contrasts in cells of three": (
        "g:h:C(b)", "C(g, contr.sum):C(h, contr.helmert):C(b, contr.sum)"),
    "all of it": ("coded * g * year", "b * C(g, contr.treatment('c')) * late"),
}  # fmt: skip


def prior_of(
    formula: str, standardize: bool, contrasts_known: bool = True
) -> tuple[Rows, JointNormal]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a cell without rows
        store = from_table(
            TABLE,
            formula=f"y ~ {formula}",
            standardize=standardize,
            dtype="float64",
            shuffle=False,
            seed=1,
        )
    rows = Rows(np.empty((N, store.n_features)), *(np.empty(N) for _ in range(3)))
    store.rows().gather(np.arange(N), 1, rows)
    labels = [f"beta[{name}]" for name in store.feature_names]
    coding = store.coding()
    if not contrasts_known:
        coding = coding._replace(contrasts={})
    found = coefficients(labels, rows, store.feature_names, LEVEL, coding)
    assert isinstance(found, JointNormal)
    return rows, found


def of_function(rows: Rows, prior: JointNormal) -> np.ndarray:
    """Return the prior covariance of the predictor between the rows."""
    assert prior.covariance is not None
    return rows.X @ prior.covariance @ rows.X.T


@pytest.mark.parametrize("name", CODINGS)
def test_codings_of_one_model_have_one_prior_of_the_function(name: str) -> None:
    (rows, first), (others, second) = (
        prior_of(formula, standardize)
        for formula, standardize in zip(CODINGS[name], (True, False), strict=True)
    )
    expected = of_function(others, second)
    np.testing.assert_allclose(of_function(rows, first), expected, atol=1e-8 * expected.max())
    np.testing.assert_allclose(rows.X @ first.location, 0.3, rtol=1e-12)
    assert np.linalg.eigvalsh(first.covariance)[0] > 0.0


@pytest.mark.parametrize("name", ["power", "product", "reference", "all of it"])
def test_independent_priors_of_coefficients_depend_on_the_coding(name: str) -> None:
    parts = []
    for formula in CODINGS[name]:
        rows, prior = prior_of(formula, True)
        alone = np.diag(np.diag(prior.covariance))
        parts.append(of_function(rows, JointNormal(prior.labels, prior.location, alone)))
    assert np.abs(parts[0] - parts[1]).max() > 0.1 * parts[1].max()


def test_contrasts_taken_as_numbers_make_another_prior() -> None:
    expected = of_function(*prior_of("g", True))
    for coding in ("sum", "helmert"):
        taken = of_function(*prior_of(f"C(g, contr.{coding})", True, contrasts_known=False))
        assert np.abs(taken - expected).max() > 0.1 * expected.max()


def test_contrasts_of_a_factor_are_those_of_exchangeable_levels() -> None:
    _, prior = prior_of("C(g)", True)
    np.testing.assert_allclose(prior.covariance[1:, 1:], 2.5**2 * (np.eye(5) + 1.0))


def test_a_column_alone_has_two_and_a_half_units_per_standard_deviation() -> None:
    _, prior = prior_of("year", False)
    assert 2.5 / TABLE.year.std(ddof=0) == pytest.approx(prior.scale[1])


def test_the_mean_of_the_predictor_has_the_width_of_the_level() -> None:
    for formula in ("year", "g * year", "0 + g"):
        rows, prior = prior_of(formula, True)
        mean = rows.X.mean(axis=0)
        assert mean @ prior.covariance @ mean == pytest.approx(LEVEL.width**2)


def test_columns_of_a_one_hot_coding_are_the_levels_of_one_factor() -> None:
    ones = np.eye(6)[pd.Categorical(TABLE.g).codes]
    X = np.column_stack([np.ones(N), ones[:, 1:], TABLE.late])
    names = ["Intercept", *"bcdef", "late"]
    store = from_arrays(X, TABLE.y.to_numpy(), feature_names=names)
    rows = Rows(X, np.zeros(N), np.zeros(N), np.ones(N))
    found = coefficients(names, rows, names, LEVEL, store.coding())
    expected = of_function(*prior_of("C(g) + late", True))
    np.testing.assert_allclose(of_function(rows, found), expected, atol=1e-8 * expected.max())
    whole = Rows(np.column_stack([np.ones(N), ones, TABLE.late]), *rows[1:])
    names = ["Intercept", *"abcdef", "late"]
    found = coefficients(names, whole, names, LEVEL, None)
    np.testing.assert_allclose(of_function(whole, found), expected, atol=1e-8 * expected.max())


def test_collinear_columns_keep_a_proper_prior_of_their_own_size() -> None:
    x = RNG.normal(size=N)
    X = np.column_stack([np.ones(N), x, x])
    names = ["Intercept", "first", "second"]
    rows = Rows(X, np.zeros(N), np.zeros(N), np.ones(N))
    found = coefficients(names, rows, names, LEVEL, None)
    assert np.linalg.eigvalsh(found.covariance)[0] > 0.0
    assert found.scale.max() < 10.0
    single = coefficients(names[:2], rows._replace(X=X[:, :2]), names[:2], LEVEL, None)
    np.testing.assert_allclose(
        of_function(rows, found), of_function(rows._replace(X=X[:, :2]), single), rtol=1e-8
    )


def test_columns_beyond_the_range_of_squares_get_priors_of_their_own() -> None:
    x = RNG.normal(size=N)
    X = np.column_stack([np.ones(N), 1e200 * x])
    names = ["Intercept", "huge"]
    rows = Rows(X, np.zeros(N), np.zeros(N), np.ones(N))
    found = coefficients(names, rows, names, LEVEL, None)
    assert dict(found["huge"].settings)["scale"] == pytest.approx(2.5e-200 / x.std(), rel=0.005)


def test_every_function_of_crossed_factors_is_expressed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    composed, calls = scaled._Columns._composed, []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments[1])
        assert len(calls) <= 2 * 6**3, "functions are expressed again and again"
        return composed(*arguments)

    monkeypatch.setattr(scaled._Columns, "_composed", counted)
    rng = np.random.default_rng(1)
    table = {name: rng.choice(list("abcdef"), 4000) for name in "gkm"}
    table["y"] = rng.integers(0, 2, 4000)
    data = from_table(table, formula="y ~ g * k * m")
    prior = control_variates.resolved(models.logistic(), data)
    assert 6**3 == data.n_features
    assert prior is not None
    assert calls
