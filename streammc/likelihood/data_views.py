"""Views of a table: rows at a temperature or with counted trials, groups, a sample in memory.

At temperature T every row counts ``1 / T`` times. The log-likelihood of row i with the weight
``w_i`` is ``w_i l_i(theta)``. With ``w_i / T`` the posterior is ``prior x likelihood^(1/T)``, for
every sampler and every sum of a pass; the prior does not change. Estimates of the log-likelihood
are divided by T, and their variances by T^2.

The unit of a mixed model is the group. A row of its design is ``(first row, number of rows)`` of a
group in the table, and the link of :mod:`streammc.models.mixed.group_link` reads these rows by
itself. A full pass reads and checks the rows of the table block by block; a group belongs to the
piece that holds its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammc import rng
from streammc.errors import ConfigError, ModelError
from streammc.group_table import CrossedFactor, GroupTable
from streammc.likelihood.pass_cost import SUBSET_ROWS
from streammc.likelihood.unit_words import GROUP
from streammc.models.responses import counts_of_trials
from streammc.numerics.process_limits import available_threads
from streammc.protocols import (
    Coding,
    Dataset,
    Index,
    PassTask,
    PieceTask,
    RowBlock,
    Rows,
    RowSource,
    Vector,
)

T = TypeVar("T")
Change: TypeAlias = Callable[[Vector, Vector], tuple[Vector, Vector]]
"""Returns responses and weights (m,) as a view has them, of those of its table."""

SPREAD_IN_ORDER: Final = 2**19
"""Most rows of :func:`spread_runs` over a table that is only read in order: they stay in memory."""
FACTORS: Final = "factors"
"""Attribute of a data set: factors with a sampled scale that are columns of its design."""

_CALL_ROWS: Final = 2**16
"""Rows of the table that one call of a task evaluates: signals and progress wait for its end."""
_FEWEST_GROUPS: Final = 64
"""Fewest groups of a sample, however many rows they have."""
SUBSET_GROUPS: Final = 1000
"""Fewest groups in memory, unless these have many more rows than a subset of single rows."""
_AHEAD_ROWS: Final = 64
"""Rows of the runs in which the rows of groups are requested from the disk."""


class View:
    """A ``protocols.Dataset`` on the rows of another, whose facts it hands on.

    Parameters
    ----------
    dataset
        The data set; its rows are not copied.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.table, self.temperature = dataset.table, dataset.temperature
        self.unit_name, self.unit_offset = dataset.unit_name, dataset.unit_offset
        self.sequential = dataset.sequential
        self.n_rows, self.n_features = dataset.n_rows, dataset.n_features
        self.feature_names, self.response = dataset.feature_names, dataset.response
        self.fingerprint, self.address = dataset.fingerprint, dataset.address
        self.attributes: Mapping[str, Any] = dataset.attributes

    @property
    def units(self) -> Dataset:
        """The same rows or groups at temperature 1."""
        return self.dataset.units

    @property
    def groups(self) -> GroupTable | None:
        """The groups of the rows of the table."""
        return self.table.groups

    def block_rows(self) -> int:
        """Return the rows of a block of ``reduce``."""
        return self.dataset.block_rows()

    def piece_rows(self) -> int:
        """Return the rows of a piece of a block."""
        return self.dataset.piece_rows()

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the ids of the rows from ``start`` to ``stop``."""
        return self.dataset.row_ids(start, stop)

    def row_groups(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the labels of the groups of rows of the table."""
        return self.table.row_groups(start, stop)

    @property
    def crossed(self) -> Sequence[CrossedFactor]:
        """The factors that cross, of the table."""
        return self.table.crossed

    def row_levels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint32]:
        """Return the levels (m, F) of rows of the table."""
        return self.table.row_levels(start, stop)

    def covariate(self, name: str) -> tuple[Vector, float]:
        """Return ``(a, c)`` with ``x_i . a + c`` the column ``name`` on the table's scale."""
        return self.table.covariate(name)

    def coding(self) -> Coding | None:
        """Return what the columns of the table are."""
        return self.table.coding()

    def references(self) -> dict[str, list[str]]:
        """Return the reference levels of the columns of the table."""
        return self.table.references()

    def only_together(self) -> list[str]:
        """Return the columns of the table that cannot change alone."""
        return self.table.only_together()

    def earlier(self, fingerprint: str) -> Dataset | None:
        """Return the table as it was before rows were appended."""
        return self.table.earlier(fingerprint)

    def stamps(self) -> Index:
        """Return the stamps of the files of the table."""
        return self.table.stamps()

    def recheck(self, stamps: Index) -> None:
        """Raise StoreError if an object that changed since ``stamps`` fails its checksum."""
        self.table.recheck(stamps)


