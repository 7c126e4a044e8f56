"""Values of one array of a store, read chunk by chunk and checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.stores.cloud.address import Root
from streammc.stores.format.chunk_reading import read_chunk, rows_of_chunk
from streammc.stores.format.layout import Layout, Member
from streammc.stores.format.manifest import Manifest


def read_values(
    root: Root, layout: Layout, member: Member, manifest: Manifest, start: int, stop: int
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
    root: Root, layout: Layout, member: Member, manifest: Manifest, start: int, stop: int
) -> Iterator[NDArray[Any]]:
    size = layout.chunk_rows
    for chunk in range(start // size, -(-stop // size)):
        values = np.empty(member.shape(size), member.dtype)
        first, entry = chunk * size, manifest.entries[member.key(chunk)]
        rows = rows_of_chunk(layout, chunk)
        read_chunk((root, member, chunk), entry, values, rows, layout.shards)
        yield values[max(start - first, 0) : stop - first]
