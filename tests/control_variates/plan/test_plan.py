from __future__ import annotations

import json
import math

import numpy as np
import pytest
from passes import outliers, table
from scipy.special import expit

from streammc.control_variates import compute
from streammc.control_variates.coordinates import covering_draws
from streammc.control_variates.plan import pilot as pilot_module
from streammc.control_variates.plan.certainty_choice import Bounds, same_for_all
from streammc.control_variates.plan.pilot import N_DRAWS, evaluate, remainders
from streammc.control_variates.plan.subsample_plan import Plan, PlanRequest, plan
from streammc.errors import ConfigError, StoreError
from streammc.likelihood.data_views import gather
from streammc.models import gaussian_mean, logistic
from streammc.priors import normal
from streammc.stores import from_arrays


class Case:
    """A table with its control variates, and every remainder at every pilot draw."""

    def __init__(self, rows):
        self.rows, self.store = rows, rows.store
        self.cv = compute(self.store, rows.model)
        self.everything = gather(self.store, np.arange(len(rows.y), dtype=np.int64))

    def plan(self, **options) -> Plan:
        return plan(self.cv, self.store, self.rows.model, PlanRequest(**options))

    def remainders(self, shifts):
        cv = self.cv
        return remainders(cv, self.rows.model, self.everything, shifts)

    def totals(self, found, shifts):
        """D_j (S, U), the certainty rows left out."""
        d = self.remainders(shifts)
        d[:, found.certainty_rows] = 0.0
        pad = np.zeros((len(d), found.n_units * found.unit_rows - d.shape[1]))
        return np.concatenate([d, pad], axis=1).reshape(len(d), found.n_units, -1).sum(axis=2)

    def pilot_shifts(self):
        xi = covering_draws(N_DRAWS, self.cv.dim, 3)
        return self.cv.newton_step + xi @ self.cv.factor.T


@pytest.fixture(scope="module")
def case():
    return Case(outliers())


@pytest.mark.parametrize("shifts", ["pilot_shifts", "score_draws"])
def test_the_chosen_design_keeps_every_bound(case, shifts):
    found = case.plan()
    draws = case.pilot_shifts() if shifts == "pilot_shifts" else case.cv.score_draws
    D = case.totals(found, draws)
    U, k = found.n_units, found.k
    V = U**2 * D.var(axis=1) / k
    centred = D - D.mean(axis=1, keepdims=True)
    gamma = (centred**3).mean(axis=1) / D.std(axis=1) ** 3
    perturbation = V**2 / (4 * k) - gamma * V**1.5 / (3 * math.sqrt(k))
    assert found.refused is None
    assert k >= 30
    assert np.quantile(V, 0.9) <= 0.1
    assert U / k * np.abs(centred).max() <= 0.5
    assert np.ptp(perturbation) < 0.02


def test_predicted_variance_of_the_plan_equals_brute_force(case):
    found = case.plan()
    D = case.totals(found, case.pilot_shifts())
    V = found.n_units**2 * D.var(axis=1) / found.k
    np.testing.assert_allclose(found.predicted["variance_by_draw"], V, rtol=1e-5)
    assert found.predicted["variance"] >= np.quantile(V, 0.9) * (1 - 1e-5)
    kurtosis = np.mean((D - D.mean(1, keepdims=True)) ** 4, axis=1) / D.var(axis=1) ** 2
    assert found.predicted["remainder_kurtosis"] == pytest.approx(np.median(kurtosis), rel=1e-5)


def test_no_cheaper_set_of_certainty_rows_keeps_the_bounds(case):
    found = case.plan()
    cost = len(found.certainty_rows) + found.subsample_size
    draws = np.concatenate([case.pilot_shifts(), case.cv.score_draws])
    d = case.remainders(draws)
    n = d.shape[1]
    for c in range(0, cost, 7):
        rest = d.copy()
        rest[:, case.cv.candidates[:c]] = 0.0
        centred = rest - rest.mean(axis=1, keepdims=True)
        k = max(30, cost - c)
        assert n / k * np.abs(centred).max() > 0.45 or c + 30 >= cost * 0.85


def test_certainty_rows_are_the_highest_scores_and_sorted(case):
    found = case.plan()
    c = len(found.certainty_rows)
    assert c > 0
    np.testing.assert_array_equal(found.certainty_rows, np.sort(case.cv.candidates[:c]))


