"""Groups of xarray at an address: what their attributes say counts as on a local disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from streammc.errors import StoreError
from streammc.stores.store import open_store


@pytest.mark.parametrize("version", [2, 3])
def test_attributes_of_a_group_at_an_address_are_read(
    version: Any, serve_folder: Callable[[Path], str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 9, 40).astype(float)
    table = xr.Dataset({"X": (("row", "f"), rng.normal(size=(40, 2))), "y": ("row", counts)})
    table.attrs["valid_min"] = float("nan")  # no JSON, but what zarr writes
    table["y"].attrs["missing_value"] = float("nan")
    table.to_zarr(tmp_path / "f.zarr", zarr_format=version, consolidated=False)
    address = f"{serve_folder(tmp_path)}/f.zarr"
    np.testing.assert_array_equal(counts, next(open_store(address).blocks()[0].pieces()).y)
    file = tmp_path / "f.zarr" / "y" / (".zattrs" if version == 2 else "zarr.json")
    found = json.loads(file.read_text())
    (found if version == 2 else found["attributes"])["missing_value"] = counts[7]
    file.write_text(json.dumps(found))
    with pytest.raises(StoreError, match=r"the mark of missing values \(attribute missing_value\)"):
        next(open_store(address).blocks()[0].pieces())
    (found if version == 2 else found["attributes"])["scale_factor"] = 0.1
    file.write_text(json.dumps(found))
    with pytest.raises(StoreError, match="scale_factor"):
        open_store(address)
