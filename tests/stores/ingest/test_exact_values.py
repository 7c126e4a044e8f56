"""Numbers of a table are the nearest doubles, and levels are told apart by all their digits."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streammc.errors import DataError
from streammc.stores.ingest.column_values import to_float64
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.ingestion import from_table

TYPES = [(3, 1), (9, 9), (15, 3), (18, 9), (38, 0), (38, 9), (38, 23), (38, 38), (76, 40)]


def decimals(digits: int, scale: int, rows: int = 2_000) -> Any:
    """Return decimals of 1 to ``digits`` digits, some missing."""
    rng = np.random.default_rng(digits + 100 * scale)
    texts = [
        "".join(map(str, rng.integers(0, 10, rng.integers(1, digits + 1)))) for _ in range(rows)
    ]
    values = [Decimal(f"{'-' * (k % 2)}{text}e-{scale}") for k, text in enumerate(texts)]
    make = pa.decimal128 if digits <= 38 else pa.decimal256
    return pa.array([None if k % 7 == 3 else v for k, v in enumerate(values)], make(digits, scale))


@pytest.mark.parametrize("part", [slice(None), slice(5, 900)])
@pytest.mark.parametrize(("digits", "scale"), TYPES)
def test_decimals_become_the_nearest_doubles(digits: int, scale: int, part: slice) -> None:
    array = decimals(digits, scale)[part]
    exact = [None if value is None else Fraction(value) for value in array.to_pylist()]
    expected = [np.nan if value is None else float(value) for value in exact]
    assert np.array_equal(expected, to_float64(array, "a", 0, Faults()), equal_nan=True)


def test_decimals_compare_with_numbers_of_a_formula_and_name_their_levels() -> None:
    prices = [Decimal(k).scaleb(-1) for k in range(10)]
    table = pa.table({"price": pa.array(prices, pa.decimal128(18, 9)), "y": [0, 1] * 5})
    options = {"shuffle": False, "standardize": False}
    above = from_table(table, formula="y ~ I(price > 0.3)", **options).blocks()[0].X[:, 1]
    assert [price > Decimal("0.3") for price in prices] == (above == 1).tolist()
    store = from_table(table, formula="y ~ C(price)", **options)
    assert [str(price) for price in prices[1:]] == [
        name.removeprefix("C(price)[T.").removesuffix("]") for name in store.feature_names[1:]
    ]


ACCOUNTS = [10**20 + k for k in range(6)]


def written(path: Path, column: list[Any], before: int = 0) -> Path:
    """Write a CSV file of a column, below some small numbers."""
    lines = [f"{value},{k % 2}" for k, value in enumerate([1.5] * before + column)]
    path.write_text("\n".join(["a,y", *lines, ""]))
    return path


@pytest.mark.parametrize("before", [0, 200_000])
def test_csv_integers_of_many_digits_are_refused_in_every_role(tmp_path: Path, before: int) -> None:
    path = written(tmp_path / "t.csv", ACCOUNTS, before)
    row = rf"in 6 rows, first in data row {before + 1} of .*\('{ACCOUNTS[0]}'\)"
    for options in ({"response": "y"}, {"formula": "y ~ log(a)"}, {"response": "a"}):
        with pytest.raises(DataError, match=f"'a', found large integers {row}"):
            from_table(path, **options)
    with pytest.raises(DataError, match=f"'a', found levels of too many digits {row}.*as text"):
        from_table(path, formula="y ~ C(a)")


def test_csv_numbers_beyond_2_to_53_that_are_not_written_as_integers_are_read(
    tmp_path: Path,
) -> None:
    texts = ["1e20", "12345678901234567890.5", "-3E+19", "9007199254740991"]
    path = written(tmp_path / "t.csv", texts)
    options = {"shuffle": False, "standardize": False, "dtype": "float64"}
    X = from_table(path, response="y", **options).blocks()[0].X
    assert [float(text) for text in texts] == X[:, 1].tolist()


def test_csv_integers_of_many_digits_are_labels_of_groups(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ACCOUNTS * 2)
    groups = from_table(path, formula="y ~ 1 + (1 | a)").groups
    assert {str(each).encode() for each in ACCOUNTS} == set(groups.labels(0, 9).tolist())


LONG = ["0.12345678901234567891", "0.12345678901234567892"]
MERGED = {
    "decimals": pa.array(map(Decimal, LONG)),
    "doubles": pa.array([1e19, 1e19 + 2048]),
    "integers": pa.array([2**53 + 1, 2**53]),
    "categories": pa.array([2**53 + 1, 2**53]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", [*MERGED, "csv"])
def test_levels_that_float64_takes_for_one_are_refused(tmp_path: Path, kind: str) -> None:
    table: Any = written(tmp_path / "t.csv", LONG)
    if kind != "csv":
        table = pa.table({"a": MERGED[kind], "y": [0, 1]})
    with pytest.raises(DataError, match=r"'a', found levels of too many digits in .* row 1 of"):
        from_table(table, formula="y ~ C(a)")


def test_decimals_and_csv_numbers_of_few_digits_are_levels(tmp_path: Path) -> None:
    values = ["0.1", "0.10", "7", "7.000", "-2.5e-3", "1e3"]
    exact = pa.array([Decimal(text) for text in values], pa.decimal128(38, 20))
    for table in (written(tmp_path / "t.csv", values), pa.table({"a": exact, "y": [0, 1] * 3})):
        states = from_table(table, formula="y ~ C(a)").attributes["formula"]["states"]
        assert [-0.0025, 0.1, 7, 1000] == states["C(a)"]["levels"]
