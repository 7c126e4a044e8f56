"""Data on disk: the store's format, its reader and writer, and the full pass over it."""

if not __name__.startswith("streammc."):
    raise ImportError("import streammc.stores; a top-level package 'stores' is not installed")

from typing import TYPE_CHECKING

from streammc.registry import on_first_use

if TYPE_CHECKING:
    from streammc.stores.format.writer import StoreWriter
    from streammc.stores.ingest.new_rows import NewRows, encode_rows
    from streammc.stores.memory import MemoryStore, from_arrays
    from streammc.stores.store import Store, open_store

__all__ = [
    "MemoryStore",
    "NewRows",
    "Store",
    "StoreWriter",
    "encode_rows",
    "from_arrays",
    "open_store",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "MemoryStore": "memory",
        "NewRows": "ingest.new_rows",
        "Store": "store",
        "StoreWriter": "format.writer",
        "encode_rows": "ingest.new_rows",
        "from_arrays": "memory",
        "open_store": "store",
    },
)
