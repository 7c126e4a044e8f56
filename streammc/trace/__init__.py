"""Draws on disk: the run directory, its commits, and reading it as an xarray tree.

Public names are imported on first use: only reading needs xarray and zarr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammc.registry import on_first_use

if TYPE_CHECKING:
    from streammc.trace.arrays import read_arrays, write_arrays
    from streammc.trace.datatree import facts, open_run
    from streammc.trace.run_directory import RunDirectory, check_identity

__all__ = ["RunDirectory", "check_identity", "facts", "open_run", "read_arrays", "write_arrays"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "RunDirectory": "run_directory",
        "check_identity": "run_directory",
        "facts": "datatree",
        "open_run": "datatree",
        "read_arrays": "arrays",
        "write_arrays": "arrays",
    },
)