class _Changed(View):
    """A view that changes responses and weights, row by row."""

    def __init__(self, dataset: Dataset, change: Change) -> None:
        super().__init__(dataset)
        self._change = change

    def rows(self) -> RowSource:
        """Return the source of changed rows."""
        return _ChangedRows(self.dataset.rows(), self._change)

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once; see ``protocols.Dataset.reduce``."""
        wrapped = _ChangedTask(task, self._change)
        if isinstance(task, PieceTask):
            wrapped = _ChangedPieces(task, self._change)
        return self.dataset.reduce(wrapped, scheduler=scheduler, progress=progress)


class Tempered(_Changed):
    """A data set at temperature T, finite and above 0: the weights of its rows are divided by T."""

    def __init__(self, dataset: Dataset, temperature: float) -> None:
        self._own = float(temperature)
        super().__init__(dataset, partial(_divided, temperature=self._own))
        self.temperature = self._own * dataset.temperature

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<Tempered: {self.dataset!r} at temperature {self._own:g}>"


def tempered(dataset: Dataset, temperature: float) -> Dataset:
    """Return ``dataset`` at a temperature; at temperature 1 the data set itself."""
    return dataset if temperature == 1.0 else Tempered(dataset, temperature)


def _divided(y: Vector, weight: Vector, temperature: float) -> tuple[Vector, Vector]:
    return y, weight / temperature


class CountedTrials(_Changed):
    """A table of shares whose responses are ``2^26 trials + successes``, and whose weights are 1.

    A weight multiplies the log-likelihood of a row, which is not that of so many trials where
    the trials of a row have something in common.
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset, counts_of_trials)

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<CountedTrials: {self.dataset!r}>"

    @property
    def units(self) -> Dataset:
        """The data set itself."""
        return self


class _ChangedRows:
    """A ``protocols.RowSource`` with other responses and weights; padding keeps the weight 0."""

    def __init__(self, source: RowSource, change: Change) -> None:
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.row_bytes = source.row_bytes
        self.will_need = source.will_need
        self.columns, self.codes = source.columns, source.codes
        self._source, self._change = source, change

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy runs into ``out``; see ``protocols.RowSource.gather``."""
        self._source.gather(starts, unit_rows, out)
        y, weight = self._change(out.y, out.weight)
        if y is not out.y:
            out.y[:] = y
        out.weight[:] = weight


@dataclass(frozen=True)
class _ChangedTask(PassTask[T]):
    """A ``protocols.PassTask`` on rows with other responses and weights."""

    task: PassTask[T]
    change: Change

    @property
    def takes_codes(self) -> bool:
        """Whether the task reads designs with codes; see ``protocols.PassTask``."""
        return self.task.takes_codes

    def _changed(self, block: RowBlock) -> RowBlock:
        y, weight = self.change(block.y, block.weight)
        return block._replace(y=y, weight=weight)

    def map(self, block: RowBlock) -> T:
        """Reduce a changed block."""
        return self.task.map(self._changed(block))

    def combine(self, left: T, right: T) -> T:
        """Merge the results of two neighbouring blocks."""
        return self.task.combine(left, right)

    def asked_next(self, result: T) -> Index:
        """Return the rows that are asked for next; see ``protocols.PassTask``."""
        return self.task.asked_next(result)


@dataclass(frozen=True)
class _ChangedPieces(_ChangedTask[T], PieceTask[T]):
    """A ``protocols.PieceTask`` on rows with other responses and weights."""

    task: PieceTask[T]

    def map_pieces(self, pieces: Iterator[RowBlock]) -> T:
        """Reduce a block given in pieces, each changed."""
        return self.task.map_pieces(map(self._changed, pieces))


class Grouped(View):
    """A data set with a row per group of a table."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        self.unit_name, self.unit_offset = GROUP, self.groups.offset
        self.n_rows, self.n_features = self.groups.n_groups, 2

    @property
    def units(self) -> Dataset:
        """The data set itself."""
        return self

    @property
    def groups(self) -> GroupTable:
        """The groups, which are the rows of this data set."""
        groups = self.table.groups
        assert groups is not None
        return groups

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<Grouped: {self.n_rows} groups of {self.dataset!r}>"

    def rows(self) -> RowSource:
        """Return the source of groups."""
        return _GroupSource(self.groups.offset, self.dataset.rows())

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
        total = self.dataset.reduce(wrapped, scheduler=scheduler, progress=progress)
        assert total is not None  # there is a group
        return total

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
        labels: NDArray[Any] = self.groups.labels(start, stop)
        return labels


