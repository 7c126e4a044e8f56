"""Row sources of a sampler: mapped files or arrays, read by one compiled gather."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from streammc.errors import StoreError
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.numerics.expand_runs import expand_runs
from streammc.numerics.jit import jit
from streammc.protocols import Index, Rows
from streammc.stores.cloud.address import Root
from streammc.stores.format.codes import with_codes
from streammc.stores.format.layout import CODES, Layout
from streammc.stores.format.manifest import Manifest
from streammc.stores.format.objects import statuses
from streammc.stores.rows.mapping import map_member
from streammc.stores.rows.piece_cache import CachedRows, StorePieces, run_starts, stamp_tag

# Resolved by the loader: called without the interpreter, and the compiled code is cached.
_madvise: Any = types.ExternalFunction("madvise", types.intc(types.uintp, types.uintp, types.intc))
_mincore: Any = types.ExternalFunction("mincore", types.intc(types.uintp, types.uintp, types.uintp))

_PROBES = 256
"""Number of runs of a request that are looked up in the page cache first."""


@jit()
def gather_rows(
    X: NDArray[Any],
    y: NDArray[Any],
    offset: NDArray[np.float64],
    weight: NDArray[np.float64],
    n_rows: int,
    starts: Index,
    unit_rows: int,
    out: Rows,
) -> None:
    """Copy runs of rows as float64; an empty array stands for an absent one."""
    columns = X.shape[1]
    for unit in range(starts.shape[0]):
        for step in range(unit_rows):
            row = starts[unit] + step
            to = unit * unit_rows + step
            if 0 <= row < n_rows:
                for column in range(columns):
                    out.X[to, column] = X[row, column]
                out.y[to] = y[row] if y.shape[0] > 0 else 0.0
                out.offset[to] = offset[row] if offset.shape[0] > 0 else 0.0
                out.weight[to] = weight[row] if weight.shape[0] > 0 else 1.0
            else:
                for column in range(columns):
                    out.X[to, column] = 0.0
                out.y[to] = 0.0
                out.offset[to] = 0.0
                out.weight[to] = 0.0


@jit()
def advise_rows(
    address: int, row_bytes: int, n_rows: int, starts: Index, unit_rows: int, page: int
) -> int:
    """Request the pages of runs ahead of use, merging neighbours; return the requests made."""
    requests = 0
    first = 0
    last = 0
    for unit in range(starts.shape[0]):
        start = starts[unit]
        stop = min(start + unit_rows, n_rows)
        if start < 0 or start >= stop:
            continue
        low = (address + start * row_bytes) // page * page
        high = (address + stop * row_bytes + page - 1) // page * page
        if first <= low <= last:
            last = max(last, high)
            continue
        if last > first:
            _madvise(first, last - first, 3)
            requests += 1
        first = low
        last = high
    if last > first:
        _madvise(first, last - first, 3)
        requests += 1
    return requests


@jit()
def missing_runs(
    address: int, row_bytes: int, n_rows: int, starts: Index, page: int, every: int
) -> int:
    """Return the number of runs, of every ``every``-th, whose first page is not in memory."""
    resident = np.ones(1, dtype=np.uint8)
    missing = 0
    for unit in range(0, starts.shape[0], every):
        if 0 <= starts[unit] < n_rows:
            at = (address + starts[unit] * row_bytes) // page * page
            _mincore(at, page, resident.ctypes.data)
            missing += 1 - (resident[0] & 1)
    return missing


class MemoryRows:
    """Rows of arrays in memory: a ``RowSource``.

    ``X`` (n, q) is float32 or float64, C-contiguous, also with codes; rows past ``n_rows`` are
    padding. The others are (n,), or empty for response 0, offset 0 or weight 1.
    """

    def __init__(
        self,
        X: NDArray[Any] | CodedMatrix,
        y: NDArray[Any],
        offset: NDArray[np.float64],
        weight: NDArray[np.float64],
        n_rows: int,
    ) -> None:
        self.n_rows = n_rows
        self.n_features = int(X.shape[1])
        dense = X.dense if isinstance(X, CodedMatrix) else X
        self.columns = X.columns if isinstance(X, CodedMatrix) else None
        """The columns of a design with codes; ``None`` without."""
        self.arrays = tuple(_read_only(array) for array in (dense, y, offset, weight))
        """The dense columns, y, offset and weight."""
        self.codes = _read_only(X.codes) if isinstance(X, CodedMatrix) else None
        """(n, K) codes of the other columns; ``None`` without."""
        self.row_bytes = sum(_row_bytes(array) for array in self._all_arrays)

    @property
    def _all_arrays(self) -> tuple[NDArray[Any], ...]:
        return self.arrays if self.codes is None else (*self.arrays, self.codes)

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy the runs ``[start, start + unit_rows)`` into ``out``, one after the other."""
        starts = run_starts(starts, unit_rows, self.n_features, out)
        if self.codes is None:
            gather_rows(*self.arrays, self.n_rows, starts, unit_rows, out)
            return
        dense = out._replace(X=np.empty((len(out.X), self.arrays[0].shape[1])))
        gather_rows(*self.arrays, self.n_rows, starts, unit_rows, dense)
        place = (starts, unit_rows, self.n_rows)
        wrong = expand_runs(dense.X, self.codes, *place, self.columns, out.X)
        if wrong:
            raise StoreError(
                f"expected codes of levels in the rows that were read, found {wrong} above the "
                "number of levels: the store is damaged; run streammc verify, or make it again"
            )

    def will_need(self, starts: Index, unit_rows: int) -> None:
        """Do nothing: the rows are in memory."""


