"""A run of spt: stopped and resumed, its rates per level kept with it."""

import numpy as np
import pytest

from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import spt
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

LEVELS, CHAINS = 3, 2


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(300), rng.normal(size=300)]
    return from_arrays(X, rng.random(300) < 0.5)


def sample(data, path, **options):
    settings = {"draws": 120, "warmup": 90, "chains": CHAINS, "seed": 1, "audit": False}
    sampler = spt(n_levels=LEVELS, n_steps=2, resample=1)
    return run_job(
        RunRequest(data, logistic(prior=normal(2.0)), sampler, path=path, **{**settings, **options})
    )


def test_stopped_in_warmup_and_after_it_the_run_is_the_same(data, tmp_path):
    whole = sample(data, tmp_path / "whole", batch_iterations=7)
    left = [1]

    def progress(phase, *_):
        left[0] -= phase in ("warmup", "draws")

    for commits in (1, 2):
        left[0] = commits
        report = sample(data, tmp_path / "run", interrupted=lambda: left[0] <= 0, progress=progress)
        assert not report.finished
    again = sample(data, tmp_path / "run")
    runs = [RunDirectory.open(tmp_path / name) for name in ("whole", "run")]
    assert runs[0].digest() == runs[1].digest()
    assert whole.summary["tempering"] == again.summary["tempering"]
    kept = runs[1].read_group("tempering")
    assert (CHAINS, LEVELS) == kept["beta"].shape == kept["acceptance_rate"].shape
    assert (CHAINS, LEVELS - 1) == kept["swap_rate"].shape == kept["exchanges_accepted"].shape
    assert (CHAINS,) == kept["restarts"].shape
    np.testing.assert_array_equal(300, kept["rows"][:, 0])
    found = again.summary["tempering"]
    assert kept["restarts"].sum() == found["restarts"]
    np.testing.assert_allclose(kept["swap_rate"].mean(axis=0), found["levels"]["swap_rate"])
    assert set(found.get("warnings", [])) <= set(again.warnings)