class _GroupSource:
    """A ``protocols.RowSource`` of groups: first row and number of rows, weight 1."""

    n_features = 2
    columns = codes = None

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
class _GroupTask(PassTask[T | None], Generic[T]):
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
    if dataset.unit_offset is None:
        return count
    size = dataset.table.n_rows / dataset.n_rows
    return min(count, max(int(count / size), min(least, int(4 * count / size)), _FEWEST_GROUPS))


def together(units: Index, dataset: Dataset, most_rows: int) -> int:
    """Return how many of the first ``units`` have at most ``most_rows`` rows together.

    At least 64; all of them for a table without groups.
    """
    if (offset := dataset.unit_offset) is None:
        return len(units)
    rows = np.cumsum(offset[units + 1] - offset[units])
    return min(len(units), max(int(np.searchsorted(rows, most_rows, "right")), _FEWEST_GROUPS))


def relative_sizes(dataset: Dataset, units: Index) -> Vector:
    """Return (k,) the rows of groups over the rows of a mean group; 1 for units that are rows."""
    if (offset := dataset.unit_offset) is None:
        return np.ones(len(units))
    sizes: Vector = (offset[units + 1] - offset[units]) * (dataset.n_rows / offset[-1])
    return sizes


def with_censoring(model: Any, attributes: Mapping[str, Any]) -> Any:
    """Return the model for data with times that are censored, if a store says so.

    ModelError if the family has none.
    """
    column = attributes.get("censored")
    if column is None or model.censored:
        return model
    if not model.takes_censored:
        raise ModelError(
            f"{model.of_a_row.name}: expected a family of times for those that are censored by "
            f"{column!r}, such as weibull, exponential or lognormal without groups, found one "
            "without censoring: choose one of these, or make the store without --censored"
        )
    return replace(model, censored=True)


def with_designs(model: Any, attributes: Mapping[str, Any]) -> Any:
    """Return the model whose linear predictors have the columns that a store states for each.

    Parameters
    ----------
    attributes
        Those of the store, see ``stores.formula.fitted.DESIGNS``.

    Raises
    ------
    ConfigError
        If parameters also vary with all columns, or there are none of these names.
    ModelError
        If no parameters of the family can vary.
    """
    stated = attributes.get("designs")
    if not stated or model.designs:
        return model
    names = [each["parameter"] for each in stated[1:]]
    if getattr(model, "varying", ()):
        raise ConfigError(
            f"expected the formula of {names[0]!r} that the store has, found the option varying "
            "beside it: leave varying out, or make the store without --formula-for"
        )
    place = {name: j for j, name in enumerate(attributes["features"])}
    varied = model.varied(names)
    columns = [tuple(sorted(place[name] for name in each["columns"])) for each in stated]
    designs = (*columns[:1] * (varied.n_linear - len(names)), *columns[1:])
    return replace(varied, designs=designs)


def require_trials(model: Any, dataset: Dataset) -> None:
    """Raise ModelError unless a table has the successes and the trials of each row, and no more."""
    stated, name = dataset.table.attributes, model.of_a_row.name
    if not stated.get("trials"):
        raise ModelError(
            f"{name}: expected successes of known trials in {dataset.address!r}, found no trials: "
            "make the store with --trials COLUMN and the successes as response (in Python trials=)"
        )
    other = "cells" if stated.get("cells") else stated.get("weight")
    if other:
        raise ModelError(
            f"{name}: expected a row for each count of successes in {dataset.address!r}, found "
            f"{other!r}, which multiply the trials {stated['trials']!r}: make the store without "
            + ("--cells, each row for itself" if stated.get("cells") else "--weight")
        )
    if dataset.table.groups is not None:
        column = dataset.table.groups.column
        raise ModelError(
            f"{name}: expected a table without groups, found those of {column!r}: make their "
            f"effects columns, with --group-as {column}=columns, or choose binomial"
        )


