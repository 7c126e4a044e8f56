"""With the sampler chosen automatically, a run of ``hmc-ecs`` that is refused becomes ``hmc``."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from streammc.errors import RefusedError
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs import job
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.hamiltonian import options
from streammc.stores import from_arrays
from streammc.trace.datatree import open_run
from streammc.trace.run_directory import RunDirectory

SHAPE = {"draws": 120, "warmup": 100, "chains": 2, "seed": 3, "audit": False}
MODEL = logistic(prior=normal(scale=10.0))


@pytest.fixture(scope="module")
def store():
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(20_000), rng.normal(size=(20_000, 2))]  # hmc-ecs is faster
    return from_arrays(X, (rng.random(20_000) < 0.3).astype(float))


@pytest.fixture
def noisy(monkeypatch):
    """No variance is small enough."""
    monkeypatch.setattr(options, "VARIANCE_LIMIT", 1e-12)


def test_run_with_a_small_variance_stays_hmc_ecs(store, tmp_path):
    report = run_job(RunRequest(store, MODEL, path=tmp_path / "run", **SHAPE))
    assert report.summary["sampling"]["sampler"] == "hmc-ecs"
    assert report.summary["sampling"]["predicted_perturbation"] < 0.05


def test_auto_takes_hmc_where_the_run_would_be_refused(noisy, store, tmp_path):
    path = tmp_path / "run"
    report = run_job(RunRequest(store, MODEL, path=path, **SHAPE))
    assert report.finished
    assert report.summary["sampling"]["sampler"] == "hmc"
    assert "hmc-ecs was given up" in report.summary["sampling"]["reason"]
    tree = open_run(path)
    assert "beyond_edge" not in tree["sample_stats"]
    assert not (path / "sample_stats" / "beyond_edge").exists()
    assert RunDirectory.open(path, verify=True).draws_matrix().shape == (2, 120, 3)
    again = run_job(RunRequest(store, MODEL, path=path, **SHAPE))
    assert not again.changed
    assert again.summary == report.summary


def test_hmc_ecs_by_name_is_refused(noisy, store, tmp_path):
    with pytest.raises(RefusedError, match="log_lik_variance"):
        run_job(RunRequest(store, MODEL, hmc_ecs(), path=tmp_path / "run", **SHAPE))


@pytest.mark.parametrize("stage", ["hmc-ecs", "deleted", "half deleted", "hmc"])
def test_a_run_killed_at_any_stage_ends_as_the_same_run(noisy, store, tmp_path, monkeypatch, stage):
    whole = run_job(RunRequest(store, MODEL, path=tmp_path / "whole", **SHAPE))
    path = tmp_path / "killed"
    commits = []

    def count(phase, done, total, facts):
        commits.append(phase in ("warmup", "draws"))

    if stage in ("deleted", "half deleted"):
        with monkeypatch.context() as patched:
            patched.setattr(job, "instead", lambda *_: 1 / 0)
            if stage == "half deleted":
                delete = shutil.rmtree
                patched.setattr(
                    shutil,
                    "rmtree",
                    lambda where, **options: (
                        1 / 0 if where.parent == path else delete(where, **options)
                    ),
                )
            with pytest.raises(ZeroDivisionError):
                run_job(RunRequest(store, MODEL, path=path, **SHAPE))
        assert not RunDirectory.exists(path)
    else:
        # one interval of hmc-ecs; or all of its warm-up and one interval of hmc
        wanted = 1 if stage == "hmc-ecs" else 3
        stopped = run_job(
            RunRequest(
                store,
                MODEL,
                path=path,
                progress=count,
                interrupted=lambda: sum(commits) >= wanted,
                **SHAPE,
            )
        )
        assert not stopped.finished
        assert RunDirectory.open(path).attributes["sampler"]["name"] == stage
    again = run_job(RunRequest(store, MODEL, path=path, **SHAPE))
    assert again.summary["parameters"] == whole.summary["parameters"]
    assert again.summary["sampling"]["reason"] == whole.summary["sampling"]["reason"]
