"""``streammc run``: the stages of a job are made, left or resumed, and its end is recorded."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import program, snapshot, streammc
from job_tables import borrowed, outcomes, write_job, write_table

from streammc.trace.run_directory import RunDirectory


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the finished job, which the tests copy."""
    folder = tmp_path_factory.mktemp("job")
    done = streammc("run", write_job(folder), "--json")
    assert 0 == done.code, done.err
    return folder


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_job(tmp_path)


@pytest.fixture
def made(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The finished job in its own folder: its outputs know their inputs by path."""
    monkeypatch.chdir(finished)
    with borrowed(finished, tmp_path / "kept"):
        yield finished


def summary() -> dict[str, Any]:
    return dict(json.loads(Path("work/summary.json").read_text()))


def test_a_job_makes_every_output_and_says_so(made: Path) -> None:
    found = summary()
    assert ("done", 0, None) == tuple(found[name] for name in ("outcome", "exit_code", "error"))
    assert {"ingest": "made", "sample": "made", "predict": "made"} == outcomes(found)
    assert 50 == found["run"]["draws"]
    assert 2000 == found["predictions"]["rows"]
    assert 0 == streammc("verify", "work/run").code
    assert {"C(origin)[T.ORD]", "distance"} <= {name[5:-1] for name in found["run"]["parameters"]}


def test_a_job_scores_its_run_once(made: Path) -> None:
    path = made / "job.toml"
    more = '[outputs]\nscores = "work/scores.json"'
    path.write_text(f"{path.read_text().replace('[outputs]', more)}[score]\nrows = 300\n")
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert ["ingest", "sample", "score", "predict"] == [
        each["stage"] for each in done.json["stages"]
    ]
    alone = streammc("score", "work/run", "--score-rows", "300", "--json").json
    assert alone["elpd_loo"] == done.json["scores"]["elpd_loo"]
    before = snapshot(made)
    assert done.json == streammc("run", "job.toml", "--json").json
    assert before == snapshot(made)


def test_scores_without_a_path_and_with_few_rows_are_faults(made: Path) -> None:
    path = made / "job.toml"
    path.write_text(f"{path.read_text()}[score]\nrows = 5\n")
    done = streammc("check", "job.toml")
    assert 78 == done.code
    assert "score.rows: expected a number of at least 100, found 5" in done.err
    path.write_text(path.read_text().replace("rows = 5", "rows = 100"))
    done = streammc("check", "job.toml")
    assert "outputs.scores: expected a path for the scores of [score], found nothing" in done.err


def test_the_same_job_again_changes_nothing(made: Path) -> None:
    streammc("run", "job.toml")  # a copied table is another file, which the receipt notes
    before = snapshot(made)
    again = streammc("run", "job.toml", "--json")
    assert (0, summary()) == (again.code, again.json)
    assert before == snapshot(made)
    assert "already there" in again.err
    human = streammc("run", "job.toml", "--quiet").out
    assert 3 == human.count(" kept ")


def test_settings_of_the_environment_are_not_those_of_a_job(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMC_DRAWS", "70")
    monkeypatch.setenv("STREAMMC_CONFIG", "nowhere.toml")
    streammc("run", "job.toml")  # a copied table is another file, which the receipt notes
    before = snapshot(made)
    assert 0 == streammc("run", "job.toml").code
    assert before == snapshot(made)


def test_a_stage_that_is_missing_is_made_again(made: Path) -> None:
    before = RunDirectory.open("work/run").digest()
    shutil.rmtree("work/run")
    shutil.rmtree("work/predictions.zarr")
    Path("work/predictions.zarr.config.json").unlink()
    again = streammc("run", "job.toml", "--json")
    assert {"ingest": "kept", "sample": "made", "predict": "made"} == outcomes(again.json)
    assert before == RunDirectory.open("work/run").digest()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": "2"}, "seed"),
        ({"distance": '"normal(0, 2)"'}, "prior"),
        ({"formula": '"late ~ distance"'}, "formula"),
    ],
)
def test_outputs_of_another_job_are_refused(made: Path, change: dict[str, str], named: str) -> None:
    before = snapshot(made / "work" / "run")
    write_job(made, **change)
    again = streammc("run", "job.toml")
    assert 78 == again.code
    assert named in again.err.splitlines()[-1]
    assert before == snapshot(made / "work" / "run")
    assert "overwrite" in json.dumps(summary()["error"])
    checked = streammc("check", "job.toml")
    assert (78, False) == (checked.code, "overwrite" in checked.err), checked.err


def test_a_report_of_another_run_is_refused(made: Path) -> None:
    Path("work/report.html").write_text("<html>of somebody else</html>")
    again = streammc("run", write_job(made, "report = 'work/report.html'\n"))
    assert 78 == again.code, again.err


def test_a_changed_table_is_refused(made: Path) -> None:
    write_table(made / "flights.parquet", seed=2)
    again = streammc("run", "job.toml")
    assert 78 == again.code
    assert "flights.parquet" in again.err.splitlines()[-1]


def test_a_damaged_run_is_refused(made: Path) -> None:
    files = Path("work/run/posterior/beta").rglob("*")
    chunk = next(each for each in files if each.is_file() and each.name != "zarr.json")
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    assert 65 == streammc("run", "job.toml").code
    assert "bad_store" == summary()["error"]["code"]


def test_only_one_process_carries_out_a_job(made: Path) -> None:
    before = snapshot(made)
    with open("job.toml", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        again = program("run", "job.toml", "--json", "--notify", "echo $STREAMMC_OUTCOME >&2")
    assert 75 == again.code
    assert "busy" in again.err.splitlines()[-2] + again.err.splitlines()[-1]
    assert before == snapshot(made)


def test_a_run_that_another_command_samples_is_busy(made: Path) -> None:
    write_job(made, draws="100", predictions="")
    with RunDirectory.open("work/run").lock():
        again = program("run", "job.toml")
    assert 75 == again.code
    assert "busy" == summary()["outcome"]
    assert 0 == streammc("run", "job.toml").code
    assert "done" == summary()["outcome"]


def test_new_rows_are_predicted(made: Path) -> None:
    write_table(made / "new.csv", rows=300, seed=3)
    more = '\n[predict]\nfiles = ["new.csv"]\ndraws = 20\ninterval = 0.8\n'
    path = write_job(made, more, predictions='"work/new-predictions.zarr"\nrows = "work/new.zarr"')
    done = streammc("run", path, "--json")
    assert 0 == done.code, done.err
    assert {"ingest": "kept", "sample": "kept", "rows": "made", "predict": "made"} == outcomes(
        done.json
    )
    assert {"rows": 300, "draws": 20}.items() <= done.json["predictions"].items()
    assert 0 == streammc("run", path).code


def test_control_variates_are_a_stage_of_their_own(made: Path) -> None:
    path = write_job(
        made, predictions="", run='"work/other"\ncontrol_variates = "work/flights.cv.zarr"'
    )
    done = streammc("run", path, "--json")
    assert 0 == done.code, done.err
    assert {"ingest": "kept", "summarize": "made", "sample": "made"} == outcomes(done.json)
    before = snapshot(made)
    assert 0 == streammc("run", path).code
    assert before == snapshot(made)


def test_a_report_is_a_stage_that_is_left_or_renewed(made: Path) -> None:
    pytest.importorskip("matplotlib")
    path = write_job(made, predictions='"work/predictions.zarr"\nreport = "work/report.html"')
    done = streammc("run", path, "--json")
    assert 0 == done.code, done.err
    assert {"predict": "kept", "report": "made"}.items() <= outcomes(done.json).items()
    page = Path("work/report.html").read_text()
    assert "predictions.zarr" in page
    before = snapshot(made)
    assert 0 == streammc("run", path).code
    assert before == snapshot(made)
    with RunDirectory.open("work/run").lock() as run:
        run.set_attributes({"summary": {**run.attributes["summary"], "warnings": ["another"]}})
    done = streammc("run", path, "--json")
    assert {"sample": "kept", "predict": "kept", "report": "renewed"}.items() <= outcomes(
        done.json
    ).items()
    assert page != Path("work/report.html").read_text()
    outputs = '"work/predictions.zarr"\nreport = "work/report.html"'
    path = write_job(made, "\n[report]\ninterval = 0.8\n", predictions=outputs)
    done = streammc("run", path)
    assert 0 == done.code, done.err
    for text in (done.out, Path("work/report.html").read_text()):
        assert "80 % interval" in text


def test_a_report_without_its_packages_is_a_fault_of_the_file(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammc.plots.axes.find_spec", lambda name: None)
    path = write_job(job.parent, predictions='"p.zarr"\nreport = "report.html"')
    done = streammc("run", path)
    assert 78 == done.code
    assert "outputs.report: expected the package jinja2 for a report" in done.err
    assert not Path("work").exists()


def test_a_store_that_exists_needs_no_ingest(made: Path) -> None:
    text = Path("job.toml").read_text()
    text = text.replace('files = ["flights.parquet"]', 'store = "work/flights.zarr"')
    text = text.replace('[ingest]\nformula = "late ~ distance + C(origin)"\n', "")
    text = text.replace('store = "work/flights.zarr"\nrun = "work/run"', 'run = "work/other"')
    Path("other.toml").write_text(text.replace("predictions", "#"))
    done = streammc("run", "other.toml", "--json")
    assert 0 == done.code, done.err
    assert {"sample": "made"} == outcomes(done.json)


def test_a_job_whose_rule_is_not_met_ends_without_predictions(made: Path) -> None:
    shutil.rmtree("work/predictions.zarr")
    Path("work/predictions.zarr.config.json").unlink()
    path = write_job(made, "\n[stop]\ness = 1e9\ndraws = 100\n")
    for _ in range(2):
        done = streammc("run", path, "--json")
        assert 1 == done.code
        assert "missed" == done.json["outcome"] == summary()["outcome"]
        assert {"ingest", "sample"} == set(outcomes(done.json))
        assert "draws" == done.json["run"]["stop"]["ended_by"]
    assert not Path("work/predictions.zarr").exists()
    write_job(made, "\n[stop]\ness = 10\n")
    done = streammc("run", path, "--json")
    assert (0, "rule") == (done.code, done.json["run"]["stop"]["ended_by"])


def test_notify_hears_of_every_end(made: Path) -> None:
    words = ("run", "job.toml", "--quiet", "--notify", "env | grep STREAMMC_ > told")
    assert 0 == streammc(*words).code
    told = dict(line.split("=", 1) for line in Path("told").read_text().splitlines())
    assert ("done", "0") == (told["STREAMMC_OUTCOME"], told["STREAMMC_EXIT_CODE"])
    assert summary()["job"] == told["STREAMMC_JOB"]
    assert summary() == json.loads(Path(told["STREAMMC_SUMMARY"]).read_text())
    write_job(made, seed="2")
    assert 78 == streammc(*words).code
    assert "STREAMMC_OUTCOME=failed" in Path("told").read_text()
    Path("job.toml").write_text("[source")
    assert 78 == streammc(*words).code
    assert "STREAMMC_SUMMARY=\n" in Path("told").read_text()


@pytest.mark.parametrize(("command", "fault"), [("exit 3", "exit code 3"), ("sleep 5", "no end")])
def test_notify_that_fails_is_a_warning(
    made: Path, command: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammc.cli.jobs.job_record.NOTIFY_SECONDS", 0.2)
    done = streammc("run", "job.toml", "--quiet", "--notify", command)
    assert 0 == done.code
    assert fault in done.err
    assert done.err.startswith("streammc: warning: ")


def test_lines_of_the_log_have_job_stage_and_rows(job: Path) -> None:
    done = streammc("run", job, "--log-format", "json", "--heartbeat", "beat.json")
    assert 0 == done.code, done.err
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert {summary()["job"]} == {line["job"] for line in lines}
    assert ["ingest", "sample", "predict"] == list(dict.fromkeys(line["stage"] for line in lines))
    beat = json.loads(Path("beat.json").read_text())
    assert ("ended", "predict", summary()["job"]) == tuple(
        beat[name] for name in ("state", "stage", "job")
    )
    assert 50 == beat["draws"]


def test_faults_of_the_file_are_lines_and_nothing_is_written(job: Path) -> None:
    path = write_job(job.parent, draws="0", seed='"one"')
    before = sorted(os.listdir())
    done = streammc("run", path, "--json")
    assert 78 == done.code
    error = done.json["error"]
    assert ["sampler.draws", "sampler.seed"] == [each["key"] for each in error["problems"]]
    assert 2 == len(done.err.splitlines())
    assert before == sorted(os.listdir())


def test_code_of_its_own_needs_the_flag(job: Path) -> None:
    path = write_job(job.parent, name='"mine:build"')
    done = streammc("run", path, "--quiet")
    assert 2 == done.code
    assert "--allow-code" in done.err


OWN = """
import numpy as np
from streammc.models import user


def build(prior=None):
    return user(
        "own",
        log_lik=lambda eta, y: y * eta[0] - np.logaddexp(0, eta[0]),
        gradient=lambda eta, y: (y - 1 / (1 + np.exp(-eta))),
        hessian=lambda eta, y: (lambda p: -(p * (1 - p))[None])(1 / (1 + np.exp(-eta))),
        prior=prior,
    )
"""


def test_code_of_its_own_runs_with_the_flag(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (job.parent / "mine_for_a_job.py").write_text(OWN)
    path = write_job(job.parent, name='"mine_for_a_job:build"', predictions="")
    for command in ("check", "run", "run"):
        done = streammc(command, path, "--quiet", "--allow-code")
        assert 0 == done.code, done.err


LOADED = """
import contextlib, io, sys
from streammc.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(sys.argv[1:])
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("words", [("run", "--help"), ("check", "--help"), ("run", "--schema")])
def test_help_and_schema_load_nothing_heavy(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", LOADED, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    heavy = {"numba", "scipy", "dask", "zarr", "xarray", "pyarrow", "pandas"}
    assert set() == heavy & set(done.stdout.split())


def test_a_fault_of_the_file_is_found_before_anything_heavy_is_loaded(job: Path) -> None:
    write_job(job.parent, draws="0")
    command = [sys.executable, "-c", LOADED, "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "sampler.draws" in done.stderr
    assert not {"numba", "numpy", "pyarrow"} & set(done.stdout.split())


def test_run_needs_a_file() -> None:
    done = streammc("run")
    assert 2 == done.code
    assert "write streammc run JOB.toml" in done.err
    assert 66 == streammc("run", "nowhere.toml").code


@pytest.mark.slow
def test_a_job_in_a_folder_reached_by_a_link_is_the_same_job(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    outputs = '"work/predictions.zarr"\nreport = "work/report.html"'
    run = '"work/run"\ncontrol_variates = "work/cv.zarr"'
    shutil.rmtree("work")
    path = write_job(made, predictions=outputs, run=run)
    assert 0 == streammc("run", path, "--quiet").code
    (tmp_path / "link").symlink_to(made)
    for folder in (tmp_path / "link", made):
        monkeypatch.chdir(folder)
        for name in (folder / "job.toml", Path("job.toml")):
            done = streammc("run", name, "--json")
            assert 0 == done.code, done.err
            kept = ("ingest", "summarize", "predict")
            assert dict.fromkeys(kept, "kept").items() <= outcomes(done.json).items()


def test_tables_that_are_gone_after_the_job_are_asked_back(made: Path) -> None:
    os.rename("flights.parquet", "archived")
    for command in ("check", "run"):
        done = streammc(command, "job.toml", "--quiet")
        assert 66 == done.code
        assert "source.files[0]: expected the tables of 'work/flights.zarr' to stay" in done.err
        assert "give this store as source.store in place of source.files" in done.err
    os.rename("archived", "flights.parquet")
    assert 0 == streammc("run", "job.toml", "--quiet").code


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_of_a_job_may_be_a_table(job: Path, suffix: str) -> None:
    change = {"predictions": f'"work/p.{suffix}"'}
    path = write_job(job.parent, **change)
    assert 0 == streammc("run", path, "--quiet").code
    first, before = Path(f"work/p.{suffix}").read_bytes(), snapshot(Path("work"))
    assert "made" == outcomes(summary())["predict"]
    assert "there, verified" == streammc("check", path, "--json").json["stages"][-1]["state"]
    assert 0 == streammc("run", path, "--quiet").code
    before.pop("summary.json")
    assert before == {k: each for k, each in snapshot(Path("work")).items() if k in before}
    done = streammc("run", write_job(job.parent, **change, draws="80"), "--json", "--quiet")
    assert (0, "renewed") == (done.code, outcomes(done.json)["predict"]), done.err
    assert first != Path(f"work/p.{suffix}").read_bytes()


def test_tables_that_a_report_cannot_show_and_unknown_suffixes_are_faults(job: Path) -> None:
    for output, text in (("p.csv", "ends in .zarr for the predictions"), ("p.txt", "the suffix")):
        path = write_job(job.parent, predictions=f'"{output}"\nreport = "report.html"')
        done = streammc("check", path, "--json")
        assert 78 == done.code
        (found,) = done.json["error"]["problems"]
        assert ("outputs.predictions", True) == (found["key"], text in found["message"])
