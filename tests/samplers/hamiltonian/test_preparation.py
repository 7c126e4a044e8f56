"""What is settled before the first draw of hmc and hmc-ecs, and the trace of a short run."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.control_variates import resolved
from streammc.control_variates.certify import compute
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.hamiltonian import problem
from streammc.samplers.hamiltonian.problem import _Kept
from streammc.stores import from_arrays


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    return from_arrays(X, (rng.random(400) < 0.5).astype(float))


@pytest.mark.parametrize(("sampler", "planned"), [(hmc(), False), (hmc_ecs(), True)])
def test_a_sampler_prepares_itself_with_control_variates_and_a_plan_if_it_has_one(
    data, sampler, planned
):
    setup = decide(RunRequest(data, logistic(prior=normal(2.0)), sampler, seed=1))
    assert sampler.name == setup.sampler.name
    assert planned == (setup.plan is not None)
    assert 1 <= setup.cv.certificate.passes


@pytest.mark.parametrize("order", [1, 2])
def test_control_variates_have_the_order_of_the_sampler(data, order):
    sampler = hmc_ecs(order=order, subsample_size=100)
    setup = decide(RunRequest(data, logistic(prior=normal(2.0)), sampler, seed=1))
    assert order == setup.cv.order


def test_given_control_variates_are_the_first_stage_of_a_recalibration(data, monkeypatch):
    model = resolved(logistic(prior=normal(2.0)), data)
    given = compute(data, model)
    monkeypatch.setattr(problem, "recalibrate", lambda request, sampler, first: first)
    request = RunRequest(data, model, hmc_ecs(recalibrate=50), given, seed=1)
    assert given is decide(request).cv


def test_a_short_run_counts_the_rows_and_the_variances_of_all_its_chains():
    kept = _Kept()
    for first in (0.0, 10.0):
        stats = {
            "n_rows": np.array([[3.0, 4.0], [5.0, 6.0]]),
            "log_lik_variance": first + np.array([[1.0, 2.0], [3.0, 4.0]]),
        }
        kept.append("draws", np.zeros((2, 2, 1)), stats, ({}, {}))
    assert (36, 2) == (kept.evaluations, len(kept.theta))
    assert [2.0, 3.0, 12.0, 13.0] == kept.variance


def test_a_short_run_says_the_mean_variance_of_its_estimates(data):
    sampler = hmc_ecs(recalibrate=10, subsample_size=40)
    request = RunRequest(data, resolved(logistic(prior=normal(2.0)), data), sampler, chains=2)
    found = problem.recalibrate(request, sampler, None).certificate.recalibration
    predicted = found["first"]["predicted_variance"]  # which nine draws in ten do not exceed
    assert 0.1 * predicted < found["log_lik_variance_mean"] < predicted
