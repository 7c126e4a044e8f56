"""Values that the dtype of a store cannot hold on its scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import open_store

DESIGNS: dict[str, dict[str, Any]] = {
    "columns": {"response": "y", "features": ["g", "x"]},
    "formula": {"formula": "y ~ C(g) + x"},
    "codes": {"formula": "y ~ C(g) + x", "codes_above": 1},
}


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = {"g": np.arange(rows) % 3, "x": rng.normal(5.0, 2.0, rows)}
    return pd.DataFrame({**values, "y": rng.integers(0, 2, rows)})


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("dtype", "value", "advice"),
    [
        ("float32", 1e300, "correct the value$"),
        ("float32", -1e39, "or make the store again with --dtype float64$"),
        ("float64", 1e160, "correct the value$"),
    ],
)
def test_a_value_that_the_dtype_cannot_hold_is_named_with_its_row(
    tmp_path: Path, design: dict[str, Any], suffix: str, dtype: str, value: float, advice: str
) -> None:
    path, table = tmp_path / "s.zarr", tmp_path / f"b.{suffix}"
    ingest(frame(90, 1), path, dtype=dtype, **design)
    before, more = open_store(path).fingerprint, frame(30, 2)
    more.loc[5, "x"] = value
    more.to_csv(table, index=False) if suffix == "csv" else more.to_parquet(table)
    expected = (
        rf"'x' that {dtype} can hold .* found {value:g} in row 6 of '.*b\.{suffix}'.*{advice}"
    )
    with pytest.raises(DataError, match=expected.replace("+", r"\+")):
        append(table, path)
    assert before == open_store(path).fingerprint


def test_the_largest_values_that_fit_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(90, 1), path, response="y", features=["x"])
    more = frame(30, 2)
    more.loc[5, "x"] = 3e38
    assert append(more, path)["new"]
