"""Contract of every sampler: what warm-up adapts stays as it is through the draws.

A chain that goes on adapting has no invariant density. The samplers that store past
positions (``mintee``) are held to their step sizes, their levels and their temperatures.
"""

from __future__ import annotations

import numpy as np
import pytest
from crossed_tables import SAMPLERS_OF_ROWS

from streammc.control_variates import resolved
from streammc.models import logistic
from streammc.registry import sampler as builder
from streammc.runs.job import run_job
from streammc.runs.setup import decide
from streammc.samplers import mh, mh_fixed
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

WARMUP, DRAWS = 60, 40
ADAPTED = ("tuning", "adapt", "shape", "learn", "step", "beta", "power", "temperature", "levels")
"""How the names of arrays begin that hold what warm-up adapts."""
ROUGH = {"control_variate": "none", "covariance": "identity", "subsample_size": 5}
CASES = {
    **{name: {"jitter": 0.0} if name.startswith("hmc") else {} for name in SAMPLERS_OF_ROWS},
    **{f"mh-fixed, {remedy}": {"remedy": remedy} for remedy in ("heat", "shrink", "grow")},
    "mh-fixed, heat, smoothed": {"remedy": "heat", "smoothing": 0.5},
    "mh, learnt shape": {"control_variate": "none", "covariance": "full"},
    "pt, adapted": {"ladder": "adapted", "n_levels": 4},
    "tt, adapted": {"ladder": "adapted", "n_levels": 4},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(300), rng.normal(size=300)]
    return from_arrays(X, (rng.random(300) < 1 / (1 + np.exp(-2.0 * X[:, 1]))).astype(float))


@pytest.mark.parametrize("case", CASES)
def test_nothing_adapts_through_the_draws(data, case):
    name, _, rest = case.partition(",")
    options = CASES[case] | ({**ROUGH, "step_size": 1.0} if name == "mh-fixed" and rest else {})
    request = RunRequest(
        data, resolved(logistic(), data), builder(name)(**options), warmup=WARMUP, seed=1, chains=1
    )
    setup = decide(request)
    problem = setup.sampler.problem(request, setup)
    kernel = problem.kernel(1, 0)
    kernel.initialise()
    kernel.advance(WARMUP, True)
    found = [kernel.advance(1, False)]
    before = kernel.get_state()[0]
    found.append(kernel.advance(DRAWS, False))
    after = kernel.get_state()[0]
    adapted = [key for key in before if key.split("_")[-1].startswith(ADAPTED)]
    for key in adapted:
        np.testing.assert_array_equal(before[key], after[key], err_msg=key)
    for column in {"step_size", "temperature"} & set(found[0]):
        values = np.concatenate([part[column] for part in found])
        assert values.min() == values.max(), column


@pytest.mark.parametrize("remedy", ["heat", "shrink"])
def test_remedies_of_mh_fixed_change_the_warmup_and_not_the_draws(data, remedy, tmp_path):
    sampler = mh_fixed(**ROUGH, remedy=remedy, step_size=1.0)
    options = {"chains": 3, "warmup": 100, "draws": 100, "seed": 4, "path": tmp_path / "run"}
    report = run_job(RunRequest(data, logistic(), sampler, **options))
    run = RunDirectory.open(tmp_path / "run")
    column = "temperature" if remedy == "heat" else "step_size"
    warmup = run.read_group("warmup_sample_stats")[column]
    draws = run.read_group("sample_stats")[column]
    assert (warmup[:, 0] != warmup[:, -1]).all()
    np.testing.assert_array_equal(draws, np.repeat(draws[:, :1], 100, axis=1))
    said = [line for line in report.warnings if "raised the temperature" in line]
    sampling = report.summary["sampling"]
    if remedy == "heat":
        assert sampling["temperatures"] == list(draws[:, 0])
        assert sampling["temperature"] == draws.max() > 1.0
        assert sampling["temperature_asked"] == 1.0
        assert "tempered posterior" in said[0]
    else:
        assert sampling["temperature"] == 1.0
        assert not said


def test_a_schedule_is_no_remedy(data, tmp_path):
    options = {"chains": 1, "warmup": 5, "draws": 10, "seed": 4, "temperature": "50:sqrt"}
    report = run_job(
        RunRequest(data, logistic(), mh(step_size=0.1), path=tmp_path / "run", **options)
    )
    assert report.summary["sampling"]["temperature"] == "50:sqrt"
    assert "temperatures" not in report.summary["sampling"]
