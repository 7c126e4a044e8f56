"""A factor as codes is the factor as columns: names, values, scale, rows to predict."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from coded_tables import FORMULA, NEVER, made, pair, table

from streammc.errors import ConfigError, DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.stores import open_store
from streammc.stores.ingest.new_rows import encode_rows
from streammc.stores.rows.row_blocks import whole

FORMULAS = [
    FORMULA,
    "late ~ 0 + C(tail) + x",
    "late ~ tail",
    "late ~ 0 + tail",
    "late ~ x + C(day, contr.treatment(5)) + tail + tail:z",
    "late ~ C(tail) + offset(x)",
    "late ~ x * C(day)",
]


def design_of(data) -> np.ndarray:
    return np.concatenate([whole(block).X for block in data.blocks()])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_coded_factors_expand_to_the_columns_of_the_formula(formula, dtype):
    dense, coded = pair(formula, dtype=dtype)
    assert "codes" in coded.attributes or formula == "late ~ 0 + tail"
    assert dense.feature_names == coded.feature_names
    expected, found = design_of(dense), design_of(coded)
    if dtype == "float32":
        np.testing.assert_array_equal(expected, found)
    else:  # the mean of an indicator is its exact share of the rows
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
    for key in ("mean", "scale"):
        one, other = (data.attributes["standardization"][key] for data in (dense, coded))
        np.testing.assert_allclose(other, one, rtol=1e-15)
    np.testing.assert_array_equal(dense.row_ids(), coded.row_ids())


def test_interactions_and_the_last_factor_stay_dense():
    _, coded = pair("late ~ 0 + tail + x:C(day)")
    ((only,),) = [coded.attributes["codes"]]
    assert {"column": "tail", "first": 0, "columns": 90} == only
    _, plain = pair("late ~ 0 + tail")
    assert "codes" not in plain.attributes


def test_store_on_disk_has_the_rows_of_the_one_in_memory(tmp_path):
    memory = made(table())
    made(table(), path=tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    np.testing.assert_array_equal(design_of(memory), design_of(store))
    gathered = [allocate_rows(30, store.n_features) for _ in range(2)]
    starts = np.array([2990, 0, 17, 17, 2400, 3, 5, 999, 1, 2])
    for data, out in zip((memory, store), gathered, strict=True):
        data.rows().will_need(starts, 3)
        data.rows().gather(starts, 3, out)
    for one, other in zip(*gathered, strict=True):
        np.testing.assert_array_equal(one, other)
    rows = (starts[:, None] + np.arange(3)).reshape(-1)
    np.testing.assert_array_equal(design_of(store)[rows[:30]], gathered[0].X)


def test_first_codes_are_the_level_of_the_row(tmp_path):
    source = table()
    coded = made(source, "late ~ tail", shuffle=False)
    codes = np.asarray(coded.rows().codes)[:, 0]
    np.testing.assert_array_equal([int(name[1:]) for name in source["tail"].to_pylist()], codes)


def test_rows_to_predict_are_coded_like_those_of_the_store():
    train, test = made(table()), table(400, seed=2)
    like = made(test, None, like=train)
    assert train.attributes["codes"] == like.attributes["codes"]
    expected = np.concatenate([part.X for part in encode_rows(train.attributes, test)])
    np.testing.assert_array_equal(expected.astype(np.float32), design_of(like))
    plain = made(test, None, like=made(table(), codes_above=NEVER))
    assert "codes" not in plain.attributes


def test_unseen_level_is_named_once_with_its_row():
    train = made(table(), "late ~ x + tail + x:tail")
    odd = table(400, seed=2).to_pydict()
    odd["tail"][7] = "N999"
    with pytest.raises(DataError, match=r"'N999' in row 8.*|row 8.*N999") as caught:
        made(pa.table(odd), None, like=train)
    assert "2 " not in str(caught.value).split("N999")[0]


def test_rows_with_missing_levels_are_refused_or_left_out():
    holes = table().to_pydict()
    holes["tail"][11] = None
    with pytest.raises(DataError, match="tail"):
        made(pa.table(holes))
    left = made(pa.table(holes), drop_missing=True)
    assert 2999 == left.n_rows
    dense = made(pa.table(holes), drop_missing=True, codes_above=NEVER)
    np.testing.assert_array_equal(design_of(dense), design_of(left))


def test_factors_as_columns_of_a_mixed_model_are_coded_above_the_number_given():
    as_columns = {"tail": "columns", "hub": "columns"}
    dense, coded = pair("late ~ x + (1 | tail) + (1 | hub)", above=20, group_as=as_columns)
    assert ["C(tail)"] == [each["column"] for each in coded.attributes["codes"]]
    assert dense.attributes["factors"] == coded.attributes["factors"]
    np.testing.assert_array_equal(design_of(dense), design_of(coded))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_beside_groups_are_coded_too(dtype, tmp_path):
    formula = "late ~ x + tail + z:tail + (1 + x | day)"
    dense, coded = pair(formula, dtype=dtype)
    assert ["tail"] == [each["column"] for each in coded.attributes["codes"]]
    if dtype == "float32":
        np.testing.assert_array_equal(design_of(dense), design_of(coded))
    np.testing.assert_array_equal(dense.row_ids(), coded.row_ids())
    np.testing.assert_array_equal(dense.groups.offset, coded.groups.offset)
    store = made(table(), formula, dtype=dtype, path=tmp_path / "s.zarr")
    np.testing.assert_array_equal(design_of(coded), design_of(store))
    rows = made(table(400, seed=2), None, like=store)
    assert store.attributes["codes"] == rows.attributes["codes"]


@pytest.mark.parametrize("wrong", [-1, True, 2.5, "64"])
def test_codes_above_must_be_a_whole_number(wrong):
    with pytest.raises(ConfigError, match="codes_above"):
        made(table(), codes_above=wrong)
