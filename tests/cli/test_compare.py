"""``streammc compare``, and the cost that ``sample`` and ``diagnose`` print."""

from __future__ import annotations

import pytest
from command_line import snapshot, streammc

from streammc.control_variates.expansion import ControlVariates
from streammc.trace.run_directory import RunDirectory

SAMPLE = ("sample", "store.zarr", "--model", "logistic", "--draws", "60", "--warmup", "60")
SMALL = (*SAMPLE, "--chains", "2", "--quiet")


def test_every_row_is_counted(run):
    found = streammc("diagnose", "run", "--json").json
    opened = RunDirectory.open(run)
    passes = ControlVariates.open(run / "control-variates.zarr").certificate["rows_read"]
    counted = {
        "passes": passes,
        "warmup": int(opened.read_group("warmup_sample_stats")["n_rows"].sum()),
        "draws": int(opened.read_group("sample_stats")["n_rows"].sum()),
    }
    assert min(counted.values()) > 0
    total = sum(counted.values())
    assert {**counted, "total": total} == found["sampling"]["evaluations"]
    assert found["cost"]["evaluations"] == found["sampling"]["evaluations"]
    for entry in found["cost"]["parameters"].values():
        assert entry["ct"] == pytest.approx(entry["if"] * total / 120)
    text = streammc("diagnose", "run").out
    assert "inefficiency factor" in text
    assert "rows per independent draw" in text


def test_run_of_an_earlier_version_is_counted_too(run):
    opened = RunDirectory.open(run)
    before = streammc("diagnose", "run", "--json").json
    summary = opened.attributes["summary"]
    del summary["cost"]
    with opened.lock():
        opened.set_attributes({"summary": summary})
    assert before["cost"] == streammc("diagnose", "run", "--json").json["cost"]


def test_unfinished_run_is_counted(run):
    opened = RunDirectory.open(run)
    with opened.lock():
        opened.extend(100)
    found = streammc("diagnose", "run", "--json").json
    assert found["cost"]["evaluations"]["draws"] > 0


def test_runs_are_compared_with_the_first(run):
    assert streammc(*SMALL, "-o", "full", "--sampler", "hmc").code == 0
    before = snapshot(run.parent)
    result = streammc("compare", "run", "full", "--json")
    assert result.code == 0, result.err
    one, two = result.json["runs"]
    assert (one["sampler"], one["target"]) == ("hmc-ecs", "perturbed")
    assert (two["sampler"], two["target"]) == ("hmc", "exact")
    assert {one["rct"][name] for name in ("min", "median", "max")} == {1.0}
    for label, ratio in two["rct"]["parameters"].items():
        exact = two["parameters"][label]["ct"] / one["parameters"][label]["ct"]
        assert ratio == pytest.approx(exact)
        entries = [entry["parameters"][label]["ct_draws"] for entry in (two, one)]
        assert two["rct_draws"]["parameters"][label] == pytest.approx(entries[0] / entries[1])
    assert two["rct_draws"]["median"] > two["rct"]["median"] > 1.0
    text = streammc("compare", "run", "full").out
    assert len(text.splitlines()) == 5
    assert before == snapshot(run.parent)


@pytest.mark.parametrize(
    ("words", "code", "culprit"),
    [
        ("compare", 2, "RUNS"),
        ("compare run nowhere", 66, "nowhere"),
        ("compare run store.zarr", 65, "store.zarr"),
        ("compare run other", 78, "store"),
        ("compare run probit", 78, "model"),
    ],
)
def test_runs_of_other_posteriors_are_refused(run, words, code, culprit):
    if "other" in words:
        more = ("--rows", "500", "--dim", "3", "--seed", "9", "--quiet")
        assert streammc("simulate", "logistic", "other.zarr", *more).code == 0
        assert streammc("sample", "other.zarr", *SMALL[2:], "-o", "other").code == 0
    if "probit" in words:
        assert streammc(*SMALL, "--model", "probit", "-o", "probit").code == 0
    result = streammc(*words.split())
    assert result.code == code, result.err
    assert result.err.count("\n") == 1
    assert culprit in result.err


def test_options_of_scores_without_loo_are_refused(run):
    done = streammc("compare", "run", "--score-rows", "500")
    assert 2 == done.code
    assert "expected --loo beside --score-rows, found none" in done.err
