"""Blocks of the chosen columns of a table as float64, and the moments and faults of their values.

Blocks do not depend on how a file was cut into record batches, so the same rows
give the same store, bit for bit, from CSV, Parquet or memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import fsum, ldexp, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Index, Matrix, Vector
from streammc.stores.ingest.column_values import (
    LIMIT,
    Coder,
    LevelOrder,
    find_integers,
    find_text,
    level_numbers,
    to_float64,
)
from streammc.stores.ingest.columns import Columns
from streammc.stores.ingest.faults import FITTED_TEXT, LATE_TEXT, Faults
from streammc.stores.ingest.shuffle import append
from streammc.stores.rows.row_weights import find_time_faults, find_trial_faults, find_weight_faults
from streammc.stores.sources.csv_source import NotANumberError
from streammc.stores.sources.tables import Table
from streammc.trace.zarr_files import crc32c

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
        watch: ReadRecord | None = None,
    ) -> None:
        self.table, self._watch = table, watch
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
                if self._watch is not None:
                    self._watch.add(start, values)
                yield start, values
        except NotANumberError as error:
            names = [name for name in self.names if name not in self.coders]
            advice = FITTED_TEXT if self._fitted else LATE_TEXT
            raise self.text_error(names, str(error), advice) from error
        if self._doubtful:
            names = sorted(self._doubtful)
            for name, start, array in self._written_again(names):
                find_integers(array, name, start, faults)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without what the first read kept."""
        return {**vars(self), "_watch": None}

    @property
    def raw_rows(self) -> int:
        """Rows of a block, but for the last one."""
        return self._rows

    @property
    def texts(self) -> dict[str, list[str]]:
        """What the codes of text columns stand for, in the order of the codes."""
        return {name: coder.values for name, coder in self.coders.items()}

    @property
    def divisible(self) -> bool:
        """Whether :meth:`raw` can begin at any block, in any process."""
        return self._spool is None and self.table.divisible

    def raw(self, first: int = 0, stop: int | None = None) -> Iterator[Matrix]:
        """Yield the values (c, m) of blocks ``first`` to ``stop``, as they are read.

        All blocks, or some of a table that is divisible.
        """
        one = self
        if stop is not None:
            one = copy(self)
            one.table = self.table.part(first * self._rows, stop * self._rows)
        yield from (values for _, values in one.again())

    def encoded(self, values: Matrix) -> Matrix:
        """Return the block of the rows ``values`` (c, m) of :meth:`raw`."""
        return values

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
        shared = [column for column in labels if column.column in self.names]
        labels = [column for column in labels if column not in shared]
        if shared:
            self._read_apart(shared, faults)
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

    def _read_apart(self, labels: Sequence[IdColumn], faults: Faults) -> None:
        """Read labels that are columns of the blocks too, which are read otherwise."""
        names, start = [column.column for column in labels], 0
        for batch in self.table.batches(names, self._rows, text=frozenset(names)):
            for column, array in zip(labels, batch.columns, strict=True):
                column.add(array, start, faults)
            start += batch.num_rows

    def _without_missing(self, start: int, values: Matrix, count: bool) -> Matrix:
        """Return a block with NaN in the rows without a label; count missing values before."""
        counts = self.table.counted(start, start + values.shape[1])
        for index in np.flatnonzero(~np.isfinite(row_sums(values))) if count else ():
            missing = np.isnan(values[index])
            rows = missing if counts is None else counts[missing]
            self.missing[self.names[index]] += int(rows.sum())
        for column in self._labels:
            missing = column.missing(start, values.shape[1])
            if missing is not None:
                rows = missing if counts is None else counts[missing]
                self.missing[column.column] += int(rows.sum()) if count else 0
                values[:, missing] = np.nan
        return values


def checksum(values: Matrix) -> int:
    """Return the crc32c of a block."""
    return crc32c(np.ascontiguousarray(values).view(np.uint8))


class ReadRecord:
    """What the first read of a table has seen: the checksums of its blocks, and some of its rows.

    ``wanted`` are the positions (k,) of these rows, sorted.
    """

    def __init__(self, wanted: Index | None = None) -> None:
        self.wanted = np.empty(0, np.int64) if wanted is None else wanted
        self._kept: list[Matrix] = []
        self.checksums: list[int] = []

    def add(self, start: int, values: Matrix) -> None:
        """Add the block (c, m) of the rows from ``start`` on."""
        self.checksums.append(checksum(values))
        low, high = np.searchsorted(self.wanted, [start, start + values.shape[1]])
        if high > low:
            self._kept.append(values[:, self.wanted[low:high] - start])

    def rows(self) -> Matrix:
        """Return the rows wanted (c, k), as they were read, and keep them no longer."""
        kept, self._kept = self._kept, []
        return np.concatenate(kept, axis=1)


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


