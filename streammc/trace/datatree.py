"""A run as an ``xarray.DataTree``, read lazily."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import xarray as xr
from zarr.storage import LocalStore

from streammc.trace.row_arrays import read_meta
from streammc.trace.run_directory import RunDirectory


def open_run(path: str | os.PathLike[str], *, verify: bool = True) -> xr.DataTree:
    """Open the committed draws of a run, finished or still growing.

    Groups ``posterior``, ``sample_stats``, ``constant_data`` and, where there was a
    warm-up, ``warmup_posterior`` and ``warmup_sample_stats``; dimensions ``chain``,
    ``draw`` and those of the parameters. The tree is what was committed when it was
    opened; it does not grow.

    Parameters
    ----------
    path
        Directory of the run.
    verify
        Check every committed byte first. Without it, damage shows as a ``ValueError``
        of zarr when the values are read, and a missing file as NaN or zeros.

    Returns
    -------
    xarray.DataTree
        Values are read when they are used.

    Raises
    ------
    MissingError
        If there is nothing at ``path``.
    StoreError
        If it is no run, or damaged.
    """
    run = RunDirectory.open(path, verify=verify)
    # A store, not a path: "~" or "s3::x" in the name of a directory is only a name.
    store: Any = LocalStore(run.path, read_only=True)
    tree: xr.DataTree = xr.open_datatree(store, engine="zarr", consolidated=True, chunks=None)
    tree.encoding["source"] = str(run.path)
    return tree


def open_rows(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open values by row, such as predictions; zarr checks every chunk that is read.

    Raises
    ------
    MissingError, StoreError
        If there is nothing at ``path``, or something else.
    """
    meta, _ = read_meta(path)
    store: Any = LocalStore(Path(path), read_only=True)
    found: xr.Dataset = xr.open_dataset(store, engine="zarr", consolidated=True, chunks=None)
    found.attrs = meta
    return found
