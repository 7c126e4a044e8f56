"""Cells: the rows of a table that are equal in every column in use, read as one row with a count.

Rows are grouped by their values as Arrow has them, before any of them is encoded: what follows the
first read works on the cells. The table of cells grows with the number of cells, and not with the
number of rows. Two values that are one number, as 0.0 and -0.0, may stay two cells.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from streammc.errors import DataError
from streammc.protocols import Index, Vector
from streammc.stores.in_threads import ahead
from streammc.stores.ingest.column_values import LIMIT, with_nan
from streammc.stores.ingest.row_labels import IdColumn
from streammc.stores.rows.row_weights import MAX_WEIGHT
from streammc.stores.sources.source import Texts
from streammc.stores.sources.tables import Table

LEAST_ROWS: Final = 1 << 16
"""Rows of a table below which ``auto`` keeps rows."""
LEAST_PER_CELL: Final = 4
"""Rows of a cell on average, below which ``auto`` keeps rows, and all stop after the first."""
FIRST_ROWS: Final = 1 << 20
"""Rows from which on a table with fewer rows of a cell is read no further."""
MOST_BYTES: Final = 1 << 28
"""Bytes of the table of cells, as Arrow has them."""
_BLOCKS: Final = 4
"""Blocks of a pass over rows that are grouped at once."""
_HOPELESS: Final = 0.95
"""Share of different rows among the first :data:`LEAST_ROWS` at which reading ends."""
_SOME: Final = 8
"""One in so many of these rows is drawn for a first look: among them are 51 pairs of equal rows and
more, on average, where reading does not end."""
_MERGED_ROWS: Final = 1 << 18
"""Cells of single blocks that are merged at once, at least."""
_COUNT, _FIRST = "\0count", "\0first"  # no column has such a name
_WEIGHT: Final = "\0weight"
_SUMS: Final = ("\0sum", "\0squares")
_LEAST_SPREAD: Final = 1e-6
"""Share of the squares of responses within cells below which sums have lost too many digits."""
_ROUNDING: Final = 1e-13
"""Share of a sum of squares below which what is left of it is rounding."""


class NoCellsError(Exception):
    """A table whose rows make no cells; the text says what was found."""


class NoSumsError(Exception):
    """Responses whose sums do not stand for them: rows of a cell have to be equal in them."""


def cells_of(
    table: Table,
    always: bool,
    labels: Sequence[str],
    progress: Callable[[int], None],
    statistics: Statistics | None = None,
    weight: str | None = None,
) -> CellTable:
    """Return a table whose first read finds its cells; see :class:`CellTable`.

    ``labels`` are the roles of columns of labels: row ids, groups.

    Raises
    ------
    NoCellsError
        If rows are too few or have ids, or the table cannot be read again where there are none.
    """
    if IdColumn.role in labels:
        raise NoCellsError(f"a column of the {IdColumn.role}, which keeps rows apart")
    if any(source.spool and source.path is None for source in table.sources):
        raise NoCellsError(
            "a stream that can be read once, and not again by rows (make a table of it first, "
            "pyarrow.table(stream))"
        )
    if not always and table.n_rows is not None and table.n_rows < LEAST_ROWS:
        raise NoCellsError(f"{table.n_rows:,} rows")
    return CellTable(table, always, progress, statistics, weight)


class Statistics(NamedTuple):
    """Responses whose sums over the rows of a cell decide its likelihood."""

    response: str
    """A column of numbers that is the response."""
    kind: str
    """``mean``, ``counts`` or ``moments``; see ``models.base.StatedModel.sufficient``."""


class CellTable(Table):
    """The cells of a table in the order of their first rows, with the methods of a table.

    The first read groups the rows; later ones read the cells in memory. Nothing else may read the
    table in between.

    Parameters
    ----------
    table
        The table of the rows.
    always
        Whether to make cells of any number of rows (``yes``), and not only where they are few
        (``auto``).
    progress
        Called with the number of rows read so far.
    statistics
        Rows that differ in this response alone are one cell, read as one row or two with responses
        of the same sums. ``None``: rows of a cell have equal responses.
    weight
        Column of weights, which add up: that of a cell is read as the mean of its rows.

    Raises
    ------
    NoCellsError
        By the first read, if there are too many cells.
    NoSumsError
        By the first read, if responses are no numbers, or none that the statistics are for.
    """

    def __init__(
        self,
        table: Table,
        always: bool,
        progress: Callable[[int], None],
        statistics: Statistics | None = None,
        weight: str | None = None,
    ) -> None:
        vars(self).update(vars(table))
        self.spool = False
        self.statistics, self._weight = statistics, weight
        self._rows, self._always, self._progress = table, always, progress
        self._shift = 0.0
        """Subtracted from responses before they are squared."""
        self._asked: tuple[Any, ...] = ()
        self._cells: Any = None
        self._counts: Index = np.empty(0, np.int64)

    def counted(self, start: int, stop: int) -> Index | None:
        """Return the number of rows of each cell from ``start`` to ``stop`` (m,)."""
        return self._counts[start:stop]

    def locate(self, row: int) -> str:
        """Return the place of a cell; its rows are found by a read of the rows."""
        return f"cell {row + 1} of {self.sources[0].label}, counted from 1"

    def batches(
        self,
        columns: Sequence[str],
        rows: int,
        *,
        text: Texts = False,
        levels: frozenset[str] = frozenset(),
    ) -> Iterator[Any]:
        """Yield the cells as record batches; rows, in a search for text."""
        if text is True:
            yield from self._rows.batches(columns, rows, text=text, levels=levels)
            return
        if self._cells is None:
            self._asked = tuple(columns), text, levels
            self._cells = self._found(columns, rows, text, levels)
        first, as_text, as_levels = self._asked
        if isinstance(as_text, frozenset):  # later reads leave out labels, which are last
            as_text &= {*columns}
        if (tuple(columns), text, levels) != (first[: len(columns)], as_text, as_levels):
            raise AssertionError("the cells are those of other columns")
        yield from self._cells.select(list(columns)).to_batches(max_chunksize=rows)

    def _found(self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]) -> Any:
        """Read the rows; return the cells as an Arrow table, and keep their counts."""
        keys = self._keys(columns)
        merged: Any = None
        waiting: list[Any] = []
        seen = 0
        for rows_read, part in ahead(self._parts(columns, _BLOCKS * rows, text, levels)):
            waiting.append(part)
            seen += rows_read
            different = sum(each.num_rows for each in waiting)
            if different >= max(_MERGED_ROWS, 0 if merged is None else merged.num_rows):
                merged, waiting = _merged(merged, waiting, keys), []
                self._check_size(merged, seen)
            self._progress(seen)
        if merged is None and not waiting:
            raise NoCellsError("no rows")
        merged = _merged(merged, waiting, keys)
        self._check_size(merged, seen)
        few = LEAST_PER_CELL * merged.num_rows <= seen >= LEAST_ROWS
        if not (few or self._always):
            raise NoCellsError(_different(merged.num_rows, seen))
        merged = merged.sort_by(_FIRST)
        self._counts = _numbers(merged.column(_COUNT)).astype(np.int64)
        total = self._counts.astype(np.float64)
        if self._weight is not None:
            total = _numbers(merged.column(_WEIGHT))
        if self.statistics is not None:
            sums = [_numbers(merged.column(name)) for name in _SUMS if name in merged.column_names]
            row, y, self._counts, total = _points(self.statistics.kind, self._counts, total, sums)
            y += self._shift
            merged = merged.take(pa.array(row)).append_column(self.statistics.response, pa.array(y))
        if self._weight is not None:
            merged = merged.append_column(self._weight, pa.array(total / self._counts))
        self.n_rows = merged.num_rows
        return merged

    def _parts(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Generator[tuple[int, Any]]:
        """Read the rows: yield the rows and the cells of each batch."""
        orders: dict[str, Any] = {}
        seen = 0
        keys = self._keys(columns)
        of_rows = [([], "count_all"), (_FIRST, "first")]
        for batch in self._rows.batches(columns, rows, text=text, levels=levels):
            self._check_orders(batch, orders)
            if seen == 0 and batch.num_rows >= LEAST_ROWS and not self._always:
                _check_head(batch.slice(0, LEAST_ROWS), keys)
            numbers = pa.array(np.arange(seen, seen + batch.num_rows))
            table = pa.table(batch).append_column(_FIRST, numbers)
            summed: dict[str, Vector] = {}
            weight: Vector | float = 1.0
            if self._weight is not None:
                weight = summed[_WEIGHT] = _weights(batch.column(self._weight), self._weight)
            if self.statistics is not None:
                y = _responses(batch.column(self.statistics.response), self.statistics.kind)
                if seen == 0 and self.statistics.kind == "moments":
                    self._shift = float(y.mean()) if y.size else 0.0
                y = y - self._shift
                powers = [y, y * y] if self.statistics.kind == "moments" else [y]
                for name, each in zip(_SUMS, powers, strict=False):
                    summed[name] = weight * each
            for name, each in summed.items():
                table = table.append_column(name, pa.array(each))
            seen += batch.num_rows
            aggregates = [*of_rows, *((name, "sum") for name in summed)]
            yield batch.num_rows, _grouped(table, keys, aggregates)

    def _keys(self, columns: Sequence[str]) -> list[str]:
        """Return the columns in which rows of a cell are equal."""
        response = None if self.statistics is None else self.statistics.response
        keys = [name for name in columns if name not in (response, self._weight)]
        if not keys:
            raise NoSumsError if response else NoCellsError("no column beside the weight")
        return keys

    def _check_orders(self, batch: Any, orders: dict[str, Any]) -> None:
        """Refuse ordered categories of which two parts of the table have other lists."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_dictionary(array.type) and array.type.ordered:
                first = orders.setdefault(name, array.dictionary)
                if not array.dictionary.equals(first):
                    raise NoCellsError(f"several orders of the categories of column {name!r}")

    def _check_size(self, cells: Any, seen: int) -> None:
        if seen >= FIRST_ROWS and LEAST_PER_CELL * cells.num_rows > seen:
            raise NoCellsError(_different(cells.num_rows, seen))
        if cells.nbytes > MOST_BYTES:
            raise NoCellsError(
                f"{_different(cells.num_rows, seen)}, which take over {MOST_BYTES >> 20} MB"
            )


