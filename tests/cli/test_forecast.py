"""Forecasts and refusals of ``sample``, ``summarize`` and ``--dry-run`` before any pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import snapshot, streammc

from streammc.cli import execute as dry_run
from streammc.likelihood import blocks as held_rows
from streammc.likelihood import pass_cost
from streammc.stores.store import Store

SAMPLE = ("sample", "store.zarr", "-o", "run", "--model", "logistic", "--draws", "20")
SHORT = (*SAMPLE, "--warmup", "20", "--chains", "1", "--seed", "1")
SUMMARIZE = ("summarize", "store.zarr", "--model", "logistic")
LINE = "a full pass over 3,000 rows x 3 parameters takes about 1 s; one pass is needed"


@pytest.fixture
def before_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is an error."""

    def reduce(*_: object, **__: object) -> None:
        raise AssertionError("a pass was made")

    monkeypatch.setattr(Store, "reduce", reduce)


@pytest.mark.parametrize("words", [SHORT, (*SHORT, "--dry-run"), SUMMARIZE])
def test_a_long_forecast_is_printed_before_the_pass(
    words: tuple[str, ...], store: Path, before_pass: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_cost, "LONG_SECONDS", 0.0)
    done = streammc(*words)
    assert 70 == done.code  # the pass that must not be made
    assert 1 == done.err.count(LINE)
    assert done.err.index(LINE) < done.err.index("a pass was made")


def test_a_short_forecast_is_not_printed(store: Path) -> None:
    done = streammc(*SHORT, "--dry-run")
    assert 0 == done.code, done.err
    assert "a full pass over" not in done.err


def test_a_forecast_in_json_lines_has_its_numbers(
    store: Path, before_pass: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_cost, "LONG_SECONDS", 0.0)
    lines = streammc(*SUMMARIZE, "--log-format", "json").err.splitlines()
    (found,) = [line for line in map(json.loads, lines) if line.get("phase") == "forecast"]
    assert (3000, 3) == (found["rows"], found["parameters"])
    assert found["message"].startswith(LINE)


def test_a_dry_run_makes_no_pass_that_would_be_long(
    store: Path, before_pass: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "LONGEST_SECONDS", 0.0)
    done = streammc(*SHORT, "--dry-run", "--json")
    assert 0 == done.code, done.err
    assert f"no pass was made: {LINE}" in done.err
    found = done.json
    assert (0, None, 3000) == (found["passes"], found["sampler"], found["n_rows"])
    assert found["expected_seconds"] >= 0.0
    assert "beta[x1]" in found["priors"]["parameters"]
    assert "seconds_per_iteration" not in found
    assert not Path("run").exists()


def test_a_dry_run_makes_no_long_pass_of_a_sampler(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = streammc(*SUMMARIZE, "-o", "cv")
    assert 0 == done.code, done.err
    monkeypatch.setattr(Store, "reduce", lambda *_, **__: pytest.fail("a pass was made"))
    words = ("--dry-run", "--json", "--sampler", "laplace", "--control-variates", "cv")
    done = streammc(*SHORT, *words, "--option", "proposals=1000000000")
    assert 0 == done.code, done.err
    assert "no pass was made: the pass of laplace takes about" in done.err
    assert ("laplace", 0) == (done.json["sampler"], done.json["passes"])
    settings = ["dry_run", "sampler", "target", "temperature", "reason", "priors", "n_rows"]
    assert {*settings, "passes", "pass_seconds", "disk_bytes"} == {*done.json}


@pytest.mark.parametrize("words", [SHORT, (*SHORT, "--dry-run"), SUMMARIZE])
def test_too_little_memory_is_refused_before_the_pass(
    words: tuple[str, ...], store: Path, before_pass: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_cost, "available_memory", lambda: 10_000)
    before = snapshot(store.parent)
    done = streammc(*words)
    assert 71 == done.code
    (line,) = [line for line in done.err.splitlines() if line.startswith("streammc: ")]
    assert line.startswith("streammc: expected ")
    assert "found 1e-05 GB available: ingest with fewer columns" in line
    assert before == snapshot(store.parent)


def test_rows_that_hmc_cannot_hold_are_refused_before_the_pass(
    store: Path, before_pass: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_rows, "memory_limit", lambda: 10_000)
    done = streammc(*SHORT, "--sampler", "hmc")
    assert 71 == done.code
    assert "found 3000 rows x 3 features" in done.err
    assert not Path("run").exists()
