"""A table that is read in order, as often as needed, and never written: a ``Dataset``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from streammc.errors import ConfigError, DataError
from streammc.likelihood.data_views import SPREAD_IN_ORDER, random_rows, spread_runs
from streammc.likelihood.pass_cost import SUBSET_ROWS
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Index, PassTask, Rows
from streammc.shown import Shown
from streammc.stores.data_set import RowTable, dataset_facts
from streammc.stores.format.codes import read_columns, with_codes
from streammc.stores.format.layout import CODES, FORMAT
from streammc.stores.ingest.prepare import Prepared
from streammc.stores.ingest.table_blocks import ReadRecord
from streammc.stores.reduction import reduce_block
from streammc.stores.rows.row_blocks import MemoryBlock
from streammc.unfinished import remove

T = TypeVar("T")

_BLOCK_BYTES: Final = 2**23
_MOST_GATHERED: Final = 2**22
"""Rows that may be asked for out of order: the samples of a plan, not the rows of a chain."""


class StreamedTable(RowTable, Shown):
    """Files or a table in memory, encoded block by block whenever the rows are needed.

    Rows keep the order of the table. Every read checks that it found the rows of the first one.

    Parameters
    ----------
    prepared
        The table after its first pass.
    folder
        Its temporary folder, which is removed with this object.

    Raises
    ------
    ConfigError
        If the rows form groups, which have to be brought together on disk.
    """

    address = "memory"
    sequential = True
    groups = None

    def __init__(self, prepared: Prepared, folder: Path) -> None:
        self._removed = finalize(self, remove, folder)
        self._prepared = prepared
        if prepared.groups is not None:
            raise ConfigError(
                "expected rows without groups to read a table in order, found groups, whose rows "
                "have to be brought together: make a store, --store NAME.zarr, in Python store="
            )
        prepared.keep_order()
        first = prepared.first_read
        self.n_rows = self._prepared.scan.n_rows
        self.feature_names = tuple(self._prepared.feature_names)
        self.n_features = len(self.feature_names)
        stated = self._prepared.codes_attribute()
        attributes = {
            "format": FORMAT,
            "n_rows": self.n_rows,
            "features": list(self.feature_names),
            **self._prepared.attributes(),
            "dtype": prepared.dtype,
        } | ({CODES: stated} if stated else {})
        self.attributes: Mapping[str, Any] = MappingProxyType(attributes)
        self.response: str | None = attributes["response"]
        self._columns = read_columns(attributes)
        self._block_rows = max(_BLOCK_BYTES // self._prepared.expansion.row_bytes, 1)
        self.reads = 1
        """Times that the table was read, the scan of the first included."""
        self._digest = "" if first is None else first.digest()
        row_bytes = self._prepared.expansion.row_bytes
        self._rows = StreamedRows(self, self._columns, row_bytes)
        wanted, records = samples(self.n_rows, row_bytes), prepared.first_records()
        if first is None or records is None or not np.array_equal(first.wanted, wanted):
            self._rows.read(wanted)
        else:
            arrays = prepared.expansion.empty(len(records))
            prepared.expansion.write(records, arrays)
            everything = self._block(0, 0, arrays)
            self._rows.keep(wanted, values_of(everything, np.arange(len(wanted))))
        header = json.dumps({**attributes, "sources": None}, sort_keys=True)
        self.fingerprint = hashlib.sha256(f"{header} {self._digest}".encode()).hexdigest()

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<StreamedTable: {self.n_rows} rows, {self.n_features} features>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        return "StreamedTable", dataset_facts(self, layout="read in order", reads=self.reads)

    def rows(self) -> StreamedRows:
        """Return the source of a few rows; each request that is new is a read."""
        return self._rows

    def block_rows(self) -> int:
        """Return the rows of one block of :meth:`reduce`."""
        return self._block_rows

    def piece_rows(self) -> int:
        """Return the rows of a piece: a block."""
        return self._block_rows

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the positions of rows (m,); ``None`` where rows were left out."""
        if self.attributes["n_dropped"] or self.attributes.get("row_id"):
            return None
        return np.arange(start, self.n_rows if stop is None else min(stop, self.n_rows))

    def row_groups(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return ``None``: there are no groups."""
        return None

    def stamps(self) -> Index:
        """Return an empty (0, 3) array: every read is compared with the first."""
        return np.empty((0, 3), np.int64)

    def recheck(self, stamps: Index) -> None:
        """Do nothing: see :meth:`stamps`."""

    def blocks(self) -> Iterator[MemoryBlock]:
        """Read the table: yield its rows in blocks of ``block_rows``.

        Raises
        ------
        DataError
            If the rows are not those of the first read.
        """
        expansion, watch = self._prepared.expansion, ReadRecord(np.empty(0, np.int64))
        done = filled = index = 0
        arrays = expansion.empty(min(self._block_rows, self.n_rows))
        for records in self._prepared.records(watch):
            start = 0
            while start < len(records):
                count = min(len(records) - start, len(arrays["X"]) - filled)
                parts = {name: each[filled : filled + count] for name, each in arrays.items()}
                expansion.write(records[start : start + count], parts)
                start, filled = start + count, filled + count
                if filled == len(arrays["X"]):
                    yield self._block(index, done, arrays)
                    done, filled, index = done + filled, 0, index + 1
                    arrays = expansion.empty(min(self._block_rows, max(self.n_rows - done, 1)))
        self.reads += 1
        found = watch.digest()
        if self._digest and found != self._digest:
            raise DataError(
                f"expected the rows of the first read of {self._prepared.label}, found others: "
                "wait until no program writes to it, and begin again"
            )
        self._digest = found

    def _block(self, index: int, start: int, arrays: Mapping[str, NDArray[Any]]) -> MemoryBlock:
        design = with_codes(arrays["X"], arrays.get(CODES), self._columns)
        empty = np.empty(0)
        vectors = (arrays.get(name, empty) for name in ("y", "offset", "weight"))
        y, offset, weight = vectors
        return MemoryBlock(index, start, len(arrays["X"]), design, y, offset, weight)

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once; see ``protocols.Dataset.reduce``.

        Blocks are read by one thread and reduced by others; at most two for each wait.
        """
        if scheduler not in (None, "sync") and type(scheduler) is not int:
            raise ConfigError(
                f"expected a number of threads or 'sync' for a table that is read in order, found "
                f"the scheduler {str(scheduler)[:100]!r}: make a store for a cluster, --store "
                "NAME.zarr, in Python store="
            )
        threads = scheduler if type(scheduler) is int else available_threads()
        if scheduler == "sync":
            threads = 1
        total = -(-self.n_rows // self._block_rows)
        tree, asked = Tree(task), Asked(task)
        waiting: list[tuple[MemoryBlock, Future[T]]] = []

        def take() -> None:
            block, future = waiting.pop(0)
            asked.add(block, future.result())
            tree.add(future.result())
            if block.index % _PRUNED_EVERY == 0:
                asked.prune(tree.results)

        with threadpool_limits(limits=1), ThreadPoolExecutor(threads, "streammc-pass") as pool:
            for done, block in enumerate(self.blocks()):
                waiting.append((block, pool.submit(reduce_block, task, block)))
                if len(waiting) > 2 * threads:
                    take()
                if progress is not None:
                    progress(done + 1, total)
            while waiting:
                take()
        result = tree.result()
        asked.prune([result])
        if len(asked.rows):
            self._rows.keep(asked.rows, asked.values)
        return result


class Tree(Generic[T]):
    """Combination of results that come in order: pairs, pairs of pairs, and so on."""

    def __init__(self, task: PassTask[T]) -> None:
        self._task = task
        self._whole: list[tuple[int, T]] = []
        """Height and result of the subtrees that wait for their neighbour."""

    @property
    def results(self) -> list[T]:
        """Results of all rows so far, of a few parts."""
        return [result for _, result in self._whole]

    def add(self, result: T) -> None:
        """Add the result of the next block."""
        height = 0
        while self._whole and self._whole[-1][0] == height:
            result = self._task.combine(self._whole.pop()[1], result)
            height += 1
        self._whole.append((height, result))

    def result(self) -> T:
        """Return the combination of all."""
        _, result = self._whole.pop()
        while self._whole:
            result = self._task.combine(self._whole.pop()[1], result)
        return result


class Asked(Generic[T]):
    """The rows of a pass that its task will ask for next, with their values."""

    def __init__(self, task: PassTask[T]) -> None:
        self._task = task
        self.rows: Index = np.empty(0, np.int64)
        """(k,) sorted."""
        self.values = Rows(np.empty((0, 0)), *(np.empty(0) for _ in range(3)))
        self._parts: list[tuple[Index, Rows]] = []

    def add(self, block: MemoryBlock, result: T) -> None:
        """Add those of the next block."""
        rows = np.sort(self._task.asked_next(result))
        if len(rows):
            self._parts.append((rows, values_of(block, rows - block.start)))

    def prune(self, results: Sequence[T]) -> None:
        """Keep those of the combined results alone."""
        if self._parts:
            before = [(self.rows, self.values)] if len(self.rows) else []
            self.rows, self.values = merged(before + self._parts)
            self._parts = []
        wanted = np.concatenate([self._task.asked_next(result) for result in results])
        kept = np.isin(self.rows, wanted)
        self.rows, self.values = self.rows[kept], Rows(*(part[kept] for part in self.values))


_PRUNED_EVERY: Final = 32
"""Blocks after which the rows asked for are those of all blocks so far."""
_RUN_ROWS: Final = 4096


def merged(parts: Sequence[tuple[Index, Rows]]) -> tuple[Index, Rows]:
    """Return positions, sorted, and values of rows of several parts; equal positions once."""
    rows = np.concatenate([each for each, _ in parts])
    joined = [np.concatenate(column) for column in zip(*(rows for _, rows in parts), strict=True)]
    order = np.argsort(rows, kind="stable")
    order = order[np.r_[True, rows[order][1:] != rows[order][:-1]]]
    return rows[order], Rows(*(column[order] for column in joined))


def values_of(block: MemoryBlock, at: Index) -> Rows:
    """Return the rows at ``at`` (k,) of a block, as a row source gives them."""
    if isinstance(block.X, CodedMatrix):
        dense = CodedMatrix(block.X.dense[at], block.X.codes[at], block.X.columns).expanded()
    else:
        dense = block.X[at]
    zeros, ones = np.zeros(len(at)), np.ones(len(at))
    return Rows(
        np.asarray(dense, np.float64),
        np.asarray(block.y[at], np.float64) if block.y.size else zeros,
        block.offset[at] if block.offset.size else zeros,
        block.weight[at] if block.weight.size else ones,
    )


def samples(n_rows: int, row_bytes: int) -> Index:
    """Return the rows that plan and search will ask for, see ``likelihood.data_views``."""
    starts = spread_runs(n_rows, _RUN_ROWS, min(SPREAD_IN_ORDER, 2**28 // row_bytes))
    runs = (starts[:, None] + np.arange(_RUN_ROWS)).ravel()
    return _distinct(np.concatenate([random_rows(n_rows, SUBSET_ROWS), runs]))


def sampled_read(n_rows: int) -> ReadRecord:
    """Return the record of a first read that keeps these rows, if they are as narrow as most."""
    return ReadRecord(samples(n_rows, 1))


def _distinct(rows: Index) -> Index:
    """Return the rows once each, sorted: ``np.unique`` of a million takes 2 s by its hashes."""
    rows = np.sort(rows)
    return rows[np.r_[True, rows[1:] != rows[:-1]]]


class StreamedRows:
    """Rows of a streamed table: a ``RowSource`` of the samples that a plan needs."""

    codes: NDArray[Any] | None = None

    def __init__(self, table: StreamedTable, columns: CodedColumns | None, row_bytes: int) -> None:
        self._table, self.columns, self.row_bytes = table, columns, row_bytes
        self.n_rows, self.n_features = table.n_rows, table.n_features
        self._known = np.zeros(0, np.int64)
        self._rows = Rows(np.zeros((0, self.n_features)), *(np.zeros(0) for _ in range(3)))

    def read(self, wanted: Index) -> None:
        """Read the table once, and keep these rows (m,), sorted; those from before stay."""
        parts: list[tuple[Index, Rows]] = []
        for block in self._table.blocks():
            low, high = np.searchsorted(wanted, [block.start, block.start + block.rows])
            if high > low:
                rows = wanted[low:high]
                parts.append((rows, values_of(block, rows - block.start)))
        self.keep(*merged(parts))

    def keep(self, rows: Index, values: Rows) -> None:
        """Keep rows (m,), sorted, with their values; those from before stay."""
        before = [(self._known, self._rows)] if len(self._known) else []
        self._known, self._rows = merged([*before, (rows, values)])

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy runs of rows into ``out``; see ``protocols.RowSource``.

        Raises
        ------
        ConfigError
            If they are more than a sample: chains that read rows need a store.
        """
        rows = (starts[:, None] + np.arange(unit_rows)).ravel()
        inside = (rows >= 0) & (rows < self.n_rows)
        at = self._places(rows)
        missing = inside & (self._known[at] != rows)
        if missing.any():
            new = _distinct(rows[missing])
            if len(self._known) + len(new) > _MOST_GATHERED:
                raise ConfigError(
                    "expected a sampler that needs no rows out of their order, such as smh, found "
                    f"{len(new):,} of them asked for: make a store, --store NAME.zarr, in Python "
                    "store="
                )
            self.read(new)
            at = self._places(rows)
        for target, source in zip(out, self._rows, strict=True):
            target[:] = source[at]
            target[~inside] = 0.0

    def _places(self, rows: Index) -> Index:
        """Return the place of each row among those known, or of a neighbour."""
        places: Index = np.minimum(np.searchsorted(self._known, rows), len(self._known) - 1)
        return places

    def will_need(self, starts: Index, unit_rows: int) -> None:
        """Do nothing: there is nothing to read ahead."""
