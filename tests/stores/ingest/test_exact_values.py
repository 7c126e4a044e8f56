"""Numbers of a table are the nearest doubles, and levels are told apart by all their digits."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streammc.stores.ingest.exact_values import to_float64
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
