"""A sampler of one file and one line in the registry keeps the promises of its family."""

from __future__ import annotations

import math

import numpy as np
import pytest
from acceptance_decisions import decisions
from barker import SIZE, Z, terms
from numba import njit
from penalty_sampler import decide, mh_penalty

from streammc import registry
from streammc.samplers.metropolis.acceptance import M2, TEST_SIGNATURE
from streammc.trace.run_directory import RunDirectory

M, N = 60, 200_000


@njit(TEST_SIGNATURE)
def _without_penalty(settings, facts, kept, draws, memory, carried, reply, table):
    facts[M2] = 0.0
    return decide(settings, facts, kept, draws, memory, carried, reply, table)


def imbalance(test, delta):
    """Log ratio of the acceptance there and back, less Delta, in standard errors."""
    settings, x = mh_penalty().acceptance_test(SIZE, M).settings, terms("normal", 1.0, M)
    there, back = (
        decisions(test, settings, sign * x, n=N, seed=3, delta=sign * delta, replace=True).accepted
        for sign in (1.0, -1.0)
    )
    error = math.sqrt((1.0 - there) / (N * there) + (1.0 - back) / (N * back))
    return (math.log(there / back) - delta) / error


@pytest.mark.parametrize("delta", [0.4, 1.0])
def test_noisy_decisions_are_balanced_and_without_the_penalty_they_are_not(delta):
    assert abs(imbalance(decide, delta)) < Z
    assert abs(imbalance(_without_penalty, delta)) > 2 * Z


@pytest.mark.usefixtures("small_blocks")
def test_a_registered_sampler_runs_stops_and_resumes(small_job, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.SAMPLERS, "mh-penalty", "penalty_sampler:mh_penalty")
    options = {"control_variate": "none", "start": 0.0, "step_size": 0.005}
    settings = {"sampler": mh_penalty(subsample_size=200, **options), "chains": 2}
    data = small_job.in_memory()
    whole = small_job.sample(data, tmp_path / "whole", draws=150, warmup=150, **settings)
    stop = small_job.StopAfter(1)
    options = {"interrupted": stop, "progress": stop.progress, "batch_iterations": 7, **settings}
    small_job.sample(data, tmp_path / "stopped", draws=150, warmup=150, **options)
    small_job.sample(data, tmp_path / "stopped", draws=150, warmup=150, **settings)
    one, other = (RunDirectory.open(tmp_path / name) for name in ("whole", "stopped"))
    assert one.digest() == other.digest()
    checks = mh_penalty().checks(whole.summary)
    assert "rows of a decision" in [check.name for check in checks]
    assert 0.1 < whole.summary["sampling"]["acceptance_rate"] < 0.9
    assert np.isfinite(one.draws_matrix()).all()
