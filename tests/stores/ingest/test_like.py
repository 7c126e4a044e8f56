"""A table ingested like another store: the same columns, knots, levels and scale."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import zarr

from streammc.errors import ConfigError, DataError
from streammc.stores.formula.fitted import covariate
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.ingest.new_rows import encode_rows

SPLINES = "y ~ " + " + ".join(f"bs(x{k}, df=10, extrapolation='clip')" for k in range(1, 9))


def frame(n, seed):
    rng = np.random.default_rng(seed)
    columns = {f"x{k}": rng.normal(k, k, n) for k in range(1, 9)}
    return pd.DataFrame(
        {
            **columns,
            "y": rng.integers(0, 2, n),
            "g": rng.choice(list("abc"), n),
            "w": rng.integers(1, 4, n),
        }
    )


TRAIN, TEST = frame(1200, 1), frame(300, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"formula": SPLINES},
        {"formula": "y ~ x1 + C(g) + offset(x2)", "weight": "w"},
        {"formula": "y ~ x1 - 1", "standardize": False},
        {"response": "y", "features": ["x1", "x2"], "offset": "x3"},
        {"response": "y", "features": ["x1"], "intercept": False},
        {"response": "y", "features": ["x1"], "trials": "w", "standardize": False},
    ],
)
def test_rows_are_those_of_encode_rows(options):
    train = from_table(TRAIN, dtype="float64", **options)
    like = from_table(TEST, like=train, dtype="float64", shuffle=False)
    rows = list(encode_rows(train.attributes, TEST))
    np.testing.assert_array_equal(like._arrays[0], np.concatenate([part.X for part in rows]))
    for key in ("features", "standardization", "formula", "response", "offset", "weight", "trials"):
        assert train.attributes[key] == like.attributes[key], key
    if train.attributes["offset"]:
        offset = np.concatenate([part.offset for part in rows])
        np.testing.assert_array_equal(like._arrays[2], offset)


@pytest.mark.parametrize("path", [None, "new.zarr"])
@pytest.mark.parametrize(
    "options",
    [
        {"formula": "y ~ x1 + C(g) + offset(x2)", "weight": "w"},
        {"formula": "I(y + 1) ~ x1 - 1"},
        {"response": "y", "features": ["x1", "x2"], "offset": "x3"},
        {"response": "y", "features": ["x1"], "trials": "w", "standardize": False},
    ],
)
def test_the_response_may_be_missing(options, path, tmp_path):
    train = from_table(TRAIN, dtype="float64", **options)
    scored = from_table(TEST, like=train, dtype="float64")
    place = path and tmp_path / path
    with pytest.warns(UserWarning, match="has no response: its rows can be predicted, not scored"):
        new = from_table(TEST.drop(columns=["y", "w"]), path=place, like=train, dtype="float64")
    assert new.response is None
    assert new.attributes["weight"] is None
    assert scored.feature_names == new.feature_names
    X = new._arrays[0] if place is None else zarr.open_group(place, mode="r")["X"][:]
    np.testing.assert_array_equal(X, scored._arrays[0])
    assert new.attributes["offset"] == scored.attributes["offset"]


def test_part_of_a_response_is_refused():
    train = from_table(TRAIN, formula="I(y / w) ~ x1")
    with pytest.raises(DataError, match="expected the column 'w'"):
        from_table(TEST.drop(columns=["w"]), like=train)


def test_additive_splines_of_eight_covariates_have_81_columns():
    train = from_table(TRAIN, formula=SPLINES)
    assert 81 == train.n_features
    own = from_table(TEST, formula=SPLINES)
    assert own.attributes["formula"]["states"] != train.attributes["formula"]["states"]


def test_value_outside_of_the_knots_is_named():
    train = from_table(TRAIN, formula="y ~ bs(x1, df=10)")
    beyond = TEST.assign(x1=np.where(TEST.index == 7, 1e3, TRAIN.x1[: len(TEST)]))
    with pytest.raises(DataError, match="row 8"):
        from_table(beyond, like=train)


def test_store_on_disk_and_in_memory_are_the_same(tmp_path):
    ingest(TRAIN, tmp_path / "train", formula="y ~ bs(x1, df=5, extrapolation='clip') + C(g)")
    ingest(TEST, tmp_path / "test", like=tmp_path / "train", shuffle=False)
    from streammc.stores import open_store

    test = open_store(tmp_path / "test")
    memory = from_table(TEST, like=open_store(tmp_path / "train"), shuffle=False)
    assert dict(test.attributes) == dict(memory.attributes)


@pytest.mark.parametrize(
    "options",
    [{"formula": "y ~ x1"}, {"response": "y"}, {"standardize": False}, {"intercept": False}],
)
def test_options_that_the_store_decides_are_refused(options):
    train = from_table(TRAIN, response="y", features=["x1"])
    with pytest.raises(ConfigError, match="--like"):
        from_table(TEST, like=train, **options)


def test_missing_column_and_unseen_level_are_named():
    train = from_table(TRAIN, formula="y ~ x1 + C(g)")
    with pytest.raises(DataError, match="'x1'"):
        from_table(TEST.drop(columns="x1"), like=train)
    with pytest.raises(DataError, match="unseen"):
        from_table(TEST.assign(g="z"), like=train)


@pytest.mark.parametrize(
    ("formula", "name"),
    [
        ("y ~ bs(x1, df=10)", "x1"),
        ("y ~ bs(x1, df=10) - 1", "x1"),
        ("y ~ bs(x1, df=6, degree=1)", "x1"),
        ("y ~ bs(x1, knots=[0, 1.5], degree=2, include_intercept=True)", "x1"),
        ("y ~ center(x1) + x2", "x1"),
        ("y ~ scale(x1) + x2", "x1"),
        ("y ~ x2 + x1", "x1"),
    ],
)
@pytest.mark.parametrize("standardize", [True, False])
def test_covariate_is_a_linear_function_of_the_columns(formula, name, standardize):
    options = {"standardize": standardize, "dtype": "float64", "shuffle": False}
    store = from_table(TRAIN, formula=formula, **options)
    weights, constant = covariate(store.attributes, name)
    found = store._arrays[0] @ weights + constant
    np.testing.assert_allclose(found, TRAIN[name], atol=1e-11)


def test_covariate_that_is_not_in_the_design_is_refused():
    store = from_table(TRAIN, formula="y ~ bs(x1, df=4) + log(x2 + 100)")
    for name in ("x2", "x9", "y"):
        with pytest.raises(DataError, match="covariate"):
            covariate(store.attributes, name)


@pytest.mark.parametrize("extrapolation", ["clip", "zero"])
def test_covariate_of_a_basis_that_hides_values_out_of_bounds_is_refused(extrapolation):
    formula = f"y ~ bs(x1, df=5, extrapolation='{extrapolation}')"
    store = from_table(TRAIN, formula=formula)
    with pytest.raises(DataError, match="without extrapolation 'clip' or 'zero', as covariate"):
        covariate(store.attributes, "x1")
    beside = from_table(TRAIN, formula=f"{formula} + x1")
    assert covariate(beside.attributes, "x1")[0].any()


def test_covariate_of_an_extended_basis_is_exact_out_of_bounds():
    formula = "y ~ bs(x1, df=5, extrapolation='extend')"
    store = from_table(TRAIN, formula=formula, dtype="float64")
    weights, constant = covariate(store.attributes, "x1")
    far = TRAIN["x1"].max() + np.array([0.0, 0.5, 1.0])
    (rows,) = encode_rows(store.attributes, {"x1": far})
    np.testing.assert_allclose(rows.X @ weights + constant, far, atol=1e-8)


@pytest.mark.parametrize(
    "options", [{"formula": "y ~ x1 + g"}, {"response": "y", "features": ["x1", "x2"]}]
)
def test_rows_like_those_of_a_store_may_be_constant_without_a_word(options, tmp_path):
    train = from_table(TRAIN, **options)
    scenario = TEST.head(20).assign(x1=2.5, x2=0.0, g="a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_table(scenario, like=train)
        from_table(scenario.head(1), like=train)
    assert [] == ingest(scenario, tmp_path / "rows.zarr", like=train)["warnings"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_table(scenario, **options)
    assert "column 'x1' is constant" in "; ".join(str(warning.message) for warning in caught)
