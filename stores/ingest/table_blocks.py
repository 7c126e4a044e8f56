"""The chosen columns of a table as float64 blocks of a fixed number of rows.

Blocks do not depend on how a file was cut into record batches, so the same rows
give the same store, bit for bit, from CSV, Parquet or memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Matrix, Vector
from streammc.stores.ingest.column_values import (
    LIMIT,
    Coder,
    LevelOrder,
    find_integers,
    find_text,
    level_numbers,
    to_float64,
)
from streammc.stores.ingest.faults import FITTED_TEXT, LATE_TEXT, Faults
from streammc.stores.ingest.shuffle import append
from streammc.stores.sources.csv_source import NotANumberError
from streammc.stores.sources.tables import Table

if TYPE_CHECKING:
    from streammc.stores.ingest.row_labels import IdColumn

_BLOCK_BYTES: Final = 12 << 20


class TableBlocks:
    """Blocks ``(first row, (c, m) float64)`` of a table; the next block overwrites the last.

    ``spool`` is the path of a temporary copy that :meth:`again` reads, if the table asks for one.
    ``labels`` are columns of row ids or of group labels, collected in the first pass; ``orders``
    has the orders of the levels of columns whose categories are numbers, recorded as they are
    read.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        spool: Path,
        coders: Mapping[str, Coder] | None = None,
        labels: Sequence[IdColumn] = (),
        orders: Mapping[str, LevelOrder] | None = None,
        roles: Mapping[str, str] | None = None,
        fitted: bool = False,
    ) -> None:
        self.table = table
        self._roles = roles
        self._fitted = fitted
        self.names = list(names)
        self._rows = block_rows(len(names))
        self.coders = coders or {}
        self._labels = labels
        self.orders = orders or {}
        self._spool = spool if table.spool else None
        self.levels: set[str] = set()
        """Columns of numbers that are levels, which have to be told apart."""
        self.missing: Counter[str] = Counter()
        """Rows of the first pass with a missing value, by column; those of labels are others."""
        self._doubtful: set[str] = set()

    def first(self, faults: Faults) -> Iterator[tuple[int, Matrix]]:
        """Read the table; missing values are NaN, inexact integers are recorded in ``faults``."""
        try:
            for start, values in self._read(faults, first=True):
                if self._spool is not None:
                    append(self._spool, values)
                yield start, values
        except NotANumberError as error:
            names = [name for name in self.names if name not in self.coders]
            advice = FITTED_TEXT if self._fitted else LATE_TEXT
            raise self.text_error(names, str(error), advice) from error
        if self._doubtful:
            names = sorted(self._doubtful)
            for name, start, array in self._written_again(names):
                find_integers(array, name, start, faults)

    def again(self) -> Iterator[tuple[int, Matrix]]:
        """Yield the blocks of :meth:`first` again, once it is exhausted."""
        if self._spool is None:
            yield from self._read(Faults())
            return
        columns = len(self.names)
        start = 0
        with open(self._spool, "rb", buffering=0) as copy:
            buffer = np.empty(columns * self._rows)
            raw: Any = buffer.view(np.uint8)
            while count := copy.readinto(memoryview(raw)):
                rows = count // (8 * columns)
                yield start, buffer[: columns * rows].reshape(columns, rows)
                start += rows

    def text_error(
        self,
        names: Sequence[str],
        found: str,
        advice: str | None = None,
        otherwise: str = "take it as a factor, C(column)",
    ) -> DataError:
        """Search the columns ``names`` for text; return the error with its place.

        ``advice`` replaces the usual one; ``otherwise`` is given where no text can be seen.
        """
        faults = Faults()
        for name, start, array in self._written_again(names):
            find_text(array, name, start, faults, boolean=name in self.table.booleans)
        try:
            faults.refuse(self.table.locate, self._roles, advice)
        except DataError as error:
            return error
        return DataError(
            f"expected numbers in column {names[0]!r} of {self.table.sources[0].label}, found "
            f"{found}: convert it, or {advice or otherwise}"
        )

    def _written_again(self, names: Sequence[str]) -> Iterator[tuple[str, int, Any]]:
        """Read columns again as they are written: yield name, first row and values."""
        start = 0
        for batch in self.table.batches(names, self._rows, text=True):
            for name, array in zip(names, batch.columns, strict=True):
                yield name, start, array
            start += batch.num_rows

    def _read(self, faults: Faults, first: bool = False) -> Iterator[tuple[int, Matrix]]:
        buffer = np.empty((len(self.names), self._rows))
        start, filled = 0, 0
        labels = self._labels if first else ()
        others = [column.column for column in labels]
        written = self.table.written - self.table.booleans
        names, levels = [*self.names, *others], frozenset(self.coders) | (self.levels & written)
        as_text = levels | frozenset(others)
        for batch in self.table.batches(names, self._rows, text=as_text, levels=levels):
            done = 0
            for column, index in zip(labels, range(len(self.names), len(names)), strict=True):
                column.add(batch.column(index), start + filled, faults)
            while done < batch.num_rows:
                step = min(batch.num_rows - done, self._rows - filled)
                for index, name in enumerate(self.names):
                    into = buffer[index, filled : filled + step]
                    array = batch.column(index).slice(done, step)
                    if name in self.coders:
                        into[:] = self.coders[name].codes(array)
                        continue
                    if name in self.orders:
                        self.orders[name].add(array)
                    if name in self.levels:
                        into[:] = level_numbers(array, name, start + filled, faults)
                        continue
                    into[:] = to_float64(array, name, start + filled, faults)
                    if name in written:
                        # 2**53 itself may be the odd integer 2**53 + 1, rounded.
                        bad = (np.abs(into) >= LIMIT) & np.isfinite(into)
                        if name in self.table.integers:
                            faults.add("large integers", name, start + filled, bad, into)
                        elif bad.any():
                            self._doubtful.add(name)
                done += step
                filled += step
                if filled == self._rows:
                    yield start, self._without_missing(start, buffer, first)
                    start += filled
                    filled = 0
        if filled:
            yield start, self._without_missing(start, buffer[:, :filled], first)

    def _without_missing(self, start: int, values: Matrix, count: bool) -> Matrix:
        """Return a block with NaN in the rows without a label; count missing values before."""
        for index in np.flatnonzero(~np.isfinite(row_sums(values))) if count else ():
            self.missing[self.names[index]] += int(np.isnan(values[index]).sum())
        for column in self._labels:
            missing = column.missing(start, values.shape[1])
            if missing is not None:
                self.missing[column.column] += int(missing.sum()) if count else 0
                values[:, missing] = np.nan
        return values


def no_rows(table: Table, seen: int) -> DataError:
    """Return the error for a table without a row in use; ``seen`` have missing values."""
    lost = f"{seen} rows, all with missing values" if seen else "none"
    return DataError(
        f"expected at least one row in {table.sources[0].label}, found {lost}: check the file"
    )


def block_rows(n_columns: int) -> int:
    """Return rows per block: 12 MB of float64, at least 16 and at most 262,144 rows."""
    return max(16, min(1 << 18, _BLOCK_BYTES // (8 * max(1, n_columns))))


def row_sums(values: Matrix) -> Vector:
    """Return the sum of each column of a block (c, m); a finite sum has only finite terms."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums: Vector = values.sum(axis=1)
    return sums


def complete_rows(values: Matrix) -> NDArray[np.intp]:
    """Return the indices of the rows of a block (c, m) without a missing value."""
    if np.isfinite(row_sums(values)).all():
        return np.arange(values.shape[1])
    return np.flatnonzero(~np.isnan(values).any(axis=0))


def drop_missing_rows(values: Matrix) -> Matrix:
    """Return the rows of a block (c, m) that have no missing value."""
    complete = complete_rows(values)
    return values[:, complete] if complete.size < values.shape[1] else values
