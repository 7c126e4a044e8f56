"""Formulas of several parameters: one design, and which column belongs to which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammc
from streammc import from_table
from streammc.errors import ConfigError, DataError
from streammc.stores.store import open_store

N = 90
RNG = np.random.default_rng(4)
TABLE: dict[str, Any] = {
    "y": RNG.normal(size=N),
    "x": RNG.normal(2.0, 1.0, N),
    "w": RNG.normal(size=N),
    "my col": RNG.normal(size=N),
    "g": np.array(["a", "b", "c"])[np.arange(N) % 3],
}


def columns_of(data: Any) -> dict[str, list[str]]:
    return {each["parameter"]: each["columns"] for each in data.attributes["designs"]}


@pytest.mark.parametrize(
    ("formula", "others", "features", "designs"),
    [
        (
            "y ~ x + w",
            "sigma ~ x",
            ["Intercept", "x", "w"],
            {"": ["Intercept", "x", "w"], "sigma": ["Intercept", "x"]},
        ),
        (
            "y ~ x",
            ["sigma ~ `my col` + I(w ** 2)", "phi ~ 1"],
            ["Intercept", "x", "my col", "I(w ** 2)"],
            {"": ["Intercept", "x"], "sigma": ["Intercept", "my col", "I(w ** 2)"],
             "phi": ["Intercept"]},
        ),
        (
            "y ~ w",
            ["sigma ~ x * g"],
            ["Intercept", "w", "x", "g[T.b]", "g[T.c]", "x:g[T.b]", "x:g[T.c]"],
            {"": ["Intercept", "w"],
             "sigma": ["Intercept", "x", "g[T.b]", "g[T.c]", "x:g[T.b]", "x:g[T.c]"]},
        ),
        (
            "y ~ x + g + g:x",
            "sigma ~ x * g",
            ["Intercept", "x", "g[T.b]", "g[T.c]", "g[T.b]:x", "g[T.c]:x"],
            {"": ["Intercept", "x", "g[T.b]", "g[T.c]", "g[T.b]:x", "g[T.c]:x"],
             "sigma": ["Intercept", "x", "g[T.b]", "g[T.c]", "g[T.b]:x", "g[T.c]:x"]},
        ),
    ],
)  # fmt: skip
def test_the_columns_of_each_formula(
    formula: str, others: Any, features: list[str], designs: dict[str, list[str]]
) -> None:
    data = from_table(TABLE, formula=formula, formula_for=others, dtype="float64", shuffle=False)
    assert sorted(data.feature_names) == sorted(features)
    assert columns_of(data) == designs
    whole = from_table(TABLE, formula=data.attributes["formula"]["text"], dtype="float64")
    assert whole.feature_names == data.feature_names
    assert "designs" not in whole.attributes
    alone = from_table(TABLE, formula=formula, dtype="float64", shuffle=False)
    names, rows = list(data.feature_names), next(iter(data.blocks()))
    own = next(iter(alone.blocks()))
    np.testing.assert_allclose(
        rows.X[:, [names.index(name) for name in alone.feature_names]], own.X, rtol=1e-12
    )


def test_tables_like_it_have_its_formulas(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    streammc.ingest(TABLE, path, formula="y ~ x + w", formula_for="sigma ~ w", shuffle=False)
    store = open_store(path)
    assert columns_of(store)["sigma"] == ["Intercept", "w"]
    like = from_table({key: TABLE[key][:9] for key in TABLE}, like=path)
    assert like.attributes["designs"] == store.attributes["designs"]
    streammc.append(TABLE, path)
    assert open_store(path).attributes["designs"] == store.attributes["designs"]


def test_equal_rows_become_cells() -> None:
    table = {"y": np.arange(400) % 2, "g": np.arange(400) // 2 % 4, "h": np.arange(400) % 5}
    data = from_table(table, formula="y ~ C(g) + C(h)", formula_for="logit_zi ~ C(g)", cells="yes")
    assert data.n_rows < 400
    assert len(columns_of(data)["logit_zi"]) == 4


@pytest.mark.parametrize(
    ("formula", "others", "kind", "found"),
    [
        ("y ~ x", "sigma", ConfigError, "--formula-for 'PARAMETER ~ terms', found 'sigma'"),
        ("y ~ x", "log(sigma) ~ x", ConfigError, "found 'log(sigma) ~ x'"),
        ("y ~ x", ["s ~ x", "s ~ w"], ConfigError, "one formula for 's', found two"),
        ("y ~ x", "s ~ x - 1", ConfigError, "found no intercept in --formula-for"),
        ("y ~ x - 1", "s ~ x", ConfigError, "found no intercept in --formula:"),
        ("y ~ x", "s ~ offset(x)", ConfigError, "found an offset"),
        ("y ~ x + (1 | g)", "s ~ x", ConfigError, "found groups"),
        ("y ~ x", "s ~ 2:x", ConfigError, "without numbers"),
        ("y ~ x", 3, ConfigError, "texts as formula_for, found 3"),
        (None, "s ~ x", ConfigError, "expected a --formula beside"),
        ("y ~ x", "s ~ g:x", ConfigError, "coded in another way"),
        ("y ~ x", "s ~ nothing", DataError, "nothing"),
    ],
)
def test_formulas_that_are_refused(
    formula: str | None, others: Any, kind: type[Exception], found: str
) -> None:
    response = "y" if formula is None else None
    with pytest.raises(kind) as caught:
        from_table(TABLE, formula=formula, formula_for=others, response=response)
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_that_no_formula_has_is_refused() -> None:
    table = {**TABLE, "x": np.where(np.arange(N) % 7 == 0, np.nan, TABLE["x"])}
    with pytest.raises(ConfigError, match=r"found 'missing\(x\)' in none: leave out --missing-as"):
        from_table(table, formula="y ~ x", formula_for="s ~ w", missing_as="indicator")
