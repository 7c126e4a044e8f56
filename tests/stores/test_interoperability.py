"""A store is an ordinary zarr v3 group: other tools open it without a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dask.array
import numpy as np
import pytest
import xarray as xr
import zarr


def test_xarray_opens_it_with_names(shared_sample) -> None:
    with xr.open_zarr(shared_sample.path) as table:
        assert {"X": ("row", "feature"), "y": ("row",)} == {
            name: table[name].dims for name in ("X", "y")
        }
        assert np.array_equal(shared_sample.X, table["X"].values)
        assert np.array_equal(shared_sample.weight, table["weight"].values)
        column = table["X"].sel(feature="c1")
        assert np.array_equal(shared_sample.X[:, 1], column.values)
        assert "late" == table.attrs["streammc"]["response"]


def test_dask_opens_an_array(shared_sample) -> None:
    X = dask.array.from_zarr(str(shared_sample.path), component="X")
    assert np.array_equal(shared_sample.X, X.compute(scheduler="sync"))


@pytest.mark.parametrize("use_consolidated", [True, False])
def test_zarr_opens_it(shared_sample, use_consolidated: bool) -> None:
    group = zarr.open_group(shared_sample.path, mode="r", use_consolidated=use_consolidated)
    assert np.array_equal(shared_sample.y, group["y"][:])
    assert ["c0", "c1", "c2"] == list(group["feature"][:])


def test_zarr_lists_its_arrays(shared_sample) -> None:
    group = zarr.open_group(shared_sample.path, mode="r")
    assert {"X", "y", "offset", "weight", "feature"} == set(group.array_keys())


@pytest.mark.parametrize("y_dtype", ["uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_dtype_survives(
    write_store: Callable, tmp_path: Path, dtype: str, y_dtype: str
) -> None:
    table = write_store(tmp_path / "s", rows=5_000, dtype=dtype, y_dtype=y_dtype)
    group = zarr.open_group(table.path, mode="r")
    assert (dtype, y_dtype) == (group["X"].dtype.name, group["y"].dtype.name)
    assert np.array_equal(table.X, group["X"][:])
    assert np.array_equal(table.y, group["y"][:])
