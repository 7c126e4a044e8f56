"""A table that is read in order, as often as needed, and never written: a ``Dataset``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from streammc.errors import ConfigError
from streammc.likelihood.data_views import SPREAD_IN_ORDER, random_rows, spread_runs
from streammc.likelihood.pass_cost import SUBSET_ROWS
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Index, PassTask, RowBlock, Rows
from streammc.shown import Shown
from streammc.stores.dask_cluster import is_cluster
from streammc.stores.data_set import RowTable, dataset_facts
from streammc.stores.format.codes import read_columns, with_codes
from streammc.stores.format.layout import CODES, FORMAT
from streammc.stores.ingest.prepare import Prepared, RowReader
from streammc.stores.reduction import reduce_block, run
from streammc.stores.rows.row_blocks import MemoryBlock
from streammc.unfinished import remove

T = TypeVar("T")

_BLOCK_BYTES: Final = 2**23
_UNIT_ROWS: Final = 2**20
"""Fewest rows that a thread or a worker reads at a time: about a row group of a Parquet file."""
_UNITS: Final = 64
"""Most units of a read on a cluster; a thread of this process has an eighth of them."""
_MOST_GATHERED: Final = 2**22
"""Rows that may be asked for out of order: the samples of a plan, not the rows of a chain."""
_RUN_ROWS: Final = 4096


class StreamedTable(RowTable, Shown):
    """Files or a table in memory, encoded block by block whenever the rows are needed.

    Rows keep the order of the table. Every read checks that it found the rows of the first one.

    Parameters
    ----------
    prepared
        The table after its first pass, which is on record.
    folder
        Its temporary folder, which is removed with this object.
    sampled
        Whether the rows that a plan and a search ask for are kept from the first read.

    Raises
    ------
    ConfigError
        If the rows form groups, which have to be brought together on disk.
    """

    address = "memory"
    sequential = True
    groups = None

    def __init__(self, prepared: Prepared, folder: Path, *, sampled: bool = True) -> None:
        self._removed = finalize(self, remove, folder)
        if prepared.groups is not None:
            raise ConfigError(
                "expected rows without groups to read a table in order, found groups, whose rows "
                "have to be brought together: make a store, --store NAME.zarr, in Python store="
            )
        reader, first = prepared.in_order(), prepared.first_read
        assert first is not None
        self.n_rows = prepared.scan.n_rows
        self.feature_names = tuple(prepared.feature_names)
        self.n_features = len(self.feature_names)
        stated = prepared.codes_attribute()
        attributes = {
            "format": FORMAT,
            "n_rows": self.n_rows,
            "features": list(self.feature_names),
            **prepared.attributes(),
            "dtype": prepared.dtype,
        } | ({CODES: stated} if stated else {})
        self.attributes: Mapping[str, Any] = MappingProxyType(attributes)
        self.response: str | None = attributes["response"]
        row_bytes = reader.expansion.row_bytes
        self._blocks = TableBlocks(reader, read_columns(attributes), edges_of(reader))
        self.reads = 1
        """Times that the table was read, the scan of the first included."""
        self._rows = StreamedRows(self, self._blocks.columns, row_bytes)
        wanted = samples(self.n_rows, row_bytes) if sampled else first.wanted
        if sampled and (reader.drops or not np.array_equal(first.wanted, wanted)):
            self._rows.read(wanted)
        elif sampled:  # positions in the table are those of rows
            block = self._blocks.block(0, 0, reader.arrays(first.rows()))
            self._rows.keep(wanted, values_of(block, np.arange(len(wanted))))
        header = json.dumps({**attributes, "sources": None}, sort_keys=True)
        seen = repr((reader.checksums, reader.source.texts))
        self.fingerprint = hashlib.sha256(f"{header} {seen}".encode()).hexdigest()

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
        return self._blocks.rows

    def piece_rows(self) -> int:
        """Return the rows of a piece: a block."""
        return self._blocks.rows

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
        """Read the table: yield its rows in blocks.

        Raises
        ------
        DataError
            If the rows are not those of the first read.
        """
        yield from self._blocks.read()
        self.reads += 1

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once; see ``protocols.Dataset.reduce``.

        Threads and workers read parts of Parquet files; other tables are read by one thread, and
        its blocks reduced by others.

        Raises
        ------
        ConfigError
            If a cluster would have to read what cannot be read in parts.
        """
        asking, blocks, on_cluster = Asking(task), self._blocks, is_cluster(scheduler)
        divisible = blocks.reader.divisible
        if on_cluster and not divisible:
            raise ConfigError(
                "expected Parquet files without missing values for a cluster, whose workers read "
                "parts of them, found another table: make a store, --store NAME.zarr, in Python "
                "store="
            )
        threads = 1 if scheduler == "sync" else scheduler or available_threads()
        units = blocks.units(_UNITS if on_cluster else threads * _UNITS // 8)
        if on_cluster or (divisible and threads > 1 and len(units) > 1):
            answer = run(ReadingTask(asking, blocks), units, scheduler=scheduler, progress=progress)
        else:
            answer = self._in_turn(asking, threads, progress)
        self.reads += 1
        if len(answer.rows):
            self._rows.keep(answer.rows, answer.values)
        return answer.result

    def _in_turn(
        self,
        asking: Asking[T],
        threads: int,
        progress: Callable[[int, int], None] | None,
    ) -> Answer[T]:
        """Read blocks by this thread and reduce them by others; at most two for each wait."""
        total = -(-self.n_rows // self._blocks.rows)
        tree = Tree(asking)
        waiting: list[Future[Answer[T]]] = []
        with threadpool_limits(limits=1), ThreadPoolExecutor(threads, "streammc-pass") as pool:
            for done, block in enumerate(self._blocks.read()):
                waiting.append(pool.submit(asking.map, block))
                if len(waiting) > 2 * threads:
                    tree.add(waiting.pop(0).result())
                if progress is not None:
                    progress(min(done + 1, total), total)
            for future in waiting:
                tree.add(future.result())
        return tree.result()


def edges_of(reader: RowReader) -> tuple[int, ...]:
    """Return where the blocks of a pass begin in a block of the read, and its rows.

    There are a power of two of these blocks, so that reads of some blocks are subtrees.
    """
    rows, parts = reader.source.raw_rows, 1
    while rows * reader.expansion.row_bytes > parts * _BLOCK_BYTES and 2 * parts <= rows:
        parts *= 2
    return tuple(rows * part // parts for part in range(parts + 1))


@dataclass(frozen=True)
class TableBlocks:
    """The blocks of a pass over a table, each a part of a block of the read."""

    reader: RowReader
    columns: CodedColumns | None
    edges: tuple[int, ...]
    """See :func:`edges_of`."""

    @property
    def rows(self) -> int:
        """Most rows of a block."""
        return -(-self.edges[-1] // (len(self.edges) - 1))

    def read(self, first: int = 0, stop: int | None = None) -> Iterator[MemoryBlock]:
        """Yield the blocks of blocks ``first`` to ``stop`` of the read; all, or some."""
        done, index = first * self.edges[-1], first * (len(self.edges) - 1)
        for values in self.reader.blocks(first, stop):
            for low, high in pairwise(self.edges):
                arrays = self.reader.arrays(values[:, low:high])
                if m := len(arrays["X"]):
                    yield self.block(index, done, arrays)
                    done, index = done + m, index + 1

    def block(self, index: int, start: int, arrays: Mapping[str, NDArray[Any]]) -> MemoryBlock:
        """Return the block of some arrays of a store."""
        design = with_codes(arrays["X"], arrays.get(CODES), self.columns)
        empty = np.empty(0)
        y, offset, weight = (arrays.get(name, empty) for name in ("y", "offset", "weight"))
        return MemoryBlock(index, start, len(arrays["X"]), design, y, offset, weight)

    def units(self, count: int) -> list[Unit]:
        """Return at most about ``count`` units of a read, each a subtree of its blocks."""
        raw, total = self.edges[-1], len(self.reader.checksums)
        size = 1
        while size * raw < _UNIT_ROWS or size * count < total:
            size *= 2
        edges = [*range(0, total, size), total]
        return [Unit(i, edges[i], edges[i + 1]) for i in range(len(edges) - 1)]


@dataclass(frozen=True)
class Unit:
    """Blocks ``first`` to ``stop`` of the read, which who reduces them reads."""

    index: int
    first: int
    stop: int
    coded: bool = False

    def pieces(self) -> Iterator[RowBlock]:
        """Yield the place of the rows, which :class:`ReadingTask` reads."""
        empty = np.empty(0)
        yield RowBlock(self.first, self.stop, np.empty((0, 0)), empty, empty, empty)


class Answer(NamedTuple, Generic[T]):
    """A result, and the rows that are asked for next."""

    result: T
    rows: Index
    """(k,) sorted."""
    values: Rows


@dataclass(frozen=True)
class Asking(Generic[T]):
    """A task on blocks, which keeps the rows that it will ask for next."""

    task: PassTask[T]

    def map(self, block: MemoryBlock) -> Answer[T]:
        """Return the answer of a block."""
        result = reduce_block(self.task, block)
        rows = np.sort(self.task.asked_next(result))
        return Answer(result, rows, values_of(block, rows - block.start))

    def combine(self, left: Answer[T], right: Answer[T]) -> Answer[T]:
        """Merge the answers of two neighbouring blocks."""
        result = self.task.combine(left.result, right.result)
        rows, values = merged([left[1:], right[1:]])
        kept = np.isin(rows, self.task.asked_next(result))
        return Answer(result, rows[kept], Rows(*(part[kept] for part in values)))


@dataclass(frozen=True)
class ReadingTask(PassTask[Answer[T]]):
    """A task on units: reads their rows, and runs another on their blocks."""

    asking: Asking[T]
    blocks: TableBlocks

    def map(self, block: RowBlock) -> Answer[T]:
        """Return the answer of a unit, combined as the tree of all blocks combines it."""
        tree = Tree(self.asking)
        for each in self.blocks.read(block.index, block.start):
            tree.add(self.asking.map(each))
        return tree.result()

    def combine(self, left: Answer[T], right: Answer[T]) -> Answer[T]:
        """Merge the answers of two neighbouring units."""
        return self.asking.combine(left, right)


class Tree(Generic[T]):
    """Combination of results that come in order: pairs, pairs of pairs, and so on."""

    def __init__(self, asking: Asking[T]) -> None:
        self._asking = asking
        self._whole: list[tuple[int, Answer[T]]] = []
        """Height and result of the subtrees that wait for their neighbour."""

    def add(self, result: Answer[T]) -> None:
        """Add the result of the next block."""
        height = 0
        while self._whole and self._whole[-1][0] == height:
            result = self._asking.combine(self._whole.pop()[1], result)
            height += 1
        self._whole.append((height, result))

    def result(self) -> Answer[T]:
        """Return the combination of all."""
        _, result = self._whole.pop()
        while self._whole:
            result = self._asking.combine(self._whole.pop()[1], result)
        return result


def merged(parts: Sequence[tuple[Index, Rows]]) -> tuple[Index, Rows]:
    """Return positions, sorted, and values of rows of several parts; equal positions once."""
    rows = np.concatenate([each for each, _ in parts])
    joined = [np.concatenate(column) for column in zip(*(rows for _, rows in parts), strict=True)]
    order = np.argsort(rows, kind="stable")
    order = order[_new(rows[order])]
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


def _distinct(rows: Index) -> Index:
    """Return the rows once each, sorted: ``np.unique`` of a million takes 2 s by its hashes."""
    rows = np.sort(rows)
    return rows[_new(rows)]


def _new(rows: Index) -> NDArray[np.bool_]:
    """Return where sorted rows differ from those before."""
    new = np.ones(len(rows), np.bool_)
    new[1:] = rows[1:] != rows[:-1]
    return new


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
        missing = inside & (self._known[at] != rows) if len(self._known) else inside
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
