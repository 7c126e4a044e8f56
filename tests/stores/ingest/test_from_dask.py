"""Dask arrays become a store: the same as from memory, block by block, or one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import streammc
from streammc.errors import ConfigError, DataError, StreammcError
from streammc.stores import from_arrays

ROWS = 5_000
CHUNKS = (1_700, 0, 2_300, 1_000)


def arrays() -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(3, 2, size=(ROWS, 3)).astype(np.float32)
    return X, rng.integers(0, 2, ROWS)


def lazy() -> tuple[Any, Any]:
    X, y = arrays()
    return da.from_array(X, chunks=(CHUNKS, (2, 1))), da.from_array(y, chunks=(CHUNKS,))


def test_the_rows_are_those_of_the_arrays_in_their_order(tmp_path: Path) -> None:
    (X, y), (wide, response) = arrays(), lazy()
    weight = np.arange(ROWS) % 3
    store = streammc.from_dask(wide, response, weight=weight, path=tmp_path / "s")
    found = store.rows().arrays
    assert np.array_equal(X, found[0][:ROWS])
    assert np.array_equal(y, found[1][:ROWS])
    assert np.array_equal(weight, found[3][:ROWS])
    assert ("x0", "x1", "x2") == store.feature_names
    assert ("float32", None, False) == tuple(
        store.attributes[key] for key in ("dtype", "standardization", "shuffle_seed")
    )


def test_every_block_is_computed_once_and_alone(tmp_path: Path) -> None:
    X, y = arrays()
    seen: list[int] = []

    def block(block_info: Any = None) -> Any:
        low, high = block_info[None]["array-location"][0]
        seen.append(low)
        return X[low:high]

    wide = da.map_blocks(block, chunks=(CHUNKS, (3,)), dtype=X.dtype, meta=X[:0])
    with dask.config.set(scheduler="sync"):
        streammc.from_dask(wide, y, path=tmp_path / "s", standardize=True, shuffle=True)
    assert [0, 1_700, 4_000] == seen


def test_options_of_from_dask_act_as_in_from_table(tmp_path: Path) -> None:
    (X, y), (wide, response) = arrays(), lazy()
    names = ["a", "b", "c"]
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "standardize": True, "intercept": True}
    store = streammc.from_dask(
        wide, response, feature_names=names, response="late", path=tmp_path / "s", **options
    )
    table = dict(zip(names, X.T, strict=True)) | {"late": y}
    same = streammc.from_table(table, response="late", path=tmp_path / "t", **options)
    assert same.fingerprint == store.fingerprint


def test_from_dask_takes_trials_and_a_single_chunk(tmp_path: Path) -> None:
    X, y = arrays()
    one = da.from_array(X.astype(np.int16), chunks=-1)
    store = streammc.from_dask(one, y, trials=np.full(ROWS, 2), path=tmp_path / "s")
    same = from_arrays(X.astype(np.int16), y, trials=np.full(ROWS, 2))
    for mine, other in zip(store.rows().arrays, same.rows().arrays, strict=True):
        assert np.array_equal(mine[:ROWS], other)


def broken(values: Any) -> Any:
    raise RuntimeError("no such\nbucket")


X0, Y0 = lazy()
NAN = da.where(da.arange(ROWS, chunks=(CHUNKS,)) >= ROWS - 2, np.nan, Y0)
REFUSALS = [
    ({"path": None}, 2, "expected a path for the store"),
    ({"X": arrays()[0]}, 2, "found ndarray: use streammc.from_arrays"),
    ({"X": X0[X0[:, 0] > 3]}, 65, "known chunk sizes in X, found unknown ones"),
    ({"y": Y0[Y0 >= 0]}, 65, "known chunk sizes in y"),
    ({"y": Y0.rechunk(2_500)}, 65, "found chunk 0 of 2500 rows for 1700: use y.rechunk"),
    ({"y": Y0[:-1000]}, 65, "expected 5000 values of y, as X has rows, found 4000"),
    ({"y": arrays()[1][:-1]}, 65, "expected 5000 values of y"),
    ({"weight": X0}, 65, "expected weight with 1 dimensions"),
    ({"X": Y0}, 65, "expected X with 2 dimensions"),
    ({"X": X0[:0]}, 65, "at least one row and column"),
    ({"X": X0.astype(object)}, 65, "the design of the dask arrays, found dtype object"),
    ({"X": X0.astype(complex)}, 65, "found dtype complex128"),
    ({"y": Y0.astype("U1")}, 65, "numbers in y of the dask arrays, found dtype <U1"),
    ({"y": NAN}, 65, "'y', found missing values in 2 rows, first in data row 4999 of the dask"),
    ({"X": X0 * np.inf}, 65, "found infinite values in 5000 rows"),
    ({"X": X0.map_blocks(broken, dtype=X0.dtype, meta=np.empty((0, 0)))}, 65, "no such bucket"),
    ({"X": X0.map_blocks(lambda x: x[:-1], dtype=X0.dtype)}, 65, "of shape (1700, 3)"),
    ({"weight": -np.ones(ROWS)}, 65, "found negative weights in 5000 rows, first in data row 1"),
    ({"feature_names": ["a"]}, 65, "expected 3 feature_names"),
    ({"feature_names": ["a", "b", "y"]}, 65, "found 'y' twice"),
    ({"dtype": "float16"}, 2, "float16"),
]


@pytest.mark.parametrize(("change", "code", "message"), REFUSALS, ids=lambda value: str(value)[:40])
def test_invalid_dask_arrays_are_refused_in_one_line_without_a_store(
    change: dict[str, Any], code: int, message: str, tmp_path: Path
) -> None:
    inputs = {"X": X0, "y": Y0, "path": tmp_path / "s"} | change
    with pytest.raises(StreammcError) as caught:
        streammc.from_dask(inputs.pop("X"), inputs.pop("y"), **inputs)
    assert code == caught.value.exit_code
    assert message in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())
    assert [] == list(tmp_path.iterdir())


def test_a_dask_frame_is_told_how_to_become_an_array(tmp_path: Path) -> None:
    class Frame:
        def to_dask_array(self) -> None: ...

    with pytest.raises(ConfigError, match=r"to_dask_array\(lengths=True\)"):
        streammc.from_dask(Frame(), path=tmp_path / "s")


def test_masked_numbers_of_dask_arrays_are_refused(tmp_path: Path) -> None:
    masked = X0.map_blocks(lambda block: np.ma.masked_greater(block, 0.0))
    with pytest.raises(DataError, match=r"expected numbers in X, found [0-9]+ masked"):
        streammc.from_dask(masked, Y0, path=tmp_path / "s")
