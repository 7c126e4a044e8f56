"""``--stop`` of ``sample`` and ``resume``: exit codes, what is printed, and what is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import snapshot, streammc

SIZE = ("--model", "logistic", "--sampler", "hmc", "--seed", "1", "--warmup", "60", "--chains", "2")
SAMPLE = ("sample", "store.zarr", "-o", "run", *SIZE, "--draws", "50")


def test_a_run_goes_on_until_the_rule_is_met(store: Path) -> None:
    done = streammc(*SAMPLE, "--stop", "ess=300", "--json")
    assert 0 == done.code, done.err
    stop = done.json["stop"]
    assert ("rule", True, {"ess": 300.0, "draws": 100000}) == (
        *(stop[name] for name in ("ended_by", "passed")),
        stop["rule"],
    )
    assert done.json["draws"] == stop["draws"] > 50
    assert "then on until ess=300,draws=100000" in done.err
    assert "50 draws per chain: ess " in done.err
    assert "the stopping rule is met" in done.err
    before = snapshot(Path("run"))
    again = streammc(*SAMPLE, "--stop", "ess=300", "--json")
    assert (0, done.json) == (again.code, again.json)
    assert before == snapshot(Path("run"))
    assert "nothing to do" in again.err
    assert "asked for" not in again.err


@pytest.mark.parametrize(
    ("rule", "end"),
    [("ess=1e9,draws=100", "after 100 draws per chain"), ("ess=1e9,time=1e-9", "by time, 1e-09 s")],
)
def test_a_run_that_misses_the_rule_exits_1_and_says_why(store: Path, rule: str, end: str) -> None:
    for _ in range(2):  # also where there is nothing left to do
        done = streammc(*SAMPLE, "--stop", rule, "--json")
        assert 1 == done.code
        assert f"the run was ended {end}" in done.err.splitlines()[-1]
        assert any(end in line for line in done.json["warnings"])
        assert not done.json["stop"]["passed"]
    assert 0 == streammc("diagnose", "run").code


def test_resume_goes_on_with_the_rule(store: Path) -> None:
    assert 1 == streammc(*SAMPLE, "--stop", "ess=1e9,draws=100").code
    settings = json.loads(Path("run/config.json").read_text())
    assert (50, "ess=1000000000,draws=100") == (settings["draws"], settings["stop"])
    assert 1 == streammc("resume", "run").code
    assert 0 == streammc(*SAMPLE, "--stop", "ess=100").code
    assert 0 == streammc("resume", "run").code
    assert "ess=100,draws=100000" == json.loads(Path("run/config.json").read_text())["stop"]
    assert 0 == streammc(*SAMPLE[:-1], "150").code
    settings = json.loads(Path("run/config.json").read_text())
    assert (150, None) == (settings["draws"], settings.get("stop"))


@pytest.mark.parametrize("rule", ["time=2h", "ess", "speed=3", "rhat=0.9", "ess=1,time=soon"])
def test_a_bad_rule_is_a_usage_error(store: Path, rule: str) -> None:
    done = streammc(*SAMPLE, "--stop", rule)
    assert 2 == done.code
    assert 1 == len(done.err.splitlines())
    assert not Path("run").exists()


def test_a_rule_comes_from_a_file_too(store: Path) -> None:
    Path("job.toml").write_text('[sample]\nstop = "ess=1e9,draws=50"\n')
    assert 1 == streammc(*SAMPLE, "--config", "job.toml").code
