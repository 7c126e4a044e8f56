"""The bytes of stores of one seed, kept from version to version.

The values are small whole numbers, whose sums are exact on every processor.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from streammc.stores.ingest import prepare, table_blocks
from streammc.stores.ingest.ingestion import ingest

FORMULA = "y ~ x0 * C(g) + x1 + offset(x2)"
DIGESTS = {
    (False, False): "297eb51426e8a450",
    (True, False): "dda3b8e053500046",
    (False, True): "37714587bccdbffd",
    (True, True): "f80a03d0bc7d5d63",
}
"""By whether rows are left out, and whether the shuffle needs buckets on disk."""


def table(missing: bool) -> pa.Table:
    n = 5000
    rows = np.arange(n)
    x = rows[:, None] * np.array([7, 11, 13]) % np.array([64, 32, 16])
    x0 = pa.array(np.where(missing & (rows % 97 == 5), np.nan, x[:, 0]), from_pandas=True)
    words = np.array(["north", "south", "east", "west"])[rows * 5 % 17 % 4]
    y = (rows * 3 % 7 < 3).astype(np.int64)
    return pa.table({"x0": x0, "x1": x[:, 1], "x2": x[:, 2], "g": words, "y": y})


def digest(path: Path) -> str:
    """Return a digest of every array of a store."""
    found = hashlib.sha256()
    for name in ("X", "y", "offset", "row_id"):
        for part in sorted((path / name).iterdir()):
            if part.name != "zarr.json":
                found.update(part.read_bytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "rows left out"])
@pytest.mark.parametrize("small", [False, True], ids=["in memory", "in buckets"])
def test_store_of_a_seed_has_the_bytes_that_it_always_had(
    kind: str, missing: bool, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:
        monkeypatch.setattr(prepare, "LEAF_BYTES", 1 << 14)
        monkeypatch.setattr(table_blocks, "_BLOCK_BYTES", 1 << 14)
    source = tmp_path / f"t.{kind}"
    if kind == "csv":
        pa.csv.write_csv(table(missing), source)
    else:
        pa.parquet.write_table(table(missing), source, row_group_size=700)
    ingest(
        source, tmp_path / "s.zarr", formula=FORMULA, seed=7, drop_missing=missing, chunk_rows=4096
    )
    assert DIGESTS[missing, small] == digest(tmp_path / "s.zarr")
