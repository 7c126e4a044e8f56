"""A table in memory as a source of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streammc.errors import ConfigError
from streammc.stores.sources.source import Source


def memory_source(item: Any) -> Source:
    """Return the source of a table in memory.

    Raises
    ------
    ConfigError
        If it is no table.
    DataError
        If its columns cannot be read.
    """
    from streammc.stores.sources.array_source import ArraySource
    from streammc.stores.sources.arrow_source import MemorySource

    if isinstance(item, ArraySource):
        return item
    wanted = ("__arrow_c_stream__", "__arrow_c_array__")
    foreign = type(item).__module__.partition(".")[0] == "xarray"
    if foreign or (
        not isinstance(item, Mapping) and not any(hasattr(item, name) for name in wanted)
    ):
        raise ConfigError(
            f"expected a path, a data frame or an Arrow table, found {type(item).__name__}: "
            f"{_remedy(item)}"
        )
    return MemorySource(item)


def _remedy(item: Any) -> str:
    """Return the advice for an object that is not a table."""
    module = type(item).__module__.partition(".")[0]
    if module.startswith("dask"):
        return "make arrays of it, frame.to_dask_array(lengths=True), for streammc.from_dask"
    if module == "xarray":
        return "use streammc.from_xarray for xarray"
    if hasattr(item, "collect"):
        return "collect() it first, or ingest its files"
    if hasattr(item, "files"):
        return "ingest its files"
    return "use streammc.from_arrays for arrays"
