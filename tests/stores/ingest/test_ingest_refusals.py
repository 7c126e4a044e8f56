"""Every input that is refused: the exit code, one line that names the place, nothing left."""

from __future__ import annotations

import datetime
import errno
import gzip
import os
import resource
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_files import make_table, write_csv, write_feather, write_parquet

from streammc.errors import (
    AccessError,
    ConfigError,
    DataError,
    IdentityError,
    MissingError,
    StorageIOError,
    StreammcError,
)
from streammc.stores.ingest import prepare
from streammc.stores.ingest.ingestion import from_table, ingest

BEYOND = Decimal(2**53 + 1)
MANY = "1,2,0\n" * 300_000  # more than one block of the CSV reader


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder for the output, apart from the inputs."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def refusal(source: Any, place: Path, **options: Any) -> StreammcError:
    """Return the error; nothing may be left beside the output."""
    with pytest.raises(StreammcError) as caught:
        ingest(source, place / "s.zarr", **{"response": "y"} | options)
    assert [] == list(place.iterdir())
    assert "\n" not in str(caught.value)
    return caught.value


def csv_refusal(content: str | bytes, place: Path, **options: Any) -> StreammcError:
    path = place.parent / "t.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return refusal(path, place, **options)


@pytest.mark.parametrize(
    ("content", "column", "row", "rows"),
    [
        ("a,b,y\n1,2,0\n1,,0\n1,NA,0\n", "b", 2, "2 rows"),
        ("a,b,y\n1,2,0\n1,2,nan\n", "y", 2, "1 row"),
        ("a,b,y\n" + MANY + "1,2,0\n1,,0\n", "b", 300_002, "1 row"),
    ],
)
def test_missing_values_are_refused_by_row_and_column(
    content: str, column: str, row: int, rows: str, place: Path
) -> None:
    error = csv_refusal(content, place)
    assert 65 == error.exit_code
    expected = f"column '{column}', found missing values in {rows}, first in data row {row} of "
    assert expected in str(error)
    assert "--drop-missing" in str(error)


def test_missing_value_in_the_last_row_of_a_parquet_file_is_refused(place: Path) -> None:
    values = np.ones(100_000)
    source = place.parent / "t.parquet"
    pq.write_table(pa.table({"a": pa.array(values, mask=np.arange(100_000) == 99_999)}), source)
    assert "1 row, first in data row 100000 of" in str(refusal(source, place, response=None))


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("value", ["inf", "-inf", "Infinity", "1e999"])
def test_infinite_values_are_refused(value: str, drop: bool, place: Path) -> None:
    error = csv_refusal(f"a,b,y\n1,2,0\n,2,0\n3,{value},0\n", place, drop_missing=drop)
    assert 65 == error.exit_code
    assert "column 'b', found infinite values in 1 row, first in data row 3 of" in str(error)


@pytest.mark.parametrize("features", [None, ["b"]])
@pytest.mark.parametrize("many", ["", MANY])
def test_text_in_a_column_of_numbers_is_refused(many: str, features: Any, place: Path) -> None:
    error = csv_refusal(f"a,b,y\n{many}1,2,0\n3,ab c,1\n1,x,1\n", place, features=features)
    row = many.count("\n") + 2
    assert 65 == error.exit_code
    assert f"'b', found text in 2 rows, first in data row {row} of" in str(error)
    assert "('ab c')" in str(error)
    assert "leave the column out" in str(error)


