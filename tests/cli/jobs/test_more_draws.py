"""A finished job that asks for more draws: what follows from its run is renewed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import snapshot, streammc
from job_tables import borrowed, outcomes, write_job

from streammc.cli.receipt import Receipt, made_by
from streammc.trace.run_directory import RunDirectory

OUTPUTS = '"work/predictions.zarr"\nscores = "work/scores.json"'
SCORE = "\n[score]\nrows = 200\n"


def job(folder: Path, more: str = "", **changes: str) -> Path:
    return write_job(folder, SCORE + more, **{"predictions": OUTPUTS, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the job of 50 draws, finished."""
    folder = tmp_path_factory.mktemp("draws")
    done = streammc("run", job(folder), "--json")
    assert 0 == done.code, done.err
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The finished job in its own folder: its outputs know their inputs by path."""
    monkeypatch.chdir(finished)
    with borrowed(finished, tmp_path / "kept"):
        yield finished


def states(found: dict[str, Any]) -> dict[str, str]:
    return {each["stage"]: each["state"] for each in found["stages"]}


KEPT = {"ingest": "kept", "sample": "kept", "score": "kept", "predict": "kept"}
RENEWED = {"ingest": "kept", "sample": "resumed", "score": "renewed", "predict": "renewed"}


def test_scores_and_predictions_of_a_run_with_more_draws_are_renewed(here: Path) -> None:
    before = {name: made_by(f"work/{name}") for name in ("predictions.zarr", "scores.json")}
    job(here, draws="80")
    plan = states(streammc("check", "job.toml", "--json").json)
    assert plan["sample"].startswith("partial")
    assert {"there, to be renewed"} == {plan["score"], plan["predict"]}
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert outcomes(done.json) == RENEWED
    assert 160 == done.json["predictions"]["draws"]  # all of both chains
    assert all(each != made_by(f"work/{name}") for name, each in before.items())
    alone = streammc("score", "work/run", "--score-rows", "200", "--json").json
    assert alone["elpd_loo"] == done.json["scores"]["elpd_loo"]
    after = snapshot(here)
    assert outcomes(streammc("run", "job.toml", "--json").json) == RENEWED  # the same summary
    assert after == snapshot(here)
    plan = states(streammc("check", "job.toml", "--json").json)
    assert {"there, verified"} == {plan["ingest"], plan["score"], plan["predict"]}


def test_the_job_of_fewer_draws_goes_on_with_the_longer_run(here: Path) -> None:
    job(here, draws="80")
    assert 0 == streammc("run", "job.toml", "--quiet").code
    job(here)
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert outcomes(done.json) == KEPT
    assert 80 == RunDirectory.open("work/run").committed_draws


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("[predict]\ninterval = 0.8\n", "found other 'interval'"),
        ("score", "found other 'rows'"),
        ("edited", "as it was made, found another fingerprint"),
        ("foreign", "and not from this command"),
    ],
)
def test_others_are_refused_before_the_run_gets_draws(here: Path, change: str, named: str) -> None:
    path = job(here, change if change.startswith("[") else "", draws="80")
    if change == "score":
        path.write_text(path.read_text().replace("rows = 200", "rows = 300"))
    elif change == "edited":
        Path("work/scores.json").write_text("{}")
    elif change == "foreign":
        os.unlink("work/predictions.zarr.config.json")
    before = snapshot(here / "work/run")
    planned = streammc("check", "job.toml", "--quiet")
    done = streammc("run", "job.toml", "--quiet")
    assert (78, 78) == (planned.code, done.code)
    assert named in planned.err
    assert named in done.err
    assert before == snapshot(here / "work/run")


@pytest.mark.parametrize("stage", ["score", "predict"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("then", ["80", "100"])
def test_killed_while_an_output_is_renewed_the_job_goes_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, stage: str, after: bool, then: str
) -> None:
    real = Receipt.marked

    def dies(self: Receipt, make: Any) -> dict[str, Any]:
        if self._asked["command"] != stage:
            return real(self, make)
        if after:
            real(self, make)
        raise KeyboardInterrupt

    job(here, draws="80")
    monkeypatch.setattr(Receipt, "marked", dies)
    assert 130 == streammc("run", "job.toml", "--quiet").code
    assert 130 == streammc("run", "job.toml", "--quiet").code or after
    monkeypatch.setattr(Receipt, "marked", real)
    job(here, draws=then)
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert 2 * int(then) == done.json["predictions"]["draws"]
    for name in ("predictions.zarr", "scores.json"):
        kept = json.loads(Path(f"work/{name}.config.json").read_text())
        assert int(then) == kept["asked"]["committed draws"]
        assert kept["made_by"] == made_by(f"work/{name}")
        assert "replaces" not in kept


def test_a_command_alone_refuses_the_output_of_fewer_draws(here: Path) -> None:
    job(here, draws="80", predictions='"work/other.zarr"\nscores = "work/other.json"')
    assert 0 == streammc("run", "job.toml", "--quiet").code
    words = ("predict", "work/run", "work/flights.zarr", "-o", "work/predictions.zarr")
    done = streammc(*words, "--quiet")
    assert 78 == done.code
    assert "found other 'committed draws'" in done.err


def test_outputs_that_were_deleted_are_made_though_their_receipts_stay(here: Path) -> None:
    os.unlink("work/scores.json")
    for name in ("flights.zarr", "run", "predictions.zarr"):
        shutil.rmtree(f"work/{name}")
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert dict.fromkeys(KEPT, "made") == outcomes(done.json)
