"""Sources that have no groups of a mixed model say so, and lose none in silence."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import streammc
from streammc.errors import ConfigError

REFUSED = "expected .* without groups, found .* as groups: write the table as Parquet"


def test_labels_given_to_dask_arrays_and_datasets_are_refused(tmp_path):
    X, y, g = np.ones((8, 2)), np.zeros(8), np.arange(8) // 2
    with pytest.raises(ConfigError, match=REFUSED):
        streammc.from_dask(da.from_array(X), da.from_array(y), path=tmp_path / "s", groups=g)
    dataset = xr.Dataset({"X": (("row", "feature"), X), "y": ("row", y), "g": ("row", g)})
    with pytest.raises(ConfigError, match=REFUSED):
        streammc.from_xarray(dataset, groups="g")
    assert not list(tmp_path.iterdir())


def test_groups_of_a_store_are_not_lost(tmp_path):
    row = np.arange(40)
    table = pd.DataFrame({"y": row % 2, "x": np.sin(row), "g": [f"c{k // 10}" for k in row]})
    streammc.ingest(table, tmp_path / "s", formula="y ~ x + (1 | g)")
    with xr.open_zarr(tmp_path / "s") as opened:
        assert streammc.from_xarray(opened).groups.n_groups == 4
        loaded = opened.load()
    changed = loaded.assign(y=1 - loaded["y"])
    for dataset, path in ((changed, None), (changed, tmp_path / "t"), (loaded, tmp_path / "t")):
        with pytest.raises(ConfigError, match=REFUSED):
            streammc.from_xarray(dataset, path=path)
    assert [each.name for each in tmp_path.iterdir()] == ["s"]