def test_non_boolean_among_truth_values_is_refused(place: Path) -> None:
    error = csv_refusal("a,b,y\n" + "1,true,0\n" * 300_000 + "1,7,0\n", place)
    assert "true or false in column 'b'" in str(error)
    assert "in 1 row, first in data row 300001 of" in str(error)


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        ("a,b,y\n1,2,0\n\n3,4\n", 4, 2),
        ("a,b,y\n1,2,0,9\n", 2, 4),
        ('a,b,y\n"1\n1",2,0\n3,4\n', 4, 2),
        ("a,b,y\n" + MANY + "3,4,5,6\n", 300_002, 4),
        ("a,b,y\r\n1,2,0\r\n3\r\n", 3, 1),
    ],
)
def test_csv_lines_of_unequal_length_are_refused(
    content: str, line: int, found: int, place: Path
) -> None:
    error = csv_refusal(content, place, features=["b"])
    assert 65 == error.exit_code
    assert f"expected 3 columns in line {line} of" in str(error)
    assert f"found {found}:" in str(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"\n\n", "an empty file"),
        (b"a,b,y\n", "at least one row"),
        (b"a,b,y", "no rows"),
        (b"a,a,y\n1,2,0\n", "'a' twice"),
        (b"a, a ,y\n1,2,0\n", "'a' twice"),
        (b"1.5,2.5,0\n1.5,2.5,1\n", "names of the columns"),
        (b"a,b,y\n1,2001-01-01,0\n", "'b' of .* found dates: "),
        (b"a,b,y\n1,\xff\xfe,0\n", "'b', found text"),
        (b"a,\xe9,y\n1,2,0\n", "UTF-8"),
        ("a,b,y\n1,2,0\n".encode("utf-16"), "UTF-16"),
        (b"a,b,y\n1,9007199254740993,0\n", r"2\*\*53 in column 'b'.* row 1 of"),
        (b'a,b,y,t\n1,2,0,u\n1,2,0,"u\n1,2,0,u\n', "every quote closed"),
        (b'a,b,y,t\n1,2,0,"u\n' + b"1,2,0,u\n" * 300_000, "quote"),
        (b"a,b,y\n,2,0\n,3,1\n", "missing values in 2 rows"),
        (b"PK\x03\x04\x00\x00", "spreadsheet"),
        (b"PAR1 and no more", "a Parquet file"),
        (b"ARROW1 and no more", "an Arrow file"),
        (gzip.compress(b"a,y\n" + os.urandom(9_000).hex().encode() + b",1\n")[:-900], "Truncated"),
        (b"\x1f\x8bnot gzip", "compressed file"),
        (gzip.compress(b"", mtime=0), "an empty file"),
    ],
)
def test_files_without_a_table_are_refused(content: bytes, message: str, place: Path) -> None:
    source = place.parent / "t"
    source.write_bytes(content)
    with pytest.raises(DataError, match=message):
        ingest(source, place / "s.zarr", response="y" if b"y" in content else None)
    refusal(source, place)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([datetime.date(2001, 1, 1)] * 2), r"'a' of .* found dates: "),
        (pa.array([datetime.datetime(2001, 1, 1)] * 2), "found dates: "),
        (pa.array([[1], [2]]), "the type list"),
        (pa.array([{"u": 1}, {"u": 2}]), "the type struct"),
        (pa.array(["x", "1"]), "text in 1 row, first in data row 1 of .*'x'"),
        (pa.array(["x", "z"]).dictionary_encode(), "text in 2 rows"),
        (pa.array(["2", "1"]), "found text"),
        (pa.array([1, 2**53 + 1]), "integers in 1 row, first in data row 2 of"),
        (pa.array([-(2**53) - 1, None]), "integers in 1 row, first in data row 1 of"),
        (pa.array([1, 2**63 + 5], pa.uint64()), r"\('9223372036854775813'\)"),
        (pa.array([BEYOND, Decimal(1)], pa.decimal128(20, 0)), r"\('9007199254740993'\)"),
        (pa.array([1, -BEYOND], pa.decimal128(20, 2)), "integers in 1 row, first in data row 2"),
    ],
)
def test_columns_of_unsupported_types_are_refused(
    column: pa.Array, message: str, place: Path
) -> None:
    table = pa.table({"a": column, "y": [0, 1]})
    for source in (table, write_parquet(table, place.parent / "t")):
        with pytest.raises(DataError, match=message):
            ingest(source, place / "s.zarr", response="y")
        refusal(source, place)


