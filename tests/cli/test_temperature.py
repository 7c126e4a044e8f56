"""``--temperature`` in every command that reads the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import PROGRAM, streammc

SAMPLE = ("sample", "store.zarr", "-o", "run", "--model", "logistic", "--chains", "2")
SIZE = ("--seed", "1", "--draws", "60", "--warmup", "60")
HOT = (*SAMPLE, *SIZE, "--temperature", "4")


def test_every_command_names_the_temperature_of_a_tempered_run(store: Path) -> None:
    done = streammc(*HOT, "--json")
    assert 0 == done.code, done.err
    assert (4.0, 4.0) == (done.json["temperature"], done.json["sampling"]["temperature"])
    assert 4.0 == json.loads(Path("run/config.json").read_text())["temperature"]
    assert 4.0 == streammc("info", "run", "--json").json["temperature"]
    assert done.out == streammc("diagnose", "run", "--json").out
    text = streammc("diagnose", "run").out
    assert "posterior at temperature 4: likelihood^(1/4) x prior" in text
    assert streammc("verify", "run").code == 0
    assert streammc("predict", "run", "store.zarr", "-o", "p.zarr", "--quiet").code == 0


def test_no_command_names_the_temperature_at_1(run: Path) -> None:
    found = streammc("diagnose", "run", "--json").json
    assert 1.0 == found["temperature"] == found["sampling"]["temperature"]
    assert "temper" not in streammc("diagnose", "run").out
    words = (*SAMPLE, *SIZE, "--temperature", "1", "--json")
    assert "nothing to do" in streammc(*words).err
    assert "temperature" not in streammc("info", "run", "--json").json["identity"]


def test_tempered_posterior_is_wider(store: Path, run: Path) -> None:
    words = ("--sampler", "hmc", "--draws", "400", "--warmup", "200", "--seed", "2", "--json")
    hot, cold = (
        streammc(*SAMPLE[:2], "-o", name, *SAMPLE[4:], *words, "--temperature", heat).json
        for name, heat in (("hot", "4"), ("cold", "1"))
    )
    for label, entry in cold["parameters"].items():
        assert 1.7 < hot["parameters"][label]["sd"] / entry["sd"] < 2.3, label


def test_resume_extends_at_the_temperature_of_the_run(store: Path) -> None:
    assert 0 == streammc(*HOT, "--quiet").code
    assert 0 == streammc("resume", "run", "--draws", "130", "--quiet").code
    Path("run").rename("resumed")
    assert 0 == streammc(*HOT[:-5], "130", *HOT[-4:], "--quiet").code
    assert digest("run") == digest("resumed")


def digest(run: str) -> str:
    return str(streammc("verify", run, "--json").json["digest"])


def committed() -> int:
    done = streammc("info", "run", "--json")
    return int(done.json["draws"] + done.json["warmup"]) if done.code == 0 else 0


@pytest.mark.slow
def test_a_killed_run_goes_on_at_its_temperature(store: Path) -> None:
    size = ("--seed", "1", "--draws", "4000", "--warmup", "100", "--sampler", "hmc")
    words = (*SAMPLE, *size, "--temperature", "4", "--quiet")
    process = subprocess.Popen([*PROGRAM, *words], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 240.0
    while committed() < 100:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert 100 <= committed() < 4100
    assert 0 == streammc("resume", "run", "--quiet").code
    Path("run").rename("resumed")
    assert 0 == streammc(*words).code
    assert digest("run") == digest("resumed")


def test_an_audit_weighs_against_the_hot_posterior(store: Path) -> None:
    words = (*HOT, "--subsample-size", "100", "--json")
    with_it = streammc(*words, "--audit").json["audit"]
    Path("run").rename("audited")
    assert streammc(*words, "--no-audit").json["audit"] is None
    assert with_it == streammc("audit", "run", "--json").json["audit"]
    assert with_it["largest_correction"] < 0.1


def test_control_variates_keep_their_temperature(store: Path) -> None:
    make = ("summarize", "store.zarr", "--model", "logistic", "-o", "cv", "--json")
    made = streammc(*make, "--temperature", "4")
    assert 4.0 == made.json["temperature"]
    assert made.out == streammc(*make, "--temperature", "4").out
    other = streammc(*make)
    assert (78, 1) == (other.code, other.err.count("temperature"))
    info = streammc("info", "cv", "--json").json
    plain = streammc("info", "store.zarr", "--json").json["fingerprint"]
    assert (4.0, plain) == (info["temperature"], info["store_fingerprint"])
    done = streammc(*HOT, "--control-variates", "cv", "--json")
    assert 0 == done.code, done.err
    assert done.out == streammc("resume", "run", "--json").out
    refused = streammc(*SAMPLE[:2], "-o", "new", *SAMPLE[4:], "--control-variates", "cv")
    assert 78 == refused.code
    assert "at temperature 1, found temperature 4" in refused.err
    assert not Path("new").exists()


def test_another_temperature_is_another_run(store: Path, run: Path) -> None:
    refused = streammc(*HOT)
    assert 78 == refused.code
    assert "temperature is 1.0, asked for 4.0" in refused.err


def test_runs_at_two_temperatures_are_not_compared(store: Path, run: Path) -> None:
    assert 0 == streammc(*SAMPLE[:2], "-o", "hot", *HOT[4:], "--quiet").code
    refused = streammc("compare", "run", "hot")
    assert 78 == refused.code
    assert "found 4 in 'hot' and 1 in 'run'" in refused.err
    assert 0 == streammc("compare", "hot", "hot", "--quiet").code


def test_a_dry_run_is_at_the_temperature(store: Path) -> None:
    done = streammc(*HOT, "--dry-run", "--json")
    assert 0 == done.code, done.err
    assert 4.0 == done.json["temperature"]
    assert not Path("run").exists()


@pytest.mark.parametrize("sampler", ["auto", "hmc", "hmc-ecs", "sgld"])
def test_a_schedule_needs_an_acceptance_test(store: Path, sampler: str) -> None:
    for words in ((), ("--dry-run",)):
        done = streammc(*HOT, "--temperature", "9:40", "--sampler", sampler, *words)
        assert 2 == done.code
        assert f"expected a constant temperature for {sampler}, found '9:40'" in done.err
        assert not Path("run").exists()


def test_a_schedule_ends_at_the_posterior(store: Path) -> None:
    words = (*SAMPLE, *SIZE, "--sampler", "mh", "--temperature", "9:40")
    done = streammc(*words, "--json")
    assert 0 == done.code, done.err
    assert "9:40" == done.json["temperature"] == done.json["sampling"]["temperature"]
    assert "temperature 9:40, then the posterior" in streammc("diagnose", "run").out
    assert 0 == streammc("resume", "run", "--draws", "90", "--quiet").code
    cold = ("--sampler", "hmc", "--quiet")
    assert 0 == streammc(*SAMPLE[:2], "-o", "cold", *SAMPLE[4:], *SIZE, *cold).code
    assert 0 == streammc("compare", "run", "cold").code
    refused = streammc(*words[:-1], "9:41")
    assert (78, True) == (refused.code, "temperature is '9:40', asked for '9:41'" in refused.err)


def test_temperature_is_read_from_file_and_environment(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.toml").write_text("temperature = 4\n")
    found = streammc(*SAMPLE, *SIZE, "--config", "job.toml", "--json").json
    monkeypatch.setenv("STREAMMC_TEMPERATURE", "4.0")
    assert found == streammc(*SAMPLE, *SIZE, "--json").json