_SHIFT: Final = 600


@dataclass
class Scan:
    """Result of the first pass; vectors have one entry per column of ``Columns.names``."""

    n_rows: int
    """Number of rows that are kept, or of cells."""
    n_counted: int
    """Number of rows that are kept; ``n_rows`` are fewer where they are cells."""
    n_dropped: int
    mean: Vector
    sd: Vector
    """Standard deviation with divisor n; exactly 0 for a constant column."""
    minimum: Vector
    maximum: Vector
    rounding: Vector
    """Root mean square of the rounding error in float32, in the unit of the column."""
    y_dtype: str | None
    """Smallest dtype that holds the response exactly."""


class Scanner:
    """Accumulator of moments, ranges and rounding errors of columns, block by block.

    Missing values, infinities, bad weights, counts of trials and times are recorded in ``faults``;
    the moments are valid only without such faults. Without ``rounding`` the rounding errors in
    float32 are 0. ``count`` is called with the rows of every block that are kept, and what
    ``counted(start, stop)`` returns of them: how many rows of the table each is.
    """

    def __init__(
        self,
        columns: Columns,
        faults: Faults,
        *,
        drop_missing: bool,
        rounding: bool,
        count: Callable[[Matrix, Index | None], None] | None = None,
        counted: Callable[[int, int], Index | None] | None = None,
    ) -> None:
        self._columns = columns
        self._faults = faults
        self._drop_missing = drop_missing
        self._count, self._counted = count, counted
        names = columns.names
        self._moments = Moments(len(names))
        self._response = columns.index(columns.response)
        own = [] if self._response is None else [self._response]
        self._rounded = range(len(names)) if rounding else own
        self._lost_squares = np.zeros(len(names))
        self._whole, self._single = True, True
        self.seen = 0
        """Number of rows read so far, or of cells."""
        self._rows = 0
        self._kept = 0

    def add(self, start: int, values: Matrix) -> None:
        """Add a block (c, m), of which ``start`` is the number of the first row."""
        rows = values.shape[1]
        counts = None if self._counted is None else self._counted(start, start + rows)
        self.seen += rows
        self._rows += rows if counts is None else int(counts.sum())
        _check_weights(start, values, self._columns, self._faults, counts)
        if counts is not None and self._drop_missing:
            counts = counts[complete_rows(values)]
        values = _clean(start, values, self._columns.names, self._faults, self._drop_missing)
        self._kept += values.shape[1]
        self._moments.add(values, counts)
        if self._count is not None:
            self._count(values, counts)
        for index in self._rounded:
            with np.errstate(over="ignore"):
                lost = values[index].astype(np.float32) - values[index]
                # Not np.dot, whose threads wait for work in busy loops.
                if counts is None:
                    self._lost_squares[index] += np.einsum("i,i->", lost, lost)
                else:
                    self._lost_squares[index] += np.einsum("i,i,i->", lost, lost, counts)
            if index == self._response:
                exact = np.array_equal(values[index], np.rint(values[index]))
                self._single = self._single and not lost.any()
                self._whole = self._whole and exact

    def finish(self) -> Scan:
        """Return the result."""
        moments, response = self._moments, self._response
        if moments.count:
            mean, sd = moments.finish()
        else:
            mean = sd = np.zeros(len(self._columns.names))
        y_dtype = None
        if response is not None:
            bounds = moments.minimum[response], moments.maximum[response]
            if self._columns.censored is not None:  # minus the time
                bounds = -bounds[1], bounds[1]
            y_dtype = response_dtype(*bounds, self._whole, self._single)
            y_dtype = "float64" if self._columns.trials else y_dtype
        return Scan(
            self._kept,
            moments.count,
            self._rows - moments.count if self._drop_missing else 0,
            mean,
            sd,
            moments.minimum,
            moments.maximum,
            np.sqrt(self._lost_squares / max(1, moments.count)),
            y_dtype,
        )


def response_dtype(low: float, high: float, whole: bool, single: bool) -> str:
    """Return the smallest store dtype that holds the response exactly.

    An integer dtype if every value is whole, whatever the type of the column: tables often
    hold counts and classes as decimals.
    """
    if whole and low >= -LIMIT and high <= LIMIT:
        if low >= 0 and high <= 255:
            return "uint8"
        return "int32" if low >= -(2**31) and high < 2**31 else "int64"
    return "float32" if single else "float64"


