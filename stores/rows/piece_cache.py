"""Cache of decoded pieces of rows, bounded in bytes, read by one compiled gather.

A piece is a run of rows that is read and decoded together: a piece of a shard, a chunk of
another program's array, or a part of a raw chunk. Each of the equal slots of the cache holds one
piece of every array; a table says in which slot a piece is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import BusyError, ConfigError, StoreError, StreammcError
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.numerics.jit import jit
from streammc.protocols import Index, Rows
from streammc.stores.cloud.address import Root
from streammc.stores.format.codes import checked_codes
from streammc.stores.format.layout import CODES, Layout, Member
from streammc.stores.format.manifest import Manifest, read_manifest, rows_of_chunk
from streammc.stores.format.objects import at_once, read_range
from streammc.stores.format.shards import decode_piece, read_tail, tail_bytes

CACHE: Final = "STREAMMC_CACHE_MB"
_DEFAULT_MB: Final = 512
_LEAST_SLOTS: Final = 4


class Pieces(NamedTuple):
    """Rows of one piece; an empty array stands for an absent one."""

    X: NDArray[Any]
    y: NDArray[Any]
    offset: NDArray[np.float64]
    weight: NDArray[np.float64]


class PieceReader(Protocol):
    """Reader of the pieces of a table."""

    n_rows: int
    piece_rows: int
    columns: int
    dtypes: tuple[str, str | None, bool, bool]
    """Dtype of X and y, and whether there are offsets and weights."""
    where: str
    """The store, for messages."""

    def read(self, pieces: Sequence[int]) -> list[Pieces]:
        """Return some pieces, given in increasing order."""


@jit()
def gather_pieces(
    slots: tuple[NDArray[Any], NDArray[Any], NDArray[np.float64], NDArray[np.float64]],
    table: Index,
    piece_rows: int,
    n_rows: int,
    bounds: tuple[int, int],
    starts: Index,
    unit_rows: int,
    out: Rows,
) -> None:
    """Copy the rows of runs whose pieces lie in ``bounds``; rows outside of the table become 0."""
    X, y, offset, weight = slots
    columns = X.shape[1]
    for unit in range(starts.shape[0]):
        for step in range(unit_rows):
            row = starts[unit] + step
            to = unit * unit_rows + step
            if 0 <= row < n_rows:
                piece = row // piece_rows
                if piece < bounds[0] or piece > bounds[1]:
                    continue
                place = table[piece] * piece_rows + row - piece * piece_rows
                for column in range(columns):
                    out.X[to, column] = X[place, column]
                out.y[to] = y[place] if y.shape[0] > 0 else 0.0
                out.offset[to] = offset[place] if offset.shape[0] > 0 else 0.0
                out.weight[to] = weight[place] if weight.shape[0] > 0 else 1.0
            else:
                for column in range(columns):
                    out.X[to, column] = 0.0
                out.y[to] = 0.0
                out.offset[to] = 0.0
                out.weight[to] = 0.0


def run_starts(starts: Index, unit_rows: int, n_features: int, out: Rows) -> Index:
    """Return the first rows of runs as int64; refuse ``out`` if it has not room for the runs."""
    starts = np.ascontiguousarray(starts, dtype=np.int64)
    rows = starts.size * unit_rows
    shapes = (out.X.shape, *(vector.shape for vector in out[1:]))
    if unit_rows < 1 or shapes != ((rows, n_features), (rows,), (rows,), (rows,)):
        raise ConfigError(
            f"expected arrays of {rows} rows and {n_features} features as out, found others: pass "
            f"arrays of that shape (out.X has {out.X.shape})"
        )
    return starts


def cache_bytes() -> int:
    """Return the bytes of the cache: of ``STREAMMC_CACHE_MB``, else 512 MB or 1/8 of the memory."""
    text = os.environ.get(CACHE, "")
    if not text:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(_DEFAULT_MB << 20, memory // 8)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 24:
        raise ConfigError(
            f"expected a whole number of megabytes in {CACHE}, found {text[:40]!r}: correct it"
        )
    return int(text) << 20


class CachedRows:
    """Rows of a store that cannot be mapped: a ``RowSource`` with a cache of decoded pieces.

    The rows are those of a mapped store, bit for bit. Safe from many threads.

    The cache has ``most_bytes``. What is being read comes on top, at most half as much per thread.
    """

    columns = codes = None

    def __init__(self, reader: PieceReader, most_bytes: int | None = None) -> None:
        self._reader = reader
        self.n_rows, self.n_features = reader.n_rows, reader.columns
        x_dtype, y_dtype, has_offset, has_weight = reader.dtypes
        y_bytes = 0 if y_dtype is None else np.dtype(y_dtype).itemsize
        wide = np.dtype(x_dtype).itemsize * reader.columns
        self.row_bytes = wide + y_bytes + 8 * (has_offset + has_weight)
        n_pieces = -(-reader.n_rows // reader.piece_rows)
        piece_bytes = self.row_bytes * reader.piece_rows
        fit = (cache_bytes() if most_bytes is None else most_bytes) // piece_bytes
        if fit < min(_LEAST_SLOTS, n_pieces):
            needed = -(-_LEAST_SLOTS * piece_bytes >> 20)
            raise StoreError(
                f"expected chunks of which {_LEAST_SLOTS} fit into the cache, found chunks of "
                f"{piece_bytes >> 20} MB in {reader.where}: set {CACHE} to {needed} or more, or "
                "make a store with 'streammc ingest'"
            )
        self.slots = min(fit, n_pieces)
        rows = self.slots * reader.piece_rows
        # Not touched before use: memory is taken as pieces arrive.
        self._slots = (
            np.empty((rows, reader.columns), x_dtype),
            np.empty(0 if y_dtype is None else rows, y_dtype or "float64"),
            np.empty(rows if has_offset else 0),
            np.empty(rows if has_weight else 0),
        )
        self._table = np.full(n_pieces, -1, np.int64)
        self._owner = np.full(self.slots, -1, np.int64)
        self._used = np.zeros(self.slots, np.int64)
        self._clock = 0
        self._lock = Lock()
        self._flight_lock = Lock()
        self._flying: dict[int, Future[dict[int, Pieces]]] = {}
        self._ahead: ThreadPoolExecutor | None = None
        self._ahead_jobs = 0

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Raise: these rows have no place in memory."""
        raise ConfigError(
            f"expected a store that can be mapped into memory, found {self._reader.where}, which "
            "has shards, is remote or of another program: ingest it with --layout local, and copy "
            "such a store with 'streammc pull'"
        )

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy the runs ``[start, start + unit_rows)`` into ``out``, one after the other."""
        starts = run_starts(starts, unit_rows, self.n_features, out)
        needed = self._pieces_of(starts, unit_rows)
        most = max(self.slots // 2, 1) if self.slots < len(self._table) else len(self._table)
        for first in range(0, max(len(needed), 1), most):
            self._copy(needed[first : first + most], starts, unit_rows, out)

    def will_need(self, starts: Index, unit_rows: int) -> None:
        """Begin to read the pieces of these runs in a thread; :meth:`gather` reports errors."""
        needed = self._pieces_of(np.ascontiguousarray(starts, dtype=np.int64), unit_rows)
        wanted = needed[self._table[needed] < 0][: max(self.slots // 2, 1)]
        if not len(wanted) or self._ahead_jobs > 1:
            return
        if self._ahead is None:
            self._ahead = ThreadPoolExecutor(1, "streammc-ahead")
        self._ahead_jobs += 1
        self._ahead.submit(self._read_ahead, wanted)

    def _read_ahead(self, pieces: Index) -> None:
        try:
            fresh = self._fetch([int(piece) for piece in pieces])
            with self._lock:
                self._insert(fresh, pieces)
        except StreammcError:
            pass  # the gather of these rows meets the same fault
        finally:
            self._ahead_jobs -= 1

    def _pieces_of(self, starts: Index, unit_rows: int) -> Index:
        """Return the pieces that runs touch, in increasing order."""
        size = self._reader.piece_rows
        first = np.maximum(starts, 0)
        last = np.minimum(starts + unit_rows, self.n_rows) - 1
        inside = first <= last
        first, last = first[inside] // size, last[inside] // size
        span = int((last - first).max(initial=0))
        pieces: Index = np.unique(
            np.concatenate([np.minimum(first + step, last) for step in range(span + 1)])
        )
        return pieces

    def _copy(self, pieces: Index, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy the rows of ``pieces`` into ``out``, reading those that are not in the cache."""
        fresh: dict[int, Pieces] = {}
        bounds = (int(pieces[0]), int(pieces[-1])) if len(pieces) else (0, -1)
        while True:
            with self._lock:
                absent = pieces[self._table[pieces] < 0]
                missing = [int(piece) for piece in absent if int(piece) not in fresh]
                if not missing:
                    self._insert(fresh, pieces)
                    where = (self._reader.piece_rows, self.n_rows, bounds)
                    gather_pieces(self._slots, self._table, *where, starts, unit_rows, out)
                    return
            fresh |= self._fetch(missing)

    def _fetch(self, pieces: list[int]) -> dict[int, Pieces]:
        """Read pieces; one that another thread is reading is awaited, not read twice."""
        promise: Future[dict[int, Pieces]] = Future()
        with self._flight_lock:
            others = {piece: self._flying[piece] for piece in pieces if piece in self._flying}
            mine = [piece for piece in pieces if piece not in others]
            self._flying.update(dict.fromkeys(mine, promise))
        own: dict[int, Pieces] = {}
        try:
            if mine:
                own = dict(zip(mine, self._reader.read(mine), strict=True))
            promise.set_result(own)
        except BaseException as error:
            promise.set_exception(error)
            raise
        finally:
            with self._flight_lock:
                for piece in mine:
                    del self._flying[piece]
        return own | {piece: future.result()[piece] for piece, future in others.items()}

    def _insert(self, fresh: dict[int, Pieces], wanted: Index) -> None:
        """Put decoded pieces into the slots that were not used for longest; hold the lock."""
        self._clock += 1
        slots = self._table[wanted]
        self._used[slots[slots >= 0]] = self._clock
        new = [piece for piece in fresh if self._table[piece] < 0]
        if not new:
            return
        victims = np.argsort(self._used, kind="stable")[: len(new)]
        size = self._reader.piece_rows
        for slot, piece in zip(victims, new, strict=True):
            if self._owner[slot] >= 0:
                self._table[self._owner[slot]] = -1
            for into, values in zip(self._slots, fresh[piece], strict=True):
                into[slot * size : slot * size + len(values)] = values
            self._owner[slot], self._table[piece] = piece, slot
            self._used[slot] = self._clock


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

    ``tags`` has the tag of each object when the store was opened, by key, where the service has
    such; of files :func:`stamp_tag`. Designs with codes are expanded as they are decoded.
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
        """Return some pieces, given in increasing order."""
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
        by_member: dict[str, dict[int, NDArray[Any]]] = {}
        reads = []
        for member in layout.data_members:
            into = by_member[member.name] = {}
            for chunk, own in chunks.items():
                spans = [self._span(member, chunk, piece) for piece in own]
                for run in _runs(spans):
                    reads.append(self._request(member, chunk, run, into))
        at_once(self._root, reads)
        empty = np.empty(0)
        if self._coded is not None:
            for piece, dense in by_member["X"].items():
                design = CodedMatrix(dense, by_member[CODES][piece], self._coded)
                start = piece * self.piece_rows
                by_member["X"][piece] = checked_codes(design, start, self.where).expanded()
        return [
            Pieces(*(by_member.get(name, {}).get(piece, empty) for name in Pieces._fields))
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
        content = read_range(self._root, key, start, length, tag)
        # After the read: what stands at the path now is what was read, or the read was earlier.
        if isinstance(self._root, Path) and (now := stamp_tag(self._root / key)) != tag:
            self._refuse_another()
            self._tags[key] = now  # copied or touched
        return content

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
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


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
