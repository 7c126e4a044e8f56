"""The scan of a table in the first pass: moments, ranges and faults of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Matrix, Vector
from streammc.stores.ingest.columns import Columns
from streammc.stores.ingest.exact_values import LIMIT
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.moments import Moments
from streammc.stores.rows.row_weights import find_trial_faults, find_weight_faults


@dataclass
class Scan:
    """Result of the first pass; vectors have one entry per column of ``Columns.names``."""

    n_rows: int
    """Number of rows that are kept."""
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


def scan(
    blocks: Iterable[tuple[int, Matrix]],
    columns: Columns,
    faults: Faults,
    *,
    drop_missing: bool,
    rounding: bool,
    progress: Callable[[int], None] | None = None,
    count: Callable[[Matrix], None] | None = None,
) -> Scan:
    """Read every block once; return moments, ranges and rounding errors of the columns.

    Missing values, infinities, bad weights and bad counts of trials are recorded in ``faults``;
    the moments are valid only without such faults.

    Parameters
    ----------
    blocks
        ``(first row, values (c, m))``, NaN for missing.
    columns
        The c columns.
    drop_missing
        Leave out rows with a missing value, and count them.
    rounding
        Compute the rounding errors of all columns in float32; else they are 0.
    progress
        Called with the number of rows read so far.
    count
        Called with the rows of every block that are kept.
    """
    names = columns.names
    moments = Moments(len(names))
    response = columns.index(columns.response)
    checked = range(len(names)) if rounding else [] if response is None else [response]
    lost_squares = np.zeros(len(names))
    whole, single, seen = True, True, 0
    for start, values in blocks:
        m = values.shape[1]
        seen += m
        _check_weights(start, values, columns, faults)
        values = _clean(start, values, names, faults, drop_missing)
        moments.add(values)
        if count is not None:
            count(values)
        for index in checked:
            with np.errstate(over="ignore"):
                lost = values[index].astype(np.float32) - values[index]
                lost_squares[index] += np.dot(lost, lost)
            if index == response:
                single = single and not lost.any()
                whole = whole and bool(np.array_equal(values[index], np.rint(values[index])))
        if progress is not None:
            progress(seen)
    if moments.count:
        mean, sd = moments.finish()
    else:
        mean = sd = np.zeros(len(names))
    y_dtype = None
    if response is not None:
        bounds = moments.minimum[response], moments.maximum[response]
        y_dtype = "float64" if columns.trials else response_dtype(*bounds, whole, single)
    return Scan(
        moments.count,
        seen - moments.count if drop_missing else 0,
        mean,
        sd,
        moments.minimum,
        moments.maximum,
        np.sqrt(lost_squares / max(1, moments.count)),
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


def drop_missing_rows(values: Matrix) -> Matrix:
    """Return the rows of a block (c, m) that have no missing value."""
    kept = kept_rows(values)
    return values[:, kept] if kept.size < values.shape[1] else values


def kept_rows(values: Matrix) -> NDArray[np.intp]:
    """Return the indices of the rows of a block (c, m) without a missing value."""
    return np.flatnonzero(~np.isnan(values).any(axis=0))


def _check_weights(start: int, values: Matrix, columns: Columns, faults: Faults) -> None:
    """Record invalid weights and invalid counts of successes and trials."""
    weight, trials = columns.index(columns.weight), columns.index(columns.trials)
    if weight is not None:
        find_weight_faults(faults, columns.names[weight], start, values[weight])
    response = columns.index(columns.response)
    if trials is not None and response is not None:
        names = columns.names[response], columns.names[trials]
        find_trial_faults(faults, names, start, values[response], values[trials])
        total = values[trials] if weight is None else values[trials] * values[weight]
        find_weight_faults(faults, names[1], start, np.maximum(total, 0.0))


def _clean(
    start: int, values: Matrix, names: tuple[str, ...], faults: Faults, drop_missing: bool
) -> Matrix:
    """Record missing and infinite values; return the block with 0 in their place."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums = values.sum(axis=1)  # a finite sum has only finite terms
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
