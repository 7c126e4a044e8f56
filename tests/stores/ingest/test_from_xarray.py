"""A Dataset is a store where it is, if it can be; else it is copied, or refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import streammc
from streammc.errors import StreammcError
from streammc.stores import MemoryStore, Store

ROWS = 6_000


def dataset(rows: int = ROWS) -> xr.Dataset:
    rng = np.random.default_rng(9)
    return xr.Dataset(
        {
            "X": (("row", "feature"), rng.normal(size=(rows, 3))),
            "y": ("row", rng.integers(0, 2, rows)),
            "weight": ("row", rng.integers(0, 3, rows) * 0.5),
        },
        coords={"feature": ["Intercept", "a", "b"]},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with store.zarr, a store of ours, and other.zarr, any group."""
    given = dataset()
    streammc.from_xarray(given, path=tmp_path / "store.zarr", chunk_rows=4096)
    given.assign_coords(feature=[0, 1, 2]).chunk(row=1_500).to_zarr(
        tmp_path / "other.zarr", consolidated=False
    )
    return tmp_path


def test_arrays_in_memory_are_used_without_a_copy() -> None:
    given = dataset()
    store = streammc.from_xarray(given)
    assert isinstance(store, MemoryStore)
    assert np.shares_memory(store.rows().arrays[0], given["X"].values)
    assert ("Intercept", "a", "b") == store.feature_names
    assert np.array_equal(given["weight"], store.rows().arrays[3])
    assert 0 == streammc.from_xarray(given, weight=None).rows().arrays[3].size


@pytest.mark.parametrize("chunks", [None, {}, {"row": 4096}])
def test_a_dataset_opened_from_a_store_is_that_store(chunks: Any, folder: Path) -> None:
    with xr.open_zarr(folder / "store.zarr", chunks=chunks) as table:
        found = streammc.from_xarray(table)
    assert isinstance(found, Store)
    assert str(folder / "store.zarr") == found.address


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.isel(row=slice(10, None)),
        lambda table: table.isel(row=slice(None, None, -1)),
        lambda table: table.assign(X=table["X"] * 2),
        lambda table: table.assign(y=1 - table["y"]),
        lambda table: table.drop_vars("weight"),
        lambda table: table.assign_coords(feature=["a", "b", "c"]),
    ],
)
def test_dataset_changed_after_opening_is_copied(change: Any, folder: Path) -> None:
    with xr.open_zarr(folder / "store.zarr") as table:
        changed = change(table)
        with pytest.raises(StreammcError, match="expected a path"):
            streammc.from_xarray(changed)
        store = streammc.from_xarray(changed, path=folder / "new")
        values = changed.compute()
    assert np.array_equal(values["X"].values, store.rows().arrays[0][: store.n_rows])
    assert np.array_equal(values["y"].values, store.rows().arrays[1][: store.n_rows])
    assert isinstance(streammc.from_xarray(values), MemoryStore)


@pytest.mark.parametrize("chunks", [None, {"row": 3_000}])
def test_any_other_dataset_is_copied_in_its_order(chunks: Any, folder: Path) -> None:
    given = dataset()
    with xr.open_zarr(folder / "other.zarr", chunks=chunks, consolidated=False) as table:
        with pytest.raises(StreammcError, match=r"path='data.zarr'"):
            streammc.from_xarray(table)
        store = streammc.from_xarray(table, path=folder / "new")
    arrays = store.rows().arrays
    assert ("0", "1", "2") == store.feature_names
    assert "float64" == store.attributes["dtype"]
    for name, array in zip(("X", "y", "weight"), (*arrays[:2], arrays[3]), strict=True):
        assert np.array_equal(given[name].values, array[:ROWS])


def test_a_copy_takes_the_options_of_ingest(folder: Path) -> None:
    given = dataset().drop_vars("weight").isel(feature=slice(1, None))
    options: dict[str, Any] = {"shuffle": True, "seed": 2, "standardize": True, "intercept": True}
    options["dtype"] = "float32"
    store = streammc.from_xarray(given, path=folder / "new", **options)
    table = {"a": given["X"].values[:, 0], "b": given["X"].values[:, 1], "y": given["y"].values}
    same = streammc.from_table(table, response="y", path=folder / "same", **options)
    assert same.fingerprint == store.fingerprint


def test_memory_does_not_grow_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask
    import dask.array as da

    monkeypatch.setattr("streammc.stores.ingest.from_xarray._BLOCK_BYTES", 1)
    peaks = []
    for rows in (200_000, 1_600_000):
        X = da.arange(8 * rows, chunks=400_000).reshape(rows, 8) % 1_001
        table = xr.Dataset({"X": (("row", "feature"), X)})
        tracemalloc.start()
        with dask.config.set(scheduler="synchronous"):  # threads hold chunks of their own
            streammc.from_xarray(table, response=None, path=tmp_path / str(rows))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], peaks  # eight times the rows


