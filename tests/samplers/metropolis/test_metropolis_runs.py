"""Samplers with an acceptance test as jobs: same bits whatever the resources, and resumed."""

from __future__ import annotations

import numpy as np
import pytest
from quick import quick

from streammc.errors import ConfigError, ModelError
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import (
    hmc,
    hmc_ecs_signed,
    mh,
    mh_austere,
    mh_fixed,
    mh_minibatch,
    mh_sublhd,
    mint,
    pt,
    sgld,
)
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")

FREE = {"control_variate": "none", "covariance": "full", "start": 0.0}
SAMPLERS = {
    "mh": mh(),
    "mh, langevin, learnt": mh(**FREE, proposal="langevin", gradient_size=300, unit_rows=3),
    "mh-minibatch": mh_minibatch(control_variate=1, subsample_size=20, unit_rows=3),
    "mh-fixed": mh_fixed(control_variate=1, subsample_size=60, smoothing=0.5, remedy="shrink"),
    "mh-austere": mh_austere(**FREE, subsample_size=90, epsilon=0.01, unit_rows=3, step_size=0.01),
    "mh-austere, swept": mh_austere(conservative=False, control_variate=1),
    "mh-sublhd": mh_sublhd(bound="model", subsample_size=100),
    "mint": mint(control_variate=1, subsample_size=90, unit_rows=3, replace=False),
    "mh, sghmc": mh(proposal="sghmc", n_steps=2, gradient_size=60, unit_rows=7),
}


def digest(path):
    return RunDirectory.open(path).digest()


@pytest.mark.parametrize("kind", quick(SAMPLERS, "mint", "mh-austere, swept"))
def test_resources_stops_and_extensions_change_no_bit(small_job, store, tmp_path, kind):
    settings = {"sampler": SAMPLERS[kind], "chains": 2, "warmup": 150, "temperature": "50:sqrt"}
    small_job.sample(store, tmp_path / "whole", draws=150, **settings)
    options = {"threads": 1, "batch_iterations": 7, **settings}
    small_job.sample(small_job.in_memory(), tmp_path / "other", draws=150, **options)
    assert digest(tmp_path / "whole") == digest(tmp_path / "other")
    path = tmp_path / "stopped"
    for batch in (1, 4096, 7):
        stop = small_job.StopAfter(1)
        options = {"interrupted": stop, "progress": stop.progress, "batch_iterations": batch}
        small_job.sample(store, path, draws=100, **settings, **options)
    assert 150 == RunDirectory.open(path).committed_warmup + RunDirectory.open(path).committed_draws
    assert small_job.sample(store, path, draws=100, **settings).finished
    assert small_job.sample(store, path, draws=150, **settings).finished
    found = RunDirectory.open(path).draws_matrix()
    assert RunDirectory.open(tmp_path / "whole").draws_matrix().tobytes() == found.tobytes()
    accepted = RunDirectory.open(path).read_group("sample_stats")["acceptance_rate"].mean()
    assert min(accepted, 1.0 - accepted) > 0.02


def test_a_run_without_a_pass_says_so_and_checks_the_responses_it_meets(tmp_path):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    y = (rng.random(400) < 0.5).astype(float)
    sampler = mh(**FREE, step_size=0.1)
    done = run_job(
        RunRequest(from_arrays(X, y), logistic(), sampler, draws=50, path=tmp_path / "a", seed=1)
    )
    sampling = done.summary["sampling"]
    assert sampling["passes"] == 0
    assert sampling["laplace_gap"] is None
    assert sampling["decrement"] is None
    assert sampling["forced"] == 0.0
    assert sampling["test_rows_mean"] == 400
    y[17] = 2.0
    with pytest.raises(ModelError, match="expected 0 or 1 "):
        run_job(
            RunRequest(
                from_arrays(X, y), logistic(), sampler, draws=50, path=tmp_path / "b", seed=1
            )
        )


def test_chain_returns_from_a_far_start(tmp_path):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    y = (rng.random(400) < 0.5).astype(float)
    options = {"draws": 1, "warmup": 400, "seed": 1, "chains": 1}
    run_job(
        RunRequest(from_arrays(X, y), logistic(), mh(start=3.0), path=tmp_path / "a", **options)
    )
    draws = RunDirectory.open(tmp_path / "a").draws_matrix("warmup")
    assert np.abs(draws[0, 0] - 3.0).max() < 1.0
    assert np.abs(draws[0, -1]).max() < 0.6


def test_contradictions_are_refused():
    with pytest.raises(ConfigError, match="covariance='laplace' needs the pass"):
        mh(control_variate="none", covariance="laplace")
    for wrong in ({"proposal": "walk"}, {"friction": 0.0}, {"start": "far"}, {"n_steps": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            mh(**wrong)


LOST = {
    "mh, short steps": mh(step_size=1e-3),
    "mh, never moves": mh(step_size=1e6),
    "sgld, short steps": sgld(step_size=1e-3),
    "pt, short steps": pt(step_size=1e-3, n_levels=2, n_steps=1),
    "hmc-ecs-signed": hmc_ecs_signed(step_size=1e-3, trajectory_length=1e-3),
}


@pytest.mark.parametrize("kind", LOST)
def test_one_chain_that_has_not_mixed_is_told(tmp_path, kind):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    data = from_arrays(X, (rng.random(400) < 0.5).astype(float))
    options = {"draws": 600, "warmup": 20, "chains": 1, "seed": 1, "path": tmp_path / "run"}
    report = run_job(
        RunRequest(data, logistic(prior=normal(2.0)), LOST[kind], audit=False, **options)
    )
    about = ("smallest ess", "have mixed is not known")
    assert any(word in line and "beta[" in line for line in report.warnings for word in about)
    if kind != "mh, never moves":
        assert any("halves of the only chain" in line for line in report.warnings)
    assert (kind == "mh, never moves") == any(
        entry["r_hat"] is None for entry in report.summary["parameters"].values()
    )


def test_one_chain_that_has_mixed_is_quiet(tmp_path):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    data = from_arrays(X, (rng.random(400) < 0.5).astype(float))
    options = {"draws": 1500, "warmup": 300, "chains": 1, "seed": 1, "path": tmp_path / "run"}
    report = run_job(RunRequest(data, logistic(prior=normal(2.0)), hmc(), **options))
    assert [] == report.warnings
    assert all(entry["r_hat"] < 1.01 for entry in report.summary["parameters"].values())