def test_dear_certainty_rows_are_fewer_and_leave_more_to_sample(case):
    cv, found = case.cv, case.plan()
    pilot, bounds = evaluate(cv, case.store, case.rows.model, 1), Bounds(0.1, None, 10_000, None)
    ones = np.ones(len(cv.candidates))
    cheap, dear = (same_for_all(cv, pilot, 1, bounds, size * ones) for size in (1.0, 50.0))
    np.testing.assert_array_equal(cheap.certain, found.certainty_rows)
    assert cheap.load == len(cheap.certain)
    assert dear.load == 50.0 * len(dear.certain)
    assert len(dear.certain) < len(cheap.certain)
    assert dear.needed > cheap.needed


def test_without_certainty_rows_more_are_needed(case):
    found = case.plan(certainty=False)
    assert len(found.certainty_rows) == 0
    chosen = case.plan()
    assert chosen.predicted["needed_without_certainty"] > 1.5 * (
        chosen.subsample_size + len(chosen.certainty_rows)
    )
    if found.refused is None:
        assert found.subsample_size == chosen.predicted["needed_without_certainty"]


def test_predicted_variance_is_what_the_estimator_shows(case):
    found = case.plan(subsample_size=100)
    shifts = np.random.default_rng(3).normal(size=(64, case.cv.dim)) @ case.cv.factor.T
    D = case.totals(found, shifts)
    generator = np.random.default_rng(4)
    estimates = [
        found.n_units / found.k * D[:, generator.integers(0, found.n_units, found.k)].sum(axis=1)
        for _ in range(400)
    ]
    measured = np.quantile(np.var(estimates, axis=0), 0.9)
    assert 1 / 3 < found.predicted["variance"] / measured < 3


