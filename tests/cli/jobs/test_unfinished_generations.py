"""A generation that is not finished when new files come is finished first, or it is said."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import snapshot, streammc
from job_tables import borrowed, write_job, write_table

import streammc as library
from streammc.cli.jobs import job_run
from streammc.trace.run_directory import RunDirectory

OUTPUTS = {
    "files": '["flights.parquet"]\nappend = ["new-*.parquet"]',
    "predictions": '"work/predictions-{generation}.zarr"',
    "run": '"work/run-{generation}"\ncontrol_variates = "work/flights.cv.zarr"',
}
MISSED = "\n[stop]\ness = 1e9\ndraws = 60\n"


def write(folder: Path, more: str = "", **changes: str) -> None:
    write_job(folder, more, **{**OUTPUTS, **changes})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the job of the first generation."""
    folder = tmp_path_factory.mktemp("growing")
    write(folder)
    done = streammc("run", folder / "job.toml", "--json")
    assert 0 == done.code, done.err
    return folder


@pytest.fixture
def here(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job after its first generation, and a file for the second."""
    monkeypatch.chdir(first)
    with borrowed(first, tmp_path / "kept"):
        write_table(first / "new-1.parquet", rows=60, seed=5)
        yield first


def killed(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Run the job, and stop it after a stage."""
    real = job_run.call_stage

    def dies(ctx: Any, output: Any, each: Any, *more: str) -> Any:
        found = real(ctx, output, each, *more)
        if each.name == stage:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(job_run, "call_stage", dies)
    assert 130 == streammc("run", "job.toml", "--quiet").code
    monkeypatch.setattr(job_run, "call_stage", real)


def rows_of(number: int) -> int:
    """Return the rows that predictions of a generation are for."""
    return int(streammc("info", f"work/predictions-{number}.zarr", "--json").json["rows"])


@pytest.mark.parametrize("stage", ["append", "summarize", "sample", "predict"])
def test_a_generation_is_finished_before_the_next_is_appended(
    here: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    killed(monkeypatch, stage)
    write_table(here / "new-2.parquet", rows=50, seed=6)
    plan = streammc("check", "job.toml", "--json").json
    names = [Path(each["output"]).name for each in plan["stages"]]
    assert ("run-2" in names) == (stage != "predict")
    done = streammc("run", "job.toml", "--json")
    assert (0, "done") == (done.code, done.json["outcome"]), done.err
    assert [2060, 2110] == [rows_of(2), rows_of(3)]
    assert all(RunDirectory.open(f"work/run-{n}").finished() for n in (1, 2, 3))
    assert "earlier_generation" not in done.json
    assert 2110 == done.json["predictions"]["rows"]
    after = snapshot(here)
    again = streammc("run", "job.toml", "--json")
    assert (0, done.json, after) == (again.code, again.json, snapshot(here))


def test_the_runs_are_those_of_a_job_that_was_not_killed(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(here / "work", tmp_path / "work")
    killed(monkeypatch, "summarize")
    write_table(here / "new-2.parquet", rows=50, seed=6)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    ours = [RunDirectory.open(f"work/run-{n}").digest() for n in (2, 3)]
    shutil.rmtree("work")
    shutil.copytree(tmp_path / "work", "work")
    os.rename("new-2.parquet", "later")
    assert 0 == streammc("run", "job.toml", "--quiet").code
    os.rename("later", "new-2.parquet")
    assert 0 == streammc("run", "job.toml", "--quiet").code
    assert ours == [RunDirectory.open(f"work/run-{n}").digest() for n in (2, 3)]


def test_a_partial_run_of_other_settings_is_refused_before_anything_is_appended(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, "sample")
    write_table(here / "new-2.parquet", rows=50, seed=6)
    write(here, seed="2")
    done = streammc("run", "job.toml", "--quiet")
    assert 78 == done.code
    assert "run-2" in Path("work/summary.json").read_text()
    assert 2060 == library.open_store("work/flights.zarr").n_rows


def test_a_finished_generation_stays_as_it_is_under_other_settings(here: Path) -> None:
    before = snapshot(here / "work/run-1"), snapshot(here / "work/predictions-1.zarr")
    write(here, "\n[predict]\ndraws = 30\n", draws="70")
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert before == (snapshot(here / "work/run-1"), snapshot(here / "work/predictions-1.zarr"))
    assert 30 == done.json["predictions"]["draws"]


@pytest.mark.parametrize("earlier", ["before", "in this start"])
def test_a_generation_that_missed_its_rule_is_said_and_not_done_over(
    here: Path, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    write(here, MISSED)
    if earlier == "before":
        assert 1 == streammc("run", "job.toml", "--quiet").code
    else:
        killed(monkeypatch, "summarize")
    write_table(here / "new-2.parquet", rows=50, seed=6)
    if earlier == "before":
        before = snapshot(here / "work/run-2")
        write(here)  # the next generation without the rule
        assert "generation 2 to meet its stopping rule" in streammc("check", "job.toml").out
    done = streammc("run", "job.toml", "--json")
    run = str(here / "work/run-2")
    expected = {"generation": 2, "run": run, "outcome": "missed"}
    assert expected == done.json["earlier_generation"]
    assert "expected generation 2 to meet its stopping rule" in done.err
    assert not Path("work/predictions-2.zarr").exists()
    assert 2110 == library.open_store("work/flights.zarr").n_rows
    if earlier == "before":
        assert (0, before) == (done.code, snapshot(here / "work/run-2"))
        assert rows_of(3) == 2110
    else:
        assert (1, "missed") == (done.code, done.json["outcome"])
        assert Path("work/run-3").exists()


def test_a_partial_run_that_was_left_behind_is_said(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, "summarize")
    write(here, draws="200", warmup="60")
    stopped = streammc("run", "job.toml", "--quiet")
    assert 0 == stopped.code
    with RunDirectory.open("work/run-2").lock() as run:
        run.extend(5000)  # as one that was stopped
    append = ("ingest", "--append", "--again", "flights.parquet", "work/flights.zarr")
    assert 0 == streammc(*append, "--quiet").code
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert "not finished" == done.json["earlier_generation"]["outcome"]
    assert "finish it with 'streammc resume" in done.err
    assert json.loads(Path("work/summary.json").read_text()) == done.json
