"""``sgld`` and ``sghmc`` as jobs: same bits whatever the resources, resumed, stopped, told."""

import json
import subprocess
import sys

import numpy as np
import pytest
from problems import batch_z

from streammc.errors import RefusedError
from streammc.models import gaussian_mean
from streammc.priors import normal, uniform
from streammc.runs.job import run_job
from streammc.samplers import sghmc, sgld
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.datatree import open_run
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")

JOB = {"subsample_size": 60, "unit_rows": 3, "control_variate": 1}
SAMPLERS = {
    "sgld": sgld(**JOB, decay=0.3),
    "sgld, none": sgld(subsample_size=60, control_variate="none"),
    "sghmc": sghmc(**JOB, noise_estimate="estimated"),
    "sgld, scores": sgld(**JOB, probabilities="scores"),
}


def digest(path):
    return RunDirectory.open(path).digest()


@pytest.mark.parametrize("kind", SAMPLERS)
def test_resources_stops_and_extensions_change_no_bit(small_job, store, tmp_path, kind):
    settings = {"sampler": SAMPLERS[kind], "chains": 2, "warmup": 100}
    small_job.sample(store, tmp_path / "whole", draws=200, **settings)
    whole = digest(tmp_path / "whole")
    options = {"threads": 1, "batch_iterations": 7, **settings}
    small_job.sample(small_job.in_memory(), tmp_path / "other", draws=200, **options)
    assert whole == digest(tmp_path / "other")
    path = tmp_path / "stopped"
    for batch in (1, 4096, 7):
        stop = small_job.StopAfter(1)
        options = {"interrupted": stop, "progress": stop.progress, "batch_iterations": batch}
        small_job.sample(store, path, draws=150, **settings, **options)
    assert 150 == RunDirectory.open(path).committed_warmup + RunDirectory.open(path).committed_draws
    assert small_job.sample(store, path, draws=150, **settings).finished
    assert small_job.sample(store, path, draws=200, **settings).finished
    found = RunDirectory.open(path).draws_matrix()
    assert RunDirectory.open(tmp_path / "whole").draws_matrix().tobytes() == found.tobytes()


def mean_job(sampler, path, rows=4000, **options):
    rng = np.random.default_rng(8)
    data = from_arrays(rng.normal(size=(rows, 2)), np.zeros(rows))
    settings = {"draws": 15_000, "warmup": 500, "chains": 2, "seed": 3, **options}
    return run_job(
        RunRequest(data, gaussian_mean(dim=2, prior=normal()), sampler, path=path, **settings)
    )


def test_a_job_has_the_spread_of_the_closed_form_and_says_that_it_is_biased(tmp_path):
    sampler = sgld(control_variate=0, subsample_size=500, step_size=0.4)
    report = mean_job(sampler, tmp_path / "r", rows=1000)
    sampling = report.summary["sampling"]
    noise = 1000 / 500  # n / m, since the rows have the variance of the model
    expected = (1 + 0.4 * noise / 4) / (1 - 0.4 / 4)
    assert "biased" == sampling["target"]
    assert "biased" in sampling["reason"]
    recorded = sampling["log_lik_variance_mean"]
    assert 0.5 * recorded < sampling["predicted_variance"] < 4.0 * recorded
    assert abs(sampling["predicted_variance_bias"] - (expected - 1)) < 0.05
    ratios = sampling["predicted_variance_ratio"]
    assert ["mu[x0]", "mu[x1]"] == list(ratios)
    assert all(abs(ratio - expected) < 0.05 for ratio in ratios.values())
    assert any("sgld is biased" in line for line in report.warnings)
    assert not any("log_lik_variance" in line for line in report.warnings)
    draws = open_run(report.path)["posterior"]["mu"].values.reshape(-1, 2) * np.sqrt(1000)
    squares = np.square(draws - draws.mean(axis=0)).mean(axis=1)
    assert abs(batch_z(squares, expected)) < 4.5
    assert abs(batch_z(squares, 1.0)) > 9.0
    assert report.summary["audit"] is None


