"""The warning about a factor of many levels."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import streammc
from streammc.stores.ingest.ingestion import from_table, ingest

FORMULA = "late ~ distance + C(tail)"


def table(levels: int, rows: int = 2500) -> dict[str, np.ndarray]:
    """Return a table in which level 3 has one row, and the reference, level 0, two."""
    rng = np.random.default_rng(1)
    tail = np.concatenate([np.arange(levels), [0], rng.integers(4, levels, rows - levels - 1)])
    columns = {"late": rng.integers(0, 2, rows), "distance": rng.normal(size=rows)}
    return {**columns, "tail": np.array([f"N{level:05d}" for level in tail])}


def csv(path: Path, levels: int) -> Path:
    columns = table(levels)
    lines = [
        "late,distance,tail",
        *(f"{a},{b},{c}" for a, b, c in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_ingest_warns_of_a_factor_of_a_thousand_levels(tmp_path: Path) -> None:
    report = ingest(csv(tmp_path / "t.csv", 1200), tmp_path / "s.zarr", formula=FORMULA)
    (line,) = report["warnings"]
    assert line.startswith("the design has 1,201 columns, of which C(tail) has 1,200 levels, ")
    counts = np.unique(table(1200)["tail"], return_counts=True)[1]
    few = int((counts < 10).sum())
    assert f"the rarest of 1 row, {few:,} of fewer than 10 rows" in line
    assert "1,201 x 1,201" in line
    assert "GB of memory; merge rare levels into one before the ingest" in line


def test_ingest_is_silent_about_twenty_levels(tmp_path: Path) -> None:
    report = ingest(csv(tmp_path / "t.csv", 20), tmp_path / "s.zarr", formula=FORMULA)
    assert [] == report["warnings"]


def test_from_table_warns_in_python(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.warns(UserWarning, match="1,200 levels, the rarest of 1 row"):
        store = from_table(pa.table(table(1200)), formula=FORMULA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a table to be predicted is not sampled
        from_table(pa.table(table(1200)), like=store)


def test_many_columns_of_numbers_are_warned_of_without_levels(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 1001)))
    frame.columns = [f"c{j}" for j in range(1001)]
    with pytest.warns(UserWarning, match=r"the design has 1,001 columns: .* matter least"):
        streammc.from_table(frame, response="c0")
