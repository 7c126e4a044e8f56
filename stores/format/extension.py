"""The writer of a store's next generation: the old rows, then those that are appended.

The new store is written beside the old one and takes its place in one step, so that a reader finds
either generation, whole. Chunk files that stay as they are become further names of the same files
(hard links; copies where the file system has no links); the last chunk or shard, which is filled
up, and the documents are new files. A reader that has mapped the old files keeps them.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streammc.errors import BusyError, ConfigError
from streammc.stores.format.chunk_reading import read_chunk
from streammc.stores.format.conversion import page_aligned
from streammc.stores.format.layout import (
    CODES,
    MAX_CHUNKS,
    ROW_GROUP,
    ROW_ID,
    Layout,
    Member,
    settle_chunk_rows,
)
from streammc.stores.format.manifest import check_object, read_manifest
from streammc.stores.format.partial import PartialDirectory
from streammc.stores.format.writer import StoreWriter

if TYPE_CHECKING:
    from streammc.stores.store import Store

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)


class ExtendingWriter(StoreWriter):
    """Writer of an open store's next generation: append rows, then commit with all attributes.

    Parameters
    ----------
    store
        The open store, on a local disk; it must not have groups.
    n_rows
        Rows that it will have.

    Raises
    ------
    ConfigError
        If the store would have too many chunks.
    BusyError
        If another process is writing the store, or replaced it since it was opened.
    StoreError
        If the last chunk is damaged, or the length of another one is wrong.
    OutputError, AccessError, StorageIOError
        If the new files cannot be written.
    """

    def __init__(self, store: Store, n_rows: int) -> None:
        layout = store.layout
        shards = layout.shards
        dtypes: dict[str, Any] = {
            name: _dtype(layout.member(name)) for name in ("y", ROW_ID, ROW_GROUP)
        }
        super().__init__(
            store.address,
            features=store.feature_names,
            dtype=layout.members[0].dtype,
            y_dtype=dtypes["y"],
            offset=layout.member("offset") is not None,
            weight=layout.member("weight") is not None,
            row_id=dtypes[ROW_ID],
            row_group=dtypes[ROW_GROUP],
            chunk_rows=None if layout.n_chunks == 1 else layout.chunk_rows,
            n_rows=n_rows,
            codes=store.attributes.get(CODES, ()),
            overwrite=True,
            cloud=None if shards is None else "zstd" if shards.zstd else "raw",
        )
        self._made_by = store.manifest.made_by  # the store keeps its receipt
        try:
            if layout.n_chunks == 1:
                # Written again, unless the default has the same length.
                rows = max(self.chunk_rows, layout.n_rows)
                self.chunk_rows = settle_chunk_rows(self._members, rows, None, 0, self._shards)
            else:
                self.chunk_rows, self._shards = layout.chunk_rows, shards
            _refuse_many(layout, self.chunk_rows, n_rows)
            if read_manifest(self.path).fingerprint != store.fingerprint:
                raise BusyError(
                    f"expected store {store.address!r} as it was opened, found another in its "
                    "place: give the same command again"
                )
            self._take_over(store)
        except BaseException:
            self._partial.discard()
            raise

    def _take_over(self, store: Store) -> None:
        """Link the whole chunks of the old generation, and read the rows of its last one."""
        layout, entries = store.layout, store.manifest.entries
        whole = layout.n_rows // layout.chunk_rows if layout.chunk_rows == self.chunk_rows else 0
        for member in layout.members:
            for chunk in range(whole):
                key = member.key(chunk)
                self._link(key, entries[key].size, store)
                self._entries[key] = entries[key]
        self._written = dict.fromkeys(range(whole), self.chunk_rows)
        self.n_rows = whole * self.chunk_rows
        rest = layout.n_rows - self.n_rows
        if not rest:
            return
        self._buffers = {
            member.name: page_aligned(member.shape(self.chunk_rows), member.dtype)
            for member in self._members
        }
        for member in layout.members:
            key = member.key(whole)
            old = np.empty(member.shape(layout.chunk_rows), member.dtype)
            read_chunk((self._old, member, whole), entries[key], old, rest, layout.shards)
            self._buffers[member.name][:rest] = old[:rest]
        self.n_rows += rest
        self._filled = rest
        if rest == self.chunk_rows:
            self._flush()

    @property
    def _directory(self) -> PartialDirectory:
        """The new generation as it is written: beside the store, which is on a local disk."""
        assert isinstance(self._partial, PartialDirectory)
        return self._partial

    @property
    def _old(self) -> Path:
        assert isinstance(self.path, Path)
        return self.path

    def _link(self, key: str, size: int, store: Store) -> None:
        """Give a file of the old generation a name in the new one, or copy and check it."""
        old, new = self._old / key, self._directory.root / key
        try:
            os.link(old, new, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise self._directory.write_error(error) from error
            try:
                shutil.copyfile(old, new, follow_symlinks=False)
            except OSError as failed:
                raise self._directory.write_error(failed) from failed
            check_object(self._directory.root, key, store.manifest.entries[key])
            return
        found = os.stat(new, follow_symlinks=False)
        if found.st_size != size:
            check_object(self._directory.root, key, store.manifest.entries[key])


def _refuse_many(layout: Layout, chunk_rows: int, n_rows: int) -> None:
    """Raise ConfigError if a store would have more chunk files than a reader can map."""
    files = -(-n_rows // chunk_rows) * len(layout.members)
    if files > MAX_CHUNKS and layout.shards is None:
        raise ConfigError(
            f"expected at most {MAX_CHUNKS} chunk files, found {files} of {chunk_rows} rows each: "
            "make the store again from all tables, with a larger --chunk-rows"
        )


def _dtype(member: Member | None) -> str | None:
    """Return the dtype of an array as ``StoreWriter`` takes it; texts as ``S`` and a length."""
    if member is None:
        return None
    return member.dtype if member.columns is None else f"S{member.columns}"
