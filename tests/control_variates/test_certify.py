from __future__ import annotations

import numpy as np
import pytest
from passes import table

import streammc
from streammc.control_variates import compute
from streammc.control_variates.mode import search
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.errors import ConfigError, ModelError
from streammc.likelihood import data_views
from streammc.models import gaussian
from streammc.priors import flat, half_normal
from streammc.stores import from_arrays


@pytest.fixture
def small_subset(monkeypatch):
    """A subset of 500 rows, so that a few thousand are many."""
    monkeypatch.setattr(data_views, "SUBSET_ROWS", 500)


@pytest.fixture(scope="module")
def rows():
    return table("logistic", n=20_000, q=5)


@pytest.fixture(scope="module")
def reference(rows):
    return compute(rows.store, rows.model)


def test_calling_the_package_computes_control_variates(rows, reference):
    found = streammc.control_variates(rows.store, rows.model)
    assert found.digest() == reference.digest()


def test_rows_in_memory_are_certified_by_one_pass(rows, reference):
    assert reference.certificate["passes"] == 1
    assert reference.certificate["converged"]
    assert reference.certificate["decrement"] < 1e-5
    assert reference.certificate["rows_read"] == 2 * len(rows.y)
    assert 0.0 < reference.certificate["pass_seconds"] < reference.certificate["seconds"]
    assert reference.log_lik == pytest.approx(rows.log_lik(reference.theta_star).sum(), rel=1e-13)


def test_more_rows_than_the_subset_take_another_pass(rows, reference, small_subset):
    found = compute(rows.store, rows.model)
    assert found.certificate["passes"] in (2, 3)
    assert found.certificate["decrement"] < 0.1
    sd = reference.posterior_sd()
    assert np.linalg.norm((found.theta_star - reference.theta_star) / sd) < 0.3
    assert found.score_draws.shape == (32, 5)


@pytest.mark.parametrize("away", [5.0, 25.0])
@pytest.mark.parametrize("order", [1, 2])
def test_passes_bring_a_moved_centre_back_to_the_mode(rows, reference, away, order):
    moved = reference.theta_star + away * reference.factor[:, 0]
    found = compute(rows.store, rows.model, order=order, theta_star=moved)
    assert found.certificate["converged"]
    assert found.certificate["passes"] >= 2
    sd = reference.posterior_sd()
    assert np.max(np.abs(found.theta_star - reference.theta_star) / sd) < 0.1


@pytest.mark.parametrize("away", [5.0, 25.0])
def test_one_pass_keeps_a_moved_centre_and_the_plan_shows_it(rows, reference, away):
    moved = reference.theta_star + away * reference.factor[:, 0]
    found = compute(rows.store, rows.model, theta_star=moved, passes=1)
    np.testing.assert_array_equal(found.theta_star, moved)
    assert not found.certificate["converged"]
    assert found.certificate["decrement"] == pytest.approx(away, rel=0.2)
    options = {"subsample_size": 50, "certainty": False}
    here = plan(reference, rows.store, rows.model, PlanRequest(**options))
    there = plan(found, rows.store, rows.model, PlanRequest(**options))
    assert there.predicted["variance"] > 2 * away * here.predicted["variance"]
    assert any("posterior sd from the mode" in reason for reason in there.reasons)
    chosen = plan(found, rows.store, rows.model)
    if away == 25.0:  # the plan pays for it, or refuses
        before = plan(reference, rows.store, rows.model)
        needed = len(chosen.certainty_rows) + chosen.subsample_size
        assert needed > 3 * (len(before.certainty_rows) + before.subsample_size)


def test_one_pass_from_a_subset_is_the_recipe_of_the_papers(rows, small_subset):
    found = compute(rows.store, rows.model, passes=1)
    assert found.certificate["passes"] == 1
    assert not found.certificate["converged"]
    assert found.certificate["decrement"] > 0.1
    # the draws that score rows allow for how little the subset knows
    spread = np.linalg.solve(found.factor, found.score_draws.T)
    assert np.std(spread) > 3.0


def test_a_rare_category_that_the_subset_misses_is_found(small_subset):
    rows = table("logistic", n=20_000, q=4, seed=3)
    rows.weight[:] = 1.0
    rare = np.random.default_rng(4).choice(20_000, size=12, replace=False)
    rows.X[:, 3] = 0.0
    rows.X[rare, 3] = 1.0
    rows.y[rare] = 1.0  # separated: the mode is far out, where the prior stops it
    found = compute(rows.store, rows.model)
    assert found.certificate["converged"]
    assert found.certificate["passes"] <= 4
    assert found.theta_star[3] > 4.0
    assert set(rare) <= set(found.candidates[:200])


