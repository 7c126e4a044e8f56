"""Forecast, refusal and progress of the passes."""

from __future__ import annotations

import numpy as np
import pytest
from passes import table

from streammc.control_variates import certify, compute
from streammc.control_variates.mode import newton, search
from streammc.control_variates.mode import prior_influence as weak_directions_module
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.errors import ModelError, OutOfMemoryError
from streammc.likelihood import data_views, pass_cost
from streammc.models import logistic, poisson
from streammc.priors import normal
from streammc.stores import from_arrays


@pytest.fixture(scope="module")
def rows():
    return table("logistic", n=4000, q=5)


@pytest.fixture
def phases(monkeypatch):
    """Phases as they are told, every one of them."""
    monkeypatch.setattr(newton, "_QUIET_SECONDS", -1.0)
    told = []

    def tell(phase, done, total, facts):
        told.append((phase, done, total, dict(facts)))

    tell.told = told
    return tell


def told(phases, phase):
    return [entry for entry in phases.told if entry[0] == phase]


def test_a_long_forecast_comes_before_any_work(rows, phases, monkeypatch):
    monkeypatch.setattr(pass_cost, "LONG_SECONDS", 0.0)

    def progress(done, total):
        phases("pass", done, total, {})

    compute(rows.store, rows.model, phases=phases, progress=progress)
    names = [entry[0] for entry in phases.told]
    assert "forecast" == names[0]
    assert 1 == names.count("forecast")
    assert "pass" in names
    facts = phases.told[0][3]
    assert facts["text"].startswith("a full pass over 4,000 rows x 5 parameters takes about")
    assert {"expected_pass_seconds", "expected_memory_bytes"} <= set(facts)


def test_a_short_forecast_is_not_told(rows, phases):
    compute(rows.store, rows.model, phases=phases)
    assert [] == told(phases, "forecast")


def test_every_step_of_newtons_method_is_told(rows, phases):
    compute(rows.store, rows.model, phases=phases)
    steps = told(phases, "newton")
    assert len(steps) > 3
    assert all(total is None for _, _, total, _ in steps)


def test_points_of_the_plan_are_told(rows, phases):
    cv = compute(rows.store, rows.model)
    plan(cv, rows.store, rows.model, PlanRequest(perturbed=True, phases=phases))
    done = [entry[1] for entry in told(phases, "plan")]
    assert done == sorted(done)
    assert done[-1] > 100


def test_short_steps_report_no_progress(rows, monkeypatch):
    calls = []
    compute(rows.store, rows.model, phases=lambda *call: calls.append(call))
    assert [] == calls


def test_matrices_that_do_not_fit_are_refused_before_a_row_is_read(rows, monkeypatch):
    monkeypatch.setattr(pass_cost, "available_memory", lambda: 50_000)
    monkeypatch.setattr(search, "draw_subset", lambda *_: pytest.fail("rows were read"))
    message = (
        r"^expected 0\.\d+ GB of memory for a full pass with 5 parameters on \d+ threads .*, "
        r"found 5e-05 GB available: ingest with fewer columns"
    )
    with pytest.raises(OutOfMemoryError, match=message):
        compute(rows.store, rows.model)


def many_columns(family):
    """Return 1,000 rows of 30 columns; counts from 0 to some thousands, if counts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 30))
    X[:, 0] = 1.0
    eta = X @ rng.normal(scale=0.3, size=30)
    if family is poisson:
        return from_arrays(X, rng.poisson(np.exp(1.5 * eta)).astype(float))
    return from_arrays(X, (rng.random(1000) < 1.0 / (1.0 + np.exp(-eta))).astype(float))


def keep_few_rows(monkeypatch):
    """Keep 100 rows in memory."""
    for module in (data_views, pass_cost):
        monkeypatch.setattr(module, "SUBSET_ROWS", 100)


@pytest.mark.parametrize("family", [logistic, poisson])
def test_few_rows_per_parameter_passes_find_the_mode(family, monkeypatch):
    store, model = many_columns(family), family()
    whole = compute(store, model)
    keep_few_rows(monkeypatch)
    assert pass_cost.forecast(store, model).few_rows

    def none(*_):
        raise AssertionError("Newton's method ran on rows in memory between passes")

    monkeypatch.setattr(search, "surrogate", none)
    found = compute(store, model)
    assert found.certificate["converged"]
    assert 2 <= found.certificate["passes"] < search.MAX_PASSES
    unseen = found.certificate["warnings"][-1]
    assert unseen.startswith("30 parameters are too many to look for a prior in conflict")
    away = np.linalg.solve(whole.factor, found.theta_star - whole.theta_star)
    assert np.linalg.norm(away) < search.LARGEST_DECREMENT


def test_passes_take_bounded_steps_towards_rare_levels_of_large_counts(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 30))
    X[:, 0], X[:, 29] = 1.0, 0.0
    X[:3, 29] = 1.0  # a whole step of Newton's method overflows
    y = rng.poisson(1.0, 1000).astype(float)
    y[:3] = 1000.0
    store, model = from_arrays(X, y), poisson()
    whole = compute(store, model)
    keep_few_rows(monkeypatch)
    found = compute(store, model)
    assert found.certificate["converged"]
    away = np.linalg.solve(whole.factor, found.theta_star - whole.theta_star)
    assert np.linalg.norm(away) < search.LARGEST_DECREMENT


def test_few_rows_per_parameter_a_wrong_response_is_named(monkeypatch):
    X = np.random.default_rng(3).normal(size=(1000, 30))
    wrong = from_arrays(X, np.full(1000, 7.0))
    keep_few_rows(monkeypatch)
    with pytest.raises(
        ModelError, match=r"logistic: expected .*, found 7 in the row with row_id 0 "
    ):
        compute(wrong, logistic())


def test_no_conflict_is_looked_for_where_separation_is_told(monkeypatch):
    x = np.linspace(-1.0, 1.0, 200)
    store = from_arrays(np.column_stack([np.ones(200), x]), (x > 0.0).astype(float))

    def none(*_):
        raise AssertionError("the same steps of Newton's method were made again")

    monkeypatch.setattr(certify, "prior_conflict", none)
    (line,) = compute(store, logistic()).certificate["warnings"]
    assert line.startswith("separation")


def test_checks_that_many_parameters_forbid_are_named(rows, monkeypatch):
    monkeypatch.setattr(weak_directions_module, "LARGEST_DIMENSION", 4)
    found = compute(rows.store, rows.model).certificate["warnings"]
    assert any(line.startswith("5 parameters are too many to look for collinear") for line in found)


def test_eigenvalues_are_computed_only_on_request(monkeypatch):
    theta, table_of_prior = np.zeros(2), normal().table(("a", "b"))
    sums = (0.0, np.zeros(2), np.array([[-1.0, 3.0], [3.0, -1.0]]))
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda _: pytest.fail("eigenvalues"))
    newton.damped_point(theta, sums, table_of_prior)


def test_the_factor_of_many_parameters_is_that_of_the_inverse():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(300, 400))
    precision = A @ A.T
    factor = newton.posterior_factor(precision)
    np.testing.assert_allclose(factor @ factor.T @ precision, np.eye(300), atol=1e-8)
    assert np.all(np.triu(factor, 1) == 0.0)
