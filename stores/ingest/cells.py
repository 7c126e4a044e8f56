"""Cells: the rows of a table that are equal in every column in use, read as one row with a count.

Rows are grouped by their values as Arrow has them, before any of them is encoded: what follows the
first read works on the cells. The table of cells grows with the number of cells, and not with the
number of rows. Two values that are one number, as 0.0 and -0.0, may stay two cells.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streammc.protocols import Index, Vector
from streammc.stores.in_threads import ahead
from streammc.stores.ingest.column_values import with_nan
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
_MERGED_ROWS: Final = 1 << 18
"""Cells of single blocks that are merged at once, at least."""
_COUNT, _FIRST = "\0count", "\0first"  # no column has such a name


class NoCellsError(Exception):
    """A table whose rows make no cells; the text says what was found."""


def cells_of(
    table: Table, always: bool, labels: Sequence[str], progress: Callable[[int], None]
) -> CellTable:
    """Return a table whose first read finds its cells; see :class:`CellTable`.

    ``labels`` are the roles of columns that every row has by itself: row ids, groups.

    Raises
    ------
    NoCellsError
        If rows are too few or have labels, or the table cannot be read again where there are none.
    """
    if labels:
        raise NoCellsError(f"a column of the {labels[0]}, which keeps rows apart")
    if any(source.spool and source.path is None for source in table.sources):
        raise NoCellsError(
            "a stream that can be read once, and not again by rows (make a table of it first, "
            "pyarrow.table(stream))"
        )
    if not always and table.n_rows is not None and table.n_rows < LEAST_ROWS:
        raise NoCellsError(f"{table.n_rows:,} rows")
    return CellTable(table, always, progress)


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

    Raises
    ------
    NoCellsError
        By the first read, if there are too many cells.
    """

    def __init__(self, table: Table, always: bool, progress: Callable[[int], None]) -> None:
        vars(self).update(vars(table))
        self.spool = False
        self._rows, self._always, self._progress = table, always, progress
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
        asked = (tuple(columns), text, levels)
        if self._cells is None:
            self._asked, self._cells = asked, self._found(columns, rows, text, levels)
        if asked != self._asked:
            raise AssertionError("the cells are those of other columns")
        yield from self._cells.to_batches(max_chunksize=rows)

    def _found(self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]) -> Any:
        """Read the rows; return the cells as an Arrow table, and keep their counts."""
        merged: Any = None
        waiting: list[Any] = []
        seen = 0
        for rows_read, part in ahead(self._parts(columns, _BLOCKS * rows, text, levels)):
            waiting.append(part)
            seen += rows_read
            different = sum(each.num_rows for each in waiting)
            if different >= max(_MERGED_ROWS, 0 if merged is None else merged.num_rows):
                merged, waiting = _merged(merged, waiting, columns), []
                self._check_size(merged, seen)
            self._progress(seen)
        if merged is None and not waiting:
            raise NoCellsError("no rows")
        merged = _merged(merged, waiting, columns)
        self._check_size(merged, seen)
        few = LEAST_PER_CELL * merged.num_rows <= seen >= LEAST_ROWS
        if not (few or self._always):
            raise NoCellsError(_different(merged.num_rows, seen))
        merged = merged.sort_by(_FIRST)
        counts = with_nan(merged.column(_COUNT).combine_chunks().cast(pa.float64()))
        self._counts = counts.astype(np.int64)
        self.n_rows = merged.num_rows
        return merged.select(list(columns))

    def _parts(
        self, columns: Sequence[str], rows: int, text: Texts, levels: frozenset[str]
    ) -> Generator[tuple[int, Any]]:
        """Read the rows: yield the rows and the cells of each batch."""
        orders: dict[str, Any] = {}
        seen = 0
        of_rows = [([], "count_all"), (_FIRST, "first")]
        for batch in self._rows.batches(columns, rows, text=text, levels=levels):
            self._check_orders(batch, orders)
            if seen == 0 and batch.num_rows >= LEAST_ROWS:
                _check_head(batch.slice(0, LEAST_ROWS), columns)
            numbers = pa.array(np.arange(seen, seen + batch.num_rows))
            seen += batch.num_rows
            table = pa.table(batch).append_column(_FIRST, numbers)
            yield batch.num_rows, _grouped(table, columns, of_rows)

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
    """Refuse a table of which nearly all of the first rows differ."""
    different = _grouped(pa.table(head), columns, [([], "count_all")]).num_rows
    if different > _HOPELESS * head.num_rows:
        raise NoCellsError(_different(different, head.num_rows))


def _merged(merged: Any, waiting: Sequence[Any], columns: Sequence[str]) -> Any:
    """Return an Arrow table with the cells of several; their types have to be the same."""
    parts = [*([] if merged is None else [merged]), *waiting]
    if any(part.schema.types != parts[0].schema.types for part in parts[1:]):
        raise NoCellsError("a column of several types")
    try:
        joined = pa.concat_tables(parts).unify_dictionaries()
    except pa.ArrowException as error:
        raise _not_grouped(error) from error
    return _grouped(joined, columns, [(_COUNT, "sum"), (_FIRST, "min")])


def _grouped(table: Any, columns: Sequence[str], aggregates: Sequence[Any]) -> Any:
    """Return an Arrow table with the cells of another, their counts and first rows."""
    try:
        # One thread: only then "first" is the first.
        grouped = table.group_by(list(columns), use_threads=False).aggregate(aggregates)
    except pa.ArrowException as error:
        raise _not_grouped(error) from error
    return grouped.rename_columns([*columns, _COUNT, _FIRST][: grouped.num_columns])


def _not_grouped(error: Exception) -> NoCellsError:
    return NoCellsError(f"columns that Arrow does not group ({str(error)[:100]})")
