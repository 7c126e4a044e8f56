"""Parquet and Arrow files that are damaged, cut or joined are refused, and no others."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.ingestion import from_table

ROWS = 600
RNG = np.random.default_rng(4)
TABLE = pa.table(
    {
        "x": RNG.normal(size=ROWS),
        "g": pa.array(RNG.choice(["a", "b", "c"], ROWS)).dictionary_encode(),
        "y": RNG.integers(0, 2, ROWS),
    }
)


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=250, **options)
    return sink.getvalue()


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    feather.write_feather(table, sink, chunksize=250, **options)
    return sink.getvalue()


def stream(table: pa.Table, rows: int = 250) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def polars_file(table: pa.Table, form: str) -> bytes:
    polars = pytest.importorskip("polars")
    sink = io.BytesIO()
    getattr(polars.from_arrow(table), f"write_{form}")(sink)
    return sink.getvalue()


def duckdb_file(table: pa.Table, path: Path) -> bytes:
    duckdb = pytest.importorskip("duckdb")
    duckdb.from_arrow(table).write_parquet(str(path))
    return path.read_bytes()


WRITERS = {
    "parquet": parquet,
    "parquet with indexes": lambda table: parquet(
        table, write_page_index=True, write_page_checksum=True, compression="zstd"
    ),
    "feather": lambda table: arrow(table, compression="uncompressed"),
    "feather with lz4": lambda table: arrow(table, compression="lz4"),
    "stream": stream,
    "parquet of polars": lambda table: polars_file(table, "parquet"),
    "feather of polars": lambda table: polars_file(table, "ipc"),
    "stream of polars": lambda table: polars_file(table, "ipc_stream"),
}


def rows(content: bytes, path: Path) -> Any:
    """Return the values of ``x`` and the levels of ``g`` that are read from a file."""
    path.write_bytes(content)
    options = {"shuffle": False, "standardize": False, "dtype": "float64"}
    return np.asarray(from_table(path, formula="y ~ x + g", **options).rows().arrays[0])


def test_joined_parquet_files_of_duckdb_are_refused(tmp_path: Path) -> None:
    whole = duckdb_file(TABLE, tmp_path / "t")
    assert TABLE["x"].to_pylist() == rows(whole, tmp_path / "t")[:, 1].tolist()
    with pytest.raises(DataError, match="expected one table in"):
        rows(whole + whole, tmp_path / "t")


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("first", [0, 3, ROWS])
def test_joined_files_are_refused(tmp_path: Path, kind: str, first: int) -> None:
    part = WRITERS[kind](TABLE.slice(0, first))
    whole = WRITERS[kind](TABLE)
    assert TABLE["x"].to_pylist() == rows(whole, tmp_path / "t")[:, 1].tolist()
    with pytest.raises(
        DataError, match=r"expected one table in .*: give each as a file of its own"
    ):
        rows(part + whole, tmp_path / "t")
    with pytest.raises(DataError):
        rows(whole + part, tmp_path / "t")


@pytest.mark.parametrize("kind", ["stream", "stream of polars"])
def test_a_stream_without_its_end_mark_is_refused(tmp_path: Path, kind: str) -> None:
    whole = WRITERS[kind](TABLE)
    with pytest.raises(DataError, match=r"expected the end mark of an Arrow stream in .* cut"):
        rows(whole[:-8], tmp_path / "t")
    messages = pa.BufferReader(whole)
    reader = pa.ipc.open_stream(messages)
    ends = [messages.tell() for _ in reader]
    with pytest.raises(DataError, match="end mark"):
        rows(whole[: ends[0]], tmp_path / "t")


def test_a_stream_that_ends_in_the_bytes_of_the_mark_is_refused_without_one(tmp_path: Path) -> None:
    values = np.array([2**32 - 1] * 8)  # their bytes are those of the mark
    table = pa.table({"y": np.arange(8) % 2, "x": values})
    whole = stream(table)
    assert whole[-16:-8] == whole[-8:]
    (tmp_path / "t").write_bytes(whole[:-8])
    with pytest.raises(DataError, match="end mark"):
        from_table(tmp_path / "t", response="y")


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_flipped_bit_in_a_parquet_page_with_a_checksum_is_refused(
    tmp_path: Path, dictionary: bool
) -> None:
    table = TABLE.set_column(1, "g", TABLE["g"].cast(pa.string()))
    whole = parquet(table, write_page_checksum=True, compression="none", use_dictionary=dictionary)
    column = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(1).column(0)
    expected = rows(whole, tmp_path / "t")
    end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
    for at in range(end - 900, end, 97):
        flipped = bytearray(whole)
        flipped[at] ^= 16
        with pytest.raises(DataError, match=r"expected a Parquet file in .* make the file again"):
            rows(bytes(flipped), tmp_path / "t")
    assert np.array_equal(expected, rows(whole, tmp_path / "t"))