def test_small_predicted_bias_gives_no_warning(tmp_path):
    report = mean_job(sghmc(), tmp_path / "run", draws=1000)
    assert report.summary["sampling"]["predicted_variance_bias"] <= 0.01
    assert not any("biased" in line for line in report.warnings)


def test_a_cut_noise_estimate_is_told(tmp_path):
    options = {"control_variate": 0, "subsample_size": 20, "noise_estimate": "estimated"}
    sampler = sghmc(**options, friction=0.1, step_size=0.1, n_steps=5)
    report = mean_job(sampler, tmp_path / "run", draws=200)
    assert report.summary["sampling"]["noise_clipped"] > 0.5
    assert any("exceeded the friction" in line for line in report.warnings)


def test_a_table_too_small_for_the_plan_is_sampled_with_a_few_rows(tmp_path):
    rng = np.random.default_rng(9)
    X = rng.normal(size=(80, 6)) * 3.0
    from streammc.models import poisson

    data = from_arrays(X, rng.poisson(np.exp(0.1 * X.sum(axis=1))))
    report = run_job(
        RunRequest(data, poisson(), sgld(), draws=100, warmup=50, chains=1, path=tmp_path / "r")
    )
    assert 30 == report.summary["sampling"]["subsample_size"]
    assert "30 rows at a time, since" in report.summary["sampling"]["reason"]


def test_decreasing_steps_are_told_to_be_weights(tmp_path):
    report = mean_job(sgld(decay=0.55), tmp_path / "run", draws=200)
    assert any("weight the draws by step_size" in line for line in report.warnings)
    sizes = open_run(report.path)["sample_stats"]["step_size"].values
    assert (np.diff(sizes) < 0.0).all()


@pytest.mark.parametrize("build", [sgld, sghmc])
def test_a_prior_with_walls_ends_the_run_at_the_wall(tmp_path, build):
    data = from_arrays(np.random.default_rng(8).normal(size=(4000, 2)), np.zeros(4000))
    model = gaussian_mean(dim=2, prior=uniform(-0.01, 0.05))
    with pytest.raises(RefusedError, match="a prior without bounds"):
        run_job(
            RunRequest(data, model, build(), draws=500, chains=1, seed=1, path=tmp_path / "run")
        )


def test_a_run_that_diverges_ends_with_one_line_and_no_draws(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(RefusedError, match="finite positions") as raised:
        mean_job(sgld(step_size=8.0), path)
    assert 65 == raised.value.exit_code
    assert "\n" not in str(raised.value)
    assert 0 == RunDirectory.open(path).committed_warmup


@pytest.mark.slow
def test_the_command_line_runs_them_and_exits_65_where_a_step_is_too_long(store, tmp_path):
    command = [sys.executable, "-m", "streammc.cli", "sample", store.address]
    command += ["--model", "logistic", "--draws", "60", "--warmup", "50", "--chains", "1"]
    command += ["--sampler", "sghmc", "--seed", "1", "--subsample-size", "60", "--json"]
    named = [*command, "--option", "control_variate=none", "--option", "preconditioner=laplace"]
    done = subprocess.run(
        [*named, "-o", tmp_path / "run"], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    document = json.loads(done.stdout)
    assert ("sghmc", "biased") == (document["sampler"], document["sampling"]["target"])
    assert document["sampling"]["predicted_variance_bias"] is not None
    far = [*command, "--step-size", "9", "--option", "n_steps=40", "-o", tmp_path / "far"]
    done = subprocess.run(far, capture_output=True, text=True, check=False)
    assert 65 == done.returncode
    assert "expected finite positions" in done.stderr
    audit = [sys.executable, "-m", "streammc.cli", "audit", tmp_path / "run", "--json"]
    done = subprocess.run(audit, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert json.loads(done.stdout)["audit"] is None
    assert "no weights lead from what sghmc samples" in done.stderr
