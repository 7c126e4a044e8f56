"""Advice in errors about values that are no numbers, by their kind and the role of the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.ingestion import from_table
from streammc.stores.ingest.new_rows import encode_rows


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "y": [0, 1, 1, 0],
            "x": [0.5, 1.5, 3.0, 2.0],
            "price": ["13,081", "9,5", "1.204,75", "7"],
            "helmet": ["yes", "no", "no", "yes"],
            "air time": ["long", "short", "short", "long"],
        }
    )


def message(table: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        from_table(table, **options)
    return str(caught.value)


@pytest.fixture(params=["frame", "csv"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "frame":
        return frame()
    frame().to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_row_is_said_to_be_counted_from_one(table: Any) -> None:
    found = message(table, response="y", features=["helmet"])
    assert "first in data row 1 of " in found
    assert ", counted from 1 ('yes')" in found


def test_numbers_with_a_decimal_comma_are_named(table: Any) -> None:
    found = message(table, response="y", features=["price"])
    assert "found numbers with a decimal comma in 3 rows" in found
    assert "write them with a point, as by pandas.read_csv(..., decimal=',')" in found
    assert "C(" not in found


def test_other_text_comes_before_numbers_with_a_decimal_comma() -> None:
    table = frame()
    table.loc[2, "price"] = "on request"
    found = message(table, response="y", features=["price"])
    assert "found text in 1 row, first in data row 3 of" in found
    assert found.endswith("or take it as a factor: --formula 'y ~ C(price)'")


def test_text_response_gets_a_formula_that_works(table: Any) -> None:
    for options in ({"response": "helmet", "features": ["x"]}, {"formula": "helmet ~ x"}):
        found = message(table, **options)
        assert "write the response as 0 and 1, or count 'yes' as 1 and 'no' as 0" in found
        assert "--features" not in found
        formula = found.partition("--formula '")[2].removesuffix("'").replace("...", "x")
        assert 'I(helmet == "yes") ~ x' == formula
        store = from_table(table, formula=formula, shuffle=False)
        assert [1, 0, 0, 1] == store.rows().arrays[1].tolist()


def test_text_response_of_a_name_with_blanks_is_quoted() -> None:
    found = message(frame(), response="air time", features=["x"])
    assert "count 'short' as 1 and 'long' as 0 in a formula: --formula 'I(`air" in found
    assert "--formula 'I(`air time` == \"short\") ~ ...'" in found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("yes", "no"),
        ("TRUE", "False"),
        ("Y", "N"),
        ("pos", "neg"),
        ("1", "none"),
        ("late", "not late"),
        ("smoker", "Non-smoker"),
        ("claim", "no claim"),
        ("churned", "no"),
        ("yes", "perhaps"),
        ("survived", "died"),
    ],
)
def test_advice_for_a_yes_no_response_counts_the_natural_success(
    one: str, other: str, reverse: bool
) -> None:
    values = [one, other] if reverse else [other, one]
    table = frame().assign(helmet=values * 2)
    found = message(table, response="helmet", features=["x"])
    assert f"count {one!r} as 1 and {other!r} as 0 in a formula" in found
    assert found.endswith(f"--formula 'I(helmet == \"{one}\") ~ ...'")


def test_advice_for_a_response_of_several_texts_chooses_none_but_a_yes() -> None:
    table = frame().assign(helmet=["no", "some", "n/a", "on"])
    assert 'I(helmet == "on")' in message(table, response="helmet", features=["x"])
    found = message(table.assign(helmet=list("abca")), response="helmet", features=["x"])
    assert 'name the value that counts as 1 in a formula: --formula \'I(helmet == "VALUE")' in found


def test_a_comparison_with_a_text_that_no_row_has_is_a_warning(table: Any) -> None:
    said = r"no row has 'yess' in column 'helmet', .* such as 'yes'"
    with pytest.warns(UserWarning, match=said):
        store = from_table(table, formula="I(helmet == 'yess') ~ x")
    assert [0, 0, 0, 0] == store.rows().arrays[1].tolist()
    from_table(table, formula="I(helmet != 'yes') ~ x")


@pytest.mark.parametrize("text", ['"yes"', "it's", "a" * 41, "back\\slash"])
def test_text_response_that_no_formula_can_hold_is_to_be_written_as_numbers(text: str) -> None:
    table = frame().assign(helmet=text)
    assert message(table, response="helmet", features=["x"]).endswith("as 0 and 1")


@pytest.mark.parametrize("role", ["offset", "weight", "trials"])
def test_text_in_a_column_with_a_role_names_its_option(table: Any, role: str) -> None:
    for options in ({"response": "y", "features": ["x"]}, {"formula": "y ~ x"}):
        found = message(table, **options, **{role: "helmet"})
        assert found.endswith(f"correct the column given to --{role}")


@pytest.mark.parametrize("options", [{"formula": "y ~ C(z)"}, {"formula": "y ~ z"}, {}])
def test_text_below_the_rows_that_decide_the_type_gets_advice_that_works(
    options: dict[str, str], tmp_path: Path
) -> None:
    lines = "y,z\n" + "0,1\n1,2\n" * 150_000 + "1,A\n"
    (tmp_path / "t.csv").write_text(lines)
    found = message(tmp_path / "t.csv", **(options or {"response": "y"}))
    assert "found text in 1 row, first in data row 300001 of" in found
    assert "C(" not in found
    assert ": correct the row, leave the column out, or, for a factor, save it as text in" in found
    assert found.endswith("as pandas.read_csv(..., dtype={'z': str}) reads it")
    table = pd.read_csv(tmp_path / "t.csv", dtype={"z": str})
    table.to_parquet(tmp_path / "t.parquet")
    store = from_table(tmp_path / "t.parquet", formula="y ~ C(z)")
    assert ("Intercept", "C(z)[T.2]", "C(z)[T.A]") == store.feature_names


@pytest.mark.parametrize("formula", ["y ~ C(z)", "y ~ z", None])
@pytest.mark.parametrize("values", [["1", "3"], ["1", "B"]])
def test_text_where_the_store_has_numbers_gets_advice_that_works(
    formula: str | None, values: list[str], tmp_path: Path
) -> None:
    table = pd.DataFrame({"y": [0, 1, 1, 0], "z": [1, 2, 3, 1]})
    how = {"response": "y"} if formula is None else {"formula": formula}
    store = from_table(table, **how)
    found = message(pd.DataFrame({"y": [0, 1], "z": values}), like=store)
    assert found.endswith("write numbers, as in the table that the store was made of")
    again = pd.DataFrame({"y": [0, 1, 1], "z": [2, 3, 1]})
    assert 3 == from_table(again, like=store).n_rows
    with pytest.raises(DataError, match="write numbers, as in the table that the store was made"):
        list(encode_rows(store.attributes, pd.DataFrame({"z": values})))
