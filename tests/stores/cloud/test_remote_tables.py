"""Tables that are read from an object store."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from object_store import KEY_ID, SECRET, Bucket, forget_connections

from streammc.errors import AccessError, DataError, MissingError, UnavailableError
from streammc.stores.cloud.address import store_root
from streammc.stores.cloud.requests import InputObject, connect
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.sources.tables import open_table


def part(seed: int, rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = rng.choice(["a", "b", "c"], rows)
    return pa.table({"x": rng.normal(size=rows), "g": words, "y": rng.integers(0, 2, rows)})


def put(bucket: Bucket, key: str, content: bytes) -> None:
    obstore.put(connect("s3", bucket.address.removeprefix("s3://")), key, content)


def as_bytes(table: pa.Table, kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=700)
    elif kind.startswith("csv"):
        pyarrow.csv.write_csv(table, sink)
        return gzip.compress(sink.getvalue()) if kind == "csv.gz" else sink.getvalue()
    else:
        with pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table, max_chunksize=700)
    return sink.getvalue()


def rows(given: Any, formula: str = "y ~ x + C(g)") -> list[bytes]:
    """Return the bytes of every array of a table, as a data set."""
    store = from_table(given, formula=formula, seed=5)
    return [array.tobytes() for array in (*store.rows().arrays, store.row_ids())]


OPTIONS: dict[str, Any] = {"formula": "y ~ x + C(g)", "seed": 5}


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "arrow"])
def test_a_table_at_an_address_has_the_rows_of_a_local_one(kind: str, bucket: Bucket) -> None:
    put(bucket, f"t/a.{kind}", as_bytes(part(1), kind))
    put(bucket, f"t/b.{kind}", as_bytes(part(2), kind))
    put(bucket, "t/_SUCCESS", b"")
    expected = rows(pa.concat_tables([part(1), part(2)]))
    whole = [f"{bucket.address}/t/a.{kind}", f"{bucket.address}/t/b.{kind}"]
    for given in (f"{bucket.address}/t/*.{kind}", f"{bucket.address}/t", whole):
        assert expected == rows(given)


def test_partitions_at_an_address_are_columns(bucket: Bucket, tmp_path: Path) -> None:
    for year in (2023, 2024):
        content = as_bytes(part(year), "parquet")
        put(bucket, f"t/year={year}/0.parquet", content)
        (tmp_path / f"year={year}").mkdir()
        (tmp_path / f"year={year}" / "0.parquet").write_bytes(content)
    expected = rows(tmp_path, "y ~ x + C(year)")
    for given in ("t", "t/year=*", "t/*/*.parquet", "t/**/*.parquet"):
        assert expected == rows(f"{bucket.address}/{given}", "y ~ x + C(year)")
    with pytest.raises(DataError, match=r"name=value in 's3://.*, found the folder 't'"):
        open_table(bucket.address)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("_delta_log/00000000000000000000.json", "a Delta table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
    ],
)
def test_files_of_a_table_with_a_log_at_an_address_are_refused(
    log: str, what: str, bucket: Bucket
) -> None:
    put(bucket, "lake/t/year=2024/a.parquet", as_bytes(part(1), "parquet"))
    open_table(f"{bucket.address}/lake/t")
    put(bucket, f"lake/t/{log}", b"{}")
    put(bucket, "lake/other/_delta_log", b"an object")
    for given in ("", "/year=2024", "/*/*.parquet", "/year=2024/a.parquet"):
        with pytest.raises(DataError, match=f"found {what} at '{bucket.address}/lake/t'"):
            open_table(f"{bucket.address}/lake/t{given}")
    put(bucket, "lake/metadata/v1.json", b"{}")
    put(bucket, "lake/u/a.parquet", as_bytes(part(1), "parquet"))
    open_table(f"{bucket.address}/lake/u")


def test_a_store_at_an_address_is_made_from_a_table_at_one(bucket: Bucket) -> None:
    put(bucket, "t/a.parquet", as_bytes(part(1), "parquet"))
    report = ingest(f"{bucket.address}/t/*", f"{bucket.address}/s.zarr", layout="cloud", **OPTIONS)
    assert [f"{bucket.address}/t/a.parquet"] == report["sources"]
    with pytest.raises(DataError, match="a zarr store: it needs no ingesting"):
        open_table(f"{bucket.address}/s.zarr")


def test_what_is_not_there_is_missing(bucket: Bucket) -> None:
    for key in ("t/a.parquet", "t/*.parquet", "t"):
        with pytest.raises(MissingError, match=r"expected .* 's3://.*, found none: check the addr"):
            open_table(f"{bucket.address}/{key}")
    with pytest.raises(MissingError, match=r"expected the bucket of .* found none"):
        open_table("s3://no-such-bucket-of-anyone/t/*.parquet")


def test_an_object_that_changes_while_it_is_read_is_refused(bucket: Bucket) -> None:
    put(bucket, "t.parquet", as_bytes(part(1), "parquet"))
    place = store_root(f"{bucket.address}/t.parquet")
    assert not isinstance(place, Path)
    with InputObject(place) as opened:
        assert b"PAR1" == opened.read(4)
        put(bucket, "t.parquet", as_bytes(part(2), "parquet"))
        with pytest.raises(DataError, match="to stay as it is while it is read, found it changed"):
            opened.read(4)


def test_an_object_that_changed_between_two_readings_is_refused(bucket: Bucket) -> None:
    put(bucket, "t.parquet", as_bytes(part(1), "parquet"))
    table = open_table(f"{bucket.address}/t.parquet")
    table.check_unchanged()
    put(bucket, "t.parquet", as_bytes(part(1, 2000), "parquet"))
    with pytest.raises(DataError, match="found it changed, with another size"):
        table.check_unchanged()


def test_an_object_that_changed_at_the_same_size_is_refused(bucket: Bucket) -> None:
    put(bucket, "t.csv", b"x,y\n1,0\n2,1\n")
    table = open_table(f"{bucket.address}/t.csv")
    put(bucket, "t.csv", b"x,y\n2,0\n1,1\n")
    with pytest.raises(DataError, match="found it changed"):
        table.check_unchanged()


def test_an_object_whose_key_is_a_pattern_is_that_object(bucket: Bucket) -> None:
    put(bucket, "t/k=[a]/0.parquet", as_bytes(part(1), "parquet"))
    put(bucket, "t/k=a/0.parquet", as_bytes(part(2), "parquet"))
    assert rows(part(1)) == rows(f"{bucket.address}/t/k=[a]/0.parquet")


def test_empty_objects_in_place_of_folders_are_no_files(bucket: Bucket) -> None:
    put(bucket, "t/k=1/", b"")
    put(bucket, "t/k=1/0.parquet", as_bytes(part(1), "parquet"))
    assert [f"{bucket.address}/t/k=1/0.parquet"] == open_table(f"{bucket.address}/t").paths


def test_a_damaged_file_at_an_address_is_named(bucket: Bucket) -> None:
    put(bucket, "t.parquet", as_bytes(part(1), "parquet")[:-4])
    with pytest.raises(DataError, match=r"expected a Parquet file in 's3://.*t\.parquet'"):
        open_table(f"{bucket.address}/t.parquet")


def test_no_error_has_a_credential(
    bucket: Bucket, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="credentials") as refused:
        open_table(f"s3://{KEY_ID}:word@bucket/t.parquet")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.3")
    forget_connections()
    with pytest.raises((UnavailableError, AccessError)) as unreachable:
        open_table(f"{bucket.address}/t.parquet")
    for error in (refused, unreachable):
        assert not any(word in str(error.value) for word in (KEY_ID, SECRET))