def test_separation_under_a_flat_prior_is_refused():
    rows = table("logistic", n=400, prior=flat())
    rows.weight[:] = 1.0
    rows.y[:] = rows.X[:, 1] > 0
    with pytest.raises(ModelError, match=r"--prior-scale"):
        compute(rows.store, rows.model)


def test_separation_beyond_the_subset_is_refused(small_subset):
    rows = table("logistic", n=20_000, q=4, prior=flat())
    rows.weight[:] = 1.0
    rows.X[:, 3] = 0.0
    rows.X[:9, 3] = 1.0
    rows.y[:9] = 1.0
    with pytest.raises(ModelError, match=r"--prior-scale"):
        compute(rows.store, rows.model)


def test_a_flat_prior_without_separation_works(small_subset):
    rows = table("poisson", n=5000, prior=flat())
    assert compute(rows.store, rows.model).certificate["converged"]


def test_a_wrong_response_names_column_row_and_count(rows):
    y = rows.y.copy()
    y[[4321, 19_999]] = -1.0
    store = from_arrays(rows.X, y, response="late")
    with pytest.raises(ModelError, match=r"'late', found -1 in the row .* 4321 .* 1 more row like"):
        compute(store, rows.model)


@pytest.mark.parametrize("n", [1, 3])
def test_one_row_and_fewer_rows_than_columns_work(n):
    few = table(n=n, q=5)
    few.weight[:] = 1.0
    found = compute(few.store, few.model)
    assert found.certificate["converged"]
    assert plan(found, few.store, few.model).refused is not None


@pytest.mark.parametrize(
    "options",
    [{"order": 3}, {"passes": 0}, {"theta_star": np.zeros(3)}, {"theta_star": np.full(5, np.nan)}],
)
def test_wrong_options_are_refused(rows, options):
    with pytest.raises(ConfigError):
        compute(rows.store, rows.model, **options)


def test_float32_rows_give_the_same_expansion(rows, reference):
    store = from_arrays(rows.X.astype(np.float32), rows.y, offset=rows.offset, weight=rows.weight)
    found = compute(store, rows.model)
    np.testing.assert_allclose(found.theta_star, reference.theta_star, atol=1e-5)


@pytest.mark.parametrize("kind", ["gaussian", "gaussian-2"])
def test_models_with_a_scale_are_certified(kind):
    rows = table(kind, n=5000)
    found = compute(rows.store, rows.model)
    assert found.certificate["converged"]
    assert found.dim == rows.model.dim(4)


def test_order_of_rows_shows_in_the_summaries():
    rows = table("logistic", n=60_000, q=3)
    rows.weight[:] = 1.0
    ordered = rows.reordered(np.argsort(rows.X[:, 1]))
    random = compute(rows.store, rows.model)
    found = compute(ordered.store, ordered.model)
    assert 0.5 < random.row_order < 2.0
    assert found.row_order > 20.0
    assert found.chunk_summaries["rows"].sum() == 60_000


def test_number_of_passes_is_bounded(rows, small_subset, monkeypatch):
    monkeypatch.setattr(search, "LARGEST_DECREMENT", 0.0)
    found = compute(rows.store, rows.model, passes=2)
    assert found.certificate["passes"] == 2
    assert found.score_draws.shape == (32, 5)


def test_a_flat_scale_needs_two_rows_more_than_flat_coefficients():
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(8), rng.normal(size=(8, 4))]
    y = rng.normal(size=8)
    model = gaussian(prior={"*": flat(), "sigma": flat()})
    with pytest.raises(ModelError, match=r"expected at least 7 rows .* found 6: .* improper"):
        compute(from_arrays(X[:6], y[:6]), model)
    assert compute(from_arrays(X[:7], y[:7]), model).certificate["converged"]
    proper = gaussian(prior={"*": flat(), "sigma": half_normal(1.0)})
    assert compute(from_arrays(X[:6], y[:6]), proper).certificate["converged"]


def test_a_response_without_error_is_refused():
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(50), rng.normal(size=(50, 2))]
    with pytest.raises(ModelError, match=r"fit without error.*sigma=inverse_gamma"):
        compute(from_arrays(X, X @ [1.0, 2.0, 3.0]), gaussian())
