"""A short run moves theta_star to where the posterior is, and the plan follows."""

import json

import numpy as np
import pytest

from streammc.control_variates import compute
from streammc.errors import ConfigError, IdentityError
from streammc.likelihood import data_views
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs, hmc_ecs_signed
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

ROWS = 40_000
MODEL = logistic(prior=normal(scale=10.0))


@pytest.fixture(scope="module")
def store():
    rng = np.random.default_rng(8)
    X = np.c_[np.ones(ROWS), rng.normal(size=(ROWS, 3))]
    eta = X @ np.array([-1.0, 0.6, -0.4, 0.2])
    return from_arrays(X, (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(float))


@pytest.fixture(autouse=True)
def small_subset(monkeypatch):
    """The mode of 1000 of 40,000 rows is several posterior sd off."""
    monkeypatch.setattr(data_views, "SUBSET_ROWS", 1000)


def sample(store, path, sampler, **options):
    settings = {"draws": 300, "warmup": 200, "chains": 4, "seed": 5, "audit": False}
    return run_job(RunRequest(store, MODEL, sampler, path=path, **{**settings, **options}))


def digest(path):
    return RunDirectory.open(path).digest()


@pytest.fixture(scope="module")
def reference(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("recalibrated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_views, "SUBSET_ROWS", 1000)
        return path, sample(store, path, hmc_ecs(recalibrate=40), audit=True)


def test_recalibration_shrinks_decrement_and_subsample(store, reference):
    _, report = reference
    found = report.summary["sampling"]["recalibration"]
    first, second = found["first"], found["second"]
    assert first["decrement"] > 2.0
    assert second["decrement"] < 0.5 * first["decrement"]
    assert second["decrement"] < 0.6
    cost = [stage["subsample_size"] + stage["certainty_rows"] for stage in (first, second)]
    assert cost[1] < cost[0] / 5
    assert (found["iterations"], found["chains"]) == (40, 4)
    assert report.summary["sampling"]["subsample_size"] == second["subsample_size"]
    json.dumps(report.summary, allow_nan=False)


def test_both_passes_and_the_iterations_are_counted(store, reference):
    path, report = reference
    facts = report.summary["sampling"]
    assert facts["passes"] == 2
    found = facts["recalibration"]
    assert facts["rows_read"] > 2 * ROWS + found["rows_gathered"] > 2 * ROWS
    assert report.summary["cost"]["evaluations"]["warmup"] > found["evaluations"]
    assert found["evaluations"] >= 40 * 4 * found["subsample_used"]
    assert RunDirectory.open(path).committed_warmup == 200  # not one of these is recorded


def test_the_posterior_is_that_of_a_certified_centre(store, reference, tmp_path):
    _, report = reference
    plain = sample(store, tmp_path / "run", hmc_ecs(), draws=1000, seed=6).summary
    for label, truth in plain["parameters"].items():
        shown = report.summary["parameters"][label]
        error = np.hypot(shown["mcse_mean"], truth["mcse_mean"])
        assert abs(shown["mean"] - truth["mean"]) < 4.5 * error
    assert report.summary["audit"]["largest_correction"] < 0.1


def test_the_centre_of_one_pass_is_a_bad_one(store):
    """Otherwise there would be nothing to recalibrate."""
    once = compute(store, MODEL, passes=1)
    known = compute(store, MODEL)
    sd = known.posterior_sd()
    assert np.abs((once.theta_star - known.theta_star) / sd).max() > 1.0


@pytest.mark.parametrize("options", [{"threads": 1}, {"batch_iterations": 3}])
def test_recalibration_is_deterministic(store, reference, tmp_path, options):
    sample(store, tmp_path / "run", hmc_ecs(recalibrate=40), **options)
    assert digest(reference[0]) == digest(tmp_path / "run")


class StopAfter:
    def __init__(self, phase, calls):
        self.phase, self.left = phase, calls

    def progress(self, phase, done, total, facts):
        self.left -= phase == self.phase

    def __call__(self):
        return self.left <= 0


def test_a_resumed_run_does_not_recalibrate_again(store, reference, tmp_path, monkeypatch):
    path = tmp_path / "run"
    stop = StopAfter("warmup", 2)
    report = sample(store, path, hmc_ecs(recalibrate=40), interrupted=stop, progress=stop.progress)
    assert not report.finished
    monkeypatch.setattr("streammc.samplers.hamiltonian.problem.recalibrate", None)
    monkeypatch.setattr("streammc.samplers.common.preparation.expanded", None)
    assert sample(store, path, hmc_ecs(recalibrate=40)).finished
    assert digest(reference[0]) == digest(path)


def test_stopped_in_the_short_run_nothing_is_left(store, reference, tmp_path):
    stop = StopAfter("recalibration", 1)
    report = sample(
        store, tmp_path / "run", hmc_ecs(recalibrate=40), interrupted=stop, progress=stop.progress
    )
    assert not report.finished
    assert not report.changed
    assert not RunDirectory.exists(tmp_path / "run")


def test_run_identity_includes_recalibrate(store, reference):
    with pytest.raises(IdentityError, match="recalibrate"):
        sample(store, reference[0], hmc_ecs(recalibrate=41))


def test_a_bad_first_stage_does_not_refuse(store, tmp_path):
    """Far off, the first plan asks for more than half of the rows, and gets what it can."""
    known = compute(store, MODEL)
    far = compute(store, MODEL, passes=1, theta_star=known.theta_star + 50.0 * known.posterior_sd())
    report = sample(
        store, tmp_path / "run", hmc_ecs(recalibrate=60), control_variates=far, draws=100
    )
    found = report.summary["sampling"]["recalibration"]
    assert found["first"]["subsample_size"] > ROWS / 2
    assert found["second"]["decrement"] < 1.0 < 10.0 < found["first"]["decrement"]
    assert report.summary["sampling"]["passes"] == 2


def test_signed_subsampling_recalibrates_as_well(store, tmp_path):
    report = sample(store, tmp_path / "run", hmc_ecs_signed(recalibrate=40), draws=100)
    found = report.summary["sampling"]["recalibration"]
    assert found["second"]["decrement"] < 0.5 * found["first"]["decrement"]


def test_iterations_are_a_positive_number():
    with pytest.raises(ConfigError, match="recalibrate must be a positive whole number"):
        hmc_ecs(recalibrate=0)
