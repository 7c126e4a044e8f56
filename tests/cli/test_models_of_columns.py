"""Mixtures and the network from a table, or a simulation, to a posterior."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import streammc

FEW = ("--draws", "200", "--warmup", "200", "--chains", "2", "--seed", "1", "--quiet", "--json")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(*words):
    result = streammc(*words)
    assert result.code == 0, result.err
    return result


def prior_of(run):
    from streammc.trace.run_directory import RunDirectory

    return RunDirectory.open(run, verify=False).identity["model"]["prior"]


def test_tied_mixture_of_a_table_is_reported_on_both_scales(place):
    rng = np.random.default_rng(0)
    x = 100.0 + 10.0 * (np.sqrt(2.0) * rng.normal(size=3000) + 6.0 * rng.integers(0, 2, 3000))
    np.savetxt("t.csv", x, header="x", comments="")
    done("ingest", "t.csv", "g", "--no-intercept", "--quiet")
    from streammc.stores import open_store

    scale = open_store("g").attributes["standardization"]["scale"][0]
    option = f"variance={200.0 / scale**2!r}"
    model = ("--model", "gaussian-mixture-tied", "--option", option)
    found = done("sample", "g", "-o", "r", *model, "--sampler", "hmc", *FEW).json
    assert list(found["parameters"]) == ["theta1", "theta2"]
    original = found["parameters_original"]
    for name, truth in (("theta1", 100.0), ("theta2", 60.0)):
        assert abs(original[name]["mean"] - truth) < 4.5 * original[name]["sd"]
        assert original[name]["sd"] < 2.0
    scales = {name: prior["scale"] for name, prior in prior_of("r")["priors"].items()}
    assert scales == {"theta1": 10.0**0.5, "theta2": 1.0}


def test_tied_means_take_the_priors_that_are_named(place):
    done("simulate", "mixture-tied", "s", "--rows", "2000", "--dim", "1", "--seed", "1", "--quiet")
    sample = ("sample", "s", "--model", "gaussian-mixture-tied", "--sampler", "hmc", "--no-audit")
    done(*sample, "-o", "a", *FEW, "--prior", "theta1=normal(0, 2)")
    scales = {name: prior["scale"] for name, prior in prior_of("a")["priors"].items()}
    assert scales == {"theta1": 2.0, "theta2": 1.0}
    done(*sample, "-o", "b", *FEW, "--prior-scale", "3")
    assert prior_of("b")["scale"] == 3.0
    kept = [json.loads(Path(run, "config.json").read_text())["prior_scale"] for run in "ab"]
    assert kept == [None, 3.0]
    again = done(*sample, "-o", "a", *FEW, "--prior", "theta1=normal(0, 2)")
    assert again.json["parameters"] == done("diagnose", "a", "--json").json["parameters"]


def test_mixture_of_a_simulation(place):
    done("simulate", "mixture", "s", "--rows", "3000", "--dim", "2", "--seed", "2", "--quiet")
    options = ("--option", "components=3", "--option", "dim=2")
    words = ("sample", "s", "-o", "r", "--model", "gaussian-mixture", *options, *FEW)
    found = done(*words).json["parameters"]
    from streammc.stores import open_store

    truth = np.reshape(open_store("s").attributes["simulation"]["theta"], (3, 2))
    mean = np.array([entry["mean"] for entry in found.values()]).reshape(3, 2)
    assert list(found)[:3] == ["mu[0, x1]", "mu[0, x2]", "mu[1, x1]"]
    distance = np.abs(mean[:, None] - truth[None]).max(axis=2)
    assert (distance.min(axis=0) < 0.3).all()


def test_network_of_a_simulation(place):
    done("simulate", "network", "s", "--rows", "2000", "--dim", "3", "--seed", "2", "--quiet")
    words = ("sample", "s", "-o", "r", "--model", "network", "--option", "hidden=[2]")
    found = done(*words, "--sampler", "hmc", *FEW).json["parameters"]
    assert next(iter(found)) == "beta[0, Intercept]"
    assert len(found) == 2 * 3 + 3
    assert prior_of("r")["scale"] == 1.0


def test_two_columns_for_tied_means_are_one_line(place):
    done("simulate", "mixture", "s", "--rows", "100", "--dim", "2", "--seed", "2", "--quiet")
    result = streammc("sample", "s", "-o", "r", "--model", "gaussian-mixture-tied", *FEW)
    assert result.code == 2
    assert "expected one column, found 2 (x1, x2)" in result.out + result.err


def test_free_mixture_of_a_table_is_reported_on_both_scales(place):
    rng = np.random.default_rng(0)
    first = rng.random(2000) < 0.3
    x = np.where(first, rng.normal(-20.0, 5.0, 2000), rng.normal(30.0, 10.0, 2000))
    np.savetxt("t.csv", x, header="x", comments="")
    done("ingest", "t.csv", "g", "--no-intercept", "--quiet")
    model = ("--model", "gaussian-mixture-free", "--option", "concentration=[5, 5]")
    found = done("sample", "g", "-o", "r", *model, "--sampler", "hmc", *FEW).json
    assert list(found["parameters"]) == ["mu[0]", "mu[1]", "sigma[0]", "sigma[1]", "weight[0]"]
    truth = dict(zip(found["parameters"], (-20.0, 30.0, 5.0, 10.0, 0.3), strict=True))
    for name, value in truth.items():
        entry = found["parameters_original"][name]
        assert abs(entry["mean"] - value) < 4.5 * entry["sd"], name
        assert entry["sd"] < 1.0


def test_process_of_a_simulation(place):
    words = ("--rows", "40", "--dim", "1", "--seed", "2", "--quiet")
    done("simulate", "gaussian-process", "s", *words)
    model = ("--model", "gaussian-process", "--prior", "sigma_n=half_normal(1)")
    levels = ("--option", "n_levels=2")
    found = done("sample", "s", "-o", "r", *model, "--sampler", "pt", *levels, *FEW).json
    assert list(found["parameters"]) == ["length_scale[x1]", "sigma_f", "sigma_n"]
    from streammc.stores import open_store

    truth = np.exp(open_store("s").attributes["simulation"]["theta"])
    for entry, value in zip(found["parameters"].values(), truth, strict=True):
        assert abs(entry["mean"] - value) < 4.5 * entry["sd"]


@pytest.mark.parametrize(
    "words", [("sample", "s", "-o", "r", "--sampler", "hmc"), ("summarize", "s", "-o", "r")]
)
def test_row_wise_sampler_refuses_a_gaussian_process_in_one_line(place, words):
    done(
        "simulate", "gaussian-process", "s", "--rows", "40", "--dim", "1", "--seed", "2", "--quiet"
    )
    result = streammc(*words, "--model", "gaussian-process", "--quiet")
    assert result.code == 2
    assert "sample it with pt, tt, spt or stt" in result.err
    assert not (place / "r").exists()
