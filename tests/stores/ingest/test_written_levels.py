"""Levels of a text factor that look like numbers, in tables that are appended or predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import open_store

LEVELS = {
    "numbers": ["1", "2", "a"],
    "zeros before numbers": ["01", "1", "x7"],
    "fractions": ["1.5", "2", "none of them"],
    "truth values": ["true", "false", "maybe"],
    "dates": ["2024-01-01", "2024-01-02", "unknown"],
}


def write(path: Path, levels: Sequence[str], rows: int, seed: int) -> Path:
    """Write a CSV file with each level in turn, and a number."""
    rng = np.random.default_rng(seed)
    g = np.resize(levels, rows)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "g": g, "y": rng.integers(0, 2, rows)})
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)
    return path


def design(path: Path, start: int) -> np.ndarray:
    """Return the rows of a store from ``start`` on."""
    store = open_store(path)
    return np.asarray(store.rows().arrays[0][start : store.n_rows]).copy()


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("formula", ["y ~ x + g", "y ~ x + C(g)", "y ~ x + (1 | g)"])
def test_appended_levels_are_text_where_the_store_has_text(
    tmp_path: Path, levels: list[str], formula: str
) -> None:
    path = tmp_path / "s.zarr"
    kept = {"group_as": ["g=columns"]} if "|" in formula else {}
    first = write(tmp_path / "a.csv", levels, 300, 1)
    ingest(first, path, formula=formula, shuffle=False, **kept)
    more = write(tmp_path / "b.csv", levels[:2], 40, 2)
    assert append(more, path)["appended_rows"] == 40
    both = tmp_path / "both.csv"
    both.write_text(first.read_text() + more.read_text().partition("\n")[2])
    ingest(both, tmp_path / "w.zarr", formula=formula, shuffle=False, standardize=False, **kept)
    shown, expected = design(path, 300), design(tmp_path / "w.zarr", 300)
    names = open_store(path).feature_names
    levels_of = [j for j, name in enumerate(names) if name not in ("Intercept", "x")]
    indicators = shown[:, levels_of] > shown[:, levels_of].min(axis=0)
    np.testing.assert_array_equal(expected[:, levels_of] > 0, indicators)


def test_rows_to_predict_are_text_where_the_store_has_text(tmp_path: Path) -> None:
    ingest(write(tmp_path / "a.csv", ["1", "2", "a"], 300, 1), tmp_path / "s.zarr", formula="y ~ g")
    more = write(tmp_path / "b.csv", ["2", "1"], 40, 2)
    assert 40 == ingest(more, tmp_path / "p.zarr", like=tmp_path / "s.zarr")["n_rows"]


def test_a_new_level_that_looks_like_a_number_is_refused(tmp_path: Path) -> None:
    ingest(write(tmp_path / "a.csv", ["1", "2", "a"], 300, 1), tmp_path / "s.zarr", formula="y ~ g")
    for level in ("3", "1.5", "02"):
        with pytest.raises(DataError, match="levels that were there when the formula was fitted"):
            append(write(tmp_path / "b.csv", ["1", level], 40, 2), tmp_path / "s.zarr")


def test_a_whole_number_of_a_column_of_decimals_is_its_level(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(write(tmp_path / "a.csv", ["1", "2", "a"], 300, 1), path, formula="y ~ g", shuffle=False)
    append(write(tmp_path / "b.csv", ["1.0", "2.0"], 40, 2), path)
    append(write(tmp_path / "c.csv", ["1", "2"], 40, 2), path)
    np.testing.assert_array_equal(design(path, 300)[:40], design(path, 340))


def test_numbers_of_a_formula_stay_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(write(tmp_path / "a.csv", ["1", "2", "3"], 300, 1), path, formula="y ~ x + g + C(g)")
    assert append(write(tmp_path / "b.csv", ["1.0", "02", "3e0"], 30, 2), path)["new"]
    with pytest.raises(DataError, match="expected numbers in column 'g'"):
        append(write(tmp_path / "c.csv", ["1", "a"], 30, 3), path)


def test_folders_are_text_where_the_store_has_text(tmp_path: Path) -> None:
    path, table = tmp_path / "s.zarr", tmp_path / "t"
    for seed, name in enumerate(["A7", "012", "12"]):
        write(table / f"store={name}" / "a.csv", ["p", "q"], 60, seed)
    ingest(table, path, formula="y ~ x + C(store)", shuffle=False)
    for seed, name in enumerate(["12", "012"], 5):
        more = write(table / f"store={name}" / f"b{seed}.csv", ["p", "q"], 30, seed)
        assert append(str(more).replace("store=", "store[=]"), path)["new"]
    names = open_store(path).feature_names
    shown = design(path, 180)
    column = shown[:, names.index("C(store)[T.12]")]
    assert 30 == (column > column.min()).sum()
    assert (column[:30] > column[30:]).all()


def test_folders_of_numbers_stay_numbers(tmp_path: Path) -> None:
    path, table = tmp_path / "s.zarr", tmp_path / "t"
    for seed, name in enumerate(["01", "02", "12"]):
        write(table / f"month={name}" / "a.csv", ["p", "q"], 60, seed)
    ingest(table, path, formula="y ~ x + month")
    more = write(table / "month=3" / "b.csv", ["p", "q"], 30, 5)
    assert append(str(more).replace("month=", "month[=]"), path)["new"]


def test_row_ids_of_text_may_look_like_integers(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    first = write(tmp_path / "a.csv", [f"id{k}" for k in range(50)], 50, 1)
    ingest(first, path, response="y", features=["x"], row_id="g")
    append(write(tmp_path / "b.csv", ["07", "7", "8"], 3, 2), path)
    append(write(tmp_path / "c.csv", ["9", "10"], 2, 3), path)
    ids = open_store(path).row_ids(50)
    assert ids is not None
    assert {b"07", b"7", b"8", b"9", b"10"} == set(ids.tolist())