def test_decimal_levels_that_float64_would_merge_are_refused(place: Path) -> None:
    a = pa.array([BEYOND, BEYOND - 1], pa.decimal128(20, 0))
    with pytest.raises(DataError, match=r"'a', found levels of too many digits in 1 row, .* row 1"):
        ingest(pa.table({"a": a, "y": [0, 1]}), place / "s.zarr", formula="y ~ C(a)")
    with pytest.raises(DataError, match="float64 would round them: rescale the column"):
        ingest(pa.table({"y": a, "x": [0, 1]}), place / "s.zarr", response="y")


def test_digits_after_the_point_of_a_decimal_are_rounded(place: Path) -> None:
    values = [Decimal("0.1"), Decimal(2**53), BEYOND - Decimal("0.5")]
    table = pa.table({"a": pa.array(values, pa.decimal128(20, 1)), "y": [0, 1, 1]})
    options = {"shuffle": False, "dtype": "float64", "standardize": False}
    store = from_table(table, response="y", **options)
    assert [0.1, 2.0**53, 2.0**53] == store.blocks()[0].X[:, 1].tolist()


def test_complex_numbers_are_refused(place: Path) -> None:
    import pandas as pd

    error = refusal(pd.DataFrame({"a": [1j, 2.0], "y": [0, 1]}), place)
    assert "column 'a' of the table, found the type complex128" in str(error)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"response": "lat"}, 65, "did you mean 'late'"),
        ({"response": "Z"}, 65, "choose among distance, late"),
        ({"features": ["distance", "air_time"]}, 65, "did you mean 'air time'"),
        ({"offset": "expo"}, 65, "as offset"),
        ({"features": ["distance", "distance"]}, 2, "again as a feature"),
        ({"features": ["late"]}, 2, "'late' as response"),
        ({"offset": "late"}, 2, "as response and offset"),
        ({"features": [], "intercept": False}, 2, "neither"),
        ({"seed": -1}, 2, "seed"),
        ({"seed": 2**64}, 2, "seed"),
        ({"seed": 1.5}, 2, "seed"),
        ({"dtype": "float16"}, 2, "float16"),
        ({"layout": "shards"}, 2, "shards"),
        ({"compression": "zstd"}, 2, "zstd"),
        ({"chunk_rows": 0}, 2, "chunk"),
    ],
)
def test_invalid_ingest_options_are_refused(
    options: dict[str, Any], code: int, message: str, place: Path
) -> None:
    error = refusal(make_table(50), place, **{"response": "late"} | options)
    assert code == error.exit_code
    assert message in str(error)


def test_column_called_intercept_beside_the_intercept_is_refused(place: Path) -> None:
    error = csv_refusal("Intercept,y\n1,0\n", place)
    assert isinstance(error, ConfigError)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("1,-2,-1", "'w', found negative weights in 2 rows, first in data row 2 of"),
        ("1,inf,inf", "'w', found infinite values in 2 rows, first in data row 2 of"),
        ("1,,nan", "'w', found missing values in 2 rows, first in data row 2 of"),
        ("1,1e16,1e300", "'w', found huge weights in 2 rows, first in data row 2 of"),
        ("1,two,three", "'w', found text in 2 rows, first in data row 2 of"),
        ("0,0,0", "positive weight"),
    ],
)
def test_invalid_weights_are_refused(weights: str, message: str, place: Path) -> None:
    lines = "".join(f"{index},{value},1\n" for index, value in enumerate(weights.split(",")))
    error = csv_refusal("a,w,y\n" + lines, place, weight="w")
    assert 65 == error.exit_code
    assert message in str(error)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ("1/2,3/2,9/8", "'c', found more successes than trials in 2 rows, first in data row 2 of"),
        ("1/2,3/2", "('3 of 2')"),
        ("1/2,1/0", "('1 of 0')"),
        ("1/2,-1/2", "'c', found fractions or negative numbers in 1 row, first in data row 2 of"),
        ("1/2,0.5/2,1/3.5", "('0.5'); also in 'n': "),
        ("1/2,0/-2,1/3.5", "'n', found fractions or negative numbers in 2 rows, first in data row"),
        ("1/2,1/2.5", "('2.5')"),
        ("1/2,/2,/3", "'c', found missing values in 2 rows"),
        ("1/2,1/inf", "'n', found infinite values in 1 row"),
        ("0/0,0/0", "expected a positive count in 'n', found only 0"),
        ("1/2,1/1e17", "'n', found huge weights in 1 row, first in data row 2 of"),
    ],
)
def test_invalid_trials_are_refused(counts: str, message: str, place: Path) -> None:
    lines = "".join(f"{i},{pair.replace('/', ',')}\n" for i, pair in enumerate(counts.split(",")))
    error = csv_refusal("a,c,n\n" + lines, place, response="c", trials="n")
    assert 65 == error.exit_code
    assert message in str(error)