@pytest.mark.parametrize("b", [1, 4, 8])
def test_a_given_subsample_is_respected(case, b):
    found = case.plan(subsample_size=120, unit_rows=b)
    assert (found.k, found.unit_rows, found.n_units) == (120 // b, b, -(-4000 // b))
    D = case.totals(found, case.pilot_shifts())
    V = found.n_units**2 * D.var(axis=1) / found.k
    assert found.predicted["variance"] == pytest.approx(np.quantile(V, 0.9), rel=0.5)


def test_runs_of_sorted_rows_need_more_rows(case):
    rows = outliers()
    ordered = Case(rows.reordered(np.argsort(rows.X[:, 2], kind="stable")))
    mixed = Case(rows.reordered(np.random.default_rng(0).permutation(len(rows.y))))
    runs, scattered = ordered.plan(unit_rows=16), mixed.plan(unit_rows=16)
    assert runs.deff > 2
    assert runs.deff_rows == 64
    assert any("--shuffle" in reason for reason in runs.reasons)
    assert runs.predicted["variance"] <= 0.1
    for found, made in ((runs, ordered), (scattered, mixed)):
        D = made.totals(found, made.pilot_shifts())
        V = found.n_units**2 * D.var(axis=1) / found.k
        assert np.quantile(V, 0.9) <= 0.1 * 1.05
        centred = D - D.mean(axis=1, keepdims=True)
        assert found.n_units / found.k * np.abs(centred).max() <= 0.5 * 1.01
    assert ordered.plan().subsample_size == mixed.plan().subsample_size


def test_design_effect_is_one_when_shuffled_and_large_when_sorted():
    rows = table("logistic", n=60_000, q=3)
    rows.weight[:] = 1.0
    rows.offset[:] = 0.0
    shuffled = Case(rows)
    ordered = Case(rows.reordered(np.argsort(rows.X[:, 1])))
    assert 0.8 < shuffled.plan().deff < 1.25
    assert ordered.plan().deff > 2
    pilot = evaluate(shuffled.cv, shuffled.store, rows.model, 1)
    d = pilot.values.reshape(N_DRAWS, -1)[:, :60_000]
    whole = np.pad(d, ((0, 0), (0, 32))).reshape(N_DRAWS, -1, 64).sum(axis=2)
    expected = np.median(whole.var(axis=1) / (64 * d.var(axis=1)))
    assert pilot.variance_ratio(64) == pytest.approx(expected, rel=1e-5)
    full = d[:, : 937 * 64].reshape(N_DRAWS, -1, 64).sum(axis=2)
    expected = np.median(full.var(axis=1) / (64 * d.var(axis=1)))
    assert pilot.deff(64) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("n", [150, 2000, 2048, 6000])
@pytest.mark.parametrize("order", ["independent", "sorted"])
def test_design_effect_does_not_count_a_short_last_run(n, order):
    rng = np.random.default_rng(n)
    X = np.c_[np.ones(n), rng.normal(size=n)]
    y = (rng.random(n) < expit(2.0 * X[:, 1])).astype(float)
    if order == "sorted":
        at = np.argsort(X[:, 1])
        X, y = X[at], y[at]
    tight = logistic(prior={"*": normal(10.0), "beta[x]": normal(0.001)})
    store = from_arrays(X, y, feature_names=["Intercept", "x"])
    pilot = evaluate(compute(store, tight), store, tight, 1)
    # What is left is chance: a chi-square of as many degrees of freedom as runs, over it.
    runs = -(-n // 64)
    if order == "independent":
        assert abs(pilot.deff(64) - 1.0) < 4.5 * np.sqrt(2.0 / runs)
    elif n > 150:
        assert pilot.deff(64) > 2.0


def test_a_pilot_of_some_runs_agrees_with_all_rows(monkeypatch):
    rows = table("logistic", n=60_000, q=3)
    case = Case(rows)
    everything = case.plan(subsample_size=60)
    monkeypatch.setattr(pilot_module, "PILOT_ROWS", 16_384)
    some = case.plan(subsample_size=60)
    assert some.predicted["variance"] == pytest.approx(everything.predicted["variance"], rel=0.5)
    assert 0.5 < some.deff < 2.0


def test_wide_tables_are_refused_with_the_advice():
    rng = np.random.default_rng(0)
    rows = table("logistic", n=600, q=120)
    rows.y[:] = rng.random(600) < 0.5
    found = Case(rows).plan()
    assert "--sampler hmc" in found.refused.text
    assert "600 rows" in found.refused.text


def test_blocks_default_to_one_hundred_or_k(case):
    assert case.plan(subsample_size=40).n_blocks == 40
    assert case.plan(subsample_size=400).n_blocks == 100
    assert case.plan(subsample_size=400, n_blocks=7).n_blocks == 7


@pytest.mark.parametrize(
    "options",
    [
        {"subsample_size": 0},
        {"subsample_size": 4001},
        {"unit_rows": 0},
        {"n_blocks": 0},
        {"subsample_size": 40, "n_blocks": 41},
        {"variance_target": 0.0},
    ],
)
def test_wrong_options_are_refused(case, options):
    with pytest.raises(ConfigError, match="expected"):
        case.plan(**options)


def test_a_plan_survives_json(case):
    found = case.plan()
    text = json.dumps(found.describe(), allow_nan=False)
    again = Plan.from_description(json.loads(text), lambda name: found.arrays()[name][1])
    assert again.describe() == found.describe()
    with pytest.raises(StoreError, match="certainty rows"):
        Plan.from_description(json.loads(text), lambda name: found.certainty_rows[1:])


def test_a_memory_limit_bounds_the_certainty_rows(case):
    found = case.plan(memory_limit=8 * 6 * 5)
    assert len(found.certainty_rows) <= 5


def test_remainders_beyond_any_subsample_are_refused_without_certainty_rows():
    rows = outliers()
    rows.X[17, 2] = 400.0  # exp(0.5 x 400) at a draw, and infinite at some
    rows.y[17] = 0.0
    rows.offset[17] = -220.0
    found = Case(rows).plan(certainty=False)
    assert len(found.certainty_rows) == 0
    assert "--sampler hmc" in found.refused.text


def test_a_subsample_below_every_bound_takes_no_certainty_row_that_does_not_help():
    data = from_arrays(np.random.default_rng(1).normal(size=(500, 2)), np.zeros(500))
    model = gaussian_mean(dim=2)  # no remainders
    chosen = plan(compute(data, model), data, model, PlanRequest(subsample_size=20))
    assert (20, 0) == (chosen.k, len(chosen.certainty_rows))
