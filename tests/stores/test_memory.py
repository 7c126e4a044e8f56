from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streammc.errors import ConfigError, DataError
from streammc.stores import from_arrays


def _xy(rows: int = 50, columns: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, columns)), rng.integers(0, 2, rows)


def test_float_matrices_are_not_copied() -> None:
    X, y = _xy()
    for matrix in (X, X.astype("float32")):
        assert np.shares_memory(matrix, from_arrays(matrix, y).rows().arrays[0])


def test_attributes_are_those_of_a_store() -> None:
    X, y = _xy()
    X[:, 0] = 1
    store = from_arrays(X, y, feature_names=["Intercept", "age"], response="ill")
    assert ("Intercept", "age") == store.feature_names
    assert ("ill", "memory", 50, 2) == (
        store.response,
        store.address,
        store.n_rows,
        store.n_features,
    )
    assert store.attributes["intercept"] is True
    assert (0, 3) == store.stamps().shape
    store.recheck(store.stamps())


@pytest.mark.parametrize("change", ["value", "response", "dtype", "name", "offset", "weight"])
def test_fingerprint_sees_every_input(change: str) -> None:
    X, y = _xy()
    one = from_arrays(X, y).fingerprint
    assert one == from_arrays(X.copy(), y.copy()).fingerprint
    options: dict[str, Any] = {}
    if change == "value":
        X = X.copy()
        X[3, 1] = np.nextafter(X[3, 1], 9)
    elif change == "response":
        y = 1 - y
    elif change == "dtype":
        X = X.astype("float32")
    elif change == "name":
        options["feature_names"] = ["a", "b"]
    else:
        options[change] = np.ones(50)
    assert one != from_arrays(X, y, **options).fingerprint


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(value: float) -> None:
    X, y = _xy()
    X[[17, 40], 1] = value
    with pytest.raises(DataError, match=r"column 'x1', found -?(nan|inf) in row 17 \(2 such rows"):
        from_arrays(X, y)


@pytest.mark.parametrize("label", ["y", "offset", "weight"])
def test_a_vector_that_is_not_finite_is_named(label: str) -> None:
    X, y = _xy()
    vectors = {"y": y.astype(float), label: np.where(np.arange(50) == 49, np.nan, 1.0)}
    with pytest.raises(DataError, match=f"column '{label}', found nan in row 49"):
        from_arrays(X, **vectors)


WITH = {"X": np.ones((5, 2)), "y": np.ones(5)}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"X": np.ones(5), "y": np.ones(5)}, "X with 2 dimensions"),
        ({"X": np.ones((0, 2)), "y": np.ones(0)}, "at least one row and column"),
        ({"X": np.ones((5, 0)), "y": np.ones(5)}, "at least one row and column"),
        ({"X": np.ones((5, 2)), "y": np.ones(4)}, "expected 5 values of y"),
        ({"X": np.ones((5, 2)), "y": np.ones((5, 1))}, "y with 1 dimensions"),
        (WITH | {"weight": -np.ones(5)}, r"negative weights in 5 rows, first in data row 0 of"),
        (WITH | {"weight": [1, 2, 1e16, 3, 1e17]}, r"huge weights in 2 rows, first in data row 2"),
        (WITH | {"weight": np.zeros(5)}, "positive weight"),
        (WITH | {"trials": [1, 1, 0, 1, 0]}, r"more successes than trials in 2 rows, .* row 2 of"),
        (WITH | {"trials": [1, 1.5, 1, 1, 1]}, r"'trials', found fractions .* in data row 1 of"),
        (WITH | {"y": [1, 1, 1, -1, 0.5], "trials": np.ones(5)}, r"'y', found fractions .* 2 rows"),
        (WITH | {"trials": np.full(5, 2**52), "weight": np.full(5, 4)}, "'trials', found huge"),
        (WITH | {"trials": np.ones(4)}, "expected 5 values of trials"),
        ({"X": np.ones((5, 2)), "y": np.array(["a"] * 5)}, "numbers in y"),
        ({"X": np.ones((5, 2), dtype=object), "y": np.ones(5)}, "numbers in X"),
        ({"X": np.ones((5, 2), dtype=complex), "y": np.ones(5)}, "numbers in X"),
        ({"X": np.ones((5, 2)), "y": np.full(5, 2**60)}, r"2\*\*53 in y"),
        (
            {"X": np.ones((5, 2)), "y": np.ones(5), "feature_names": ["a"]},
            "2 feature_names, fo",
        ),
        ({"X": np.ones((5, 2)), "y": np.ones(5), "feature_names": ["a", "a"]}, "2 different"),
    ],
)
def test_arrays_that_are_no_table_are_refused(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(**inputs)


def test_trials_without_successes_are_refused() -> None:
    with pytest.raises(ConfigError, match="successes"):
        from_arrays(np.ones((5, 2)), None, trials=np.ones(5))


def test_no_rows_per_chunk_is_refused() -> None:
    with pytest.raises(ConfigError):
        from_arrays(*_xy(), chunk_rows=0)


def test_other_layouts_and_types_become_what_kernels_need() -> None:
    X, y = _xy()
    store = from_arrays(np.asfortranarray(X), y.astype(bool))
    assert store.rows().arrays[0].flags.c_contiguous
    readonly = X.copy()
    readonly.flags.writeable = False
    block = next(from_arrays(readonly, y).blocks()[0].pieces())
    assert block.X.flags.writeable
    assert np.array_equal(X, block.X)
    assert np.float64 == from_arrays(X.astype(int), y).rows().arrays[0].dtype


@pytest.mark.parametrize("what", ["X", "y", "weight"])
def test_masked_numbers_are_refused(what: str) -> None:
    parts: dict[str, Any] = {"X": np.ones((4, 2)), "y": np.zeros(4), "weight": np.ones(4)}
    masked = np.ma.array(parts[what], mask=np.zeros(parts[what].shape, dtype=bool))
    from_arrays(**{**parts, what: masked})  # a mask of nothing
    masked[1] = np.ma.masked
    with pytest.raises(DataError, match=rf"expected numbers in {what}, found [12] masked"):
        from_arrays(**{**parts, what: masked})
