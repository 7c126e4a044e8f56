"""Tables of a job are those that ``streammc ingest`` reads from the same words."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import streammc
from job_tables import write_job, write_table
from object_store import Bucket

import streammc as library
from streammc.cli.jobs.job_file import alone, files_of
from streammc.likelihood.data_views import gather
from streammc.stores.sources.input_files import InputFile

FORMULA = '"late ~ distance + day + C(origin)"'
DAYS = "days"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with a job, and tables in folders ``day=1`` and ``day=2``."""
    monkeypatch.chdir(tmp_path)
    for day in (1, 2):
        os.makedirs(f"{DAYS}/day={day}")
        write_table(tmp_path / f"{DAYS}/day={day}/flights.parquet", seed=day)
    return tmp_path


def assert_same_rows(one: str, other: str) -> None:
    first, second = library.open_store(one), library.open_store(other)
    assert first.attributes["features"] == second.attributes["features"]
    a, b = (gather(each, np.arange(4000)) for each in (first, second))
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.y, b.y)


@pytest.mark.parametrize("files", [f"{DAYS}/*/*.parquet", f"{DAYS}/**/*.parquet", DAYS])
def test_folders_above_the_files_of_a_pattern_are_columns(folder: Path, files: str) -> None:
    path = write_job(folder, files=f'["{files}"]', formula=FORMULA, predictions="")
    assert 0 == streammc("check", path, "--json").code
    done = streammc("run", path, "--quiet")
    assert 0 == done.code, done.err
    assert 0 == streammc("ingest", files, "s.zarr", "--formula", FORMULA.strip('"')).code
    assert "day" in library.open_store("work/flights.zarr").attributes["features"]
    assert_same_rows("s.zarr", "work/flights.zarr")


def test_overlapping_patterns_read_a_file_once_as_the_command_does(folder: Path) -> None:
    given = [f"{DAYS}/day=[1]/flights.parquet", f"{DAYS}/day=?/*.parquet"]
    listed = ", ".join(f'"{each}"' for each in given)
    formula = "late ~ distance + C(origin)"
    path = write_job(folder, files=f"[{listed}]", predictions="")
    done = streammc("run", path, "--quiet")
    assert 0 == done.code, done.err
    assert 0 == streammc("ingest", *given, "s.zarr", "--formula", formula).code
    assert 4000 == library.open_store("s.zarr").n_rows
    assert 4000 == library.ingest(given, "p.zarr", formula=formula)["n_rows"]
    assert_same_rows("s.zarr", "work/flights.zarr")


def test_an_appended_file_has_the_columns_of_its_folders(folder: Path) -> None:
    outputs = {"run": '"work/run-{generation}"\ncontrol_variates = "work/flights.cv.zarr"'}
    files = f'["{DAYS}/day=[12]/*.parquet"]\nappend = ["{DAYS}/*/*.parquet"]'
    path = write_job(folder, files=files, formula=FORMULA, predictions="", **outputs)
    first = streammc("run", path, "--quiet")
    assert 0 == first.code, first.err
    os.makedirs(f"{DAYS}/day=3")
    write_table(folder / f"{DAYS}/day=3/flights.parquet", rows=70, seed=3)
    done = streammc("run", path, "--quiet")
    assert 0 == done.code, done.err
    kept = streammc("info", "work/flights.zarr", "--json").json["generations"]
    assert [4000, 70] == [each["n_rows"] for each in kept]
    assert f"{DAYS}/day=3/flights.parquet" in kept[1]["inputs"][0]["path"]
    again = streammc("run", path, "--quiet")
    assert 0 == again.code, again.err
    assert 2 == len(library.open_store("work/flights.zarr").attributes["generations"])


@pytest.mark.slow
def test_tables_at_an_address_are_read_and_a_grown_address_is_appended(
    folder: Path, bucket: Bucket
) -> None:
    import obstore

    from streammc.stores.cloud.requests import connect

    place = connect("s3", bucket.address.removeprefix("s3://"))
    near = write_job(folder, files=f'["{DAYS}"]', formula=FORMULA, predictions="")
    assert 0 == streammc("run", near, "--quiet").code
    for day in (1, 2):
        name = f"{DAYS}/day={day}/flights.parquet"
        obstore.put(place, name, Path(name).read_bytes())
    outputs = {
        "run": '"far/run-{generation}"\ncontrol_variates = "far/flights.cv.zarr"',
        "store": '"far/flights.zarr"',
        "summary": '"far/summary.json"',
    }
    pattern = f"{bucket.address}/{DAYS}/*/fl*.parquet"
    files = f'["{pattern}"]\nappend = ["{bucket.address}/{DAYS}/**/more*.parquet"]'
    path = write_job(folder, files=files, formula=FORMULA, predictions="", **outputs)
    checked = streammc("check", path, "--json")
    assert 0 == checked.code, checked.err
    done = streammc("run", path, "--quiet")
    assert 0 == done.code, done.err
    assert_same_rows("work/flights.zarr", "far/flights.zarr")
    write_table(folder / "more.parquet", rows=40, seed=9)
    obstore.put(place, f"{DAYS}/day=4/more.parquet", Path("more.parquet").read_bytes())
    done = streammc("run", path, "--quiet")
    assert 0 == done.code, done.err
    grown = library.open_store("far/flights.zarr").attributes["generations"]
    assert [4000, 40] == [each["n_rows"] for each in grown]
    assert 0 == streammc("run", path, "--quiet").code
    assert grown == library.open_store("far/flights.zarr").attributes["generations"]


