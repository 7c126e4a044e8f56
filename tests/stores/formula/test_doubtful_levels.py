"""Warnings about factors: text whose levels are mostly numbers, and factors of one level."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

from streammc.stores.ingest.ingestion import from_table


def said(values: list[str], formula: str = "y ~ x", name: str = "x") -> list[str]:
    table = pd.DataFrame({"y": [k % 2 for k in range(2 * len(values))], name: values * 2})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_table(table, formula=formula)
    return [str(warning.message) for warning in caught]


def test_one_stray_text_in_a_column_of_numbers_is_named() -> None:
    (line,) = said(["1.5", "-2", "3e4", "?"])
    assert "x is text, a factor of 4 levels of which 3 are numbers and 1 not ('?')" in line
    assert line.endswith(
        ": correct or empty the others to have one column, or write C(x) if a factor is meant"
    )


def test_decimal_commas_in_fewer_than_half_of_the_levels_are_named() -> None:
    (line,) = said(["1", "2", "3", "0,5", "1,5"])
    assert "5 levels of which 5 are numbers, some with a decimal comma ('0,5'): write" in line
    (line,) = said(["1", "2", "a", "0,5", "1,5"])
    assert "5 levels of which 4 are numbers and 1 not ('a'), some with a decimal comma" in line


def test_text_of_numbers_alone_is_named() -> None:
    (line,) = said(["01000", "02000"])
    assert "2 levels of which 2 are numbers: write the column as numbers to have one" in line


def test_advice_quotes_a_name_of_two_words() -> None:
    (line,) = said(["1", "2", "?"], "y ~ `my x`", "my x")
    assert line.endswith("or write C(`my x`) if a factor is meant")


@pytest.mark.parametrize(
    ("values", "formula"),
    [
        (["1", "2", "3", "?"], "y ~ C(x)"),
        (["1", "a", "b"], "y ~ x"),
        (["1", "a"], "y ~ x"),
        (["v1", "v2", "v3"], "y ~ x"),
    ],
)
def test_a_factor_that_is_meant_is_not_named(values: list[str], formula: str) -> None:
    assert [] == said(values, formula)


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("y ~ x + g", ["g makes no column: g has one level ('a')"]),
        ("y ~ C(k) + x", ["C(k) makes no column: C(k) has one level (3)"]),
        ("y ~ g:x", ["g:x makes no column: g has one level ('a')"]),
        ("y ~ z + z:g", ["z:g makes no column: g has one level ('a')"]),
        ("y ~ z:g", []),
        ("y ~ 0 + g + x", []),
        ("y ~ x + z", []),
    ],
)
def test_a_factor_of_one_level_that_makes_no_column_is_named(
    formula: str, named: list[str]
) -> None:
    table = pd.DataFrame({"y": [0, 1] * 4, "x": list("uvvu") * 2, "z": range(8), "g": "a", "k": 3})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = from_table(table, formula=formula)
    found = [str(warning.message) for warning in caught]
    assert named == [line.partition(" in the rows")[0] for line in found]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_table(table, like=store)
