"""Reads of pieces of the rows of a store: neighbours by one request, several at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import BusyError, StoreError
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.stores.cloud.address import Root
from streammc.stores.format.chunk_reading import rows_of_chunk
from streammc.stores.format.codes import checked_codes
from streammc.stores.format.layout import CODES, Layout, Member
from streammc.stores.format.manifest import Manifest, read_manifest
from streammc.stores.format.object_access import at_once, read_range
from streammc.stores.format.shards import decode_piece, read_tail, tail_bytes
from streammc.stores.rows.piece_cache import Pieces

_GAP: Final = 256 << 10
"""Bytes that are rather read and dropped than left out by a second request."""
_LONGEST: Final = 8 << 20
_RAW_BYTES: Final = 256 << 10
"""Bytes of a piece of a raw chunk, about."""


class _Span(NamedTuple):
    """The bytes of one piece in an object."""

    piece: int
    start: int
    length: int


class StorePieces:
    """Reader of the pieces of a store; see ``piece_cache.PieceReader``.

    Parameters
    ----------
    root, layout, manifest
        The store.
    tags
        Tag of each object when the store was opened, by key, where the service has such; of files
        :func:`stamp_tag`.
    coded
        The columns of a design with codes, which are expanded as they are decoded.
    """

    def __init__(
        self,
        root: Root,
        layout: Layout,
        manifest: Manifest,
        tags: Mapping[str, str | None],
        coded: CodedColumns | None = None,
    ) -> None:
        self._root, self._layout, self._manifest = root, layout, manifest
        self._tags = dict(tags)
        X = layout.members[0]
        y = layout.member("y")
        self.n_rows, self.where, self._coded = layout.n_rows, str(root), coded
        self.columns = (X.columns or 0) if coded is None else len(coded.on)
        self.dtypes = (
            X.dtype,
            None if y is None else y.dtype,
            layout.member("offset") is not None,
            layout.member("weight") is not None,
        )
        self.piece_rows = (
            _raw_rows(layout.chunk_rows, self.columns * np.dtype(X.dtype).itemsize)
            if layout.shards is None
            else layout.shards.piece_rows
        )
        self._per_chunk = -(-layout.chunk_rows // self.piece_rows)
        self._indices: dict[str, NDArray[np.int64]] = {}

    def read(self, pieces: Sequence[int]) -> list[Pieces]:
        """Return some pieces, given in increasing order.

        Raises
        ------
        StoreError
            If an object is missing, damaged or no longer the one that was opened.
        BusyError
            If the store was replaced, or rows were appended, after it was opened.
        AccessError, UnavailableError
            If the object store refuses.
        """
        try:
            return self._read(pieces)
        except StoreError:
            self._refuse_another()
            raise

    def _read(self, pieces: Sequence[int]) -> list[Pieces]:
        """Return some pieces; the store may be another by now."""
        layout = self._layout
        chunks: dict[int, list[int]] = {}
        for piece in pieces:
            chunks.setdefault(piece // self._per_chunk, []).append(piece)
        if layout.shards is not None:
            self._read_indices(list(chunks))
        found: dict[str, dict[int, NDArray[Any]]] = {}
        reads = []
        for member in layout.data_members:
            into = found[member.name] = {}
            for chunk, own in chunks.items():
                spans = [self._span(member, chunk, piece) for piece in own]
                for run in _runs(spans):
                    reads.append(self._request(member, chunk, run, into))
        at_once(self._root, reads)
        empty = np.empty(0)
        if self._coded is not None:
            for piece, dense in found["X"].items():
                design = CodedMatrix(dense, found[CODES][piece], self._coded)
                start = piece * self.piece_rows
                found["X"][piece] = checked_codes(design, start, self.where).expanded()
        return [
            Pieces(*(found.get(name, {}).get(piece, empty) for name in Pieces._fields))
            for piece in pieces
        ]

    def _request(
        self, member: Member, chunk: int, run: list[_Span], into: dict[int, NDArray[Any]]
    ) -> Any:
        """Return a function that reads neighbouring pieces and decodes them."""
        key, shards = member.key(chunk), self._layout.shards

        def read() -> None:
            first = run[0].start
            length = run[-1].start + run[-1].length - first
            content = self._range(key, first, length)
            for span in run:
                part = content[span.start - first : span.start - first + span.length]
                if shards is None:
                    into[span.piece] = part.view(member.dtype).reshape(
                        member.shape(span.length // member.row_bytes)
                    )
                    continue
                values = np.empty(member.shape(self.piece_rows), member.dtype)
                raw = values.reshape(-1).view(np.uint8)
                what = f"{key!r} of store {str(self._root)!r}"
                decode_piece(part, raw, shards.zstd, what)
                into[span.piece] = values

        return read

    def _range(self, key: str, start: int, length: int) -> NDArray[np.uint8]:
        """Return bytes of an object, which must be the one that was opened."""
        tag = self._tags.get(key)
        found = read_range(self._root, key, start, length, tag)
        # After the read: what stands at the path now is what was read, or the read was earlier.
        if isinstance(self._root, Path) and (now := stamp_tag(self._root / key)) != tag:
            self._refuse_another()
            self._tags[key] = now  # copied or touched
        return found

    def _refuse_another(self) -> None:
        """Raise BusyError if another store is in the place of the one that was opened."""
        if not isinstance(self._root, Path):
            return
        if read_manifest(self._root).fingerprint != self._manifest.fingerprint:
            raise BusyError(
                f"expected store {self.where!r} as it was opened, found another in its place: "
                "open it again, or give the same command again"
            )

    def _span(self, member: Member, chunk: int, piece: int) -> _Span:
        number = piece - chunk * self._per_chunk
        if self._layout.shards is not None:
            start, length = self._indices[member.key(chunk)][number]
            return _Span(piece, int(start), int(length))
        first = number * self.piece_rows
        rows = min(self.piece_rows, self._layout.chunk_rows - first)
        return _Span(piece, first * member.row_bytes, rows * member.row_bytes)

    def _read_indices(self, chunks: list[int]) -> None:
        """Read the indices of shards that were not read before, and compare their checksums."""
        shards = self._layout.shards
        assert shards is not None
        length = tail_bytes(self._per_chunk)

        def index(key: str, chunk: int) -> None:
            size, crc = self._manifest.entries[key]
            start = max(size - length, 0)
            end = self._range(key, start, size - start)
            used = -(-rows_of_chunk(self._layout, chunk) // shards.piece_rows)
            what = f"{key!r} of store {str(self._root)!r}"
            self._indices[key] = read_tail(end, self._per_chunk, used, size, crc, what)

        wanted = [
            (member.key(chunk), chunk)
            for member in self._layout.data_members
            for chunk in chunks
            if member.key(chunk) not in self._indices
        ]
        at_once(
            self._root,
            [lambda key=key, chunk=chunk: index(key, chunk) for key, chunk in wanted],  # type: ignore[misc]
        )


def stamp_tag(path: Path) -> str:
    """Return the tag of a file: inode, size and modification time; empty without one."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"


def _runs(spans: list[_Span]) -> list[list[_Span]]:
    """Return the pieces that one request reads each: near each other, and not too many bytes."""
    runs: list[list[_Span]] = []
    for span in sorted(spans, key=lambda each: each.start):
        run = runs[-1] if runs else []
        end = span.start + span.length
        near = run and span.start - (run[-1].start + run[-1].length) <= _GAP
        if near and end - run[0].start <= _LONGEST:
            run.append(span)
        else:
            runs.append([span])
    return runs


def _raw_rows(chunk_rows: int, row_bytes: int) -> int:
    """Return the rows of a piece of a raw chunk: about 256 kB, a whole number of them a chunk."""
    rows = chunk_rows
    while rows % 2 == 0 and rows > 64 and rows * row_bytes > _RAW_BYTES:
        rows //= 2
    if rows * row_bytes > 4 * _RAW_BYTES:
        # A single chunk of an odd number of rows: its last piece is shorter.
        rows = max(_RAW_BYTES // row_bytes, 64)
    return rows
