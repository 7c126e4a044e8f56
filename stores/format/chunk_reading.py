"""Reads of whole chunks of a store, raw or sharded, with the checksum of the manifest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.stores.cloud.address import Root
from streammc.stores.format.layout import Layout, Member
from streammc.stores.format.manifest import Entry
from streammc.stores.format.object_access import read_object
from streammc.stores.format.shards import Bytes, Shards, check_shard, decode_shard


class Scratch:
    """Memory for encoded chunks, reused: fresh memory costs a page fault every 4 kB."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return ``size`` bytes, which the next call overwrites."""
        if self._kept.nbytes < size:
            self._kept = np.empty(size, np.uint8)
        return self._kept[:size]


def read_chunk(
    place: tuple[Root, Member, int],
    entry: Entry,
    into: NDArray[Any],
    rows: int,
    shards: Shards | None = None,
    *,
    forget: bool = False,
    scratch: Scratch | None = None,
) -> None:
    """Fill ``into``, a chunk of whole rows, with chunk number ``chunk`` of an array.

    Parameters
    ----------
    place
        The store, the array and the number of the chunk.
    entry
        Entry of the object in the manifest.
    into
        Array of the shape of a chunk.
    rows
        Rows in this chunk; the rest is padding.
    shards
        How the chunk is cut into pieces, if it is.
    forget
        Whether to drop the file from the page cache.
    scratch
        Memory for the encoded chunk.

    Raises
    ------
    StoreError
        If the object is missing or fails its checksum; the message names it.
    """
    root, member, chunk = place
    raw, key = into.reshape(-1).view(np.uint8), member.key(chunk)
    if shards is None:
        read_object(root, key, raw, entry.crc, forget)
        return
    encoded = (scratch or Scratch()).take(entry.size)
    read_object(root, key, encoded, entry.crc, forget)
    what = f"{key!r} of store {str(root)!r}"
    used = -(-rows // shards.piece_rows)
    piece_bytes = member.row_bytes * shards.piece_rows
    decode_shard(encoded, raw, used, piece_bytes, shards.zstd, what)


def shard_checks(layout: Layout, where: str) -> dict[str, Callable[[Bytes], object]]:
    """Return by key a function that compares a whole shard with its digest; none without shards.

    It raises StoreError for a shard with pieces of another one.
    """
    return {
        member.key(chunk): partial(
            check_shard,
            pieces=own.chunk_rows // own.shards.piece_rows,
            used=-(-rows_of_chunk(own, chunk) // own.shards.piece_rows),
            what=f"{member.key(chunk)!r} of store {where!r}",
        )
        for member, own in layout.all_members
        if own.shards is not None
        for chunk in range(own.n_chunks)
    }


def rows_of_chunk(layout: Layout, chunk: int) -> int:
    """Return the rows in the file of chunk number ``chunk``, with those of later generations."""
    held = layout.n_rows + layout.later_rows
    return min(layout.chunk_rows, held - chunk * layout.chunk_rows)
