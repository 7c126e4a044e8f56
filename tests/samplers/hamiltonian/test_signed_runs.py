"""Runs of hmc-ecs-signed end to end: agreement, refusals, summaries."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import streammc

from streammc.errors import RefusedError
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs_signed
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.datatree import open_run

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))
from signed import CRUDE, OPTIONS, crude, moments, rare_claims


def z_scores(ours, reference):
    exact, exact_error, center = moments(reference, None)
    found, error, _ = moments(ours, center)
    return (found - exact) / np.hypot(error, exact_error)


@pytest.fixture(scope="module")
def poor(tmp_path_factory):
    """Few rows and control variates of order 1, and full-data HMC beside it."""
    folder = tmp_path_factory.mktemp("poor")
    store, model = crude()
    run_job(RunRequest(store, model, hmc(), draws=2000, warmup=300, seed=2, path=folder / "hmc"))
    sampler = hmc_ecs_signed(**OPTIONS[CRUDE])
    report = run_job(
        RunRequest(store, model, sampler, draws=20_000, seed=1, path=folder / "signed")
    )
    return folder, report.summary


@pytest.mark.trust(7)
def test_agrees_with_all_rows_where_estimates_are_negative(poor, record_property):
    folder, summary = poor
    negative = summary["sampling"]["negative_signs"]
    assert 0.05 < negative < 0.2
    z = np.abs(z_scores(folder / "signed", folder / "hmc")).max()
    assert z < 4.5
    record_property("figure", f"a run with {negative:.0%} negative signs: z at most {z:.1f}")


def test_ignoring_the_sign_is_noticed(poor):
    from arviz_stats.base import array_stats

    folder, _ = poor
    beta = open_run(folder / "signed")["posterior"]["beta"].to_numpy()
    exact, exact_error, center = moments(folder / "hmc", None)
    z = []
    for j in range(beta.shape[2]):
        values = (beta[:, :, j] - center[j]) ** 2
        error = np.hypot(array_stats.mcse(values, method="mean"), exact_error[1, j])
        z.append((values.mean() - exact[1, j]) / error)
    assert np.abs(z).max() > 5.0


def test_summary_is_weighted_and_diagnose_says_the_same(poor):
    folder, summary = poor
    document = streammc("diagnose", folder / "signed", "--json").json
    assert document["parameters"] == summary["parameters"]
    assert document["sampling"]["mean_sign"] == summary["sampling"]["mean_sign"] < 0.97
    tree = open_run(folder / "signed")
    beta, sign = tree["posterior"]["beta"].to_numpy(), tree["sample_stats"]["sign"].to_numpy()
    signed = (beta * sign[:, :, None]).sum((0, 1)) / sign.sum()
    found = [p["mean"] for p in summary["parameters"].values()]
    np.testing.assert_allclose(found, signed, rtol=1e-12)
    assert np.abs(beta.mean((0, 1)) / found - 1).max() > 1e-4
    shown = streammc("diagnose", folder / "signed")
    assert "mean sign" in shown.out
    assert "of the draws have a negative sign" in shown.err


def test_automatic_settings_agree_with_all_rows_on_rare_claims(tmp_path):
    store, model = rare_claims()
    run_job(RunRequest(store, model, hmc(), draws=2000, warmup=300, seed=2, path=tmp_path / "hmc"))
    report = run_job(
        RunRequest(store, model, hmc_ecs_signed(), draws=5000, seed=1, path=tmp_path / "run")
    )
    assert np.abs(z_scores(tmp_path / "run", tmp_path / "hmc")).max() < 4.5
    assert report.summary["sampling"]["rows_per_iteration"] < 200
    assert report.summary["sampling"]["mean_sign"] > 0.999


@pytest.mark.trust(7)
def test_a_run_whose_signs_cancel_is_refused_while_it_runs_and_again(tmp_path):
    store, model = rare_claims()
    sampler = hmc_ecs_signed(subsample_size=100, soft_bound=50)
    for _ in range(2):
        with pytest.raises(RefusedError, match="expected a mean sign"):
            run_job(RunRequest(store, model, sampler, draws=200, seed=1, path=tmp_path / "run"))


def test_resumed_run_has_the_same_bits(small_job, tmp_path):
    store, model = small_job.in_memory(), logistic(prior=normal(scale=10.0))
    sampler = hmc_ecs_signed(subsample_size=300, minibatch=3, unit_rows=2)
    options = {"draws": 300, "warmup": 200, "chains": 2, "seed": 3}
    run_job(RunRequest(store, model, sampler, path=tmp_path / "whole", **options))
    polled = iter(range(10_000))
    stopped = run_job(
        RunRequest(
            store,
            model,
            sampler,
            path=tmp_path / "parts",
            interrupted=lambda: next(polled) > 12,
            progress=lambda *_: None,  # so that every interval is committed alone
            **options,
        )
    )
    assert not stopped.finished
    run_job(RunRequest(store, model, sampler, path=tmp_path / "parts", **options))
    whole, parts = open_run(tmp_path / "whole"), open_run(tmp_path / "parts")
    for group in ("posterior", "sample_stats"):
        for name, values in whole[group].data_vars.items():
            np.testing.assert_array_equal(values, parts[group][name], err_msg=str(name))


def test_command_line_takes_it_and_refuses_bad_options(tmp_path):
    store = tmp_path / "store.zarr"
    made = ("simulate", "logistic", store, "--rows", "20000", "--dim", "3", "--seed", "1")
    assert 0 == streammc(*made, "--quiet").code
    words = ("sample", store, "-o", tmp_path / "run", "--model", "logistic", "--seed", "1")
    words += ("--sampler", "hmc-ecs-signed", "--draws", "100", "--json")
    for option in ("minibatch=0", "minibatch=x", "soft_bound=nan", "order=3"):
        refused = streammc(*words, "--option", option)
        assert 2 == refused.code, option
        assert "" != json.loads(refused.out)["error"]["message"]
    assert not (tmp_path / "run").exists()
    done = streammc(*words, "--option", "minibatch=2").json
    assert "signed" == done["sampling"]["target"]
    assert 2 == done["sampling"]["minibatch"]
    assert 1.0 == done["sampling"]["mean_sign"]
    assert "weighted by their signs" in streammc("audit", tmp_path / "run").out
