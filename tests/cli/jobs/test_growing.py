"""``source.append``: one job whose table grows, from new files to a new posterior."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import snapshot, streammc
from job_tables import borrowed, outcomes, write_job, write_table

import streammc as library
from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import make_manifest, read_manifest
from streammc.trace.run_directory import RunDirectory

OUTPUTS = {
    "predictions": '"work/predictions-{generation}.zarr"',
    "run": '"work/run-{generation}"\ncontrol_variates = "work/flights.cv.zarr"',
}
APPEND = '["flights.parquet"]\nappend = ["new-*.parquet"]'


def growing(folder: Path, append: str = APPEND, more: str = "", **changes: str) -> Path:
    """Write the table and a job whose table grows."""
    return write_job(folder, more, **{"files": append, **OUTPUTS, **changes})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the job of the first generation."""
    folder = tmp_path_factory.mktemp("growing")
    done = streammc("run", growing(folder), "--json")
    assert 0 == done.code, done.err
    return folder


@pytest.fixture
def job(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job after its first generation; outputs know their inputs by path."""
    monkeypatch.chdir(first)
    with borrowed(first, tmp_path / "kept"):
        yield first


def test_without_new_files_nothing_changes(job: Path) -> None:
    before = snapshot(job)
    human = streammc("run", "job.toml", "--quiet")
    assert (0, 4) == (human.code, human.out.count(" kept "))
    assert before == snapshot(job)


def test_a_new_file_makes_a_generation_from_the_last_posterior(job: Path) -> None:
    before = snapshot(job / "work" / "run-1")
    write_table(job / "new-1.parquet", rows=60, seed=5)
    plan = streammc("check", "job.toml", "--json").json
    states = {each["stage"]: each["state"] for each in plan["stages"]}
    assert ("to do, 1 file", "to do") == (states["append"], states["sample"])
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    assert {
        "ingest": "kept",
        "append": "appended",
        "summarize": "updated",
        "sample": "made",
        "predict": "made",
    } == outcomes(done.json)
    assert "only the new rows were read" in done.err
    assert before == snapshot(job / "work" / "run-1")
    run = RunDirectory.open("work/run-2")
    store = library.open_store("work/flights.zarr")
    assert (2060, store.fingerprint) == (store.n_rows, run.identity["store"])
    assert 2060 == done.json["predictions"]["rows"]
    after = snapshot(job)
    again = streammc("run", "job.toml", "--json")
    assert (0, done.json) == (again.code, again.json)
    assert after == snapshot(job)


def test_the_generation_is_that_of_the_commands_one_by_one(job: Path) -> None:
    write_table(job / "new-1.parquet", rows=60, seed=5)
    shutil.copytree("work/flights.zarr", "other.zarr")
    shutil.copytree("work/run-1", "other-run")
    assert 0 == streammc("run", "job.toml").code
    assert 0 == streammc("ingest", "--append", "new-1.parquet", "other.zarr").code
    words = ("--prior", "distance=normal(0, 1)", "--draws", "50", "--warmup", "60", "--chains", "2")
    model = ("--model", "logistic", "--seed", "1", "--start-from", "other-run")
    assert 0 == streammc("sample", "other.zarr", "-o", "other", *words, *model).code
    theirs, ours = RunDirectory.open("other"), RunDirectory.open("work/run-2")
    assert theirs.digest() == ours.digest()
    assert not np.array_equal(theirs.draws_matrix(), RunDirectory.open("other-run").draws_matrix())


def test_several_files_are_one_generation_and_each_is_appended_once(job: Path) -> None:
    write_table(job / "new-1.parquet", rows=60, seed=5)
    write_table(job / "new-2.parquet", rows=50, seed=6)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    write_table(job / "new-0.parquet", rows=40, seed=7)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    kept = library.open_store("work/flights.zarr").attributes["generations"]
    assert [2000, 110, 40] == [each["n_rows"] for each in kept]
    assert Path("work/run-3").exists()


def test_a_file_that_two_patterns_find_is_appended_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "new-1.parquet", rows=60, seed=5)
    patterns = '["flights.parquet"]\nappend = ["new-*.parquet", "./*-1.parquet"]'
    done = streammc("run", growing(tmp_path, patterns, predictions=""), "--quiet")
    assert 0 == done.code, done.err
    assert 2060 == library.open_store("work/flights.zarr").n_rows


def test_a_file_that_was_moved_after_it_was_appended_is_refused(job: Path) -> None:
    write_table(job / "new-1.parquet", rows=60, seed=5)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    before = snapshot(job / "work")
    os.rename("new-1.parquet", "new-7.parquet")
    done = streammc("run", "job.toml", "--quiet")
    assert 78 == done.code
    assert "which was appended before: move it back" in done.err
    assert before == snapshot(job / "work")
    os.utime("new-7.parquet")
    assert 78 == streammc("run", "job.toml", "--quiet").code
    words = ("ingest", "--append", "--again", "new-7.parquet", "work/flights.zarr")
    assert 0 == streammc(*words, "--quiet").code
    assert 0 == streammc("run", "job.toml", "--quiet").code
    assert 2120 == library.open_store("work/flights.zarr").n_rows


@pytest.mark.parametrize("name", ["copy", "link"])
def test_a_copy_is_refused_and_a_link_is_the_same_file(job: Path, name: str) -> None:
    write_table(job / "new-1.parquet", rows=60, seed=5)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    if name == "link":
        os.symlink("new-1.parquet", "new-2.parquet")
    else:
        shutil.copyfile("new-1.parquet", "new-2.parquet")
    done = streammc("run", "job.toml", "--quiet")
    assert (0 if name == "link" else 78) == done.code, done.err
    assert name == "link" or "'new-2.parquet' with those of" in done.err
    assert 2060 == library.open_store("work/flights.zarr").n_rows


def test_a_pattern_that_finds_the_first_tables_too_appends_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "more.parquet", rows=60, seed=5)
    path = growing(tmp_path, '["./flights.parquet"]\nappend = ["*.parquet"]', predictions="")
    done = streammc("run", path, "--json")
    assert 0 == done.code, done.err
    assert 2060 == library.open_store("work/flights.zarr").n_rows
    assert "run-2" in os.listdir("work")


@pytest.mark.parametrize("receipt", [True, False])
def test_the_table_of_a_store_is_not_appended_to_it_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "flights.parquet")
    columns = ("--response", "late", "--features", "distance")
    assert 0 == streammc("ingest", "flights.parquet", "s.zarr", *columns).code
    manifest = Path("s.zarr") / MANIFEST  # as an earlier version wrote it
    manifest.write_bytes(make_manifest(read_manifest(Path("s.zarr")).entries).encode())
    if not receipt:
        os.unlink("s.zarr.config.json")
    path = growing(tmp_path, predictions="")
    text = path.read_text().replace('[ingest]\nformula = "late ~ distance + C(origin)"', "")
    text = text.replace(f"files = {APPEND}", 'store = "s.zarr"\nappend = ["*.parquet"]')
    path.write_text(text.replace('store = "work/flights.zarr"', ""))
    os.mkdir("elsewhere")
    monkeypatch.chdir("elsewhere")
    done = streammc("run", path, "--quiet")
    assert 2000 == library.open_store(tmp_path / "s.zarr").n_rows
    assert (0 if receipt else 78) == done.code, done.err
    assert receipt or "whose name is one of its tables" in done.err


@pytest.mark.parametrize("change", ["rewritten", "copied", None])
def test_the_first_table_of_a_store_is_known_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "flights.parquet")
    columns = ("--response", "late", "--features", "distance")
    assert 0 == streammc("ingest", "flights.parquet", "s.zarr", *columns).code
    path = growing(tmp_path, predictions="")
    text = path.read_text().replace('[ingest]\nformula = "late ~ distance + C(origin)"', "")
    text = text.replace(f"files = {APPEND}", 'store = "s.zarr"\nappend = ["*.parquet"]')
    path.write_text(text.replace('store = "work/flights.zarr"', ""))
    os.unlink("s.zarr.config.json")
    expected = "flights.parquet' as it was when '"
    if change == "rewritten":
        write_table(tmp_path / "flights.parquet", rows=1000, seed=2)
    elif change == "copied":
        os.rename("flights.parquet", "f.parquet")
        expected = "f.parquet' with those of '"
    done = streammc("check", path, "--json")
    assert (0 if change is None else 78) == done.code, done.err
    assert change is None or expected in done.err


@pytest.mark.parametrize("change", ["rewritten", "touched", "replaced"])
def test_a_file_that_changed_after_it_was_appended_is_refused(job: Path, change: str) -> None:
    write_table(job / "new-1.parquet", rows=60, seed=5)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    before = snapshot(job / "work")
    if change == "rewritten":
        write_table(job / "new-1.parquet", rows=70, seed=5)
    elif change == "replaced":  # by one of the same size and time
        stamp, size = os.stat("new-1.parquet").st_mtime_ns, os.path.getsize("new-1.parquet")
        content = Path("new-1.parquet").read_bytes()
        Path("new-1.parquet").write_bytes(content[:100] + bytes(8) + content[108:])
        os.utime("new-1.parquet", ns=(stamp, stamp))
        assert size == os.path.getsize("new-1.parquet")
    else:
        os.utime("new-1.parquet", ns=(1, 1))
    done = streammc("run", "job.toml", "--quiet")
    assert 78 == done.code
    assert "as it was when it was appended" in done.err.splitlines()[-1]
    assert before == snapshot(job / "work")


@pytest.mark.parametrize("stage", ["append", "summarize", "sample"])
def test_killed_after_a_stage_it_goes_on_to_the_same_draws(
    job: Path, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.cli.jobs import job_run

    write_table(job / "new-1.parquet", rows=60, seed=5)
    real = job_run.call_stage

    def dies(ctx: Any, output: Any, each: Any, *more: str) -> Any:
        found = real(ctx, output, each, *more)
        if each.name == stage:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(job_run, "call_stage", dies)
    streammc("run", "job.toml", "--quiet")
    monkeypatch.setattr(job_run, "call_stage", real)
    assert 0 == streammc("run", "job.toml", "--quiet").code
    interrupted = RunDirectory.open("work/run-2").digest()
    assert 2060 == library.open_store("work/flights.zarr").n_rows
    shutil.rmtree("work/run-2")
    shutil.rmtree("work/predictions-2.zarr")
    os.unlink("work/predictions-2.zarr.config.json")
    assert 0 == streammc("run", "job.toml", "--quiet").code
    assert interrupted == RunDirectory.open("work/run-2").digest()


@pytest.mark.parametrize(
    ("append", "changes", "key", "expected"),
    [
        (
            APPEND,
            {"run": '"work/run"\ncontrol_variates = "cv.zarr"'},
            "outputs.run",
            "expected {gene",
        ),
        (APPEND, {"predictions": '"p.zarr"'}, "outputs.predictions", "write 'work/predictions-{g"),
        (
            APPEND,
            {"run": '"work/run-{generation}"'},
            "outputs.control_variates",
            "bring up to date",
        ),
        (
            APPEND,
            {"store": '"s-{generation}.zarr"'},
            "outputs.store",
            "one path for all generations",
        ),
        ('["flights.parquet"]', {}, "outputs.run", "expected source.append"),
        ('["flights.parquet"]\nappend = ["no.csv"]', {}, "source.append[0]", "found nothing"),
        ('["flights.parquet"]\nappend = "n.csv"', {}, "source.append", "expected a list of texts"),
    ],
)
def test_keys_that_do_not_fit_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    append: str,
    changes: dict[str, str],
    key: str,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = streammc("check", growing(tmp_path, append, **changes), "--json")
    assert done.code in (66, 78)
    assert key in [each["key"] for each in done.json["error"]["problems"]]
    assert expected in next(line for line in done.err.splitlines() if f": {key}: " in line)
    assert not Path("work").exists()


def test_a_job_of_factors_that_cross_grows_without_control_variates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)

    def write(name: str, rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        user, item = rng.integers(0, 20 * seed, rows), rng.integers(0, 9 + seed, rows)
        y = rng.normal(size=40)[user] + rng.normal(size=rows)
        pq.write_table(pa.table({"y": y, "user": user, "item": item}), name)

    write("flights.parquet", 600, 1)
    growing(
        tmp_path,
        run='"work/run-{generation}"',
        formula='"y ~ 1 + (1 | user) + (1 | item)"\ngroup_as = ["user=crossed", "item=crossed"]',
        name='"gaussian"',
        distance="",
        draws='50\nname = "gibbs"',
    )
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    write("new-1.parquet", 30, 2)
    assert 0 == streammc("check", "job.toml").code
    done = streammc("run", "job.toml", "--json")
    assert 0 == done.code, done.err
    expected = {"ingest": "kept", "append": "appended", "sample": "made", "predict": "made"}
    assert expected == outcomes(done.json)
    store = library.open_store("work/flights.zarr")
    assert (630, store.fingerprint) == (
        store.n_rows,
        RunDirectory.open("work/run-2").identity["store"],
    )
    before = snapshot(tmp_path)
    assert 0 == streammc("run", "job.toml").code
    assert before == snapshot(tmp_path)


def test_the_summary_names_the_outputs_of_the_generation(job: Path) -> None:
    found = json.loads(Path("work/summary.json").read_text())
    places = {each["stage"]: Path(each["output"]).name for each in found["stages"]}
    assert ("run-1", "predictions-1.zarr") == (places["sample"], places["predict"])
