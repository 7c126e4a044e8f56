"""The streamed fit of a formula is the one that formulaic makes in memory."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import formulaic
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from streammc.errors import DataError
from streammc.stores import open_store
from streammc.stores.formula import state_fitters
from streammc.stores.formula.fitted import check_document, read_design
from streammc.stores.formula.state_fitters import Sample
from streammc.stores.ingest import table_blocks
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.rows.row_blocks import whole

FORMULAS = [
    "late ~ distance + C(origin) * bs(time, df=10)",
    "late ~ (distance + origin + C(month)) ** 2 - distance:origin",
    "late ~ C(origin, contr.treatment('JFK')) + poly(distance, 4)",
    "late ~ C(origin, Treatment('JFK')) + C(month, contr.sum)",
    "late ~ C(month, contr.helmert) * distance + C(origin, Sum) + C(month, contr.poly):night",
    "late ~ 0 + C(origin, contr.poly) + C(month, Helmert)",
    "late ~ 0 + origin:month + cr(time, df=5, constraints='center') + center(log(distance))",
    "log(price) ~ scale(`air time`) + I(distance ** 2) + poly(time, 2, raw=True) + cc(time, df=4)",
    "late ~ bs(`air time`, knots=[98, 101], degree=2) / origin",
    "late ~ 0 + C(origin) + C(night):bs(time, df=5, include_intercept=True)",
    "late ~ night + C(night):time + 2:distance + exp(center(time) / 10)",
    "late ~ I(origin == 'ORD') + C(I(distance > 500)) + scale(distance, scale=False)",
    "late ~ scale(time, center=False, ddof=0) + cr(distance, knots=[300, 900]) + sqrt(price) - 1",
    "late ~ C(month, levels=[12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]) ^ 2 + abs(time - 12)",
    "I(late + price) ~ bs(center(distance), df=6, degree=1) + bs(time, df=4, lower_bound=-1, "
    "upper_bound=30, extrapolation='clip')",
]
PLAIN: dict[str, Any] = {"standardize": False, "shuffle": False, "dtype": "float64"}


def make_frame(rows: int = 3_000) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    return pd.DataFrame(
        {
            "late": rng.integers(0, 2, rows),
            "distance": rng.gamma(2, 300, rows),
            "origin": rng.choice(["ORD", "ABE", "São Paulo", "JFK"], rows),
            "time": rng.uniform(0, 24, rows),
            "month": rng.integers(1, 13, rows),
            "air time": rng.normal(100, 3, rows),
            "night": rng.random(rows) < 0.3,
            "price": rng.uniform(0.5, 2, rows),
        }
    )


def design_of(store: Any) -> tuple[Any, Any]:
    (block,) = [whole(block) for block in store.blocks()]
    return block.X, block.y


def in_memory(formula: str, frame: pd.DataFrame) -> Any:
    functions = {"sqrt": np.sqrt, "abs": np.abs}
    return formulaic.model_matrix(formula, frame, context=functions, output="pandas")


@pytest.mark.parametrize("rows_per_block", [7, 1_000, 262_144])
@pytest.mark.parametrize("formula", FORMULAS)
def test_the_streamed_design_is_the_one_in_memory(
    formula: str, rows_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame(300 if rows_per_block == 7 else 3_000)
    expected = in_memory(formula, frame)
    monkeypatch.setattr(table_blocks, "block_rows", lambda columns: rows_per_block)
    store = from_table(frame, formula=formula, **PLAIN)
    X, y = design_of(store)
    assert list(expected.rhs.columns) == list(store.feature_names)
    size = np.abs(expected.rhs.to_numpy()).max(axis=0)
    assert_allclose(X / size, expected.rhs.to_numpy() / size, rtol=0, atol=1e-12)
    assert_allclose(y, expected.lhs.to_numpy()[:, 0], rtol=1e-14)


def test_levels_and_knots_are_those_in_memory() -> None:
    frame = make_frame()
    spec = in_memory(FORMULAS[0], frame).rhs.model_spec
    states = from_table(frame, formula=FORMULAS[0], **PLAIN).attributes["formula"]["states"]
    kept = spec.transform_state["bs(time, df=10)"]
    assert kept["knots"] == states["bs(time, df=10)"]["knots"]
    assert list(spec.encoder_state["C(origin)"][1]["categories"]) == states["C(origin)"]["levels"]
    assert "ABE" == states["C(origin)"]["reference"]


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=701)
    return path


def test_every_format_gives_the_same_store(tmp_path: Path) -> None:
    frame = make_frame()
    formula = FORMULAS[0] + " + offset(log(price)) + C(night)"
    stores = [from_table(frame, formula=formula, seed=5)]
    for name in ("t.csv", "t.parquet"):
        ingest(write(frame, tmp_path / name), tmp_path / f"{name}.zarr", formula=formula, seed=5)
        stores.append(open_store(tmp_path / f"{name}.zarr"))
    blocks = [whole(store.blocks()[0]) for store in stores]
    for other, store in zip(blocks[1:], stores[1:], strict=True):
        assert blocks[0].X.tobytes() == other.X.tobytes()
        assert blocks[0].offset.tobytes() == other.offset.tobytes()
        assert stores[0].attributes["formula"] == store.attributes["formula"]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dictionary_column_is_a_factor_in_its_order_without_unused_categories(ordered) -> None:
    frame = make_frame()
    order = ["ORD", "none", "JFK", "ABE", "São Paulo"]
    frame["origin"] = pd.Categorical(frame["origin"], order, ordered=ordered)
    store = from_table(frame, formula="late ~ origin", **PLAIN)
    assert ["Intercept", "origin[T.JFK]", "origin[T.ABE]", "origin[T.São Paulo]"] == list(
        store.feature_names
    )


def test_a_category_of_numbers_is_a_factor() -> None:
    frame = make_frame()
    frame["month"] = pd.Categorical(frame["month"])
    store = from_table(frame, formula="late ~ month", **PLAIN)
    expected = in_memory("late ~ month", frame).rhs
    assert list(expected.columns) == list(store.feature_names)
    assert_array_equal(expected.to_numpy(), design_of(store)[0])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_text_of_any_arrow_type_gives_the_same_levels(kind: Any) -> None:
    words = ["b", "a", None, "é", "a"]
    table = pa.table({"y": [0, 1, 0, 1, 1], "g": pa.array(words).cast(kind)})
    with pytest.warns(UserWarning, match="left out: 1"):
        store = from_table(table, formula="y ~ 0 + g", drop_missing=True, **PLAIN)
    assert ("g[a]", "g[b]", "g[é]") == store.feature_names
    assert_array_equal([[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]], design_of(store)[0])


def test_a_store_on_disk_is_that_in_memory(tmp_path: Path) -> None:
    frame = make_frame()
    stores = [from_table(frame, formula=FORMULAS[0], path=path) for path in (None, tmp_path / "s")]
    assert design_of(stores[0])[0].tobytes() == design_of(stores[1])[0].tobytes()
    assert stores[0].attributes == stores[1].attributes


def test_a_level_in_the_last_row_alone_is_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = make_frame()
    frame.loc[len(frame) - 1, "origin"] = "ZRH"
    monkeypatch.setattr(table_blocks, "block_rows", lambda columns: 64)
    store = from_table(frame, formula="late ~ origin", **PLAIN)
    X, _ = design_of(store)
    assert "origin[T.ZRH]" == store.feature_names[-1]
    assert_array_equal(np.flatnonzero(X[:, -1]), [len(frame) - 1])


def test_offsets_add_up_and_stay_out_of_the_design() -> None:
    frame = make_frame()
    store = from_table(
        frame, formula="late ~ time + offset(log(price)) + offset(distance)", **PLAIN
    )
    (block,) = [whole(block) for block in store.blocks()]
    assert_allclose(block.offset, np.log(frame["price"]) + frame["distance"], rtol=1e-15)
    assert ("Intercept", "time") == store.feature_names
    assert "offset(log(price)) + offset(distance)" == store.attributes["offset"]


def test_standardisation_centres_only_beside_an_intercept() -> None:
    frame = make_frame()
    for formula, mean in (("late ~ time", frame["time"].mean()), ("late ~ 0 + time", 0.0)):
        record = from_table(frame, formula=formula).attributes["standardization"]
        assert record["mean"][-1] == pytest.approx(mean, rel=1e-12)
        assert record["scale"][-1] == pytest.approx(frame["time"].std(ddof=0), rel=1e-12)
    frame["time"] += 1e7  # which float32 cannot hold without its mean
    from_table(frame, formula="late ~ time")
    with pytest.raises(DataError, match="'time' to fit into float32"):
        from_table(frame, formula="late ~ 0 + time")


def test_levels_of_factors_are_centred_but_not_scaled() -> None:
    frame = make_frame()
    store = from_table(frame, formula="late ~ origin * C(night) + origin:time + I(time > 3)")
    record = store.attributes["standardization"]
    for name, mean, scale in zip(
        store.feature_names[1:], record["mean"][1:], record["scale"][1:], strict=True
    ):
        number = "time" in name
        assert mean > 0
        assert number == (scale != 1), name
    none = from_table(frame, formula="late ~ 0 + origin").attributes["standardization"]
    assert {"mean": [0.0] * 4, "scale": [1.0] * 4} == none


def test_many_constant_columns_give_few_warnings(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": [0, 1] * 20, "g": [*"abcdefghij"] * 4, "h": [*"klmnopqrst"] * 4})
    report = ingest(frame, tmp_path / "s", formula="y ~ g:h")
    assert 5 == len(report["warnings"])
    assert all("constant (0)" in line and "more such" in line for line in report["warnings"])


def test_rows_with_missing_values_are_left_out_of_the_fit_too() -> None:
    frame = make_frame()
    frame.loc[::7, "time"] = np.nan
    frame.loc[3, "origin"] = None
    frame.loc[frame["time"].isna(), "origin"] = "gone"
    used = frame.dropna(subset=["time", "origin"]).reset_index(drop=True)
    formula = "late ~ origin + bs(time, df=5)"
    with pytest.warns(UserWarning, match="left out: 430"):
        store = from_table(frame, formula=formula, drop_missing=True, **PLAIN)
    expected = in_memory(formula, used).rhs
    assert 430 == len(frame) - len(used) == store.attributes["n_dropped"]
    found = dict(zip(store.feature_names, design_of(store)[0].T, strict=True))
    for name, column in expected.items():
        assert_allclose(found[name], column, atol=1e-12)


def test_knots_come_from_a_sample_where_the_table_is_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = make_frame()
    monkeypatch.setattr(state_fitters, "SAMPLE_ROWS", 500)
    found = [
        from_table(frame, formula="late ~ bs(time, df=5)", seed=seed).attributes["formula"]
        for seed in (1, 1, 2)
    ]
    knots = [each["states"]["bs(time, df=5)"]["knots"] for each in found]
    assert knots[0] == knots[1] != knots[2]
    assert found[0]["states"]["bs(time, df=5)"]["sampled"]
    # Bounds are exact; a quantile p of 500 of 3000 rows has sd sqrt(p (1 - p) / 500) * 24.
    assert (frame["time"].min(), frame["time"].max()) == (knots[0][0], knots[0][-1])
    sd = 24 * np.sqrt(2 / 9 / 500)
    assert_allclose(knots[0][4:6], np.quantile(frame["time"], [1 / 3, 2 / 3]), atol=4.5 * sd)


@pytest.mark.parametrize("step", [1, 13, 1_000])
def test_the_reservoir_is_uniform_and_does_not_see_the_blocks(step: int) -> None:
    rows = np.arange(1_000.0)
    total = np.zeros(1_000)
    for seed in range(400):
        sample = Sample(seed, 100)
        for start in range(0, 1_000, step if seed == 0 else 1_000):
            sample.add(rows[start : start + (step if seed == 0 else 1_000)])
        if seed == 0:
            whole = Sample(0, 100)
            whole.add(rows)
            assert_array_equal(whole.values, sample.values)
        assert 100 == np.unique(sample.values).size
        total[sample.values.astype(int)] += 1
    # Each row is taken with probability 0.1: ten groups of 100 rows, 400 samples.
    groups = total.reshape(10, 100).sum(axis=1)
    assert_allclose(groups, 4_000, atol=4.5 * np.sqrt(4_000 * 0.9))


def test_the_state_is_plain_json_and_gives_the_same_design(tmp_path: Path) -> None:
    frame = make_frame()
    for formula in FORMULAS:
        document = from_table(frame, formula=formula, **PLAIN).attributes["formula"]
        again = json.loads(json.dumps(document, allow_nan=False))
        assert document == again
        check_document(again, "a store")
        assert document == read_design(again, "a store").document()


def test_a_store_with_a_formula_is_described(tmp_path: Path) -> None:
    from command_line import streammc

    source = write(make_frame(), tmp_path / "t.csv")
    made = streammc("ingest", source, tmp_path / "s", "--formula", "late ~ origin", "--json")
    assert 0 == made.code
    assert "late ~ origin" == made.json["formula"]["text"]
    assert "formula" in streammc("info", tmp_path / "s").out
    assert "late ~ origin" in streammc("info", tmp_path / "s").out
    again = streammc("ingest", source, tmp_path / "s", "--formula", "late ~ origin")
    assert (0, True) == (again.code, "nothing to do" in again.err)
    other = streammc("ingest", source, tmp_path / "s", "--formula", "late ~ month")
    assert 78 == other.code


def test_a_factor_of_numbers_with_a_decimal_comma_is_warned_of():
    table = pd.DataFrame({"y": [0, 1, 0, 1], "price": ["1,5", "2,5", "1.200,5", "n"]})
    with pytest.warns(UserWarning, match=r"price is text, a factor of 4 levels .*decimal comma"):
        from_table(table, formula="y ~ price")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_table(table.assign(price=["a,5", "b", "1,5", "c"]), formula="y ~ price")


@pytest.mark.parametrize(
    ("terms", "references"),
    [
        ("distance + origin", {"origin[T.JFK]": ["origin[ABE]"]}),
        ("0 + origin", {}),
        ("distance:origin", {}),
        ("distance * origin", {"distance:origin[T.JFK]": ["origin[ABE]"]}),
        ("0 + C(month) + origin", {"origin[T.JFK]": ["origin[ABE]"]}),
        (
            "C(month) * C(origin, contr.treatment('JFK'))",
            {
                "C(month)[T.2]:C(origin, contr.treatment('JFK'))[T.ABE]": [
                    "C(month)[1]",
                    "C(origin, contr.treatment('JFK'))[JFK]",
                ]
            },
        ),
    ],
)
def test_references_are_the_levels_that_the_design_leaves_out(terms, references) -> None:
    found = from_table(make_frame(), formula=f"late ~ {terms}", **PLAIN).references()
    assert references == {name: found.get(name) for name in references}
    assert bool(references) == bool(found)
