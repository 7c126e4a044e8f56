"""Levels of factors that cross: kept with the rows, with their labels, and read in any order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crossed_tables import CROSSED, FORMULA, crossed_table, data_of

import streammc
from streammc.errors import BusyError, ConfigError, DataError, StoreError
from streammc.likelihood.blocks import allocate_rows
from streammc.samplers.crossed import table as tables
from streammc.samplers.crossed.table import pieces_of, structure_of, summed
from streammc.stores.format.writer import StoreWriter
from streammc.stores.ingest import row_labels
from streammc.stores.ingest.append import append
from streammc.stores.rows.row_blocks import whole
from streammc.stores.store import info, verify

MANY = "y ~ 1 + (1 | a) + (1 | b)"


def labels_by_id(rows: Any, factor: int) -> Any:
    """Return the label of each row, by its place in the table."""
    labels = rows.crossed[factor].labels(0, rows.crossed[factor].n_groups)
    found = labels[rows.row_levels()[:, factor]]
    return found[np.argsort(rows.row_ids())]


def design_by_id(rows: Any) -> Any:
    """Return the columns of each row, by its place in the table."""
    out = allocate_rows(rows.n_rows, rows.n_features)
    rows.rows().gather(np.arange(rows.n_rows), 1, out)
    return out.X[np.argsort(rows.row_ids())]


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


NESTED = "y ~ x + (1 | user) + (1 | item/part)"
LAYOUTS: dict[str, dict[str, Any]] = {
    "one chunk": {},
    "chunks": {"chunk_rows": 4096},
    "shards": {"layout": "cloud", "chunk_rows": 4096},
    "zstd": {"layout": "cloud", "compression": "zstd", "chunk_rows": 4096},
}


def part_of_table(n: int, seed: int) -> Any:
    """Return rows of which those of a later seed have further users and longer names of items."""
    rng = np.random.default_rng(seed)
    item = rng.integers(0, 20 + 5 * seed, n)
    return {
        "y": rng.normal(size=n),
        "x": rng.normal(size=n),
        "user": rng.integers(-60 * (seed % 2), 200 + 30 * seed, n),
        "item": np.array([f"i{k}" if k < 20 else f"another item {k}" for k in item]),
        "part": rng.integers(0, 3 + seed, n),
    }


def joined(*tables: Any) -> Any:
    return {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}


def same_up_to_codes(one: Any, other: Any) -> bool:
    """Return whether two data sets have the same rows, with the same labels, under any codes."""
    a, b = np.argsort(one.row_ids()), np.argsort(other.row_ids())
    rows = [[whole(block)[2:] for block in each.blocks()] for each in (one, other)]
    for first, second in zip(*(zip(*each, strict=True) for each in rows), strict=True):
        if not np.array_equal(np.concatenate(first)[a], np.concatenate(second)[b]):
            return False
    for f, (first, second) in enumerate(zip(one.crossed, other.crossed, strict=True)):
        names = [each.labels(0, each.n_groups) for each in (first, second)]
        codes = one.row_levels()[a, f], other.row_levels()[b, f]
        if sorted(names[0].tolist()) != sorted(names[1].tolist()) or not np.array_equal(
            names[0][codes[0]], names[1][codes[1]]
        ):
            return False
    return True


@pytest.mark.parametrize("sizes", [(9000, 700, 5000), (300, 5, 20)])
@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_a_store_with_appended_rows_is_that_of_all_up_to_the_codes(
    tmp_path: Path, options: Any, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammc.stores.ingest.row_labels._PIECE", 50)
    tables = [part_of_table(n, seed) for seed, n in enumerate(sizes)]
    path, shape = tmp_path / "t.zarr", {"formula": NESTED, "standardize": False}
    streammc.ingest(tables[0], path, **shape, **options)
    for number, table in enumerate(tables[1:], 1):
        before = streammc.open_store(path)
        levels, n = before.row_levels(), [each.n_groups for each in before.crossed]
        labels = [each.labels(0, each.n_groups) for each in before.crossed]
        report = streammc.append(table, path, seed=number)
        store = streammc.open_store(path)
        earlier = store.earlier(before.fingerprint)
        assert earlier is not None
        assert before.attributes["crossed"] == earlier.attributes["crossed"]
        for rows in (store, earlier):
            assert np.array_equal(levels, rows.row_levels(0, before.n_rows))
            for known, factor in zip(labels, rows.crossed, strict=True):
                assert np.array_equal(known, factor.labels(0, len(known)))
        assert n == [len(each.labels(0, 10**9)) for each in earlier.crossed]
        every = joined(*tables[: number + 1])
        memory = streammc.from_table(every, **shape)
        assert same_up_to_codes(memory, store)
        assert same_up_to_codes(streammc.from_table(joined(*tables[:number]), **shape), earlier)
        now = [each.n_groups for each in store.crossed]
        assert [each.n_groups for each in memory.crossed] == now
        came = [b - a for a, b in zip(n, now, strict=True)]
        assert came == report["generations"][-1]["levels"]
        assert came == info(path)["generations"][-1]["levels"]
        assert verify(path)["ok"]
    monkeypatch.setattr(
        store, "row_levels", lambda: (type(store).row_levels(store) + 1) % np.array(now)
    )
    assert not same_up_to_codes(memory, store)


def test_rows_without_labels_are_left_out_of_an_append(tmp_path: Path) -> None:
    table = part_of_table(300, 0)
    more = {name: values.astype(object) for name, values in part_of_table(90, 1).items()}
    more["user"][::7] = None
    more["item"][::11] = None
    more["item"][5], more["x"][5] = "of a row that is left out", None
    path = tmp_path / "t.zarr"
    streammc.ingest(table, path, formula=NESTED, standardize=False)
    before = streammc.open_store(path).fingerprint
    with pytest.raises(DataError, match="missing"):
        streammc.append(more, path)
    assert before == streammc.open_store(path).fingerprint
    streammc.append(more, path, drop_missing=True)
    left = np.array([None in row for row in zip(*more.values(), strict=True)])
    with pytest.warns(UserWarning, match="left out"):
        every = streammc.from_table(
            {name: np.concatenate([table[name], more[name]]) for name in table},
            formula=NESTED, drop_missing=True, standardize=False,
        )  # fmt: skip
    store = streammc.open_store(path)
    assert 300 + 90 - left.sum() == store.n_rows
    assert same_up_to_codes(every, store)


def test_an_append_without_new_levels_keeps_the_labels(tmp_path: Path) -> None:
    table, *_ = crossed_table("gaussian")
    path = tmp_path / "t.zarr"
    store = streammc.from_table(table, path=path, formula=FORMULA, group_as=CROSSED)
    report = streammc.append(table | {"y": table["y"] + 1.0}, path)
    assert [0, 0] == report["generations"][-1]["levels"]
    assert store.attributes["crossed"] == report["crossed"]


def test_the_table_of_a_combination_alone_is_appended(tmp_path: Path) -> None:
    formula, path = "y ~ 1 + (1 | user:part)", tmp_path / "t.zarr"
    tables = [part_of_table(200, seed) for seed in (0, 1)]
    streammc.ingest(tables[0], path, formula=formula)
    streammc.append(tables[1], path)
    every = streammc.from_table(joined(*tables), formula=formula)
    assert same_up_to_codes(every, streammc.open_store(path))


def test_labels_of_text_stay_text_from_a_file(tmp_path: Path) -> None:
    first, path = tmp_path / "first.csv", tmp_path / "t.zarr"
    first.write_text("y,a,b\n1,x7,1\n2,8,2\n0,x7,2\n1,9,1\n")
    more = tmp_path / "more.csv"
    more.write_text("y,a,b\n1,8,1\n2,10,2\n")
    streammc.ingest(first, path, formula=MANY, group_as=dict.fromkeys("ab", "crossed"))
    streammc.append(more, path, shuffle=False)
    a, b = streammc.open_store(path).crossed
    assert [b"8", b"9", b"x7", b"10"] == a.labels(0, 9).tolist()
    assert [1, 2] == b.labels(0, 9).tolist()
    assert [[0, 0], [3, 1]] == streammc.open_store(path).row_levels(4).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": np.array(["u1", "u2"])}, "integers as labels of 'user' .* found texts such"),
        ({"item": np.array([5, 6])}, "texts as labels of 'item' .* found integers such as '5'"),
        ({"item": np.array(["i:1", "i2"])}, "without ':' in column 'item'"),
        ({"user": None}, "the levels of 'user' of store .* in column 'user'"),
        ({"part": None}, "the levels of 'item:part' of store .* in column 'part'"),
        ({"user": np.array([1.5, 2.0])}, "unusable group labels"),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit_a_store_change_nothing(
    tmp_path: Path, change: Any, message: str
) -> None:
    path = tmp_path / "t.zarr"
    before = streammc.from_table(part_of_table(300, 0), path=path, formula=NESTED)
    more = part_of_table(2, 1) | change
    more = {name: values for name, values in more.items() if values is not None}
    with pytest.raises(DataError, match=message):
        streammc.append(more, path)
    assert [path] == list(tmp_path.iterdir())
    assert before.fingerprint == streammc.open_store(path).fingerprint
    assert verify(path)["ok"]


def test_more_levels_than_a_store_can_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.zarr"
    monkeypatch.setattr("streammc.stores.ingest.row_labels.MAX_LEVELS", 220)
    streammc.ingest(part_of_table(300, 0), path, formula=FORMULA, group_as=CROSSED)
    more = part_of_table(300, 1)
    with pytest.raises(DataError, match=r"at most 220 levels of 'user'.* found 2\d\d"):
        streammc.append(more, path)
    monkeypatch.setattr("streammc.stores.ingest.row_labels.MAX_LEVELS", 100)
    with pytest.raises(DataError, match=r"at most 100 levels of 'user'.* found 1\d\d"):
        streammc.from_table(more, formula=FORMULA, group_as=CROSSED)


def test_damaged_labels_are_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "t.zarr"
    streammc.ingest(part_of_table(300, 0), path, formula=NESTED)
    with open(path / "level_label_1" / "c.0.0", "r+b") as file:
        file.write(b"\xff")
    with pytest.raises(StoreError, match=r"level_label_1/c\.0\.0"):
        streammc.append(part_of_table(30, 1), path)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept[1].pop("levels"),
        lambda kept: kept[0]["levels"].pop(),
        lambda kept: kept[0].update(levels=[0, 1, 1]),
        lambda kept: kept[1]["levels"].__setitem__(0, -1),
        lambda kept: kept[1]["levels"].__setitem__(0, 10**6),
    ],
)
def test_generations_that_contradict_the_levels_are_refused(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "t.zarr"
    streammc.ingest(part_of_table(300, 0), path, formula=NESTED)
    streammc.append(part_of_table(30, 1), path)
    document = json.loads((path / "zarr.json").read_text())
    damage(document["attributes"]["streammc"]["generations"])
    (path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(StoreError, match="'generations'"):
        streammc.open_store(path)


def test_levels_and_labels_are_not_read_from_a_store_that_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "t.zarr"
    store = streammc.from_table(part_of_table(300, 0), path=path, formula=NESTED)
    streammc.append(part_of_table(30, 1), path)
    for read in (store.row_levels, lambda: store.crossed[0].labels(0, 1), store.row_ids):
        with pytest.raises(BusyError, match="as it was opened, found another in its place"):
            read()


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


@pytest.mark.parametrize("dtype", ["int64", "S12"])
@pytest.mark.parametrize("highest", [1, 30, 10**9])
def test_different_values_of_blocks_are_those_of_all(dtype: str, highest: int) -> None:
    values = np.random.default_rng(3).integers(0, highest, 5000).astype(dtype)
    blocks = np.split(values, [10, 10, 900, 1000, 4000])
    found = row_labels.different(iter(blocks), values.dtype)
    np.testing.assert_array_equal(np.unique(values), found)
    assert found.dtype == values.dtype
    assert 0 == len(row_labels.different(iter([]), values.dtype))


@pytest.mark.parametrize("layout", ["memory", "csv", "parquet"])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.filterwarnings("ignore:rows with missing values")
def test_a_factor_may_be_a_term_too(layout: str, drop: bool, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table, *_ = crossed_table("gaussian")
    table["day"] = table["user"] % 7 + 0.0
    table["kind"] = np.array(["s", "m", "l"])[table["user"] % 3]
    if drop:
        table["x"][5] = np.nan
    given: Any = table
    if layout == "csv":
        given = tmp_path / "t.csv"
        pa.csv.write_csv(pa.table(table), given)
    elif layout == "parquet":
        given = tmp_path / "t.parquet"
        pq.write_table(pa.table(table), given)
    terms = " + (1 | user) + (1 | day) + (1 | item:kind)"
    options: Any = {"drop_missing": drop, "group_as": {"user": "crossed"}}
    both = streammc.from_table(given, formula="y ~ x + day + C(kind)" + terms, **options)
    factors = streammc.from_table(given, formula="y ~ x" + terms, **options)
    columns = streammc.from_table(given, formula="y ~ x + day + C(kind)", drop_missing=drop)
    for factor in range(3):
        assert np.array_equal(labels_by_id(both, factor), labels_by_id(factors, factor))
    day, kept = labels_by_id(both, 1), ~np.isnan(table["x"])
    assert np.array_equal(day.astype(float), table["day"][kept])
    assert both.feature_names == columns.feature_names
    assert np.array_equal(design_by_id(both), design_by_id(columns))


def test_a_store_keeps_the_slopes_of_its_factors(tmp_path: Path) -> None:
    table, *_ = crossed_table("gaussian")
    rng = np.random.default_rng(1)
    table |= {"z": rng.normal(3.0, 2.0, 600), "w": rng.normal(3.0, 2.0, 600)}
    formula = "y ~ x + z + w + (1 + x + z || user) + (0 + w | item)"
    store: Any = streammc.from_table(table, path=tmp_path / "t.zarr", formula=formula)
    memory: Any = streammc.from_table(table, formula=formula)
    for rows in (store, memory):
        effects = [(each.terms, each.correlated) for each in rows.crossed]
        assert [(("1", "x", "z"), False), (("w",), False)] == effects
        moved = rows.attributes["standardization"]
        assert [True, True, False] == [each != 0.0 for each in moved["mean"][1:]]
        assert abs(moved["scale"][3] - 2.0) < 0.2  # of a slope without intercept: not centred
    append({name: each[:100] for name, each in table.items()}, store.address, shuffle=False)
    stated = streammc.open_store(tmp_path / "t.zarr").attributes["crossed"]
    assert {"column": "item", "levels": 25, "terms": ["w"], "correlated": False} == stated[1]
    like = streammc.from_table({"y": [0.0, 1.0], **{k: table[k][:2] for k in "xzw"},
                                "user": [1, 2], "item": ["m1", "m2"]}, like=store)  # fmt: skip
    assert [("1", "x", "z"), ("w",)] == [each.terms for each in like.crossed]
    damaged = tmp_path / "t.zarr" / "zarr.json"
    text = damaged.read_text()
    damaged.write_text(text.replace('"terms": [\n', '"terms": [\n "stranger",\n', 1))
    assert text != damaged.read_text()
    with pytest.raises(StoreError):
        streammc.open_store(tmp_path / "t.zarr")


def slopes_table() -> dict[str, Any]:
    """Return 300 rows of 12 groups, with a factor of three levels and a truth value."""
    rng = np.random.default_rng(4)
    n = 300
    return {
        "y": rng.normal(size=n), "x": rng.normal(size=n), "z": rng.normal(size=n),
        "g": rng.integers(0, 12, n), "c": np.array(list("abc"))[rng.integers(0, 3, n)],
        "t": rng.random(n) < 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "names", "correlated"),
    [
        ("y ~ c + (1 + c | g)", ["1", "c[T.b]", "c[T.c]"], True),
        ("y ~ 0 + c + (0 + c | g)", ["c[a]", "c[b]", "c[c]"], True),
        ("y ~ x * z + (x * z || g)", ["1", "x", "z", "x:z"], False),
        ("y ~ z:x + (x:z | g)", ["1", "z:x"], True),
        ("y ~ x * c + (x * c | g)", None, True),
        ("y ~ poly(x, 2) + (poly(x, 2) | g)", ["1", "poly(x, 2)[1]", "poly(x, 2)[2]"], True),
    ],
)
def test_slopes_are_all_columns_of_a_term(
    formula: str, names: list[str] | None, correlated: bool
) -> None:
    data = streammc.from_table(slopes_table(), formula=formula)
    (stated,) = data.attributes["crossed"]
    assert (names or ["1", *data.feature_names[1:]]) == stated["terms"]
    assert correlated == stated["correlated"]


def test_a_slope_of_one_column_is_integrated_whatever_it_is_made_of() -> None:
    data = streammc.from_table(slopes_table(), formula="y ~ t + (1 + t | g)")
    assert ["1", data.feature_names[1]] == data.attributes["groups"]["terms"]


@pytest.mark.parametrize("formula", ["y ~ 0 + x + (1 | g)", "y ~ x - 1 + (1 + x | g)"])
def test_effects_have_an_intercept_where_coefficients_have_none(formula: str) -> None:
    data = streammc.from_table(slopes_table(), formula=formula)
    assert ["x"] == list(data.feature_names)
    assert "1" == data.attributes["groups"]["terms"][0]


def test_levels_without_their_intercept_are_not_the_columns_of_the_formula() -> None:
    with pytest.raises(ConfigError, match=r"found 'c\[a\]', which is not: .* \(1 [+] ... \| g\)"):
        streammc.from_table(slopes_table(), formula="y ~ c + (0 + c | g)")


def test_slopes_of_levels_are_those_of_their_indicators() -> None:
    table = slopes_table()
    table |= {"b": 1.0 * (table["c"] == "b"), "d": 1.0 * (table["c"] == "c")}
    of_factor, of_columns = (
        streammc.sample(
            streammc.from_table(table, formula=formula, standardize=False),
            streammc.models.gaussian(), seed=3, chains=1, warmup=20, draws=30,
        )["posterior"]
        for formula in ("y ~ x + c + (1 + c | g)", "y ~ x + b + d + (1 + b + d | g)")
    )  # fmt: skip
    for name in ("beta", "tau", "rho", "sigma"):
        np.testing.assert_array_equal(of_factor[name], of_columns[name])
