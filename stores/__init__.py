"""Data on disk: the store's format, its reader and writer, and the full pass over it."""

if not __name__.startswith("streammc."):
    raise ImportError("import streammc.stores; a top-level package 'stores' is not installed")

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streammc.stores.format.writer import StoreWriter
    from streammc.stores.ingest.new_rows import NewRows, encode_rows
    from streammc.stores.memory import MemoryStore, from_arrays
    from streammc.stores.store import Store, open_store

_LAZY: Final[dict[str, str]] = {
    "MemoryStore": "streammc.stores.memory",
    "NewRows": "streammc.stores.ingest.new_rows",
    "Store": "streammc.stores.store",
    "StoreWriter": "streammc.stores.format.writer",
    "encode_rows": "streammc.stores.ingest.new_rows",
    "from_arrays": "streammc.stores.memory",
    "open_store": "streammc.stores.store",
}

__all__ = [
    "MemoryStore",
    "NewRows",
    "Store",
    "StoreWriter",
    "encode_rows",
    "from_arrays",
    "open_store",
]


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on first use."""
    if name not in _LAZY:
        raise AttributeError(
            f"module 'streammc.stores' has no attribute {name!r}",
            name=name,
            obj=_sys.modules[__name__],
        )
    return getattr(_import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """Return the names of the module and the public names that are imported on first use."""
    return sorted({*globals(), *_LAZY})
