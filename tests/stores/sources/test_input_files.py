"""Patterns, folders and hive partitions as one table."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from streammc.errors import AccessError, ConfigError, DataError, MissingError, StreammcError
from streammc.stores.ingest.ingestion import from_table
from streammc.stores.sources.input_files import input_files
from streammc.stores.sources.tables import open_table

NULL = "__HIVE_DEFAULT_PARTITION__"


def part(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"x": rng.normal(size=60), "y": rng.integers(0, 2, 60)})


def write(folder: Path, *names: str) -> Path:
    """Write one Parquet file for each relative name, each with rows of its own."""
    for seed, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part(seed), path)
    return folder


def read(given: Any, columns: list[str] | None = None) -> pa.Table:
    table = open_table(given)
    return pa.Table.from_batches(list(table.batches(columns or list(table.names), 25)))


OVERLAPS = {
    "a file and its pattern": ["t/b.parquet", "t/*.parquet"],
    "two patterns": ["t/*.parquet", "t/b*"],
    "a file twice": ["t/b.parquet", "t/a.parquet", "t/../t/b.parquet"],
    "a folder and its files": ["t", "t/a.parquet"],
    "a link": ["t/a.parquet", "link.parquet", "t/b.parquet"],
}


@pytest.mark.parametrize("given", OVERLAPS.values(), ids=OVERLAPS)
def test_a_file_that_is_named_again_is_read_once(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path, "t/a.parquet", "t/b.parquet"))
    os.symlink("t/b.parquet", "link.parquet")
    names = [Path(os.path.realpath(path)).stem for path in open_table(given).paths]
    assert (["b", "a"] if "b" in given[0] else ["a", "b"]) == names
    assert 120 == read(given).num_rows


def test_tables_in_memory_are_not_compared() -> None:
    assert 120 == read([part(1)] * 2).num_rows


def test_a_file_in_other_folders_has_other_columns(tmp_path: Path) -> None:
    write(tmp_path / "t", "k=1/0.parquet")
    os.symlink("k=1", tmp_path / "t" / "k=2")
    assert [1] * 60 + [2] * 60 == read(tmp_path / "t", ["k"])["k"].to_pylist()
    with pytest.raises(DataError, match="the same folders name=value above every file"):
        open_table([tmp_path / "t", tmp_path / "t" / "k=1" / "0.parquet"])


LAYOUTS = {
    "numbers and text": ["year=2023/city=a/0.parquet", "year=2024/city=b/0.parquet"],
    "zeros before numbers": ["month=01/0.parquet", "month=12/0.parquet"],
    "numbers and a word": ["k=1/0.parquet", "k=x/0.parquet"],
    "fractions": ["k=1.5/0.parquet", "k=2.5/0.parquet"],
    "missing numbers": ["k=1/0.parquet", f"k={NULL}/0.parquet"],
    "missing text": ["k=a/0.parquet", f"k={NULL}/0.parquet"],
    "escapes": ["k=a%20b/0.parquet", "k=c%2Fd/0.parquet"],
    "several files": ["k=1/1.parquet", "k=1/0.parquet", "k=2/0.parquet"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_have_the_values_of_pyarrow_dataset(layout: str, tmp_path: Path) -> None:
    write(tmp_path / "t", *LAYOUTS[layout])
    (tmp_path / "t" / "_SUCCESS").touch()
    found = read(tmp_path / "t")
    dataset = pyarrow.dataset.dataset(tmp_path / "t", partitioning="hive")
    assert dataset.schema.names == list(found.schema.names)
    expected = dataset.to_table()
    keys = [(name, "ascending") for name in found.schema.names]
    for name in found.schema.names:
        own = found.sort_by(keys)[name].to_pylist()
        assert expected.sort_by(keys)[name].to_pylist() == own, name


def test_files_come_in_the_order_of_the_parts_of_their_paths(tmp_path: Path) -> None:
    names = ["k=2/b.parquet", "k=10/a.parquet", "k=1/z.parquet", "k=1/a.parquet"]
    write(tmp_path, *names)
    expected = ["k=1/a.parquet", "k=1/z.parquet", "k=10/a.parquet", "k=2/b.parquet"]
    for given in (tmp_path, tmp_path / "k=*" / "*.parquet", tmp_path / "**" / "*.parquet"):
        found = [Path(path).relative_to(tmp_path).as_posix() for path in open_table(given).paths]
        assert expected == found


def test_a_pattern_reads_the_files_that_match(tmp_path: Path) -> None:
    write(tmp_path, "a-1.parquet", "a-2.parquet", "b-1.parquet", ".a-3.parquet")
    assert pa.concat_tables([part(0), part(1)]).equals(read(str(tmp_path / "a-*.parquet")))
    assert 60 == read(str(tmp_path / "[b]-?.parquet")).num_rows


def test_two_stars_find_each_file_once_whatever_the_links(tmp_path: Path) -> None:
    write(tmp_path, "a/1.parquet", "a/b/2.parquet", "3.parquet", "_hidden/4.parquet")
    (tmp_path / "latest").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path)
    for pattern in ("**/*.parquet", "**/**/*.parquet", "**"):
        names = [Path(path).name for path, _ in input_files(str(tmp_path / pattern))]
        assert ["3.parquet", "1.parquet", "2.parquet"] == names
    assert ["1.parquet"] == [Path(p).name for p, _ in input_files(f"{tmp_path}/lat*/*.parquet")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a/1.parquet", "b/2.parquet")
    (tmp_path / "b").chmod(0)
    with pytest.raises(AccessError):
        open_table(str(tmp_path / "*" / "*.parquet"))


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path: Path) -> None:
    write(tmp_path, "a[1].parquet", "a1.parquet")
    assert part(0).equals(read(str(tmp_path / "a[1].parquet")))


@pytest.mark.parametrize("name", ["0.parquet", "*.parquet", ""])
def test_an_escaped_folder_is_that_folder_and_no_wildcard(tmp_path: Path, name: str) -> None:
    write(tmp_path, "run[1]/day=1/0.parquet", "run1/day=1/0.parquet")
    folder = glob.escape(str(tmp_path / "run[1]"))
    found = input_files(f"{folder}/day=1/{name}".rstrip("/"))
    assert [(str(tmp_path / "run[1]/day=1/0.parquet"), ())] == list(map(tuple, found))
    with pytest.raises(MissingError, match="expected files that match"):
        input_files(f"{folder}/day=2/0.parquet")


def test_partitions_are_the_folders_from_the_pattern_on(tmp_path: Path) -> None:
    write(tmp_path, "year=2023/city=a/0.parquet", "year=2024/city=a/0.parquet")
    whole = ["x", "y", "year", "city"]
    assert whole == list(open_table(str(tmp_path / "year=*")).names)
    assert whole == list(open_table(str(tmp_path / "*" / "city=a" / "*.parquet")).names)
    assert ["x", "y", "city"] == list(open_table(str(tmp_path / "year=2023")).names)
    file = tmp_path / "year=2023" / "city=a" / "0.parquet"
    assert ["x", "y"] == list(open_table(str(file)).names)


def test_a_partition_column_alone_has_the_rows_of_its_file(tmp_path: Path) -> None:
    write(tmp_path, "k=1/0.parquet", "k=2/0.parquet")
    assert [1] * 60 + [2] * 60 == read(tmp_path, ["k"])["k"].to_pylist()


def test_a_partition_column_alone_is_read_beside_a_first_column_of_text(tmp_path: Path) -> None:
    for k in (1, 2):
        (tmp_path / f"k={k}").mkdir()
        (tmp_path / f"k={k}" / "0.csv").write_text("g,y\na,1\nb,0\n")
    found = open_table(tmp_path).batches(["k"], 25, text=frozenset())
    assert [1, 1, 2, 2] == pa.Table.from_batches(list(found))["k"].to_pylist()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_rows_are_those_of_a_table_with_the_columns(kind: str, tmp_path: Path) -> None:
    cities = ["Bern", "Chur", "Bern"]
    for k, city in enumerate(cities):
        folder = tmp_path / f"city={city}" / f"day={k}"
        folder.mkdir(parents=True)
        if kind == "csv":
            pyarrow.csv.write_csv(part(k), folder / "t.csv")
        else:
            pq.write_table(part(k), folder / "t.parquet")
    order = [0, 2, 1]  # Bern/day=0, Bern/day=2, Chur/day=1
    whole = pa.concat_tables(
        part(k)
        .append_column("city", pa.array([cities[k]] * 60))
        .append_column("day", pa.array([k] * 60))
        for k in order
    )
    options: dict[str, Any] = {"formula": "y ~ x * C(city) + day", "seed": 4}
    expected, found = (from_table(given, **options) for given in (whole, tmp_path))
    assert expected.feature_names == found.feature_names
    assert expected.row_ids().tolist() == found.row_ids().tolist()
    for one, other in zip(expected.rows().arrays, found.rows().arrays, strict=True):
        assert one.tobytes() == other.tobytes()


def test_missing_partitions_are_missing_values(tmp_path: Path) -> None:
    write(tmp_path, "k=1/0.parquet", "k=2/0.parquet", f"k={NULL}/0.parquet")
    with pytest.raises(
        DataError, match=r"missing values in 60 rows, first in data row 1 of .*HIVE"
    ):
        from_table(tmp_path, response="y")
    with pytest.warns(UserWarning, match="left out: 60"):
        assert 120 == from_table(tmp_path, response="y", drop_missing=True).n_rows


REFUSED: dict[str, tuple[list[str], str, type[StreammcError], str]] = {
    "nothing matches": (
        ["a.parquet"],
        "*.csv",
        MissingError,
        r"files that match .*\*\.csv', found",
    ),
    "another folder": (
        ["in/a.parquet"],
        "",
        DataError,
        r"name=value in .*, found the folder .*in'",
    ),
    "two layouts": (["a=1/x.parquet", "b=1/x.parquet"], "", DataError, r"found a= above .* b= "),
    "a file beside": (["a=1/x.parquet", "x.parquet"], "", DataError, r"found a= .* none above"),
    "one name twice": (["a=1/a=2/x.parquet"], "", DataError, "each name once, found a=, a= above"),
    "a column in both": (
        ["y=1/x.parquet"],
        "",
        DataError,
        "column 'y' in the file or in the names",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_layouts_that_are_no_table_are_refused(case: str, tmp_path: Path) -> None:
    names, given, kind, message = REFUSED[case]
    write(tmp_path / "t", *names)
    with pytest.raises(kind, match=message):
        open_table(str(tmp_path / "t" / given))


def test_an_empty_folder_and_a_store_are_refused(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    with pytest.raises(DataError, match="expected files in the directory"):
        open_table(tmp_path)
    from_table(part(0), response="y", path=tmp_path / "k=1" / "s.zarr")
    with pytest.raises(DataError, match="a zarr store: it needs no ingesting"):
        open_table(tmp_path / "k=1" / "s.zarr")


def test_a_pattern_on_a_web_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="found the pattern 'https://host/t/"):
        open_table("https://host/t/*.parquet")


LOGS = {
    "Delta table": "_delta_log/00000000000000000000.json",
    "Iceberg table": "metadata/00000-1b3a.metadata.json",
    "Hudi table": ".hoodie/hoodie.properties",
    "Spark stream": "_spark_metadata/0",
}


def logged(folder: Path, kind: str) -> Path:
    """Write a table whose log has removed one of its two files."""
    inside = "data/" if kind == "Iceberg table" else ""
    write(folder, f"{inside}year=2023/a.parquet", f"{inside}year=2024/b.parquet")
    (folder / LOGS[kind]).parent.mkdir()
    (folder / LOGS[kind]).write_text('{"remove": {"path": "year=2023/a.parquet"}}\n')
    return folder / inside


@pytest.mark.parametrize("kind", LOGS)
def test_files_of_a_table_with_a_log_are_refused_with_what_reads_them(
    kind: str, tmp_path: Path
) -> None:
    data = logged(tmp_path / "t", kind)
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "b.parquet").symlink_to(data / "year=2024" / "b.parquet")
    given = [data, data / "year=2024", data / "*" / "*.parquet", data / "year=2024" / "b.parquet"]
    given += [tmp_path / "t", tmp_path / "link", [data / "year=2023" / "a.parquet"]]
    given += [tmp_path / "b.parquet"]
    reader = "DuckDB, COPY" if kind in ("Delta table", "Iceberg table") else "Spark, spark.read"
    for each in given:
        found = rf"{kind} at '{tmp_path / 't'}', whose log .* read it with {reader}"
        with pytest.raises(DataError, match=found) as caught:
            open_table(each)
        assert 65 == caught.value.exit_code


def test_other_folders_of_these_names_are_no_logs(tmp_path: Path) -> None:
    write(tmp_path / "t", "year=2023/a.parquet")
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "notes.json").write_text("{}")
    (tmp_path / "t" / "_delta_log").write_text("a file")
    (tmp_path / "other" / "_delta_log").mkdir(parents=True)
    assert 60 == read(tmp_path / "t").num_rows
