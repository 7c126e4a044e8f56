"""What is at the place of a store, and whether its shapes, manifest and objects agree."""

from __future__ import annotations

import stat
from pathlib import Path

from streammc.errors import StoreError
from streammc.stores.cloud.address import Root
from streammc.stores.format.documents import ATTRIBUTE
from streammc.stores.format.layout import MANIFEST, METADATA, Layout
from streammc.stores.format.manifest import Manifest
from streammc.stores.format.object_access import exists, list_files, read_small
from streammc.stores.format.objects import parse_json
from streammc.trace.kinds import ZARR_GROUPS, found_at


def is_foreign(root: Root) -> bool:
    """Return whether there is a zarr group of another program."""
    if isinstance(root, Path):
        found = found_at(root)
        return found is not None and found.kind in ZARR_GROUPS
    if exists(root, MANIFEST):
        return False
    if not exists(root, METADATA):
        return exists(root, ".zgroup") or exists(root, ".zmetadata")
    group = parse_json(
        read_small(root, METADATA), f"{METADATA!r} of store {str(root)!r}", constants=True
    )
    own = group.get("attributes")
    return not (isinstance(own, dict) and ATTRIBUTE in own)


def has_design(root: Root) -> bool:
    """Return whether there is an array called X."""
    return exists(root, "X/zarr.json") or exists(root, "X/.zarray")


def check_keys(root: Root, layout: Layout, manifest: Manifest) -> None:
    """Refuse a store whose shapes, manifest and files disagree."""
    sizes: dict[str, int | None] = dict.fromkeys(layout.metadata_keys())
    sizes.update(layout.chunk_sizes())
    entries = manifest.entries
    for key in sorted({*sizes} ^ {*entries}):
        where = "in the manifest" if key in sizes else "in the shapes"
        raise StoreError(
            f"expected {key[:100]!r} {where} of store {str(root)!r}, found none: "
            "copy or make the store again"
        )
    found = list_files(root)
    if not isinstance(root, Path) and not root.listable:
        return
    for key, entry in entries.items():
        what = f"{key!r} in store {str(root)!r}"
        if key not in found:
            raise StoreError(f"expected {what}, found nothing: copy or make the store again")
        if not stat.S_ISREG(found[key].st_mode):
            raise StoreError(f"expected {what} to be a regular file: copy the store again")
        for expected in (entry.size, sizes[key]):
            if expected not in (None, found[key].st_size):
                raise StoreError(
                    f"expected {what} to have {expected} bytes, found {found[key].st_size}: "
                    "copy or make the store again"
                )
