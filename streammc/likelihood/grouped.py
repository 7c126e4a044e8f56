"""Data set whose rows are the groups of another: the unit of a mixed model is the group.

A row of the design is ``(first row, number of rows)`` of a group in the table, and the link of
:mod:`streammc.models.mixed.group_link` reads these rows by itself. A full pass reads and checks the
rows of the table block by block; a group belongs to the piece that holds its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.likelihood.temperature import Tempered, tempered
from streammc.likelihood.unit_words import GROUP
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Dataset, Index, PassTask, RowBlock, Rows, RowSource, Vector

T = TypeVar("T")

FACTORS: Final = "factors"
"""Attribute of a data set: factors with a sampled scale that are columns of its design."""

_CALL_ROWS: Final = 2**16
"""Rows of the table that one call of a task evaluates: signals and progress wait for its end."""
_FEWEST_GROUPS: Final = 64
"""Fewest groups of a sample, however many rows they have."""
_AHEAD_ROWS: Final = 64
"""Rows of the runs in which the rows of groups are requested from the disk."""


class Grouped:
    """A ``protocols.Dataset`` with a row per group of another data set.

    Parameters
    ----------
    dataset
        The table; its rows are not copied. It has ``groups``.
    """

    n_features = 2
    unit_name = GROUP

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.table = dataset.groups
        self.n_rows = self.table.n_groups
        self.feature_names: tuple[str, ...] = dataset.feature_names
        self.response: str | None = dataset.response
        self.fingerprint: str = dataset.fingerprint
        self.address: str = dataset.address
        self.attributes: Mapping[str, Any] = dataset.attributes

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<Grouped: {self.n_rows} groups of {self.dataset!r}>"

    def rows(self) -> RowSource:
        """Return the source of groups."""
        return _GroupSource(self.table.offset, self.dataset.rows())

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every group once; see ``protocols.Dataset.reduce``.

        Raises
        ------
        ConfigError
            If the groups are in memory and the scheduler is a cluster, which cannot map them.
        """
        near = scheduler is None or scheduler == "sync" or isinstance(scheduler, int)
        if self.address == "memory" and not near:
            raise ConfigError(
                "expected a store on disk for a cluster, found groups in memory: write them with "
                "streammc.ingest, or leave out the scheduler"
            )
        threads = 1
        if near and scheduler != "sync":
            blocks = -(-self.dataset.n_rows // self.dataset.block_rows())
            threads = -(-(scheduler or available_threads()) // blocks)
        wrapped = _GroupTask(task, self.dataset, threads)
        return self.dataset.reduce(wrapped, scheduler=scheduler, progress=progress)  # type: ignore[no-any-return]

    def block_rows(self) -> int:
        """Return the number of groups of a block, about: that of the mean size."""
        return self._about(self.dataset.block_rows())

    def piece_rows(self) -> int:
        """Return the number of groups of a piece, about: that of the mean size."""
        return self._about(self.dataset.piece_rows())

    def _about(self, rows: int) -> int:
        return max(int(rows * self.n_rows // self.dataset.n_rows), 1)

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the labels of the groups from ``start`` to ``stop``."""
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        labels: NDArray[Any] = self.table.labels(start, stop)
        return labels

    def covariate(self, name: str) -> tuple[Vector, float]:
        """Return ``(a, c)`` with ``x_i . a + c`` the column ``name`` on the table's scale."""
        found: tuple[Vector, float] = self.dataset.covariate(name)
        return found

    def stamps(self) -> Index:
        """Return the stamps of the files; see ``protocols.Dataset``."""
        stamps: Index = self.dataset.stamps()
        return stamps

    def recheck(self, stamps: Index) -> None:
        """Raise StoreError if an object that changed since ``stamps`` fails its checksum."""
        self.dataset.recheck(stamps)


class _GroupSource:
    """A ``protocols.RowSource`` of groups: first row and number of rows, weight 1."""

    n_features = 2

    def __init__(self, offset: Index, source: RowSource) -> None:
        self.n_rows = len(offset) - 1
        self.row_bytes = max(source.row_bytes * source.n_rows // max(self.n_rows, 1), 1)
        self._offset, self._source = offset, source

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Write the places of runs of groups; see ``protocols.RowSource.gather``."""
        groups = (np.asarray(starts)[:, None] + np.arange(unit_rows)).ravel()
        there = (groups >= 0) & (groups < self.n_rows)
        at = np.where(there, groups, 0)
        first = self._offset[at]
        out.X[:, 0] = np.where(there, first, 0)
        out.X[:, 1] = np.where(there, self._offset[at + 1] - first, 0)
        out.y[:] = 0.0
        out.offset[:] = 0.0
        out.weight[:] = there

    def will_need(self, starts: Index, unit_rows: int) -> None:
        """Request the rows of these groups from the disk."""
        starts = np.asarray(starts)
        first = self._offset[np.clip(starts, 0, self.n_rows)]
        last = self._offset[np.clip(starts + unit_rows, 0, self.n_rows)]
        runs = -(-(last - first) // _AHEAD_ROWS)
        step = np.arange(int(runs.sum())) - np.repeat(np.cumsum(runs) - runs, runs)
        self._source.will_need(np.repeat(first, runs) + _AHEAD_ROWS * step, _AHEAD_ROWS)


@dataclass(frozen=True)
class _GroupTask(Generic[T]):
    """A ``protocols.PassTask`` on the rows of a table that runs another on its groups."""

    task: PassTask[T]
    dataset: Any
    """The table, which a worker of a cluster opens again by its address."""
    threads: int = 1
    """Threads for the groups of a block: above 1 where there are more cores than blocks."""
    takes_codes: ClassVar[bool] = True
    """Rows of the block are not looked at: they need not have every column."""

    def map(self, block: RowBlock) -> T | None:
        """Reduce the groups whose first row is in the block; ``None`` if there is none."""
        if self.threads == 1:
            return self._sum(map(self.task.map, self._blocks(block)))
        with ThreadPoolExecutor(self.threads, thread_name_prefix="streammc-groups") as pool:
            return self._sum(pool.map(self.task.map, self._blocks(block)))

    def _sum(self, parts: Iterable[T]) -> T | None:
        """Combine the results of parts, in their order."""
        total: T | None = None
        for found in parts:
            total = found if total is None else self.task.combine(total, found)
        return total

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Merge the results of two neighbours."""
        if left is None or right is None:
            return right if left is None else left
        return self.task.combine(left, right)

    def _blocks(self, block: RowBlock) -> Iterator[RowBlock]:
        """Yield the groups of a block in parts of about ``_CALL_ROWS`` rows of the table."""
        offset = self.dataset.groups.offset
        low, high = np.searchsorted(offset[:-1], [block.start, block.start + len(block.y)])
        sizes = np.diff(offset[low : high + 1])
        part = (np.cumsum(sizes) - sizes) // _CALL_ROWS
        bounds = low + np.concatenate([[0], np.flatnonzero(np.diff(part)) + 1, [len(sizes)]])
        for start, stop in pairwise(bounds):
            if start < stop:
                first = offset[start:stop].astype(np.float64)
                count = np.diff(offset[start : stop + 1]).astype(np.float64)
                zeros = np.zeros(len(first))
                X = np.stack([first, count], axis=1)
                yield RowBlock(block.index, int(start), X, zeros, zeros, np.ones(len(first)))


def fewer(count: int, dataset: Dataset, least: int = 256) -> int:
    """Return how many units have about ``count`` rows; ``count`` for a table without groups.

    At least ``least`` groups if these have at most four times as many rows, and at least 64.
    """
    if (grouped := groups_of(dataset)) is None:
        return count
    size = grouped.dataset.n_rows / grouped.n_rows
    return min(count, max(int(count / size), min(least, int(4 * count / size)), _FEWEST_GROUPS))


def together(units: Index, dataset: Dataset, most_rows: int) -> int:
    """Return how many of the first ``units`` have at most ``most_rows`` rows together.

    At least 64; all of them for a table without groups.
    """
    if (grouped := groups_of(dataset)) is None:
        return len(units)
    offset = grouped.table.offset
    rows = np.cumsum(offset[units + 1] - offset[units])
    return min(len(units), max(int(np.searchsorted(rows, most_rows, "right")), _FEWEST_GROUPS))


def groups_of(dataset: Any) -> Grouped | None:
    """Return the data set of groups at temperature 1, or ``None`` for one of single rows."""
    while dataset is not None and not isinstance(dataset, Grouped):
        dataset = getattr(dataset, "dataset", None)
    return dataset


def relative_sizes(dataset: Dataset, units: Index) -> Vector:
    """Return (k,) the rows of groups over the rows of a mean group; 1 for units that are rows."""
    if (grouped := groups_of(dataset)) is None:
        return np.ones(len(units))
    offset = grouped.table.offset
    sizes: Vector = (offset[units + 1] - offset[units]) * (grouped.n_rows / offset[-1])
    return sizes


def ungrouped(dataset: Dataset) -> Dataset:
    """Return the table under groups and temperatures: the data set with its own rows."""
    while (inner := getattr(dataset, "dataset", None)) is not None:
        dataset = inner
    return dataset


def by_group(dataset: Any, model: Any, nodes: int | None = None) -> tuple[Any, Any]:
    """Return data set and model as passes and samplers see them.

    A table with groups becomes the data set of its groups, and a regression on it the mixed model
    with the effects that the table states; a regression on a table with factors as columns gets
    their effects. Others are returned unchanged.

    Parameters
    ----------
    nodes
        Quadrature nodes per effect; ``None``: the default, or those of a mixed model.

    Raises
    ------
    ConfigError
        If the model has no mixed model, or nodes are given for a table without groups.
    """
    if isinstance(dataset, Tempered):
        inner, model = by_group(dataset.dataset, model)
        same = inner is dataset.dataset
        return dataset if same else tempered(inner, dataset.temperature), model
    table = getattr(dataset, "groups", None)
    stated = getattr(dataset, "attributes", {})
    if table is None:
        if nodes is not None and not isinstance(dataset, Grouped):
            raise ConfigError(
                "expected the option nodes with groups, whose effects need quadrature, found a "
                "table without: leave it out, or ingest with a term such as (1 | column)"
            )
        if FACTORS in stated:
            from streammc.models.mixed.mixed_model import with_factors

            model = with_factors(model, stated)
        return dataset, model
    from streammc.models.mixed.mixed_model import MixedModel, bound, mixed, with_factors

    if not isinstance(model, MixedModel):
        model = mixed(model, table, dataset.feature_names, nodes)
    return Grouped(dataset), bound(with_factors(model, stated), dataset)
