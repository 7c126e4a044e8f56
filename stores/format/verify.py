"""Description of a store, and verification of every byte against its manifest."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streammc.errors import StoreError, StreammcError
from streammc.stores.cloud.address import split_arrays, store_root
from streammc.stores.format.chunk_reading import shard_checks
from streammc.stores.format.layout import MANIFEST, METADATA
from streammc.stores.format.manifest import Fault, find_faults, read_manifest
from streammc.stores.format.object_access import exists, list_files, require_store
from streammc.stores.store import open_store
from streammc.trace.kinds import STORE, refuse_other_kind


def verify(
    path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Read every object of a store and compare it with the manifest.

    Parameters
    ----------
    path
        The store.
    progress
        Called with (bytes checked, bytes in all).

    Returns
    -------
    dict
        ``path``, ``ok``, ``objects``, ``bytes``, ``fingerprint`` and ``faults``, a list
        of ``{key, kind, detail}`` with kind ``missing``, ``changed``, ``extra``,
        ``unreadable`` or ``inconsistent``.

    Raises
    ------
    MissingError, StoreError, AccessError
        If ``path`` does not exist, is not a directory, has no manifest, or may not be read.
    """
    place, arrays = split_arrays(path)
    root = store_root(place)
    if arrays:
        raise StoreError(
            f"expected a store of streammc at {str(path)!r}, found arrays of another program, "
            "which have no checksums: ingest them"
        )
    if isinstance(root, Path):
        refuse_other_kind(root, STORE)
    require_store(root)
    report: dict[str, Any] = {"path": str(root), "ok": False, "objects": 0, "bytes": 0}
    report["fingerprint"] = None
    try:
        manifest = read_manifest(root)
    except StoreError as error:
        if not exists(root, MANIFEST):
            raise
        report["faults"] = [Fault(MANIFEST, "changed", str(error))._asdict()]
        return report
    listed = isinstance(root, Path) or root.listable
    present = list_files(root) if listed else manifest.entries
    checks = {}
    with suppress(StreammcError):  # what is wrong is a fault of an object
        checks = shard_checks(open_store(str(root)).layout, str(root))
    faults = find_faults(root, manifest, present, progress, checks)
    if not faults:
        try:
            _ = open_store(str(root)).groups
        except StoreError as error:
            faults.append(Fault(METADATA, "inconsistent", str(error)))
    return report | {
        "ok": not faults,
        "objects": len(manifest.entries),
        "bytes": manifest.total_bytes,
        "fingerprint": manifest.fingerprint,
        "faults": [fault._asdict() for fault in faults],
    }


def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return attributes, arrays, chunks and fingerprint of a store, without reading its rows.

    Raises
    ------
    MissingError, StoreError, AccessError
        As :func:`streammc.stores.open_store`.
    """
    store = open_store(path)
    layout = store.layout
    return {
        "path": store.address,
        **store.attributes,
        **store.recorded_generations(),
        "references": store.references(),
        "n_features": store.n_features,
        "arrays": {
            member.name: {"dtype": member.dtype, "shape": list(member.shape(own.n_rows))}
            for member, own in layout.all_members
        },
        "chunk_rows": layout.chunk_rows,
        "n_chunks": layout.n_chunks,
        "row_bytes": layout.row_bytes,
        **({} if layout.shards is None else {"shards": asdict(layout.shards)}),
        "objects": len(store.manifest.entries),
        "bytes": store.manifest.total_bytes,
        "fingerprint": store.fingerprint,
    }
