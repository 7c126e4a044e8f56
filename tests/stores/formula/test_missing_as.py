"""Missing values that stay in a formula: as a level of text, or by the mean and an indicator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import formulaic
import numpy as np
import pandas as pd
import pytest

import streammc
from streammc import scorer
from streammc.diagnostics.text import missing_text
from streammc.errors import ConfigError, DataError
from streammc.stores.formula.fitted import read_design
from streammc.stores.rows.row_blocks import whole
from streammc.stores.store import open_store

FORMULA = "y ~ x + z + g + x:g + I(x > 0)"
BOTH = ("level", "indicator")


@pytest.fixture(scope="module")
def frame() -> Any:
    rng = np.random.default_rng(5)
    n = 700
    x, z, g = rng.normal(3, 2, n), rng.normal(size=n), rng.choice(["a", "b", "n"], n).astype(object)
    y = (rng.random(n) < 1 / (1 + np.exp(-(x - 3) / 2 - z))).astype(int)
    x[rng.random(n) < 0.2], g[rng.random(n) < 0.1] = np.nan, None
    return pd.DataFrame({"y": y, "x": x, "z": z, "g": g})


def filled_by_pandas(frame: Any, mean: float | None = None) -> Any:
    """Return the table with its missing values filled in, independently of streammc."""
    g = pd.Categorical(frame["g"].fillna("missing"), ["a", "b", "n", "missing"])
    mark = frame["x"].isna().astype(float)
    x = frame["x"].fillna(frame["x"].mean() if mean is None else mean)
    return frame.assign(x=x, g=g, mark=mark)


def rows_of(store: Any) -> Any:
    """Return the rows of a store, on its scale."""
    return np.concatenate([whole(block).X for block in store.blocks()])


def raw_design(store: Any) -> Any:
    """Return the columns of a store on the scale of the table, without the intercept."""
    attributes = store.attributes
    X = rows_of(store)
    scale = attributes["standardization"]
    return (X * np.array(scale["scale"]) + np.array(scale["mean"]))[:, 1:]


def fitted(frame: Any, **options: Any) -> Any:
    with pytest.warns(UserWarning, match="missing values: "):
        return streammc.from_table(
            frame, formula=FORMULA, dtype="float64", shuffle=False, missing_as=BOTH, **options
        )


@pytest.mark.parametrize("source", ["frame", "csv", "parquet"])
def test_design_is_that_of_a_table_that_was_filled_in_before(
    frame: Any, tmp_path: Path, source: str
) -> None:
    given: Any = frame
    if source != "frame":
        given = tmp_path / f"t.{source}"
        getattr(frame, f"to_{source}")(given, index=False)
    store = fitted(given)
    expected = formulaic.model_matrix("x + z + g + x:g + I(x > 0) + mark", filled_by_pandas(frame))
    names = [name.replace("mark", "missing(x)") for name in expected.columns[1:]]
    found = raw_design(store)
    order = [list(store.attributes["features"][1:]).index(name) for name in names]
    assert len(order) == found.shape[1]
    np.testing.assert_allclose(found[:, order], expected.to_numpy(float)[:, 1:], atol=1e-12)


def test_stand_ins_are_counted_and_kept(frame: Any, tmp_path: Path) -> None:
    rows = {name: int(frame[name].isna().sum()) for name in "xg"}
    with pytest.warns(UserWarning, match="missing values: ") as caught:
        store = streammc.from_table(
            frame, path=tmp_path / "s.zarr", formula=FORMULA, missing_as=BOTH
        )
    said = [str(each.message) for each in caught]
    assert any(f"{rows['x']} of 'x' stand at" in line for line in said)
    assert any(f"{rows['g']} of 'g' are the level 'missing'" in line for line in said)
    kept = open_store(tmp_path / "s.zarr").attributes["formula"]["missing"]
    assert kept["x"]["value"] == pytest.approx(frame["x"].mean(), rel=1e-14)
    assert kept["g"] == {"value": "missing", "rows": rows["g"]}
    assert store.n_rows == len(frame)
    shown = missing_text(kept and {"missing": kept})
    assert shown == f"{rows['g']} of 'g' as a level; {rows['x']} of 'x' at {frame['x'].mean():.4g}"


def test_only_columns_that_lack_values_change(frame: Any) -> None:
    whole = frame.dropna().reset_index(drop=True)
    plain, asked = (
        streammc.from_table(whole, formula=FORMULA, missing_as=ways) for ways in (None, BOTH)
    )
    assert asked.fingerprint == plain.fingerprint
    assert "missing" not in asked.attributes["formula"]


def test_a_column_beside_its_mark_can_change_alone(frame: Any) -> None:
    with pytest.warns(UserWarning, match="missing values: "):
        store = streammc.from_table(frame, formula="y ~ x + z + g", missing_as=BOTH)
    assert store.only_together() == []


def test_level_is_never_the_reference_by_itself(frame: Any) -> None:
    late = frame.assign(g=frame["g"].replace({"a": "x", "b": "y", "n": "z"}))
    with pytest.warns(UserWarning, match="missing values: "):
        store = streammc.from_table(late, formula="y ~ g", missing_as="level")
    assert store.attributes["features"] == ["Intercept", "g[T.y]", "g[T.z]", "g[T.missing]"]


@pytest.mark.parametrize("ways", ["level", "indicator"])
def test_one_way_refuses_the_other_column(frame: Any, ways: str) -> None:
    name = {"level": "x", "indicator": "g"}[ways]
    with pytest.raises(DataError, match=f"column '{name}', found missing values without a stand"):
        streammc.from_table(frame, formula=FORMULA, missing_as=ways)


def test_rows_without_a_response_stay_refused_and_can_be_left_out(frame: Any) -> None:
    lost = frame.assign(y=frame["y"].where(frame.index >= 10))
    with pytest.raises(DataError, match="column 'y', found missing values"):
        streammc.from_table(lost, formula=FORMULA, missing_as=BOTH)
    with pytest.warns(UserWarning, match=r"left out: 10 \(10 in 'y'\)"):
        store = fitted(lost, drop_missing=True)
    assert store.n_rows == len(frame) - 10
    mean = store.attributes["formula"]["missing"]["x"]["value"]
    assert mean == pytest.approx(frame["x"][10:].mean(), rel=1e-14)


@pytest.mark.parametrize(
    ("formula", "error", "text"),
    [
        ("y ~ missing(x) + x", DataError, "give --missing-as indicator"),
        ("y ~ missing(x + z)", ConfigError, "give missing.. a column, and nothing else"),
        ("y ~ z + offset(x)", DataError, "column 'x', found missing values"),
        ("y ~ z + C(k)", DataError, "column 'k', found missing values without"),
    ],
)
def test_what_cannot_be_filled_is_refused(
    frame: Any, formula: str, error: type[Exception], text: str
) -> None:
    numbers = frame.assign(k=frame["g"].map({"a": 1.0, "b": 2.0, "n": 3.0}))
    ways = None if "missing(x)" in formula else BOTH
    with pytest.raises(error, match=text):
        streammc.from_table(numbers, formula=formula, missing_as=ways)


def test_text_that_is_the_level_already_is_refused(frame: Any) -> None:
    with pytest.raises(DataError, match="no value 'missing' in column 'g'"):
        streammc.from_table(
            frame.assign(g=frame["g"].replace({"a": "missing"})),
            formula="y ~ g",
            missing_as="level",
        )


@pytest.mark.parametrize("given", ["levels", 3, ["level", "mean"]])
def test_unknown_ways_are_refused(frame: Any, given: Any) -> None:
    with pytest.raises(ConfigError, match="expected 'level', 'indicator' or both"):
        streammc.from_table(frame, formula=FORMULA, missing_as=given)
    with pytest.raises(ConfigError, match="expected a formula with --missing-as"):
        streammc.from_table(frame, response="y", missing_as="level")


def test_new_rows_have_the_mean_of_the_fit(frame: Any) -> None:
    store = fitted(frame)
    mean = store.attributes["formula"]["missing"]["x"]["value"]
    few = frame[frame["x"].isna()].head(5)
    columns = ["x", "z", "g"]
    found = np.concatenate([X for _, X, _ in streammc.stores.encode_rows(store.attributes, few)])
    like = streammc.from_table(few, like=store, dtype="float64")
    np.testing.assert_allclose(rows_of(like), found, rtol=1e-14)
    by_hand = streammc.from_table(
        filled_by_pandas(few, mean)[[*columns, "y"]].astype({"g": str}), like=store, dtype="float64"
    )
    at = store.attributes["features"].index("missing(x)")
    same = rows_of(by_hand) == rows_of(like)
    assert same[:, np.arange(same.shape[1]) != at].all()
    assert not same[:, at].any()
    with pytest.raises(DataError, match="column 'z', found missing values without a stand-in"):
        streammc.from_table(few.assign(z=np.nan), like=store)


def test_append_fills_as_the_store_did(frame: Any, tmp_path: Path) -> None:
    fitted(frame, path=tmp_path / "s.zarr")
    streammc.append(frame.head(40), tmp_path / "s.zarr")
    grown = open_store(tmp_path / "s.zarr")
    X = raw_design(grown)
    np.testing.assert_allclose(X[-40:], X[:40], atol=1e-12)


def test_equal_rows_with_missing_values_are_one_cell() -> None:
    rng = np.random.default_rng(2)
    n = 70_000
    table = pd.DataFrame(
        {
            "y": rng.integers(0, 2, n),
            "x": rng.choice([1.0, 2.0, np.nan], n),
            "g": rng.choice(np.array(["a", "b", None], object), n),
        }
    )
    options: Any = {"formula": "y ~ x + g", "missing_as": BOTH, "dtype": "float64"}
    with pytest.warns(UserWarning, match="missing values: "):
        cells = streammc.from_table(table, cells="yes", **options)
    with pytest.warns(UserWarning, match="missing values: "):
        rows = streammc.from_table(table, **options)
    assert cells.n_rows == 18
    of_cells, of_rows = (each.attributes["formula"]["missing"] for each in (cells, rows))
    assert of_cells["g"] == of_rows["g"]
    assert of_cells["x"]["rows"] == of_rows["x"]["rows"]
    assert of_cells["x"]["value"] == pytest.approx(of_rows["x"]["value"], rel=1e-14)
    np.testing.assert_allclose(
        cells.attributes["standardization"]["mean"], rows.attributes["standardization"]["mean"]
    )


def test_stored_stand_ins_are_checked(frame: Any) -> None:
    document = dict(fitted(frame).attributes["formula"])
    assert read_design(document, "a store").document() == document
    for damaged in (
        {},
        {"x": {"value": "text", "rows": 1}},
        {"x": {"value": float("nan"), "rows": 1}},
        {"w": {"value": 1.0, "rows": 1}},
        [1],
    ):
        with pytest.raises(streammc.errors.StoreError, match="stands for a missing value"):
            read_design(document | {"missing": damaged}, "a store")


@pytest.fixture(scope="module")
def run(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("missing")
    with pytest.warns(UserWarning, match="missing values: "):
        streammc.fit(
            frame,
            "y ~ x + z + g",
            family="logistic",
            path=folder / "run",
            missing_as=BOTH,
            seed=3,
            draws=200,
            warmup=200,
        )
    return folder / "run"


def test_predictions_and_an_exported_model_fill_in_alike(frame: Any, run: Any) -> None:
    told = streammc.predict(run, frame)
    streammc.export(run, run.parent / "model.json")
    model = scorer.load(run.parent / "model.json")
    told_again = model.predict(frame)
    np.testing.assert_allclose(told_again["mean"], np.asarray(told["mean"]), atol=1e-6)
    by_hand = model.predict(frame.assign(g=frame["g"].fillna("missing")))
    np.testing.assert_array_equal(by_hand["mean"], told_again["mean"])
    set_to_mean = model.predict(filled_by_pandas(frame).astype({"g": str}))
    differs = np.asarray(set_to_mean["mean"]) != np.asarray(told_again["mean"])
    np.testing.assert_array_equal(differs, frame["x"].isna())  # missing(x) is 1 there
    with pytest.raises(DataError, match="'z', found missing values"):
        model.predict(frame.assign(z=np.nan))


def test_averages_leave_the_mark_as_it_is(frame: Any, run: Any) -> None:
    found = streammc.comparisons(run, frame, {"x": 1.0})
    draws = streammc.open_run(run).posterior
    beta = draws["beta"].stack(sample=("chain", "draw"))
    whole = filled_by_pandas(frame)
    columns = {"Intercept": 1.0, "x": whole["x"], "z": whole["z"], "missing(x)": whole["mark"]}
    columns |= {f"g[T.{level}]": whole["g"] == level for level in ("b", "n", "missing")}
    eta = sum(
        np.asarray(values, float).reshape(-1, 1) * beta.sel(feature=name).to_numpy()
        for name, values in columns.items()
    )
    up = eta + beta.sel(feature="x").to_numpy()
    exact = (1 / (1 + np.exp(-up)) - 1 / (1 + np.exp(-eta))).mean(axis=0)
    assert found["estimate"][0] == pytest.approx(exact.mean(), abs=0.01 * exact.std())


def test_averages_refuse_a_column_that_interacts_with_a_mark(frame: Any, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="missing values: "):
        streammc.fit(
            frame,
            "y ~ x + z + missing(x):z",
            family="logistic",
            path=tmp_path / "run",
            missing_as=BOTH,
            drop_missing=True,
            draws=40,
            warmup=40,
        )
    with pytest.raises(ConfigError, match=r"in no interaction with missing\(...\), found 'z'"):
        streammc.comparisons(tmp_path / "run", frame, "z")
