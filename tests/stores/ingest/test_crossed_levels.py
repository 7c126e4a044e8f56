"""Levels of factors that cross: kept with the rows, with their labels, and read in any order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crossed_tables import CROSSED, FORMULA, crossed_table, data_of

import streammc
from streammc.errors import ConfigError, DataError, IdentityError, StoreError
from streammc.samplers.crossed import table as tables
from streammc.samplers.crossed.table import pieces_of, structure_of, summed
from streammc.stores.format.writer import StoreWriter
from streammc.stores.store import verify

MANY = "y ~ 1 + (1 | a) + (1 | b)"


def labels_by_id(rows: Any, factor: int) -> Any:
    """Return the label of each row, by its place in the table."""
    labels = rows.crossed[factor].labels(0, rows.crossed[factor].n_groups)
    found = labels[rows.row_levels()[:, factor]]
    return found[np.argsort(rows.row_ids())]


def test_a_store_and_memory_have_the_levels_of_the_table(tmp_path: Path) -> None:
    table, *_ = crossed_table("gaussian")
    store = streammc.from_table(
        table, path=tmp_path / "t.zarr", formula=FORMULA, group_as=CROSSED, chunk_rows=4096
    )
    memory = data_of(table)
    for rows in (store, memory):
        assert ["user", "item"] == [each.column for each in rows.crossed]
        assert np.array_equal(table["user"], labels_by_id(rows, 0))
        assert np.array_equal(table["item"], np.char.decode(labels_by_id(rows, 1)))
    assert np.array_equal(store.row_levels(), memory.row_levels())
    assert verify(tmp_path / "t.zarr")["ok"]
    stated = streammc.open_store(tmp_path / "t.zarr").attributes["crossed"]
    assert [{"column": "user", "levels": 40}, {"column": "item", "levels": 25}] == stated


def test_two_factors_of_many_levels_cross_without_a_word() -> None:
    rng = np.random.default_rng(1)
    table = {"y": rng.normal(size=2000), "a": np.arange(2000) % 400, "b": np.arange(2000) % 301}
    assert 2 == len(streammc.from_table(table, formula=MANY).crossed)
    table["b"] %= 300
    rows = streammc.from_table(table, formula=MANY)  # at most 300 levels: columns
    assert not rows.crossed
    assert rows.groups is not None


def test_rows_that_are_left_out_have_no_levels() -> None:
    table, *_ = crossed_table("gaussian")
    table = {name: values.astype(object) for name, values in table.items()}
    table["user"][::7] = None
    table["x"][table["item"] == "m3"] = None
    with pytest.warns(UserWarning, match="left out"):
        rows = data_of(table, drop_missing=True)
    kept = np.array([u is not None and x is not None for u, x in zip(
        table["user"], table["x"], strict=True)])  # fmt: skip
    assert kept.sum() == rows.n_rows
    items = rows.crossed[1].labels(0, rows.crossed[1].n_groups)
    assert sorted({*table["item"][kept]}) == sorted(np.char.decode(items).tolist())
    assert np.array_equal(np.unique(rows.row_levels()[:, 1]), np.arange(len(items)))
    table["x"] = np.zeros(len(table["x"]))
    with pytest.raises(DataError, match="missing group labels"):
        data_of(table)


def test_nested_and_combined_factors_have_the_labels_of_both() -> None:
    table = {"y": np.arange(8.0) % 3, "a": ["p", "p", "q", "q"] * 2, "b": [1, 2, 1, 1] * 2}
    rows = streammc.from_table(table, formula="y ~ 1 + (1 | a/b)")
    assert ["a", "a:b"] == [each.column for each in rows.crossed]
    both = [f"{a}:{b}".encode() for a, b in zip(table["a"], table["b"], strict=True)]
    assert both == labels_by_id(rows, 1).tolist()
    assert ["a:b"] == [
        each.column for each in streammc.from_table(table, formula="y ~ 1 + (1 | a:b)").crossed
    ]


def test_labels_that_two_combinations_could_share_are_refused() -> None:
    table = {
        "y": np.arange(8.0) % 3,
        "a": ["p", "p:1", "q", "q"] * 2,
        "b": ["1:z", "z", "1", "2"] * 2,
    }
    with pytest.raises(DataError, match=r"without ':' in column 'a', .* found 'p:1'"):
        streammc.from_table(table, formula="y ~ 1 + (1 | a:b)")
    table["a"] = [each.replace(":", "-") for each in table["a"]]
    with pytest.raises(DataError, match=r"without ':' in column 'b', .* found '1:z'"):
        streammc.from_table(table, formula="y ~ 1 + (1 | a:b)")


def test_new_rows_have_levels_of_their_own(tmp_path: Path) -> None:
    table, *_ = crossed_table("gaussian")
    streammc.from_table(table, path=tmp_path / "t.zarr", formula=FORMULA, group_as=CROSSED)
    new = {"y": [0.0, 0.0], "x": [0.1, 0.2], "user": [3, 1000], "item": ["m1", "zz"]}
    like = streammc.open_store(tmp_path / "t.zarr")
    rows = streammc.from_table(new, like=like)
    assert [b"m1", b"zz"] == rows.crossed[1].labels(0, 2).tolist()
    del new["item"]
    with pytest.warns(UserWarning, match="no column 'item'"):
        rows = streammc.from_table(new, like=like)
    assert ["user"] == [each.column for each in rows.crossed]


@pytest.mark.parametrize(
    ("formula", "options", "error", "message"),
    [
        (FORMULA.replace("1 | user", "1 + x | user"), {}, DataError, "a slope of 'user'"),
        (FORMULA, {"group_as": {"user": "crossed", "item": "columns"}}, ConfigError, "crossed for"),
        (FORMULA, {"cells": "yes"}, ConfigError, "found --cells yes"),
        (FORMULA, {"group_as": {"user": "crossing"}}, ConfigError, "found 'crossing'"),
        ("y ~ x + (1 | user/)", {}, ConfigError, "a:b, combined labels"),
        ("y ~ x + (1 | user/item:x)", {}, ConfigError, "a:b, combined labels"),
        ("y ~ x + (1 | user/`a:b`)", {}, ConfigError, "without ':'"),
        ("y ~ x + (1 | user/stranger)", {}, DataError, "'stranger'"),
    ],
)  # fmt: skip
def test_other_requests_are_refused(
    formula: str, options: Any, error: type[Exception], message: str
) -> None:
    table, *_ = crossed_table("gaussian")
    options = {"group_as": CROSSED if formula == FORMULA or "1 + x" in formula else None} | options
    with pytest.raises(error, match=message):
        streammc.from_table(table, formula=formula, **options)


def test_rows_are_not_appended(tmp_path: Path) -> None:
    table, *_ = crossed_table("gaussian")
    streammc.from_table(table, path=tmp_path / "t.zarr", formula=FORMULA, group_as=CROSSED)
    with pytest.raises(IdentityError, match="with user, item, of which new rows"):
        streammc.append(table, tmp_path / "t.zarr")


def test_a_factor_of_one_level_is_refused() -> None:
    table, *_ = crossed_table("gaussian")
    table["user"] = np.ones_like(table["user"])
    with pytest.raises(DataError, match="at least 2 groups in column 'user'"):
        data_of(table)


@pytest.mark.parametrize(
    "damage",
    [
        lambda stated: stated.clear(),
        lambda stated: stated.pop(),
        lambda stated: stated[0].update(levels=0),
        lambda stated: stated[0].update(levels=39),
        lambda stated: stated[0].update(column="item"),
        lambda stated: stated[0].pop("column"),
    ],
)
def test_a_damaged_attribute_is_refused(tmp_path: Path, damage: Any) -> None:
    table, *_ = crossed_table("gaussian")
    path = tmp_path / "t.zarr"
    streammc.from_table(table, path=path, formula=FORMULA, group_as=CROSSED)
    document = json.loads((path / "zarr.json").read_text())
    damage(document["attributes"]["streammc"]["crossed"])
    (path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(StoreError):
        streammc.open_store(path)


def test_levels_beyond_those_of_the_factor_are_refused(tmp_path: Path) -> None:
    with StoreWriter(
        tmp_path / "t.zarr", features=["x"], crossed={"a": np.array([1, 5]), "b": np.array([b"p"])}
    ) as writer:
        level = np.array([[0, 0], [1, 0], [2, 0]], np.uint32)
        writer.append(np.ones((3, 1)), np.zeros(3), level=level)
        writer.commit({"response": "y"})
    store = streammc.open_store(tmp_path / "t.zarr")
    assert [1, 0] == store.row_levels(1, 2)[0].tolist()
    with pytest.raises(StoreError, match=r"0 to 1 of .a. in store .* found 2"):
        store.row_levels(2)


def test_the_order_of_a_factor_is_the_same_in_windows_and_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    n, weight = 3000, rng.integers(1, 4, 3000)
    table = {"y": rng.normal(size=n), "a": rng.integers(0, 500, n), "b": rng.integers(0, 400, n)}
    rows = streammc.from_table(table | {"w": weight}, formula=MANY, weight="w")
    sizes = np.array([each.n_groups for each in rows.crossed])

    def found() -> Any:
        return summed(lambda: pieces_of(rows, np.zeros(1), lambda *_: None), sizes, 1, True)

    whole = found()
    monkeypatch.setattr(tables, "PIECE", 256)
    monkeypatch.setattr(tables, "_WINDOW_BYTES", 12 * 700)
    monkeypatch.setattr(tables, "_MAPPED_ABOVE", 0)
    parts = found()
    for name in ("codes", "row_weight", "start", "first"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name
    levels = rows.row_levels()
    order = np.argsort(levels[:, 0], kind="stable")
    assert np.array_equal(whole.codes[0] - whole.first[1], levels[order, 1])
    np.testing.assert_allclose(whole.response, parts.response, rtol=1e-12)


def test_the_structure_of_a_table_is_found() -> None:
    n = 40
    a, b = np.arange(n) % 4, np.arange(n) // 10
    apart = {"y": np.arange(n) % 7.0, "a": a + 4 * (b > 1), "b": b}
    cases = {
        "crossed": ({"a": a, "b": b}, (), 1, 1.0),
        "copies": ({"a": a, "b": 9 - a}, ((0, 1), (1, 0)), 1, 1.0),
        "nested": ({"a": a + 4 * b, "b": b}, ((0, 1),), 1, 1.0),
        "apart": (apart, (), 2, 0.5),
    }
    for name, (columns, nested, parts, largest) in cases.items():
        table = {"y": np.arange(n) % 7.0} | columns
        ways = dict.fromkeys(("a", "b"), "crossed")
        rows = streammc.from_table(table, formula=MANY, group_as=ways)
        sizes = np.array([each.n_groups for each in rows.crossed])
        pieces = lambda rows=rows: pieces_of(rows, np.zeros(1), lambda *_: None)  # noqa: E731
        found = structure_of(summed(pieces, sizes, 1, False))
        assert (nested, parts, largest) == found, name
