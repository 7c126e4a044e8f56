"""Values of one array of a store, read chunk by chunk and checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.stores.format.layout import Layout, Member
from streammc.stores.format.manifest import Manifest
from streammc.stores.format.objects import read_object


def read_values(
    root: Path, layout: Layout, member: Member, manifest: Manifest, start: int, stop: int
) -> NDArray[Any]:
    """Return the entries ``start`` to ``stop`` of an array; texts as bytes of one width.

    Raises
    ------
    StoreError
        If a chunk is missing or fails its checksum; the message names it.
    """
    parts = list(_parts(root, layout, member, manifest, start, stop))
    shape = member.shape(0)
    found = np.concatenate(parts) if parts else np.empty(shape, member.dtype)
    return found if member.columns is None else found.view(f"S{member.columns}")[:, 0]


def _parts(
    root: Path, layout: Layout, member: Member, manifest: Manifest, start: int, stop: int
) -> Iterator[NDArray[Any]]:
    size = layout.chunk_rows
    for chunk in range(start // size, -(-stop // size)):
        values = np.empty(member.shape(size), member.dtype)
        key, first = member.key(chunk), chunk * size
        read_object(root, key, values.reshape(-1).view(np.uint8), manifest.entries[key].crc)
        yield values[max(start - first, 0) : stop - first]
