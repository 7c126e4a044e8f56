"""Cache of decoded pieces of rows, bounded in bytes, read by one compiled gather.

A piece is a run of rows that is read and decoded together: a piece of a shard, a chunk of
another program's array, or a part of a raw chunk. Each of the equal slots of the cache holds one
piece of every array; a table says in which slot a piece is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, StoreError, StreammcError
from streammc.numerics.jit import jit
from streammc.protocols import Index, Rows

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


def cache_bytes() -> int:
    """Return the bytes of the cache: of ``STREAMMC_CACHE_MB``, else 512 MB or 1/8 of the memory.

    Raises
    ------
    ConfigError
        If the variable is not a positive number.
    """
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

    Parameters
    ----------
    reader
        Reads and decodes pieces.
    most_bytes
        Bytes of the cache. What is being read comes on top, at most half as much per thread.

    Raises
    ------
    StoreError
        If four pieces do not fit into the cache.
    """

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
        """Raise: these rows have no place in memory.

        Raises
        ------
        ConfigError
            Always.
        """
        raise ConfigError(
            f"expected a store that can be mapped into memory, found {self._reader.where}, which "
            "has shards, is remote or of another program: ingest it with --layout local, and copy "
            "such a store with 'streammc pull'"
        )

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy the runs ``[start, start + unit_rows)`` into ``out``, one after the other.

        Raises
        ------
        StoreError
            If a piece is missing or damaged.
        AccessError, UnavailableError
            If the object store refuses.
        """
        starts = np.ascontiguousarray(starts, dtype=np.int64)
        rows = starts.size * unit_rows
        shapes = (out.X.shape, *(vector.shape for vector in out[1:]))
        if unit_rows < 1 or shapes != ((rows, self.n_features), (rows,), (rows,), (rows,)):
            raise ConfigError(
                f"expected arrays of {rows} rows and {self.n_features} features as out, found "
                f"others: pass arrays of that shape (out.X has {out.X.shape})"
            )
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
            found = self._fetch([int(piece) for piece in pieces])
            with self._lock:
                self._insert(found, pieces)
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
        found: Index = np.unique(
            np.concatenate([np.minimum(first + step, last) for step in range(span + 1)])
        )
        return found

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
        found: dict[int, Pieces] = {}
        try:
            if mine:
                found = dict(zip(mine, self._reader.read(mine), strict=True))
            promise.set_result(found)
        except BaseException as error:
            promise.set_exception(error)
            raise
        finally:
            with self._flight_lock:
                for piece in mine:
                    del self._flying[piece]
        return found | {piece: future.result()[piece] for piece, future in others.items()}

    def _insert(self, fresh: dict[int, Pieces], wanted: Index) -> None:
        """Put decoded pieces into the slots that were not used for longest; hold the lock."""
        self._clock += 1
        there = self._table[wanted]
        self._used[there[there >= 0]] = self._clock
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