_REPEATED: Final = 1 << 20
"""Values of one piece of :func:`repeated`."""


def repeated(values: Vector, counts: Index) -> Iterator[Vector]:
    """Yield the values (m,) of cells as often as they have rows, a million or so at a time."""
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]) if ends.size else 0, _REPEATED):
        rows = np.arange(start, min(start + _REPEATED, int(ends[-1])))
        yield values[np.searchsorted(ends, rows, side="right")]


def _different(cells: int, seen: int) -> str:
    return f"{cells:,} different rows among the first {seen:,}"


def _check_head(head: Any, columns: Sequence[str]) -> None:
    """Refuse a table of which nearly all of the first rows differ: as a rule by a few of them."""
    n = head.num_rows
    drawn = np.random.default_rng(0).choice(n, n // _SOME, replace=False)
    for rows, most in ((head.take(pa.array(drawn)), len(drawn) - 1), (head, _HOPELESS * n)):
        different = _grouped(pa.table(rows), columns, [([], "count_all")]).num_rows
        if different > most:
            raise NoCellsError(_different(different, rows.num_rows))


def _numbers(column: Any) -> Vector:
    """Return an Arrow column of numbers as float64."""
    return with_nan(column.combine_chunks().cast(pa.float64()))


def _responses(array: Any, kind: str) -> Vector:
    """Return responses as float64; refuse those that are no numbers, or not of their kind."""
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise NoSumsError
    y = with_nan(array.cast(pa.float64(), safe=False))
    good = np.isfinite(y) & (np.abs(y) < LIMIT)
    if kind != "moments":
        good &= y >= 0.0
    if kind == "counts":
        good &= y == np.rint(y)
    if not good.all():
        raise NoSumsError
    return y


def _weights(array: Any, column: str) -> Vector:
    """Return weights as float64; DataError if they do not add up, which another read explains."""
    number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    w = with_nan(array.cast(pa.float64(), safe=False)) if number else np.array([np.nan])
    if not ((w >= 0.0) & (w <= MAX_WEIGHT)).all():
        raise DataError(
            f"expected a weight in every row with --cells yes, found rows without one in column "
            f"{column!r}: leave it out"
        )
    return w


def _points(
    kind: str, n: Index, weight: Vector, sums: Sequence[Vector]
) -> tuple[Index, Vector, Index, Vector]:
    """Return the cell, the response, the number of rows and the weight of each point.

    Points of a cell have the number of its rows, their weight W and the weighted sum of their
    responses: of counts whole numbers beside the mean, of moments two responses ``k`` and ``n - k``
    times, ``k = n // 2``, with the same sum of squares: ``mean + a`` and ``mean - b``,

        a^2 = S (n - k) / (W k),   b^2 = S k / (W (n - k)),   S = sum w (y - mean)^2.

    NoSumsError if responses differ between cells alone.
    """
    some = weight > 0.0
    mean = np.where(some, sums[0] / np.where(some, weight, 1.0), 1.0)
    if kind == "mean":
        return np.arange(len(n)), mean, n, weight
    if kind == "counts":
        near = np.rint(mean)
        whole = (n == 1) | (np.abs(mean - near) <= _ROUNDING * np.maximum(mean, 1.0))
        low = np.where(whole, near, np.floor(mean))
        more = np.where(whole, 0.0, sums[0] - low * weight)
        share = more / np.where(some, weight, 1.0)
        above = np.where(whole, 0, np.clip(np.rint(share * n), 1, n - 1)).astype(np.int64)
        y, counts = np.stack([low, low + 1.0], 1), np.stack([n - above, above], 1)
        weights = np.stack([weight - more, more], 1)
    else:
        rest = np.maximum(sums[1] - sums[0] * mean, 0.0)
        if rest.sum() <= _LEAST_SPREAD * sums[1].sum():
            raise NoSumsError
        rest[(rest <= _ROUNDING * sums[1]) | ~some] = 0.0
        k = np.where(rest > 0.0, n // 2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(k > 0, np.sqrt(rest * (n - k) / (weight * k)), 0.0)
            down = np.where(k > 0, np.sqrt(rest * k / (weight * (n - k))), 0.0)
        y, counts = np.stack([mean + up, mean - down], 1), np.stack([k, n - k], 1)
        weights = counts * (weight / n)[:, None]
    there = np.flatnonzero(counts.ravel() > 0)
    return there // 2, y.ravel()[there], counts.ravel()[there], weights.ravel()[there]


def _merged(merged: Any, waiting: Sequence[Any], columns: Sequence[str]) -> Any:
    """Return an Arrow table with the cells of several; their types have to be the same."""
    parts = [*([] if merged is None else [merged]), *waiting]
    if any(part.schema.types != parts[0].schema.types for part in parts[1:]):
        raise NoCellsError("a column of several types")
    try:
        joined = pa.concat_tables(parts).unify_dictionaries()
    except pa.ArrowException as error:
        raise _not_grouped(error) from error
    sums = [(name, "sum") for name in (_WEIGHT, *_SUMS) if name in joined.column_names]
    return _grouped(joined, columns, [(_COUNT, "sum"), (_FIRST, "min"), *sums])


def _grouped(table: Any, columns: Sequence[str], aggregates: Sequence[Any]) -> Any:
    """Return an Arrow table with the cells of another, their counts and first rows."""
    try:
        # One thread: only then "first" is the first.
        grouped = table.group_by(list(columns), use_threads=False).aggregate(aggregates)
    except pa.ArrowException as error:
        raise _not_grouped(error) from error
    summed = [name for name, _ in aggregates[2:]]
    return grouped.rename_columns([*columns, _COUNT, _FIRST, *summed][: grouped.num_columns])


def _not_grouped(error: Exception) -> NoCellsError:
    return NoCellsError(f"columns that Arrow does not group ({str(error)[:100]})")
