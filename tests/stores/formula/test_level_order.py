"""Levels of a factor are in the order of its categories, of whatever kind and file."""

from __future__ import annotations

import formulaic
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.column_values import LevelOrder
from streammc.stores.ingest.ingestion import from_table
from streammc.stores.ingest.new_rows import encode_rows


def frame(values, categories=None, ordered=True) -> pd.DataFrame:
    x = pd.Categorical(values, categories=categories, ordered=ordered)
    return pd.DataFrame({"y": np.arange(len(values)) % 2, "x": x})


def levels(table, formula="y ~ x") -> list[object]:
    store = from_table(table, formula=formula, shuffle=False)
    (state,) = store.attributes["formula"]["states"].values()
    return state["levels"]


@pytest.mark.parametrize("formula", ["y ~ x", "y ~ C(x)"])
@pytest.mark.parametrize(
    ("values", "order"),
    [
        ([3, 1, 2, 3], [3, 2, 1]),
        ([0.5, 2.5, 1.5], [1.5, 0.5, 2.5]),
        ([True, False, True], [True, False]),
        (["b", "c", "a"], ["c", "a", "b"]),
    ],
)
def test_categories_keep_their_order(formula, values, order) -> None:
    assert order == levels(frame(values, order), formula)
    assert order == levels(frame(values, order, ordered=False), formula)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_unordered_categories_have_the_reference_of_formulaic(package) -> None:
    table = frame(list("bcab"), ["c", "a", "b"], ordered=False)
    if package == "polars":
        pytest.importorskip("formulaic", "1.2", reason="reads polars")
        pl = pytest.importorskip("polars")
        table = pl.DataFrame({"y": [0, 1, 0, 1], "x": pl.Series(list("cbac")).cast(pl.Categorical)})
    store = from_table(table, formula="y ~ x")
    assert list(formulaic.model_matrix("y ~ x", table).rhs.columns) == list(store.feature_names)


def test_text_that_is_read_as_a_dictionary_is_sorted(tmp_path) -> None:
    text = pd.DataFrame({"y": [0, 1, 1], "x": ["z", "a", "m"]})
    text.to_parquet(tmp_path / "text.parquet")
    assert ["a", "m", "z"] == levels(str(tmp_path / "text.parquet"))
    frame(list("ba"), ["b", "a"], ordered=False).to_parquet(tmp_path / "category.parquet")
    files = [str(tmp_path / "text.parquet"), str(tmp_path / "category.parquet")]
    assert ["a", "b", "m", "z"] == levels(files) == levels(files[::-1])
    assert ["b", "a"] == levels(files[1:])


def test_unordered_categories_of_several_files_are_in_the_order_of_their_appearance() -> None:
    parts = [frame(order, order, ordered=False) for order in (list("mz"), list("za"), list("am"))]
    assert ["m", "z", "a"] == levels(parts)
    assert ["z", "m", "a"] == levels([frame(list("zm"), list("zm")), *parts])


def test_ordered_dates_keep_their_order() -> None:
    days = pd.to_datetime(["2024-01-02", "2024-01-01"])
    assert ["2024-01-02", "2024-01-01"] == levels(frame(days, days), "y ~ C(x)")


def test_design_of_ordered_numbers_has_the_first_category_as_reference() -> None:
    store = from_table(frame([3, 1, 2, 3], [3, 2, 1]), formula="y ~ x", shuffle=False)
    assert ("Intercept", "x[T.2]", "x[T.1]") == store.feature_names
    (rows,) = encode_rows(store.attributes, pd.DataFrame({"x": [3, 1, 2]}))
    indicators = rows.X * store.attributes["standardization"]["scale"]
    indicators += store.attributes["standardization"]["mean"]
    assert [[1, 0, 0], [1, 0, 1], [1, 1, 0]] == indicators.round(12).tolist()


def test_orders_of_several_files_are_merged(tmp_path) -> None:
    frame(list("lmlm"), ["m", "l"]).to_parquet(tmp_path / "a.parquet")
    frame(list("smxs"), ["s", "m", "l", "x"]).to_parquet(tmp_path / "b.parquet")
    files = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    assert ["s", "m", "l", "x"] == levels(files) == levels(files[::-1])


def test_orders_of_numbers_are_merged() -> None:
    assert [7, 5, 3, 1] == levels([frame([1, 5], [5, 1]), frame([7, 5, 3, 1], [7, 5, 3, 1])])


def test_levels_that_are_no_category_follow_sorted() -> None:
    plain = pd.DataFrame({"y": [0, 1, 1], "x": ["z", "a", "m"]})
    assert ["s", "m", "l", "a", "z"] == levels([frame(list("lms"), ["s", "m", "l"]), plain])


@pytest.mark.parametrize(
    ("orders", "circle"),
    [
        ((["m", "l"], ["l", "m"]), "'m' before 'l' before 'm'|'l' before 'm' before 'l'"),
        ((["s", "m"], ["m", "l"], ["l", "s"]), "'s' before 'm' before 'l' before 's'"),
    ],
)
def test_orders_that_contradict_each_other_are_refused(orders, circle) -> None:
    parts = [frame(order, order) for order in orders]
    with pytest.raises(DataError, match=f"expected one order .* 'x', found ({circle})"):
        levels(parts)
    every = sorted({level for order in orders for level in order})
    assert every == levels(parts, f"y ~ C(x, levels={every})")


@pytest.mark.parametrize("value_type", [str, float])
def test_a_category_twice_in_an_ordered_dictionary_is_refused_with_others_in_between(
    value_type,
) -> None:
    def table(words):
        codes = pa.array([0, 1, 2, 0])
        words = pa.array([value_type(word) for word in words])
        column = pa.DictionaryArray.from_arrays(codes, words, ordered=True)
        return pa.table({"y": [0, 1, 0, 1], "x": column})

    with pytest.raises(DataError, match=r"categories of column 'x', found '?2"):
        levels(table("212"), "y ~ C(x)")
    assert [value_type("2"), value_type("1")] == levels(table("221"), "y ~ C(x)")


@pytest.mark.parametrize("values", [[10, 30, 20], [True, False, True], [1.5, 2.5, 1.5]])
def test_categories_of_numbers_are_refused_as_a_feature_without_a_formula(values) -> None:
    table = frame(values, ordered=False)
    with pytest.raises(DataError, match=r"column 'x' of the table, found categories: .* C\(x\)"):
        from_table(table, response="y")
    assert 2 == from_table(table.astype({"x": float}), response="y").n_features


def test_categories_that_no_file_compares_are_in_the_order_of_their_appearance() -> None:
    order = LevelOrder("size", lambda dictionary: dictionary.to_pylist())
    for names in (["m", "z"], ["m", "a"], ["m", "k", "b"]):
        array = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(names), ordered=True)
        order.add(array)
    assert ["m", "z", "a", "k", "b", "0"] == order.arrange([*"abkmz", "0"])
