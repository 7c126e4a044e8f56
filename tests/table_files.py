"""Tables on disk in every format, and the expected contents of their stores."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

FEATURES = ["distance", "air time", "night"]


def make_table(rows: int = 3_000, seed: int = 3) -> pa.Table:
    """Return decimals, integers, truth values, a binary response and an exposure."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "distance": rng.normal(700, 300, rows).round(3),
            "late": rng.integers(0, 2, rows),
            "air time": rng.integers(-50, 400, rows),
            "night": rng.random(rows) < 0.3,
            "exposure": rng.normal(size=rows).round(4),
            "share": rng.integers(0, 5, rows) / 4,
        }
    )


def write_csv(table: pa.Table, path: Path) -> Path:
    csv.write_csv(table, path)
    return path


def write_gz(table: pa.Table, path: Path) -> Path:
    plain = write_csv(table, path.with_suffix(".plain"))
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


def write_parquet(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path, row_group_size=701)
    return path


def write_feather(table: pa.Table, path: Path) -> Path:
    feather.write_feather(table, path, chunksize=997)
    return path


def write_stream(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_stream(path, table.schema) as sink:
        sink.write_table(table, max_chunksize=500)
    return path


WRITERS: dict[str, Callable[[pa.Table, Path], Path]] = {
    "csv": write_csv,
    "gz": write_gz,
    "parquet": write_parquet,
    "feather": write_feather,
    "stream": write_stream,
}


def rows_of(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a store as zarr reads them."""
    group = zarr.open_group(path, mode="r")
    names = [name for name in ("X", "y", "offset", "weight") if name in group]
    return {name: np.asarray(group[name][...]) for name in names}


def design(table: pa.Table, features: list[str], standardization: Any) -> NDArray[Any]:
    """Return the design by NumPy, from the moments that a store recorded."""
    columns = [np.ones(table.num_rows)]
    for index, name in enumerate(features, 1):
        values = np.asarray(table[name].to_numpy(), np.float64)
        if standardization is not None:
            mean, scale = standardization["mean"][index], standardization["scale"][index]
            values = (values - mean) / scale
        columns.append(values)
    return np.stack(columns, axis=1).astype(np.float32)