def test_an_address_without_objects_is_named_with_its_key(folder: Path, bucket: Bucket) -> None:
    path = write_job(folder, files=f'["{bucket.address}/none/*.parquet"]')
    done = streammc("check", path)
    assert 66 == done.code
    assert "source.files[0]: expected files that match" in done.err


@pytest.mark.parametrize("output", ["store", "predictions"])
def test_an_output_at_an_address_is_refused(folder: Path, output: str) -> None:
    path = write_job(folder, files=f'["{DAYS}"]', **{output: '"s3://bucket/here"'})
    done = streammc("run", path)
    assert 78 == done.code
    assert f"outputs.{output}: expected a path on this machine" in done.err
    assert not Path("s3:").exists()


def test_a_store_at_an_address_cannot_grow(folder: Path) -> None:
    files = '["x"]\nstore = "s3://bucket/store.zarr"\nappend = ["*.parquet"]'
    done = streammc("check", write_job(folder, files=files))
    assert "source.store: expected a store on a local disk for source.append" in done.err


@pytest.mark.parametrize("name", ["day=1", "a b=x[1]", "[d=*"])
def test_a_single_file_keeps_its_partitions_and_its_neighbours_do_not_match(
    tmp_path: Path, name: str
) -> None:
    for each in (name, "day=2", "a b=x1", "other=1"):
        (tmp_path / "t" / each / "k=0").mkdir(parents=True, exist_ok=True)
        pq.write_table(_empty(), tmp_path / "t" / each / "k=0" / "p.parquet")
    files = files_of([str(tmp_path / "t" / "*" / "*" / "*.parquet")])
    one = next(file for file in files if f"/{name}/" in file.path)
    assert 2 == len(one.partitions)
    assert [one] == files_of([alone(one)])


def test_a_file_without_partitions_is_named_as_it_is() -> None:
    assert "a[1].csv" == alone(InputFile("a[1].csv"))


def _empty():  # type: ignore[no-untyped-def]
    import pyarrow as pa

    return pa.table({"x": pa.array([], pa.float64())})


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?"])
@pytest.mark.parametrize("files", ['["t-*.csv"]', '["t-1.csv"]'])
def test_a_folder_whose_name_has_wildcards_is_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: str
) -> None:
    folder, other = tmp_path / name, tmp_path / "run1"
    for each, rows in ((folder, 500), (other, 3000)):
        each.mkdir()
        write_table(each / "t-1.csv", rows=rows)
    outputs = {"run": '"work/run-{generation}"\ncontrol_variates = "work/flights.cv.zarr"'}
    path = write_job(folder, files=f'{files}\nappend = ["new-*.csv"]', predictions="", **outputs)
    write_table(other / "new-1.csv", rows=70, seed=3)  # of the other folder
    done = streammc("run", path, "--quiet")
    assert 0 == done.code, done.err
    assert 500 == library.open_store(folder / "work/flights.zarr").n_rows
    write_table(folder / "new-1.csv", rows=60, seed=3)
    monkeypatch.chdir(folder)  # the same job from another folder
    done = streammc("run", "job.toml", "--quiet")
    assert 0 == done.code, done.err
    assert 560 == library.open_store("work/flights.zarr").n_rows


def test_a_file_that_is_missing_is_not_looked_for_in_another_folder(tmp_path: Path) -> None:
    for name in ("run[1]", "run1"):
        (tmp_path / name).mkdir()
    write_table(tmp_path / "run1/t-1.csv")
    write_table(tmp_path / "run1/new.csv")
    path = write_job(tmp_path / "run[1]", files='["t-1.csv"]\nappend = ["new.csv"]')
    done = streammc("check", path)
    assert 66 == done.code
    assert "source.files[0]: expected files that match" in done.err
    assert "source.append[0]: expected files that match" in done.err
