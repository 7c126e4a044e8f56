"""Changing a store on purpose, so that only the change is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c

from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import Entry, make_manifest, read_manifest


def seal(root: Path, *keys: str) -> None:
    """Make the manifest agree with objects that were changed."""
    entries = dict(read_manifest(root).entries)
    for key in keys:
        content = (root / key).read_bytes()
        entries[key] = Entry(len(content), google_crc32c.value(content))
    (root / MANIFEST).write_bytes(make_manifest(entries).encode())


def edit(root: Path, key: str, mutate: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON document of a store, here and in the consolidated metadata."""
    document = json.loads((root / key).read_text())
    mutate(document)
    (root / key).write_text(json.dumps(document))
    if "/" in key:
        group = json.loads((root / "zarr.json").read_text())
        group["consolidated_metadata"]["metadata"][key.split("/")[0]] = document
        (root / "zarr.json").write_text(json.dumps(group))
    seal(root, key, "zarr.json")
