"""HMC-ECS at automatic settings against full-data HMC on real data, in small.

The comparison and its bounds are those of ``bench/real_data.py``; only the bound on the
Monte Carlo error is wider, as fewer draws are made.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streammc import from_arrays, models
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from agreement import Bounds, compare
from real_data_sets import REAL_DATA

pytestmark = pytest.mark.slow

BOUNDS = Bounds(mcse=0.06, r_hat=1.02)
ROWS = 20_000


@pytest.fixture(scope="module", params=["flights200k", "htru2", "bike_hour"])
def summaries(request, data_folder, tmp_path_factory):
    design = REAL_DATA[request.param](data_folder)
    every = max(1, len(design.y) // ROWS)  # flights are ordered by time: thin, do not cut
    store = from_arrays(design.X[::every], design.y[::every])
    model = getattr(models, design.model)(prior=normal(scale=10.0))
    folder = tmp_path_factory.mktemp("real")
    return tuple(
        run_job(
            RunRequest(
                store,
                model,
                sampler,
                draws=draws,
                warmup=warmup,
                seed=seed,
                path=folder / sampler.name,
                audit=sampler.name == "hmc-ecs",
            )
        ).summary
        for sampler, draws, warmup, seed in ((hmc_ecs(), 1000, 600, 1), (hmc(), 600, 200, 2))
    )


def test_hmc_ecs_agrees_with_hmc_on_all_rows(summaries):
    ours, reference = summaries
    found = compare(ours, reference, BOUNDS)
    assert found["passed"], found
    assert (
        ours["sampling"]["rows_per_iteration"] < 0.5 * reference["sampling"]["rows_per_iteration"]
    )


@pytest.mark.parametrize("field", ["mean", "sd", "r_hat"])
def test_comparison_notices_one_wrong_coefficient(summaries, field):
    ours, reference = summaries
    label = list(ours["parameters"])[-1]
    wrong = dict(ours["parameters"][label])
    error = {"mean": 0.4 * wrong["sd"], "sd": 0.3 * wrong["sd"], "r_hat": 0.05}[field]
    wrong[field] += error
    changed = {**ours, "parameters": {**ours["parameters"], label: wrong}}
    assert not compare(changed, reference, BOUNDS)["holds"][field]


def test_comparison_notices_the_audit_and_the_noise(summaries):
    ours, reference = summaries
    corrected = {**ours, "audit": {**ours["audit"], "largest_correction": 0.11}}
    assert not compare(corrected, reference, BOUNDS)["holds"]["correction"]
    assert not compare({**ours, "audit": None}, reference, BOUNDS)["holds"]["correction"]
    assert not compare(ours, reference, replace(BOUNDS, mcse=0.001))["holds"]["mcse"]