def _check_weights(
    start: int, values: Matrix, columns: Columns, faults: Faults, counts: Index | None
) -> None:
    """Record invalid weights, counts of successes and trials, and times that are censored."""
    weight, trials = columns.index(columns.weight), columns.index(columns.trials)
    times = 1 if counts is None else counts
    if weight is not None:
        find_weight_faults(faults, columns.names[weight], start, values[weight] * times)
    response = columns.index(columns.response)
    if trials is not None and response is not None:
        names = columns.names[response], columns.names[trials]
        find_trial_faults(faults, names, start, values[response], values[trials])
        total = values[trials] if weight is None else values[trials] * values[weight]
        find_weight_faults(faults, names[1], start, np.maximum(total, 0.0) * times)
    censored = columns.index(columns.censored)
    if censored is not None and response is not None:
        find_time_faults(
            faults,
            (columns.names[response], columns.names[censored]),
            start,
            values[response],
            values[censored],
        )


def _clean(
    start: int, values: Matrix, names: tuple[str, ...], faults: Faults, drop_missing: bool
) -> Matrix:
    """Record missing and infinite values; return the block with 0 in their place."""
    sums = row_sums(values)
    if np.isfinite(sums).all():
        return values
    missing = np.isnan(values)
    for index in np.flatnonzero(~np.isfinite(sums)):
        if not drop_missing:
            faults.add("missing values", names[index], start, missing[index], values[index])
        infinite = np.isinf(values[index])
        faults.add("infinite values", names[index], start, infinite, values[index])
    if drop_missing:
        values = drop_missing_rows(values)
    return np.where(np.isfinite(values), values, 0.0)


class Moments:
    """Accumulator of count, range, mean and standard deviation of c columns, in one pass.

    Each block of ``n_b`` rows gives its mean ``m_b`` and ``M_b = sum (x - m_b)^2``, both corrected
    for the rounding of ``m_b``. At the end they are combined around the overall mean ``m``,

        M = sum_b [M_b + n_b (m_b - m)^2]

    (Chan, Golub and LeVeque 1983, eq. 1.5, for all blocks at once), with exactly rounded sums.
    Blocks whose squares would overflow or underflow are scaled by a power of two.
    """

    def __init__(self, n_columns: int) -> None:
        self.count = 0
        self.minimum: Vector = np.full(n_columns, np.inf)
        self.maximum: Vector = np.full(n_columns, -np.inf)
        self._blocks: list[tuple[int, Matrix]] = []

    def add(self, values: Matrix, counts: Index | None = None) -> None:
        """Add a block (c, m) of finite numbers, each as often as ``counts`` (m,) says."""
        m = values.shape[1] if counts is None else int(counts.sum())
        if m == 0:
            return
        # One column after the other, each within the second-level cache.
        low, high = (np.array([f(row) for row in values]) for f in (np.min, np.max))
        np.minimum(self.minimum, low, out=self.minimum)
        np.maximum(self.maximum, high, out=self.maximum)
        size = np.maximum(np.abs(low), np.abs(high))
        exponent = np.where(size > 2.0**480, _SHIFT, 0)
        exponent[(size < 2.0**-480) & (size > 0)] = -_SHIFT
        if exponent.any():
            values = np.ldexp(values, -exponent[:, np.newaxis])
        mean, rest = np.empty((2, len(values)))
        deviation = np.empty_like(values)
        for column, row in enumerate(values):
            mean[column] = row.mean() if counts is None else (row * counts).sum() / m
            np.subtract(row, mean[column], out=deviation[column])
            each = deviation[column] if counts is None else deviation[column] * counts
            rest[column] = each.sum() / m
        if counts is None:
            square = np.einsum("ij,ij->i", deviation, deviation) - m * rest * rest
        else:
            square = np.einsum("ij,ij,j->i", deviation, deviation, counts) - m * rest * rest
        self.count += m
        self._blocks.append((m, np.stack([mean, rest, np.maximum(square, 0.0), exponent])))

    def finish(self) -> tuple[Vector, Vector]:
        """Return mean and standard deviation (divisor n); 0 exactly for a constant column."""
        n_columns = self.minimum.size
        mean, deviation = np.empty(n_columns), np.empty(n_columns)
        counts = np.array([m for m, _ in self._blocks], np.float64)
        table = np.stack([block for _, block in self._blocks], axis=-1)
        for column in range(n_columns):
            if self.minimum[column] == self.maximum[column]:
                mean[column], deviation[column] = self.minimum[column], 0.0
                continue
            means, rests, squares, exponents = table[:, column]
            top = int(exponents.max())
            shift = (exponents - top).astype(np.int64)
            pivot = ldexp(float(means[0]), int(shift[0]))
            # Differences from one block's mean are exact where they are small.
            off = np.ldexp(means, shift) - pivot + np.ldexp(rests, shift)
            centre = fsum(counts * off) / self.count
            total = fsum(np.ldexp(squares, 2 * shift)) + fsum(counts * (off - centre) ** 2)
            mean[column] = _scaled(pivot + centre, top)
            deviation[column] = _scaled(sqrt(total / self.count), top)
        return mean, deviation


def _scaled(value: float, exponent: int) -> float:
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return float("inf")
