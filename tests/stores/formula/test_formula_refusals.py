"""Formulas and tables that do not fit: the message names what and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import streammc

from streammc.errors import ConfigError, DataError
from streammc.stores.formula.parser import read_terms
from streammc.stores.ingest.ingestion import from_table


def frame(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 2, rows),
            "x": rng.normal(size=rows),
            "z": rng.uniform(1, 2, rows),
            "g": rng.choice(["a", "b", "c"], rows),
            "zip": [f"{row:05d}" for row in range(rows)],
        }
    )


FORMULAS = {
    "": "an empty one",
    "   ": "an empty one",
    "y": "response left",
    "~ x": "response left",
    "y ~": "1 for the intercept alone",
    "y ~ x ~ z": "response left",
    "y ~ 0": "at least one term",
    "y + x ~ z": "expected one response",
    "y * z ~ x": "expected one response",
    "1 ~ x": "expected one response",
    "C(y) ~ x": "one number per row",
    "bs(y, df=5) ~ x": "one number per row",
    "y ~ x + y": "found 'y' also right",
    "log(y) ~ bs(y, df=5)": "found 'y' also right",
    "y ~ x + 3": "may only multiply",
    "y ~ x + (z": "every parenthesis",
    "y ~ x)": "close what is open",
    "y ~ x z": "has spaces in backquotes: `x z`",
    "y ~ log(x) z": "write an operator such as + before it",
    "y ~ x ** z": "at most 5000 terms",
    "y ~ lgo(x)": "did you mean 'log'",
    "y ~ frobnicate(x)": "choose from",
    "y ~ np.log(x)": "functions have no prefix; write log(x)",
    "y ~ C(g, Diff())": "write C(g) or C(g, contr.helmert)",
    "y ~ Sum(g)": "it is a coding of a factor: C(column, Sum)",
    "y | trials(n) ~ x": "--trials n (in Python trials='n')",
    "y | cens(c) ~ x": "--censored c (in Python censored='c')",
    "Surv(y, c) ~ x": "write y ~ ..., and --censored",
    "y | weights(w) ~ x": "--weight w (in Python weight='w')",
    "cbind(y, n) ~ x": "write y ~ ..., and --trials (in",
    "y ~ factor(g)": "write C(g)",
    "y ~ as.factor(g)": "write C(column)",
    "g == 'a' ~ x": "write a comparison as I(g == 'a')",
    "y ~ s(x)": "write bs(x, df=10) or cr(x, df=10)",
    "y ~ C(g, contr.sum(2))": "contr.sum, contr.helmert or contr.poly",
    "y ~ Q('air time')": "write a column name in backquotes, `air time`",
    "y ~ standardize(x)": "write scale(x)",
    "y ~ log(3)": "use columns, numbers and known functions",
    "y ~ log()": "use columns, numbers and known functions",
    "y ~ log(x, 2)": "use columns, numbers and known functions",
    "y ~ log(C(x))": "use columns, numbers and known functions",
    "y ~ bs(poly(x, 2), df=5)": "use columns, numbers and known functions",
    "y ~ bs(x, df='5')": "whole number",
    "y ~ bs(x, df=-5)": "whole number",
    "y ~ bs(x, df=5.5)": "whole number",
    "y ~ bs(x, df=10000)": "whole number",
    "y ~ bs(x, dg=5)": "'dg' of bs",
    "y ~ bs(x, 5, df=5)": "'df' of bs",
    "y ~ bs(x, knots=3)": "a list",
    "y ~ bs(x, knots=[])": "1 to 4096",
    "y ~ bs(x, df=5, extrapolation='na')": "'raise' or",
    "y ~ scale(x, center=2)": "True or False",
    "y ~ C(g, 'a')": "contr.treatment",
    "y ~ C(g, contr.sdif)": "'.'",
    "y ~ x:offset(z)": "term of its own",
    "y ~ x > 3": "'>'",
    "y = x": "write '~' between the response and the terms",
    "y ~ x = 3": "only terms",
    "y ~ 'x'": "only terms",
    "y ~ 1e3:x": "exponent",
    "y ~ x.z": "backquotes",
    "y ~ x | z": "groups in parentheses",
    "y ~ I(x == 1 == 2)": "use columns, numbers and known functions",
    "y ~ I(x + z == 'a')": "use columns, numbers and known functions",
}

TABLES = {
    "y ~ q": "'q' as a column of the formula",
    "y ~ log(zz)": "did you mean 'z'",
    "yy ~ x": "did you mean 'y'",
    "y ~ log(g)": "expected numbers in column 'g', found text in 200 rows",
    "g ~ x": "expected numbers in column 'g'",
    "y ~ x + g:log(g)": "expected numbers in column 'g'",
    "y ~ I(x == 'a')": "expected text in column 'x'",
    "y ~ log(x)": r"finite numbers in column 'log\(x\)', found undefined results in \d+ rows",
    "y ~ I(1 / (x - x))": "undefined results in 200 rows",
    "y ~ bs(log(x), df=5)": r"in column 'bs\(log\(x\), df=5\)'",
    "log(x) ~ z": r"in column 'log\(x\)'",
    "y ~ offset(sqrt(x))": r"in column 'offset\(sqrt\(x\)\)'",
    "y ~ C(zip, contr.treatment('0019x'))": "did you mean '00",
    "y ~ C(g, contr.treatment('z'))": "choose among 'a', 'b', 'c'",
    "y ~ C(g, levels=['a', 'b'])": "found 'c' in the data",
    "y ~ bs(z, df=5, upper_bound=1.5)": "values out of bounds in",
    "y ~ bs(z, df=2)": "change its options",
    "y ~ bs(z, df=5, lower_bound=7, upper_bound=9)": "change the bounds",
    "y ~ cr(z)": "df",
    "y ~ cr(z, knots=[0.5])": "expected the knots of",
    "y ~ poly(I(x > 0), 2)": "lower its degree",
    "y ~ scale(I(z - z))": "constant",
    "y ~ `C(g)` + x": "the column 'C",
    "y ~ zip * C(zip)": "at most 4096 columns",
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_invalid_formula_is_refused(formula: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_terms(formula)
    assert FORMULAS[formula] in str(error.value)


@pytest.mark.parametrize("formula", TABLES)
def test_a_formula_that_does_not_fit_the_table_is_refused(formula: str) -> None:
    with pytest.raises(DataError, match=TABLES[formula]):
        from_table(frame(), formula=formula)


def test_a_factor_of_very_many_levels_is_refused_by_name() -> None:
    table = frame(10_000)
    for formula in ("y ~ x + C(zip)", "y ~ zip", "y ~ C(x)"):
        with pytest.raises(DataError, match=r"at most 4096 levels in .* found \d+: group"):
            from_table(table, formula=formula)
    with pytest.raises(DataError, match="at most 4096 columns from the formula, found more: 'C"):
        from_table(table.iloc[:3_000], formula="y ~ g * C(zip)")


@pytest.mark.parametrize("rows", [3, 200])
def test_missing_values_are_refused_by_column_row_and_count(rows: int) -> None:
    table = frame(rows)
    table.loc[[1, 2], "g"] = None
    with pytest.raises(DataError, match=r"column 'g', found missing values in 2 rows, .* row 2"):
        from_table(table, formula="y ~ x + C(g)")
    table = frame(rows)
    table.loc[2, "x"] = np.inf
    with pytest.raises(DataError, match=r"column 'x', found infinite values in 1 row, .* row 3"):
        from_table(table, formula="y ~ center(x)")


def test_rows_are_numbered_in_the_table_also_where_some_are_left_out() -> None:
    table = frame()
    table["x"] = table["z"]
    table.loc[[0, 5, 6], "g"] = None
    table.loc[[5, 9, 11], "x"] = -1.0
    with pytest.raises(DataError, match=r"'log\(x\)', .* in 2 rows, first in data row 10 "):
        from_table(table, formula="y ~ log(x) + g", drop_missing=True)
    table["w"] = np.where(np.arange(200) == 12, -1.0, 1.0)
    with pytest.raises(DataError, match=r"'w', found negative weights .* first in data row 13"):
        from_table(table, formula="y ~ z + g", weight="w", drop_missing=True)


def test_a_table_without_a_usable_row_is_refused() -> None:
    table = frame(3)
    with pytest.raises(DataError, match="at least one row"):
        from_table(table.iloc[:0], formula="y ~ x")
    table["x"] = np.nan
    with pytest.raises(DataError, match="3 rows, all with missing values"):
        from_table(table, formula="y ~ center(x)", drop_missing=True)


CONFLICTS: list[tuple[dict[str, Any], str, int]] = [
    ({"--response": "y"}, "leave out --response", 2),
    ({"--features": "x"}, "leave out --features", 2),
    ({"--no-intercept": None}, "- 1", 2),
    ({"--offset": "z"}, "one offset", 2),
    ({"--weight": "x"}, "'x' in the formula and as weight", 65),
    ({"--weight": "q"}, "'q' as weight", 65),
    ({"--weight": "g"}, "expected numbers in column 'g'", 65),
]


@pytest.mark.parametrize(("options", "culprit", "code"), CONFLICTS)
def test_options_that_contradict_the_formula_are_refused(
    options: dict[str, Any], culprit: str, code: int, tmp_path: Path
) -> None:
    frame().to_csv(tmp_path / "t.csv", index=False)
    words = [word for pair in options.items() for word in pair if word is not None]
    formula = "y ~ x + offset(log(z))"
    result = streammc("ingest", tmp_path / "t.csv", tmp_path / "s", "--formula", formula, *words)
    assert (code, True) == (result.code, culprit in result.err)
    assert [tmp_path / "t.csv"] == list(tmp_path.iterdir())


def test_text_far_down_a_csv_column_of_numbers_is_found(tmp_path: Path) -> None:
    lines = ["y,x,g", *(f"{row % 2},{row}.5,a" for row in range(200_000)), "1,oops,b"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"column 'x', found text in 1 row, .* row 200001 .*oops"):
        from_table(tmp_path / "t.csv", formula="y ~ x + g")


def test_knot_outside_the_data_is_named():
    frame = pd.DataFrame({"y": [0.0, 1.0, 2.0, 3.0], "x": [0.0, 1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=r"knots of 'bs.*between the bounds 0 and 3, found 5"):
        from_table(frame, formula="y ~ bs(x, knots=[1, 5], degree=2)")


@pytest.mark.parametrize("formula", ["y ~ x^2", "y ~ z + x ** 2", "y ~ `x`^2 - 1"])
def test_a_power_of_a_column_is_refused_and_only_when_it_is_fitted(formula: str) -> None:
    table = pd.DataFrame({"x": [1.0, 2.0], "z": [3.0, 5.0], "y": [0, 1]})
    with pytest.raises(ConfigError, match=r"is the term itself; write I\(`?x`? \*\* 2"):
        from_table(table, formula=formula)
    assert "x" in read_terms(formula).columns


@pytest.mark.parametrize("formula", ["y ~ I(x ** 2)", "y ~ (x + z)^2", "y ~ I((x) ** 2) + (z)"])
def test_other_powers_are_allowed(formula: str) -> None:
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "z": [3.0, 5.0, 5.5], "y": [0, 1, 1]})
    assert from_table(table, formula=formula).n_rows == 3