def test_transposed_designs_and_arrays_alone() -> None:
    given = dataset()
    turned = given.assign(X=given["X"].transpose("feature", "row"))
    assert streammc.from_xarray(turned).fingerprint == streammc.from_xarray(given).fingerprint
    alone = streammc.from_xarray(given["X"].rename("Z"), response=None)
    assert (None, ROWS) == (alone.response, alone.n_rows)
    counts = given.rename(weight="n").assign(n=("row", np.full(ROWS, 4)))
    assert [0.25, 4] == [
        array.max() for array in streammc.from_xarray(counts, trials="n").rows().arrays[1::2]
    ]


GIVEN = dataset()
REFUSALS = [
    (np.ones((3, 2)), {}, 2, "expected an xarray Dataset, found ndarray"),
    (GIVEN["X"], {}, 65, "expected the variable 'y' in the dataset, found 'X'"),
    (GIVEN, {"design": "Z"}, 65, "expected the variable 'Z'"),
    (GIVEN, {"design": "y", "response": None}, 65, "expected rows and features in 'y'"),
    (GIVEN.rename(y="z").assign(y=("other", [1])), {}, 65, "'y' over the dimension 'row' alone"),
    (GIVEN.isel(row=slice(0)), {}, 65, "of shape (0, 3)"),
    (GIVEN.assign(X=GIVEN["X"].astype(object)), {}, 65, "numbers in X, found dtype object"),
    (GIVEN.assign(X=GIVEN["X"].where(GIVEN["X"] < 2)), {}, 65, "column 'Intercept', found nan"),
    (GIVEN, {"shuffle": True}, 2, "shuffle=True"),
    (GIVEN, {"standardize": True}, 2, "standardize=True"),
    (GIVEN.chunk(), {}, 2, "expected a path"),
]


@pytest.mark.parametrize(("given", "options", "code", "message"), REFUSALS)
def test_invalid_datasets_are_refused_in_one_line(
    given: Any, options: Any, code: int, message: str
) -> None:
    with pytest.raises(StreammcError) as caught:
        streammc.from_xarray(given, **options)
    assert code == caught.value.exit_code
    assert message in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


def test_values_are_refused_while_copying(tmp_path: Path) -> None:
    given = dataset()
    given["X"][ROWS - 1, 2] = np.nan
    with pytest.raises(StreammcError, match=r"'b', found missing values in 1 row, .* row 6000 of"):
        streammc.from_xarray(given.chunk(row=1_000), path=tmp_path / "s")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("role", ["offset", "weight", "row_id"])
def test_a_variable_that_is_named_and_does_not_exist_is_refused(role: str) -> None:
    with pytest.raises(StreammcError, match="'exposure' in the dataset"):
        streammc.from_xarray(dataset(), **{role: "exposure"})


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("load", [False, True])
def test_packed_values_and_marks_are_taken_decoded_or_refused(
    load: bool, version: Any, tmp_path: Path
) -> None:
    given = dataset(60).drop_vars("feature")
    given["y"] = given["y"].where(np.arange(60) != 17)
    mark = {"dtype": "uint8", "_FillValue": 255}
    packed = {"dtype": "int16", "scale_factor": 0.001, "_FillValue": -32768}
    how: dict[str, Any] = {"zarr_format": version, "consolidated": False}
    given.to_zarr(tmp_path / "y.zarr", encoding={"y": mark}, **how)
    given.to_zarr(tmp_path / "X.zarr", encoding={"X": packed}, **how)

    def taken(name: str, **options: Any) -> Any:
        with xr.open_zarr(tmp_path / name, consolidated=False, **options) as table:
            if load:
                return streammc.from_xarray(table.fillna(9).load())
            return streammc.from_xarray(table.fillna(9), path=tmp_path / "new.zarr", overwrite=True)

    decoded = taken("X.zarr").rows().arrays[0][:60]
    np.testing.assert_allclose(decoded, given["X"].values, atol=0.0006)
    assert 9 == taken("y.zarr").rows().arrays[1][17]
    with pytest.raises(StreammcError, match=r"attribute scale_factor = .*mask_and_scale=True"):
        taken("X.zarr", mask_and_scale=False)
    with pytest.raises(StreammcError, match=r"found 255, .*attribute _FillValue\), in row 17,"):
        taken("y.zarr", mask_and_scale=False)
