"""Forecasts of the plan for a block-Poisson product, against drawn products."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc import from_arrays, models
from streammc.control_variates.certify import compute
from streammc.control_variates.plan.certainty_choice import Bounds, RemainderMoments
from streammc.control_variates.plan.pilot import Pilot
from streammc.control_variates.plan.subsample_plan import (
    PlanRequest,
    growth_at_edge,
    plan,
    predicted_signs,
    signed_variance_target,
)
from streammc.priors import normal


def pilot(totals):
    """A pilot of units of one row whose remainders are given, one draw."""
    n = len(totals)
    return Pilot(
        np.arange(n), 1, np.asarray(totals, np.float32)[None, :, None], n, np.zeros((n, 1), bool)
    )


@pytest.mark.parametrize(("units", "k"), [(1, 10), (4, 40)])
def test_forecast_agrees_with_drawn_products(units, k):
    rng = np.random.default_rng(0)
    totals = (rng.standard_t(5, size=4000) * 0.0016).astype(np.float32).astype(float)
    remainder, intensity = totals.sum(), k / units
    found = predicted_signs(pilot(totals), 1, k, units, np.array([remainder]))
    logs, signs = [], []
    for _ in range(60_000):
        batch = rng.choice(totals, size=(rng.poisson(intensity), units))
        factor = (len(totals) * batch.mean(axis=1) - remainder + intensity) / intensity
        logs.append(np.log(np.abs(factor)).sum())
        signs.append(np.prod(np.sign(factor)))
    logs, signs = np.array(logs), np.array(signs)
    weight = np.exp(logs)
    mean_sign = (signs * weight).mean() / weight.mean()
    assert 0.3 < mean_sign < 0.97
    assert found["mean_sign"] == pytest.approx(mean_sign, abs=0.05)
    assert found["variance"] == pytest.approx(logs.var(), rel=0.1)


def test_mean_sign_is_best_with_one_unit_per_factor():
    totals = np.random.default_rng(1).standard_t(4, size=4000) * 0.003
    one = pilot(totals)
    sign = [predicted_signs(one, 1, 60, g, np.zeros(1))["mean_sign"] for g in (1, 5, 30)]
    assert sign[0] > sign[1] > sign[2]


def test_variance_target_of_a_product_grows_with_the_parameters():
    assert [signed_variance_target(d, 100) for d in (2, 29, 500)] == [0.1, 0.29, 1.0]


def test_edge_is_where_a_thousandth_of_the_posterior_is_left():
    for d in (1, 3, 30):
        exact = np.sqrt(stats.chi2(d).ppf(0.999) / d)
        assert growth_at_edge(d, 2) == pytest.approx(exact**3, rel=0.05)
        assert growth_at_edge(d, 0) == pytest.approx(exact, rel=0.02)


def test_factors_stay_positive_up_to_the_edge():
    """U D has deviation 2 at the draws: a variance of 0.1 takes 40 rows, the edge 76."""
    one = np.ones((1, 4))
    moments = RemainderMoments(0.0 * one, 4.0 * one, 0.0 * one, np.zeros(1))
    assert [40.0] == Bounds(0.1, None, 0, 1.0).rows(moments)
    far = Bounds(0.1, None, 0, growth_at_edge(2, 2))
    k = far.rows(moments)[0]
    assert 70.0 < k < 80.0
    shifts = np.random.default_rng(0).normal(size=100_000) * 2.0 * growth_at_edge(2, 2)
    assert (1.0 + shifts / k > 0.0).mean() > 0.97
    assert (1.0 + shifts / 40.0 > 0.0).mean() < 0.9
    drifting = RemainderMoments(3.0 * np.arange(4.0) * one, 4.0 * one, 0.0 * one, np.zeros(1))
    assert far.rows(drifting)[0] > k + 4.0 * growth_at_edge(2, 2)


def test_plan_takes_more_rows_to_keep_factors_positive_up_to_the_edge():
    """An intercept alone: thirty rows would do for the variance."""
    n = 3000
    y = (np.random.default_rng(0).random(n) < 0.08).astype(float)
    store, model = from_arrays(np.ones((n, 1)), y), models.logistic(prior=normal(scale=10.0))
    cv = compute(store, model, order=1)
    chosen = plan(cv, store, model, PlanRequest(factor_units=1))
    assert 30 < chosen.k < 60
    assert chosen.predicted["variance"] < 0.1 * chosen.k / 30


@pytest.fixture(scope="module")
def heavy():
    rng = np.random.default_rng(3)
    n = 5000
    X = np.c_[np.ones(n), rng.standard_t(3.0, size=n)]
    y = (rng.random(n) < 1 / (1 + np.exp(2 - 0.5 * X[:, 1]))).astype(float)
    store, model = from_arrays(X, y), models.logistic(prior=normal(scale=10.0))
    return store, model, compute(store, model)


def test_plan_of_a_product_holds_its_target(heavy):
    store, model, cv = heavy
    chosen = plan(cv, store, model, PlanRequest(factor_units=1))
    assert chosen.refused is None
    assert chosen.predicted["variance"] < 1.1 * signed_variance_target(2, 100)
    assert chosen.predicted["mean_sign"] > 0.99
    assert chosen.factor_units == 1
    restored = type(chosen).from_description(
        chosen.describe(), lambda name: chosen.arrays()[name][1]
    )
    assert restored == chosen or restored.describe() == chosen.describe()


def test_mini_batches_divide_the_subsample(heavy):
    store, model, cv = heavy
    chosen = plan(cv, store, model, PlanRequest(factor_units=30, subsample_size=1000))
    assert chosen.k == 1020
    assert chosen.n_blocks == 34


def test_plan_refuses_a_subsample_whose_mean_sign_is_too_small(heavy):
    store, model, _ = heavy
    crude = compute(store, model, order=0)
    chosen = plan(
        crude, store, model, PlanRequest(factor_units=10, subsample_size=20, certainty=False)
    )
    assert chosen.refused is not None
    assert "mean sign" in chosen.refused.text
