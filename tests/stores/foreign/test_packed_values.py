"""Packed values and marks of missing values in groups of xarray are refused, not taken as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from streammc.errors import StoreError
from streammc.stores.store import Store, open_store

N = 60
PACKED = {"dtype": "int16", "scale_factor": 0.001, "add_offset": 2.0, "_FillValue": -32768}
COUNTS = {"dtype": "uint8", "_FillValue": 255}
INTEGERS: dict[str, Any] = {"y": {"dtype": "int8"}}


def dataset(missing: bool = False) -> xr.Dataset:
    rng = np.random.default_rng(3)
    c = rng.integers(0, 9, N).astype(float)
    if missing:
        c[17] = np.nan
    return xr.Dataset({"X": (("row", "f"), rng.normal(size=(N, 2))), "y": ("row", c)})


def written(path: Path, version: Any, missing: bool = False, **encoding: Any) -> Path:
    # Zeros are written too: xarray leaves out chunks of fill values, which are refused anyway.
    given = dataset(missing)
    if encoding == INTEGERS:
        given["y"], encoding = given["y"].astype("int8"), {}
    with zarr.config.set({"array.write_empty_chunks": True}):
        given.to_zarr(path, encoding=encoding, zarr_format=version, consolidated=False)
    return path


def read(store: Store) -> Any:
    return next(store.blocks()[0].pieces())


def edited(path: Path, name: str, change: dict[str, Any]) -> None:
    """Change the attributes of an array, of either version."""
    file, old = path / name / "zarr.json", path / name / ".zattrs"
    if old.exists():
        old.write_text(json.dumps({**json.loads(old.read_text()), **change}))
    else:
        found = json.loads(file.read_text())
        found["attributes"].update(change)
        file.write_text(json.dumps(found))


@pytest.mark.parametrize("version", [2, 3])
def test_mark_of_a_missing_count_is_refused_with_its_row(version: int, tmp_path: Path) -> None:
    store = open_store(written(tmp_path / "g.zarr", version, missing=True, y=COUNTS))
    attribute = "fill_value" if version == 2 else "_FillValue"
    with pytest.raises(StoreError, match=rf"'y' .* found 255, .*{attribute}\).* row 17,") as found:
        read(store)
    assert "streammc.from_xarray" in str(found.value)


@pytest.mark.parametrize("version", [2, 3])
def test_mark_that_no_value_has_is_harmless(version: int, tmp_path: Path) -> None:
    store = open_store(written(tmp_path / "g.zarr", version, y=COUNTS))
    np.testing.assert_array_equal(dataset()["y"], read(store).y)


@pytest.mark.parametrize("version", [2, 3])
def test_packed_values_are_refused_before_a_row_is_read(version: int, tmp_path: Path) -> None:
    path = written(tmp_path / "g.zarr", version, X=PACKED)
    expected = r"expected the values themselves in 'X' .* \(attribute scale_factor = 0.001\)"
    with pytest.raises(StoreError, match=expected):
        open_store(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"add_offset": 2}, "add_offset = 2"),
        ({"scale_factor": [0.5]}, "scale_factor"),
        ({"scale_factor": "a half"}, "scale_factor = 'a half'"),
        ({"_Unsigned": "true"}, "_Unsigned = 'true'"),
        ({"_FillValue": {"a": 1}}, "expected a number as attribute _FillValue"),
        ({"missing_value": "none"}, "expected a number as attribute missing_value"),
    ],
)
def test_attribute_that_changes_the_numbers_is_refused(
    version: int, change: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "g.zarr", version, **INTEGERS)
    edited(path, "y", change)
    with pytest.raises(StoreError, match=expected):
        open_store(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "change",
    [
        {"scale_factor": 1.0, "add_offset": 0},
        {"_Unsigned": "false"},
        {"missing_value": float("nan"), "valid_min": float("nan")},
        {"missing_value": [float("nan"), 99.0]},
        {"_FillValue": "NaN", "units": "days since 2000-01-01"},
    ],
)
def test_attribute_that_changes_nothing_is_harmless(
    version: int, change: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "g.zarr", version, **INTEGERS)
    edited(path, "y", change)
    np.testing.assert_array_equal(dataset()["y"], read(open_store(path)).y)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mark", [{"_FillValue": 9999.5}, {"missing_value": 9999.5}])
def test_mark_of_floats_is_refused_in_their_dtype(
    version: int, mark: dict[str, float], tmp_path: Path
) -> None:
    encoding = {"dtype": "float32", **mark}
    store = open_store(written(tmp_path / "g.zarr", version, missing=True, y=encoding))
    with pytest.raises(StoreError, match=r"found 9999.5, the mark .* row 17,"):
        read(store)


@pytest.mark.parametrize("version", [2, 3])
def test_floats_as_xarray_writes_them_by_default_are_read(version: int, tmp_path: Path) -> None:
    path = written(tmp_path / "g.zarr", version)
    np.testing.assert_array_equal(dataset()["X"], read(open_store(path)).X)


def test_fill_value_of_other_programs_is_data(tmp_path: Path) -> None:
    given = dataset()
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=2)
    for name in ("X", "y"):
        array = group.create_array(name, data=given[name].values.astype("int8"))
        assert 0 == array.fill_value
    assert (read(open_store(tmp_path / "g.zarr")).y == 0).any()
    for name in ("X", "y"):  # the partner: for xarray the same zeros are missing
        (tmp_path / "g.zarr" / name / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": []}')
    with pytest.raises(StoreError, match=r"found 0, the mark .*fill_value\)"):
        read(open_store(tmp_path / "g.zarr"))


@pytest.mark.parametrize("version", [2, 3])
def test_attributes_that_decide_are_part_of_the_fingerprint(version: int, tmp_path: Path) -> None:
    path = written(tmp_path / "g.zarr", version, **INTEGERS)
    store = open_store(path)
    edited(path, "y", {"missing_value": 99})
    assert store.fingerprint != open_store(path).fingerprint
    with pytest.raises(StoreError, match="changed chunks or metadata"):
        store.blocks()


def test_fingerprint_of_a_group_without_such_attributes_stays(tmp_path: Path) -> None:
    path = written(tmp_path / "g.zarr", 2, **INTEGERS)
    before = open_store(path).fingerprint
    edited(path, "y", {"long_name": "counts"})
    assert before == open_store(path).fingerprint