def test_trials_without_a_response_are_refused(place: Path) -> None:
    error = csv_refusal("a,n\n1,2\n", place, response=None, trials="n")
    assert isinstance(error, ConfigError)
    assert "--response" in str(error)


def test_column_that_float32_would_round_is_refused(place: Path) -> None:
    table = pa.table({"a": 1e6 + np.random.default_rng(1).normal(size=1_000), "y": [0.0] * 1_000})
    error = refusal(table, place, standardize=False)
    assert "'a' to fit into float32" in str(error)
    assert "--dtype float64" in str(error)
    ingest(table, place / "ok", response="y", standardize=False, dtype="float64")
    ingest(table, place / "also", response="y")


def test_values_beyond_float32_are_refused(place: Path) -> None:
    error = refusal(pa.table({"a": [1e300, 1.0], "y": [0, 1]}), place, standardize=False)
    assert "'a' to fit into float32" in str(error)


def test_column_with_a_range_beyond_float64_is_refused(place: Path) -> None:
    error = refusal(pa.table({"a": [1.7e308, -1.7e308], "y": [0, 1]}), place)
    assert "range of column 'a'" in str(error)


def test_sources_with_different_columns_are_refused(place: Path) -> None:
    folder, table = place.parent, make_table(20)
    first = write_csv(table, folder / "1.csv")
    other = write_csv(table.rename_columns(list("abcdef")), folder / "2.csv")
    error = refusal([first, other], place, response="late")
    assert "same columns" in str(error)
    feather = write_feather(table, folder / "t.feather")
    assert "one format" in str(refusal([first, feather], place, response="late"))
    missing = folder / "3.csv"
    missing.write_text("late,distance,air time,night,exposure,share\n1,,2,true,1,1\n")
    error = refusal([first, missing], place, response="late")
    assert f"data row 1 of {str(missing)!r}" in str(error)


def test_invalid_paths_are_refused(place: Path) -> None:
    folder = place.parent
    assert isinstance(refusal(folder / "nothing.csv", place), MissingError)
    assert isinstance(refusal("s3://key:secret@host/t.csv", place), ConfigError)
    assert "secret" not in str(refusal("s3://key:secret@host/t.csv", place))
    assert isinstance(refusal([], place), ConfigError)
    assert isinstance(refusal(object(), place), ConfigError)
    os.mkfifo(folder / "pipe")
    assert "pipe" in str(refusal(folder / "pipe", place))
    (folder / "empty").mkdir()
    assert "found none" in str(refusal(folder / "empty", place))
    (folder / "deep" / "er").mkdir(parents=True)
    assert "name the files" in str(refusal(folder / "deep", place))


@pytest.mark.parametrize("name", ["a b.csv", "line\nfeed.csv", "☃.csv", "-x.csv", b"\xff.csv"])
def test_odd_file_names_reach_the_reader(name: str | bytes, place: Path) -> None:
    path = os.path.join(os.fsencode(place.parent), os.fsencode(name))
    with open(path, "wb") as file:
        file.write(b"a,y\n1,\n")
    assert "missing values" in str(refusal(os.fsdecode(path), place))


def test_unreadable_file_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_csv(make_table(5), place.parent / "t.csv")

    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(source))

    monkeypatch.setattr("builtins.open", refuse)
    assert isinstance(refusal(source, place), AccessError)


