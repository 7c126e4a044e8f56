"""Draws on disk: the run directory, its commits, and reading it as an xarray tree.

Public names are imported on first use: only reading needs xarray and zarr.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streammc.trace.arrays import read_arrays, write_arrays
    from streammc.trace.datatree import facts, open_run
    from streammc.trace.run_directory import RunDirectory, check_identity

__all__ = ["RunDirectory", "check_identity", "facts", "open_run", "read_arrays", "write_arrays"]

_LAZY: Final[dict[str, str]] = {
    "RunDirectory": "streammc.trace.run_directory",
    "check_identity": "streammc.trace.run_directory",
    "facts": "streammc.trace.datatree",
    "open_run": "streammc.trace.datatree",
    "read_arrays": "streammc.trace.arrays",
    "write_arrays": "streammc.trace.arrays",
}


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on first use."""
    if name not in _LAZY:
        raise AttributeError(
            f"module 'streammc.trace' has no attribute {name!r}",
            name=name,
            obj=sys.modules[__name__],
        )
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """Return the names of the module and the public names that are imported on first use."""
    return sorted({*globals(), *_LAZY})