class MappedRows(MemoryRows):
    """Rows of mapped chunk files: a ``RowSource``.

    ``observable`` says whether the system tells this user which pages are in memory. It does if
    the user may write the files.
    """

    def __init__(
        self,
        X: NDArray[Any] | CodedMatrix,
        y: NDArray[Any],
        offset: NDArray[np.float64],
        weight: NDArray[np.float64],
        n_rows: int,
        observable: bool = False,
    ) -> None:
        super().__init__(X, y, offset, weight, n_rows)
        self._observable = observable

    def will_need(self, starts: Index, unit_rows: int) -> None:
        """Start to read the pages of these runs, in sorted order for the fewest requests.

        ``MADV_WILLNEED`` on a mapped file is ``posix_fadvise(WILLNEED)`` on the same range,
        without an open descriptor per chunk. If a sample of the runs is in memory, no request
        is made: each is a system call.
        """
        starts = np.sort(np.ascontiguousarray(starts, dtype=np.int64))
        every = max(32, starts.size // _PROBES)
        for array in self._all_arrays:
            if array.size == 0:
                continue
            place = (array.ctypes.data, _row_bytes(array), self.n_rows, starts)
            if self._observable and missing_runs(*place, mmap.PAGESIZE, every) == 0:
                continue
            advise_rows(*place, unit_rows, mmap.PAGESIZE)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: one type, so that one gather is compiled."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _row_bytes(array: NDArray[Any]) -> int:
    if array.size == 0:
        return 0
    return int(array.itemsize) * (int(array.shape[1]) if array.ndim == 2 else 1)


def open_rows(
    root: Root, layout: Layout, manifest: Manifest, coded: CodedColumns | None = None
) -> MappedRows | CachedRows:
    """Return the rows of a store: mapped if its chunks are raw files, else through a cache.

    ``coded`` are the columns of a design with codes.
    """
    if isinstance(root, Path) and layout.shards is None:
        return _mapped(root, layout, coded)
    tags: dict[str, str | None]
    if isinstance(root, Path):
        tags = {key: stamp_tag(root / key) for key in layout.chunk_sizes()}
    else:
        by_key = statuses(root, layout.chunk_sizes())
        tags = {key: status.tag for key, status in by_key.items()}
    return CachedRows(StorePieces(root, layout, manifest, tags, coded))


def _mapped(root: Path, layout: Layout, coded: CodedColumns | None) -> MappedRows:
    def mapped(name: str) -> NDArray[Any]:
        member = layout.member(name)
        return np.empty(0) if member is None else map_member(root, layout, member)

    observable = os.access(root / layout.members[0].key(0), os.W_OK)
    design = with_codes(mapped("X"), mapped(CODES), coded)
    others = mapped("y"), mapped("offset"), mapped("weight")
    return MappedRows(design, *others, layout.n_rows, observable=observable)