def test_output_that_exists_or_is_an_input_is_refused(tmp_path: Path) -> None:
    source = write_csv(make_table(5), tmp_path / "t.csv")
    before = source.read_bytes()
    with pytest.raises(ConfigError, match="outside the input"):
        ingest(source, source, response="late")
    with pytest.raises(ConfigError, match="outside the input"):
        ingest(tmp_path, tmp_path / "s.zarr", response="late")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(IdentityError):
        ingest(source, tmp_path / "there", response="late")
    assert (before, "mine") == (source.read_bytes(), (tmp_path / "there").read_text())
    assert {"t.csv", "there"} == {path.name for path in tmp_path.iterdir()}


def test_source_that_changes_while_it_is_read_is_refused(place: Path) -> None:
    source = write_parquet(make_table(1_000), place.parent / "t")

    def touch(done: int, total: int | None, phase: str) -> None:
        if phase == "scan":
            os.utime(source, (1, 1))

    error = refusal(source, place, response="late", progress=touch)
    assert "changed" in str(error)


@pytest.mark.parametrize("phase", ["scan", "shuffle", "write"])
def test_ctrl_c_leaves_nothing(phase: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streammc.stores.ingest.prepare.LEAF_BYTES", 10_000)
    source = write_csv(make_table(5_000), place.parent / "t.csv")

    def stop(done: int, total: int | None, now: str) -> None:
        if now == phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(source, place / "s.zarr", response="late", progress=stop)
    assert [] == list(place.iterdir())


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.55, 0.8, 0.999])
def test_full_disk_is_one_error_and_leaves_no_store(
    share: float, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammc.stores.ingest.prepare.LEAF_BYTES", 10_000)
    source = write_parquet(make_table(5_000), place.parent / "t")
    write, room, used = os.write, [10**9], [0]

    def limited(descriptor: int, content: Any) -> int:
        used[0] += len(content)
        if used[0] > room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr("os.write", limited)
    ingest(source, place.parent / "whole", response="late")
    room[0], used[0] = int(share * used[0]), 0
    error = refusal(source, place, response="late")
    assert isinstance(error, StorageIOError)
    assert "No space left" in str(error)


def test_file_size_limit_is_one_error_and_leaves_no_store(place: Path) -> None:
    source = write_csv(make_table(5_000), place.parent / "t.csv")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        error = refusal(source, place, response="late")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(error, StorageIOError)


def test_from_table_refuses_in_the_same_words(place: Path) -> None:
    table = pa.table({"a": [1.0, None], "y": [0, 1]})
    with pytest.raises(DataError) as caught:
        from_table(table, response="y")
    assert str(refusal(table, place)) == str(caught.value)
    assert "--drop-missing (in Python drop_missing=True)" in str(caught.value)


def change_between_passes(source: Path, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call ``change(source)`` after the first pass over the table."""
    check = prepare.check_values

    def change_and_check(*args: Any) -> Any:
        change(source)
        return check(*args)

    monkeypatch.setattr(prepare, "check_values", change_and_check)


def touch(source: Path) -> None:
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 10**9))


def grow(source: Path) -> None:
    content = source.read_text()
    source.write_text(content + content.split("\n", 1)[1])


def shorten(source: Path) -> None:
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:100]))


def spoil(source: Path) -> None:
    source.write_text("a,b,y\n1,2,x\n")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (touch, "another modification time (20"),
        (grow, "another size ("),
        (shorten, "another size ("),
        (spoil, "another size ("),
    ],
)
def test_a_file_that_changes_between_the_passes_is_said_to_have_changed_and_how(
    change: Any, found: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = place.parent / "t.csv"
    source.write_text("a,b,y\n" + "1,2,0\n3,4,1\n" * 500)
    change_between_passes(source, change, monkeypatch)
    error = refusal(source, place)
    assert isinstance(error, DataError)
    assert found in str(error)
    assert "read it again" in str(error)
