"""Warnings about a factor of many levels, and about a store far larger than its source."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import streammc
from streammc.stores.ingest import value_checks
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


def warned_before_writing(path: Path, monkeypatch, formula: str, **options) -> list[str]:
    """Return the warnings that are announced of a table of 30 levels before any row is written."""
    monkeypatch.setattr(value_checks, "LARGE_BYTES", 10_000)
    heard: list[tuple[int, int, list[str]]] = []

    def announce(rows: int, row_bytes: int, lines: list[str]) -> None:
        assert not (path / "s.zarr").exists()
        heard.append((rows, row_bytes, list(lines)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source = csv(path / "t.csv", 30)
        ingest(source, path / "s.zarr", formula=formula, announce=announce, **options)
    assert ["t.csv"] == [each.name for each in path.iterdir()]
    ((rows, row_bytes, lines),) = heard
    written = ingest(source, path / "s.zarr", formula=formula, **options)
    assert (rows, row_bytes) == (written["n_rows"], written["row_bytes"])
    assert lines == written["warnings"]
    return lines


@pytest.mark.parametrize(
    ("formula", "options", "part"),
    [
        (
            "late ~ distance + C(tail):distance",
            {},
            "28 of the 30 columns are those of C(tail):distance: merge rare levels or leave it out",
        ),
        (FORMULA, {}, "29 of the 31 columns are those of C(tail): store factors as codes, --codes"),
        (
            "late ~ distance + (1 | tail)",
            {"group_as": ["tail=columns"]},
            "30 of the 32 columns are those of C(tail): store factors as codes, --codes-above 0, ",
        ),
    ],
)
def test_a_store_far_larger_than_its_source_is_said_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formula: str, options: dict, part: str
) -> None:
    monkeypatch.setattr(value_checks, "TIMES_SOURCE", 2)
    (line,) = warned_before_writing(tmp_path, monkeypatch, formula, **options)
    assert part in line
    assert "(2,500 rows of 1" in line
    monkeypatch.setattr(value_checks, "TIMES_SOURCE", 10)
    report = ingest(tmp_path / "t.csv", tmp_path / "s.zarr", formula=formula, overwrite=True)
    assert [] == [each for each in report["warnings"] if "their source" in each]


def test_codes_and_compression_end_the_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_checks, "LARGE_BYTES", 10_000)
    monkeypatch.setattr(value_checks, "TIMES_SOURCE", 2)
    source = csv(tmp_path / "t.csv", 30)
    for name, options in (
        ("codes", {"codes_above": 0}),
        ("zstd", {"layout": "cloud", "compression": "zstd"}),
    ):
        assert [] == ingest(source, tmp_path / name, formula=FORMULA, **options)["warnings"]


def test_groups_are_not_told_to_compress_their_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_checks, "LARGE_BYTES", 10_000)
    monkeypatch.setattr(value_checks, "TIMES_SOURCE", 2)
    columns = {**table(30), "day": np.arange(2500) % 7}
    formula = "late ~ C(tail):distance + (1 | day)"
    (line,) = ingest(columns, tmp_path / "s.zarr", formula=formula)["warnings"]
    assert line.endswith("are those of C(tail):distance: merge rare levels or leave it out")


def test_a_table_in_memory_far_larger_than_its_source_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(value_checks, "LARGE_BYTES", 10_000)
    monkeypatch.setattr(value_checks, "TIMES_SOURCE", 2)
    with pytest.warns(UserWarning, match=r"times their source .*--codes-above 0$"):
        from_table(pa.table(table(30)), formula=FORMULA)