def by_group(dataset: Dataset, model: Any, nodes: int | None = None) -> tuple[Dataset, Any]:
    """Return data set and model as passes and samplers see them.

    A table with groups becomes the data set of its groups, and a regression on it the mixed model
    with the effects that the table states; a regression on a table with factors as columns gets
    their effects, also where factors cross; one of times that are censored knows so. A table of
    shares becomes that of its trials for a model that sees them. Others are returned unchanged.

    Parameters
    ----------
    nodes
        Quadrature nodes per effect; ``None``: the default, or those of a mixed model.

    Raises
    ------
    ConfigError
        If the model has no mixed model, or nodes are given for a table without groups.
    ModelError
        If times are censored, and the family has none that are; or the model needs successes and
        trials of each row, and the table has others.
    """
    table, stated = dataset.table, dataset.attributes
    model = with_designs(with_censoring(model, stated), stated)
    if model.sees_trials and not isinstance(dataset.units, CountedTrials):
        require_trials(model, dataset)
        dataset = tempered(CountedTrials(table), dataset.temperature)
    if table.groups is None or dataset.unit_offset is not None:
        if nodes is not None and table.groups is None:
            raise ConfigError(
                "expected the option nodes with groups, whose effects need quadrature, found a "
                "table without: leave it out, or ingest with a term such as (1 | column)"
            )
        if table.crossed:
            from streammc.models.mixed.crossed_model import with_crossed

            return dataset, with_crossed(model, dataset)
        if FACTORS in stated:
            from streammc.models.mixed.mixed_model import with_factors

            model = with_factors(model, stated)
        return dataset, model
    from streammc.models.mixed.mixed_model import MixedModel, bound, mixed, with_factors

    if not isinstance(model, MixedModel):
        model = mixed(model, table.groups, table.feature_names, nodes)
    groups = tempered(Grouped(table), dataset.temperature)
    return groups, bound(with_factors(model, stated), table)


def gather(dataset: Dataset, starts: Index, unit_rows: int = 1) -> Rows:
    """Return the rows of the runs of ``unit_rows`` rows that begin at ``starts``."""
    m = len(starts) * unit_rows
    out = Rows(np.empty((m, dataset.n_features)), np.empty(m), np.empty(m), np.empty(m))
    source = dataset.rows()
    source.will_need(starts, unit_rows)
    source.gather(starts, unit_rows, out)
    return out


def counted_rows(dataset: Dataset) -> int:
    """Return the rows of the table of a data set: more than it has where these are cells."""
    table = dataset.table
    cells = table.attributes.get("cells")
    return int(cells["rows"]) if cells else table.n_rows


def draw_subset(dataset: Dataset, memory_limit: int) -> Rows:
    """Return all rows, or a sample that fits, drawn without replacement, in row order."""
    fit = memory_limit // (8 * (dataset.n_features + 3))
    m = min(dataset.n_rows, fewer(SUBSET_ROWS, dataset, SUBSET_GROUPS), max(fit, 1))
    return gather(dataset, random_rows(dataset.n_rows, m))


def random_rows(n_rows: int, count: int) -> Index:
    """Return ``count`` of the rows, drawn without replacement, sorted; all if these are no more."""
    if count >= n_rows:
        return np.arange(n_rows, dtype=np.int64)
    generator = rng.stream(0, 1, rng.Role.PLAN)  # 1: the number of this purpose
    rows = generator.choice(n_rows, size=count, replace=False, shuffle=False)
    return np.sort(rows).astype(np.int64)


def spread_runs(n_rows: int, run: int, most: int) -> Index:
    """Return the first rows of runs of ``run`` rows, evenly spread, of ``most`` rows in all.

    None if the table is less than eight times as large.
    """
    runs = most // run
    if 8 * runs * run > n_rows:
        runs = 0
    apart = n_rows // max(runs, 1)
    starts: Index = np.arange(runs, dtype=np.int64) * apart + (apart - run) // 2
    return starts
