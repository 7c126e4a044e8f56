"""Rows appended to a store: a new generation in the columns and on the scale of the first."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streammc
from streammc.errors import BusyError, ConfigError, DataError, IdentityError, StoreError
from streammc.stores.format import writer
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.rows.row_blocks import whole
from streammc.stores.store import info, open_store, verify

FORMULA = "y ~ bs(x, df=4, extrapolation='clip') + C(g)"
KILLS = Path(__file__).parent.parent / "append_kills.py"


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.normal(1.0, 2.0, rows),
            "g": rng.choice(list("abc"), rows),
            "name": [f"row-{seed}-{row}" for row in range(rows)],
            "w": rng.integers(1, 4, rows),
            "y": rng.integers(0, 2, rows),
        }
    )


def rows_of(store: Any) -> list[np.ndarray]:
    """Return copies of the arrays that samplers read."""
    return [array[: store.n_rows].copy() for array in store.rows().arrays if array.size]


@pytest.mark.parametrize("chunk_rows", [4096, None])
@pytest.mark.parametrize("earlier_rows", [5000, 4096])
def test_rows_follow_the_earlier_ones_on_their_scale(
    tmp_path: Path, chunk_rows: int | None, earlier_rows: int
) -> None:
    first, more = frame(earlier_rows, 1), frame(700, 2)
    path = tmp_path / "s.zarr"
    ingest(first, path, formula=FORMULA, weight="w", chunk_rows=chunk_rows)
    before = rows_of(open_store(path))
    report = append(more, path, seed=3)
    store = open_store(path)
    assert (earlier_rows + 700, 2, 700) == (
        store.n_rows,
        report["generation"],
        report["appended_rows"],
    )
    ids = store.row_ids()
    assert ids is not None
    np.testing.assert_array_equal(np.arange(earlier_rows), np.sort(ids[:earlier_rows]))
    np.testing.assert_array_equal(earlier_rows + np.arange(700), np.sort(ids[earlier_rows:]))
    assert not np.array_equal(np.sort(ids), ids)
    like = rows_of(from_table(more, like=store, shuffle=False))
    for old, new, expected in zip(before, rows_of(store), like, strict=True):
        np.testing.assert_array_equal(old, new[:earlier_rows])
        np.testing.assert_array_equal(
            expected[ids[earlier_rows:] - earlier_rows], new[earlier_rows:]
        )
    assert verify(path)["ok"]


def test_three_generations_are_listed_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    fingerprints = [ingest(frame(5000, 1), path, formula=FORMULA, chunk_rows=4096)["fingerprint"]]
    fingerprints += [append(frame(300, seed), path)["fingerprint"] for seed in (2, 3)]
    kept = info(path)["generations"]
    assert [5000, 300, 300] == [each["n_rows"] for each in kept]
    assert [*fingerprints[:2], None] == [each["fingerprint"] for each in kept]
    assert len(set(fingerprints)) == 3
    store = open_store(path)
    for rows, fingerprint in zip((5000, 5300), fingerprints, strict=False):
        earlier = store.earlier(fingerprint)
        assert earlier is not None
        assert (rows, fingerprint) == (earlier.n_rows, earlier.fingerprint)
        np.testing.assert_array_equal(rows_of(store)[0][:rows], rows_of(earlier)[0])
        earlier.recheck(earlier.stamps())
        assert rows == sum(len(whole(block).y) for block in earlier.blocks())
    assert store.earlier("0" * 64) is None


def test_rows_after_a_row_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(9000, 1), path, formula=FORMULA, chunk_rows=4096)
    append(frame(6000, 2), path)
    store = open_store(path)
    for first in (0, 1, 4096, 9000, 14_999):
        pieces = [piece for block in store.rows_after(first).blocks() for piece in block.pieces()]
        assert first == pieces[0].start
        blocks = [whole(block) for block in store.rows_after(first).blocks()]
        found = np.concatenate([block.X for block in blocks])
        np.testing.assert_array_equal(rows_of(store)[0][first:], found)


def test_ids_of_a_column_are_kept_and_longer_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(300, 1), path, response="y", features=["x"], row_id="name")
    append(frame(50, 2), path)
    ids = open_store(path).row_ids(300)
    assert {f"row-2-{row}".encode() for row in range(50)} == set(ids.tolist())
    longer = frame(50, 3).assign(name="a longer name than any")
    with pytest.raises(DataError, match="expected texts of at most 9 bytes as row ids"):
        append(longer, path)
    with pytest.raises(DataError, match=r"expected the row ids .* in column 'name'"):
        append(frame(50, 3).drop(columns="name"), path)


def test_positions_count_rows_that_were_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    first, more = frame(100, 1), frame(50, 2)
    first.loc[3, "x"] = more.loc[7, "x"] = np.nan
    ingest(first, path, response="y", features=["x"], drop_missing=True)
    append(more, path, drop_missing=True)
    ids = open_store(path).row_ids(99)
    assert sorted({*range(100, 150)} - {107}) == sorted(ids)
    assert 2 == open_store(path).attributes["n_dropped"]


def test_a_store_in_the_order_of_its_table_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(100, 1), path, response="y", features=["x"], shuffle=False)
    append(frame(50, 2), path)
    np.testing.assert_array_equal(np.arange(150), open_store(path).row_ids())
    with pytest.raises(IdentityError, match="use --no-shuffle"):
        append(frame(50, 3), path, shuffle=True)
    missing = frame(50, 3)
    missing.loc[3, "x"] = np.nan
    with pytest.raises(DataError, match="found 1 rows with some: give values for them"):
        append(missing, path, drop_missing=True)


def test_a_file_is_appended_once(tmp_path: Path) -> None:
    path, table = tmp_path / "s.zarr", tmp_path / "more.parquet"
    ingest(frame(100, 1), path, response="y", features=["x"])
    frame(50, 2).to_parquet(table)
    assert append(table, path)["new"]
    again = append([table], path)
    assert (150, False, 2) == (again["n_rows"], again["new"], again["generation"])
    frame(50, 3).to_parquet(table)
    os.utime(table, ns=(1, 1))
    assert append(table, path)["new"]
    assert 200 == open_store(path).n_rows


@pytest.mark.parametrize("how", ["pattern", "folder", "list"])
def test_files_named_together_are_appended_once(tmp_path: Path, how: str) -> None:
    path, folder = tmp_path / "s.zarr", tmp_path / "more"
    folder.mkdir()
    ingest(frame(100, 1), path, response="y", features=["x"])
    for number in (1, 2):
        frame(20, number).to_parquet(folder / f"{number}.parquet")
    files = [folder / "1.parquet", folder / "2.parquet"]
    given = {"pattern": [str(folder / "*.parquet")], "folder": folder, "list": files}[how]
    assert append(given, path)["new"]
    assert not append(given, path)["new"]
    frame(20, 3).to_parquet(folder / "3.parquet")
    again = [*files, folder / "3.parquet"] if how == "list" else given
    with pytest.raises(IdentityError, match="was appended before: name the new ones alone"):
        append(again, path)
    assert append(folder / "3.parquet", path)["new"]
    assert 160 == open_store(path).n_rows


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.assign(g="z"), "levels that were there when the formula was fitted"),
        (lambda t: t.assign(y=300), r"uint8 holds exactly.* from 300 to 300"),
        (lambda t: t.assign(y=0.5), "fractional numbers from 0.5 to 0.5"),
        (lambda t: t.assign(x=np.inf), "column 'x'"),
        (lambda t: t.drop(columns="y"), "expected the response 'y'"),
        (lambda t: t.drop(columns="g"), "expected the column 'g'"),
    ],
)
def test_a_table_that_does_not_fit_changes_nothing(tmp_path: Path, change: Any, expected) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(300, 1), path, formula="y ~ x + C(g)")
    before = open_store(path).fingerprint
    with pytest.raises(DataError, match=expected):
        append(change(frame(50, 2)), path)
    assert [path] == list(tmp_path.iterdir())
    assert before == open_store(path).fingerprint
    assert verify(path)["ok"]


@pytest.mark.parametrize("y_dtype", ["float32", "float64"])
def test_whole_responses_fit_fractional_ones(tmp_path: Path, y_dtype: str) -> None:
    path = tmp_path / "s.zarr"
    y = np.float32(0.1) if y_dtype == "float32" else 0.1
    ingest(frame(300, 1).assign(y=np.full(300, y)), path, response="y", features=["x"])
    append(frame(50, 2), path)
    if y_dtype == "float32":
        with pytest.raises(DataError, match="float32 holds exactly"):
            append(frame(50, 2).assign(y=2**24 + 1), path)
    assert y_dtype == open_store(path).layout.member("y").dtype


def test_stores_with_groups_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(300, 1), path, formula="y ~ x + (1 | g)")
    with pytest.raises(
        IdentityError, match="the groups of 'g': the rows of a group are neighbours"
    ):
        append(frame(50, 2), path)


def test_factors_as_columns_are_appended_and_new_levels_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(300, 1), path, formula="y ~ x + (1 | g)", group_as=["g=columns"])
    append(frame(50, 2), path)
    assert 350 == open_store(path).n_rows
    with pytest.raises(DataError, match="levels that were there"):
        append(frame(50, 3).assign(g="z"), path)


def test_a_store_that_changed_in_the_meantime_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(300, 1), path, response="y", features=["x"])
    old = open_store(path)
    append(frame(50, 2), path)
    with pytest.raises(BusyError, match="as it was opened, found another in its place"):
        writer.ExtendingWriter(old, 400)
    assert [path] == list(tmp_path.iterdir())


def test_open_readers_keep_the_old_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(9000, 1), path, response="y", features=["x"], chunk_rows=4096)
    old, unread = open_store(path), open_store(path)
    mapped = old.rows().arrays[0]
    before = mapped.copy()
    append(frame(50, 2), path)
    np.testing.assert_array_equal(before, mapped)
    with pytest.raises(BusyError, match="give the same command again"):
        unread.rows()


def test_without_links_files_are_copied_and_checked(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(9000, 1), path, response="y", features=["x"], chunk_rows=4096)
    before = rows_of(open_store(path))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    append(frame(50, 2), path)
    np.testing.assert_array_equal(before[0], rows_of(open_store(path))[0][:9000])
    assert verify(path)["ok"]
    with open(path / "X" / "c.0.0", "r+b") as file:
        file.write(b"\xff")
    with pytest.raises(StoreError, match=r"X/c\.0\.0"):
        append(frame(50, 3), path)
    assert [path] == list(tmp_path.iterdir())


def test_a_damaged_last_chunk_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(9000, 1), path, response="y", features=["x"], chunk_rows=4096)
    with open(path / "X" / "c.2.0", "r+b") as file:
        file.write(b"\xff")
    with pytest.raises(StoreError, match=r"X/c\.2\.0"):
        append(frame(50, 2), path)


def test_more_chunks_than_can_be_mapped_are_refused(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(9000, 1), path, response="y", features=["x"], chunk_rows=4096)
    monkeypatch.setattr(writer, "MAX_CHUNKS", 9)
    with pytest.raises(ConfigError, match="expected at most 9 chunk files, found 12"):
        append(frame(4000, 2), path)


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept[0].update(n_rows=299),
        lambda kept: kept[0].pop("fingerprint"),
        lambda kept: kept[1].update(fingerprint="x"),
        lambda kept: kept[1].update(n_rows=-1),
    ],
)
def test_generations_that_contradict_the_rows_are_refused(
    tmp_path: Path, change: Any, edit: Any
) -> None:
    path = tmp_path / "s.zarr"
    ingest(frame(300, 1), path, response="y", features=["x"])
    append(frame(50, 2), path)
    edit(path, "zarr.json", lambda d: change(d["attributes"]["streammc"]["generations"]))
    with pytest.raises(StoreError, match="generations"):
        open_store(path)
    assert not verify(path)["ok"]


def test_append_is_a_public_name() -> None:
    assert streammc.append is append


def _kills(folder: Path, *words: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, KILLS, folder, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.trust(18)
@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("crossed",)])
def test_a_kill_leaves_the_old_store_or_the_new_one(
    tmp_path: Path, words: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    found = _kills(tmp_path, *words)
    assert 0 == found["none"]
    assert found["old"] > 30
    assert found["new"] > 3
    assert found["kills"] == found["old"] + found["new"]
    record_property("figure", f"append: {found['kills']} of {found['kills']} kills left one store")


@pytest.mark.trust(18)
@pytest.mark.slow
def test_two_renames_in_place_of_one_exchange_are_caught(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    assert _kills(tmp_path, "two-renames")["none"] > 0
    record_property("caught", "two renames in place of one exchange")
