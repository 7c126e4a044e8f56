"""Outputs of a job with ``{date}`` and ``{hash}``, those that stay, and those that are replaced."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import snapshot, streammc
from job_tables import outcomes, write_job, write_table

from streammc.stores import open_store
from streammc.trace.run_directory import RunDirectory

NIGHTLY = {"store": '"work/{date}/flights.zarr"', "run": '"work/{date}/run"', "predictions": ""}
BY_INPUT = {
    "store": '"work/flights-{hash}.zarr"',
    "run": '"work/run-{hash}"',
    "predictions": '"work/of-{hash}.csv"',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def night(day: int) -> Any:
    done = streammc("run", "job.toml", "--date", f"2026-01-{day:02d}", "--json")
    assert 0 == done.code, done.err
    return done


def stages_left(*options: str) -> int:
    """Run the job once more; return how many stages left their output as it was."""
    return streammc("run", "job.toml", *options, "--quiet").out.count(" kept ")


def days(found: dict[str, Any]) -> list[str]:
    return [each["words"]["{date}"] for each in found["sets"]]


def nights() -> list[str]:
    return sorted(each.name for each in Path("work").iterdir() if each.is_dir())


def test_every_night_has_outputs_of_its_own_and_the_oldest_go(folder: Path) -> None:
    write_job(folder, "\nkeep = 2\n", **NIGHTLY)
    checked = streammc("check", "job.toml", "--date", "2026-01-01")
    assert "work/2026-01-01/run" in checked.out, checked.err
    for day in (1, 2):
        night(day)
    before = snapshot(folder)
    assert 2 == stages_left("--date", "2026-01-02")
    assert before == snapshot(folder)
    night(3)
    assert ["2026-01-02", "2026-01-03"] == nights()
    assert ["2026-01-02", "2026-01-03"] == days(night(3).json)
    made_up = night(1)  # a missed day is older than the others, but stays until the next night
    assert ["2026-01-01", "2026-01-02", "2026-01-03"] == days(made_up.json) == nights()
    night(4)
    assert ["2026-01-03", "2026-01-04"] == nights()
    assert [] == list(Path("work").glob(".*"))


def test_the_table_of_the_day_is_taken(folder: Path) -> None:
    write_job(folder, **NIGHTLY, files='["flights-{date}.parquet"]')
    for day, rows in ((1, 400), (2, 500)):
        write_table(folder / f"flights-2026-01-0{day}.parquet", rows)
    night(2)
    assert 500 == open_store("work/2026-01-02/flights.zarr").n_rows
    done = streammc("run", "job.toml", "--date", "2026-01-03")
    assert (66, True) == (done.code, "flights-2026-01-03.parquet" in done.err), done.err
    assert ["2026-01-02"] == nights()


def test_what_is_not_an_output_of_this_job_is_left(folder: Path) -> None:
    write_job(folder, "\nkeep = 1\n", **NIGHTLY)
    Path("work/2026-01-01").mkdir(parents=True)
    Path("work/2026-01-01/run").write_text("notes")  # of nobody's job, and in no summary
    night(2)
    Path("work/2026-01-02/notes.txt").write_text("mine")
    done = night(3)
    assert ["2026-01-01", "2026-01-02", "2026-01-03"] == nights()
    assert ["notes.txt"] == os.listdir("work/2026-01-02")
    os.replace("work/2026-01-03/run", "work/elsewhere")
    Path("work/2026-01-03/run").mkdir()
    Path("work/2026-01-03/run/thesis.txt").write_text("mine")
    done = night(4)
    assert "something else than an output of streammc: it is left" in done.err
    assert Path("work/2026-01-03/run/thesis.txt").exists()
    assert ["2026-01-03", "2026-01-04"] == days(done.json)
    with RunDirectory.open("work/2026-01-04/run").lock():
        assert "locked by another process" in night(5).err
    assert Path("work/2026-01-04/run/zarr.json").exists()


def test_a_summary_of_another_file_lets_nothing_be_deleted(folder: Path) -> None:
    write_job(folder, "\nkeep = 1\n", **NIGHTLY)
    night(1)
    os.rename("job.toml", "other.toml")
    done = streammc("run", "other.toml", "--date", "2026-01-02")
    assert 0 == done.code, done.err
    assert ["2026-01-01", "2026-01-02"] == nights()


def test_other_inputs_have_other_outputs(folder: Path) -> None:
    write_job(folder, **BY_INPUT)
    first = streammc("run", "job.toml", "--json")
    assert 0 == first.code, first.err
    before = snapshot(folder)
    assert 3 == stages_left()
    assert before == snapshot(folder)
    write_table(folder / "flights.parquet", seed=2)
    second = streammc("run", "job.toml", "--json")
    assert {"made"} == set(outcomes(second.json).values()), second.err
    assert 2 == len(list(Path("work").glob("run-*"))) == len(second.json["sets"])


def test_outputs_of_other_inputs_are_replaced_where_that_is_asked(folder: Path) -> None:
    more = "\nscores = 'work/scores.json'\n[score]\nrows = 300\n"
    job = write_job(folder, more, control_variates="")
    assert 0 == streammc("run", "job.toml").code
    write_table(folder / "flights.parquet", seed=2)
    before = snapshot(folder / "work")
    refused = streammc("run", "job.toml")
    assert 78 == refused.code
    last = refused.err.splitlines()[-1]
    assert all(word in last for word in ("--overwrite", "{hash}")), last
    assert {**before, "summary.json": 0} == {**snapshot(folder / "work"), "summary.json": 0}
    done = streammc("run", "job.toml", "--overwrite", "--json")
    assert {"replaced"} == set(outcomes(done.json).values()), done.err
    assert 4 == stages_left("--overwrite")
    job.write_text(job.read_text().replace("work/", "fresh/"))
    assert 0 == streammc("run", "job.toml").code
    digests = {RunDirectory.open(f"{each}/run").digest() for each in ("work", "fresh")}
    assert 1 == len(digests)
    kept = [json.loads(Path(f"{each}/scores.json").read_text()) for each in ("work", "fresh")]
    assert kept[0]["elpd_loo"] == kept[1]["elpd_loo"]


@pytest.mark.parametrize(
    ("more", "changes", "line"),
    [
        ("", {"run": '"run-{time}"'}, "outputs.run: expected {date}, {hash}, {generation}"),
        ("\nkeep = 2\n", {}, "outputs.keep: expected {date}, {hash} or {generation} in a path"),
        ("\nkeep = 0\n", NIGHTLY, "outputs.keep: expected a number of at least 1"),
        ("\nkeep = 2\n", {**NIGHTLY, "summary": '"{date}.json"'}, "outputs.summary: expected one"),
        ("\nkeep = 2\n", {**NIGHTLY, "store": '"{hash}.zarr"'}, "expected the same words in all"),
        (
            "\nkeep = 2\n",
            {"run": '"s3://a/{date}"'},
            "outputs.keep: expected paths on",
        ),
        ("", {**NIGHTLY, "files": '["a.csv"]\nappend = ["b-*.csv"]'}, "beside source.append"),
    ],
)
def test_words_of_paths_that_cannot_be(
    folder: Path, more: str, changes: dict[str, str], line: str
) -> None:
    write_job(folder, more, **changes)
    done = streammc("check", "job.toml")
    assert 78 == done.code
    assert line in done.err, done.err


def test_a_date_is_a_day(folder: Path) -> None:
    write_job(folder)
    done = streammc("check", "job.toml", "--date", "yesterday")
    assert (2, True) == (done.code, "expected a day such as 2026-01-31" in done.err), done.err


def test_only_what_the_job_itself_made_is_deleted(folder: Path) -> None:
    write_job(folder, "\nkeep = 1\n", **NIGHTLY)
    text = Path("job.toml").read_text()
    own = text.replace("work/summary.json", "other.json").replace("keep = 1", "keep = 9")
    Path("other.toml").write_text(own)
    assert 0 == streammc("run", "other.toml", "--date", "2026-01-01").code
    night(1)  # keeps the store and the run that the other job has made
    night(2)
    assert ["2026-01-01", "2026-01-02"] == nights()
    Path("elsewhere").mkdir()
    os.rename("work/2026-01-02", "elsewhere/02")
    Path("work/2026-01-02").symlink_to("../elsewhere/02")
    assert "a link where it was: it is left" in night(3).err
    assert Path("elsewhere/02/run/zarr.json").exists()
    Path("job.toml").write_text(text.replace("work/{date}", "elsewhere/{date}"))
    Path("elsewhere/2026-01-03").mkdir()
    night(4)  # the edit changes what is made, not what was made
    assert not Path("work/2026-01-03/run").exists()
    assert Path("elsewhere/2026-01-03").exists()


def test_nights_that_fail_do_not_count(folder: Path) -> None:
    write_job(folder, "\nkeep = 1\n", **NIGHTLY)
    night(1)
    good = Path("flights.parquet").read_bytes()
    Path("flights.parquet").write_bytes(good[:500])
    for day in ("2026-01-02", "2026-01-03"):
        assert 65 == streammc("run", "job.toml", "--date", day).code
    assert Path("work/2026-01-01/run/zarr.json").exists()
    Path("flights.parquet").write_bytes(good)
    night(4)
    assert not Path("work/2026-01-01/run").exists()


@pytest.mark.parametrize(
    "edit", [[{"{date}": 20260101}], [{"words": {"w": "../other"}, "done": True, "outputs": []}], 3]
)
def test_a_summary_that_was_edited_is_no_licence(folder: Path, edit: Any) -> None:
    write_job(folder, "\nkeep = 1\n", **NIGHTLY)
    night(1)
    summary = json.loads(Path("work/summary.json").read_text())
    Path("work/summary.json").write_text(json.dumps({**summary, "sets": edit}))
    assert ["2026-01-02"] == days(night(2).json)
    assert ["2026-01-01", "2026-01-02"] == nights()


def test_a_summary_of_two_jobs_cannot_say_what_goes(folder: Path) -> None:
    write_job(folder, "\nkeep = 1\n", **NIGHTLY)
    Path("b.toml").write_text(Path("job.toml").read_text().replace("work/{date}", "b/{date}"))
    night(1)
    done = streammc("run", "b.toml", "--date", "2026-01-01")
    assert (78, True) == (done.code, "a summary of this job alone" in done.err), done.err


def test_nothing_is_replaced_where_a_later_output_cannot_be(folder: Path) -> None:
    write_job(folder)
    assert 0 == streammc("run", "job.toml").code
    shutil.rmtree("work/predictions.zarr")
    Path("work/predictions.zarr").mkdir()
    Path("work/predictions.zarr/mine.txt").write_text("mine")
    write_table(folder / "flights.parquet", seed=2)
    before = snapshot(folder / "work" / "run")
    refused = streammc("run", "job.toml", "--overwrite")
    assert (65, True) == (refused.code, "expected predictions at" in refused.err), refused.err
    assert before == snapshot(folder / "work" / "run")
