"""Control variates of a store to which rows were appended, from those before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import streammc
from streammc import models, priors, samplers
from streammc.control_variates import compute, update
from streammc.control_variates.appended import update_text
from streammc.control_variates.full_pass.block_pass import ExpansionPass
from streammc.diagnostics.summary import summarize
from streammc.errors import IdentityError, ModelError
from streammc.likelihood.data_views import tempered

MODEL = models.logistic(prior=priors.normal(scale=10.0))
COEFFICIENTS = np.array([0.5, -0.3, 0.2])


def frame(rows: int, seed: int, moved: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    eta = x @ COEFFICIENTS - 1.0 + moved * (1.0 + x[:, 0])
    y = rng.uniform(size=rows) < 1.0 / (1.0 + np.exp(-eta))
    return pd.DataFrame({f"x{j}": x[:, j] for j in range(3)} | {"y": y.astype(int)})


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "s.zarr"
    streammc.ingest(frame(20_000, 1), path, response="y", chunk_rows=4096)
    return streammc.open_store(path)


def grown(store, table):
    streammc.append(table, store.address)
    return streammc.open_store(store.address)


def whole_pass(cv, dataset):
    """Return the sums of all rows at the centre and the shifts of ``cv``."""
    task = ExpansionPass(MODEL, cv.theta_star, cv.score_draws, cv.order, len(cv.candidates), True)
    return dataset.reduce(task, scheduler="sync")


def assert_sums_of_all_rows(cv, dataset):
    sums = whole_pass(cv, dataset)
    log_lik, gradient, hessian = sums.expansion(cv.dim)
    size = np.abs(hessian).max()
    assert log_lik == pytest.approx(cv.log_lik, rel=1e-14)
    np.testing.assert_allclose(gradient, cv.gradient, rtol=0, atol=1e-13 * size)
    np.testing.assert_allclose(hessian, cv.hessian, rtol=0, atol=1e-13 * size)
    np.testing.assert_array_equal(sums.histogram.counts, cv.histogram.counts)
    np.testing.assert_allclose(sums.histogram.moments, cv.histogram.moments, rtol=1e-9, atol=1e-18)
    np.testing.assert_array_equal(sums.rows, cv.candidates)
    np.testing.assert_allclose(sums.scores, cv.scores, rtol=1e-12)
    np.testing.assert_allclose(sums.terms[1:3], cv.order_terms[1:3], rtol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_sums_are_those_of_all_rows(store, temperature):
    before = compute(tempered(store, temperature), MODEL)
    now = tempered(grown(store, frame(300, 2)), temperature)
    after = update(before, now, MODEL)
    assert after.certificate.update["kept"]
    assert (300, 1) == (after.certificate.rows_read, after.certificate.passes)
    assert (20_300, now.fingerprint) == (after.n_rows, after.fingerprint)
    np.testing.assert_array_equal(before.theta_star, after.theta_star)
    assert_sums_of_all_rows(after, now)
    after.require(now, MODEL)


def test_a_row_that_is_counted_twice_is_caught(store, monkeypatch):
    before = compute(store, MODEL)
    now = grown(store, frame(300, 2))
    real = type(now).rows_after
    monkeypatch.setattr(type(now), "rows_after", lambda self, first: real(self, first - 1))
    after = update(before, now, MODEL)
    with pytest.raises(AssertionError):
        assert_sums_of_all_rows(after, now)


def test_the_step_leads_to_the_mode_of_all_rows(store):
    before = compute(store, MODEL)
    now = grown(store, frame(300, 2))
    after, again = update(before, now, MODEL), compute(now, MODEL)
    sd = again.posterior_sd()
    mode = again.theta_star + again.newton_step
    assert np.all(np.abs(after.theta_star + after.newton_step - mode) < 0.01 * sd)
    assert np.linalg.norm((after.theta_star - mode) / sd) > 0.05


def test_updates_add_up_over_generations(store, tmp_path):
    found = compute(store, MODEL)
    for seed in (2, 3, 4):
        store = grown(store, frame(100, seed))
        found = update(found, store, MODEL)
        assert found.certificate.update["kept"]
        found.save(tmp_path / "cv.zarr")
        found = streammc.control_variates.ControlVariates.open(tmp_path / "cv.zarr", store, MODEL)
    assert_sums_of_all_rows(found, store)


def test_rows_of_another_kind_are_noticed_and_all_rows_read(store):
    before = compute(store, MODEL)
    now = grown(store, frame(1000, 2, moved=2.0))
    after, again = update(before, now, MODEL), compute(now, MODEL)
    facts = after.certificate.update
    assert not facts["kept"]
    assert facts["decrement"] > facts["limit"] > 0.5
    np.testing.assert_array_equal(again.theta_star, after.theta_star)
    assert again.digest() == after.digest()
    assert "all rows were read again" in update_text(facts)


def test_warnings_before_are_looked_at_again(store):
    before = compute(store, MODEL)
    certificate = replace(before.certificate, warnings=("beta[x0] is only known by its prior",))
    now = grown(store, frame(100, 2))
    after = update(replace(before, certificate=certificate), now, MODEL)
    assert after.certificate.update["reason"] == (
        "the control variates before have warnings or other modes"
    )
    assert () == after.certificate.warnings


def test_default_priors_are_scaled_with_all_rows(store):
    model = models.logistic()
    before = compute(store, model)
    now = grown(store, frame(300, 2))
    after = update(before, now, model)
    assert after.certificate.update["kept"]
    after.require(now, model)


def test_another_store_model_or_temperature_is_refused(store, tmp_path):
    before = compute(store, MODEL)
    with pytest.raises(IdentityError, match="which it never had"):
        update(before, store, MODEL)  # of this very generation
    now = grown(store, frame(300, 2))
    with pytest.raises(IdentityError, match="with this prior"):
        update(before, now, models.logistic(prior=priors.normal(scale=1.0)))
    with pytest.raises(IdentityError, match="which it never had"):
        update(before, tempered(now, 2.0), MODEL)
    streammc.ingest(frame(500, 5), tmp_path / "other.zarr", response="y")
    with pytest.raises(IdentityError, match="which it never had"):
        update(before, streammc.open_store(tmp_path / "other.zarr"), MODEL)


def test_a_wrong_response_among_the_new_rows_is_named(store):
    before = compute(store, MODEL)
    now = grown(store, frame(300, 2).assign(y=2))
    with pytest.raises(ModelError, match=r"found 2 in .*and 299 more rows"):
        update(before, now, MODEL)


def z_of_means(found, exact):
    """Return the largest difference of the means of two runs, in Monte Carlo errors."""
    ours, theirs = summarize(found), summarize(exact)
    return max(
        abs(ours[label]["mean"] - theirs[label]["mean"])
        / np.hypot(ours[label]["mcse_mean"], theirs[label]["mcse_mean"])
        for label in ours
    )


def test_draws_are_those_of_all_rows_and_without_the_new_ones_they_are_not(store):
    before = compute(store, MODEL)
    now = grown(store, frame(400, 3, moved=0.15))
    after = update(before, now, MODEL)
    assert after.certificate.update["kept"]
    settings = {"chains": 2, "draws": 4000, "warmup": 500, "seed": 1, "audit": False}
    exact = streammc.sample(now, MODEL, sampler=samplers.hmc(), control_variates=after, **settings)
    sampler = samplers.hmc_ecs()
    found = streammc.sample(now, MODEL, sampler=sampler, control_variates=after, **settings)
    assert z_of_means(found, exact) < 4.5
    forged = replace(
        before,
        fingerprint=now.fingerprint,
        n_rows=now.n_rows,
        stamps=now.stamps(),
        histogram=after.histogram,
    )
    found = streammc.sample(now, MODEL, sampler=sampler, control_variates=forged, **settings)
    assert z_of_means(found, exact) > 4.5
