"""Checks after the scan: values that a store cannot hold, and columns that hardly vary."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from streammc.errors import ConfigError, DataError
from streammc.protocols import Vector
from streammc.stores.format.group_arrays import one_group
from streammc.stores.formula.group_terms import GroupTerms
from streammc.stores.ingest.columns import Columns
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.scan import Scan
from streammc.stores.number_checks import LARGEST
from streammc.stores.sources.tables import Table

# Largest rounding error of a column, in standard deviations: by float32, or in the table.
_ROUNDING: Final = 1e-6
_SHOWN: Final = 5
_UNNAMED_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
"""Arrow's name for the unnamed index of a sliced or filtered pandas frame."""


def row_warnings(table: Table, columns: Columns, found: Scan) -> list[str]:
    """Return the warnings about values, unused index columns and rows left out."""
    lines = table.warnings()
    hidden = table.hidden - set(columns.names)
    unused = [name for name in hidden if not _UNNAMED_INDEX.fullmatch(name)]
    if unused:
        shown = ", ".join(map(repr, sorted(unused)))
        lines.append(f"not used, as an index: column {shown}")
    if found.n_dropped:
        lines.append(f"rows with missing values that were left out: {found.n_dropped}")
    return lines


def check_values(
    columns: Columns, found: Scan, options: IngestOptions, centred: bool, factors: Collection[str]
) -> list[str]:
    """Refuse columns that cannot be stored; return the warnings about constant columns.

    ``factors`` are columns that may be constant: the prior of their coefficients is known.

    Raises
    ------
    DataError
        If a column cannot be represented, or all weights or trials are 0; names the column.
    """
    for name, what in ((columns.weight, "weight"), (columns.trials, "count")):
        index = columns.index(name)
        if index is not None and found.maximum[index] == 0:
            raise DataError(
                f"expected a positive {what} in {name!r}, found only 0"
                ": check the column, or leave it out"
            )
    # Features are excluded if they are scaled, or checked for float32 below.
    keeps = options.dtype == "float64" and not options.standardize
    scaled = 0 if keeps else len(columns.features)
    for name in columns.names[scaled:]:
        index = columns.names.index(name)
        size = max(-found.minimum[index], found.maximum[index])
        if size > LARGEST:
            advice = "--standardize" if name in columns.features else "another unit"
            raise DataError(
                f"expected numbers of at most {LARGEST:g} in size in column {name!r}, found "
                f"{size:g}: use {advice}"
            )
    lines: list[str] = []
    constant: list[str] = []
    for index, name in enumerate(columns.features):
        low, high, sd = found.minimum[index], found.maximum[index], found.sd[index]
        _check_range(name, index, found, options)
        if name in factors:
            continue
        if sd == 0 and (options.intercept or centred or low == 0):
            constant.append(f"column {name!r} is constant ({low:g})")
        elif sd and 2.0**-53 * max(-low, high) > _ROUNDING * sd:
            lines.append(
                f"column {name!r} has sd {sd:.3g} around {found.mean[index]:.6g}: "
                "float64 holds few digits of its variation; subtract a constant before"
            )
    more = f" ({len(constant) - _SHOWN} more such columns)" if len(constant) > _SHOWN else ""
    informed = [
        f"{line}: only the prior informs its coefficient{more}" for line in constant[:_SHOWN]
    ]
    return lines + informed


def largest(dtype: str) -> float:
    """Return the largest absolute value that a store takes as ``dtype``."""
    return min(LARGEST, float(np.finfo(dtype).max))


def beyond_dtype(found: Scan, dtype: str, mean: Vector, scale: Vector) -> int | None:
    """Return the first feature with a value that ``dtype`` cannot hold on its scale, or ``None``.

    It can be on the scale of another table: ``(x - mean) / scale``.
    """
    with np.errstate(over="ignore"):
        low = np.abs((found.minimum[: mean.size] - mean) / scale)
        high = np.abs((found.maximum[: mean.size] - mean) / scale)
    size = np.maximum(low, high)
    return next(iter(np.flatnonzero(size > largest(dtype)).tolist()), None)


def check_groups(groups: GroupTerms, several: bool, features: Sequence[str]) -> None:
    """Refuse a single group, and a slope that is no column of the design.

    Parameters
    ----------
    groups
        The random effects.
    several
        Whether there are several groups.
    features
        Columns of the design, without the intercept.

    Raises
    ------
    DataError
        If there is one group.
    ConfigError
        If the slope is no column of numbers.
    """
    if not several:
        raise one_group(groups.column)
    for name in groups.terms[1:]:
        if name not in features:
            raise ConfigError(
                f"expected one column of numbers as the slope of the groups, found {name!r}, "
                "which is a factor or makes several: take a number, or write (1 | g)"
            )


def _check_range(name: str, index: int, found: Scan, options: IngestOptions) -> None:
    """Refuse a feature whose range or variation the dtype cannot hold."""
    low, high, sd = found.minimum[index], found.maximum[index], found.sd[index]
    with np.errstate(over="ignore"):
        span = high - low
    if options.standardize and not np.isfinite([span, found.mean[index], sd]).all():
        raise DataError(
            f"expected the range of column {name!r} within float64, found {low:g} to "
            f"{high:g}: rescale it, or leave it out with --features"
        )
    rounding = found.rounding[index]
    if not np.isfinite(rounding) or rounding > _ROUNDING * sd > 0:
        raise DataError(
            f"expected column {name!r} to fit into float32, found values up to "
            f"{max(-low, high):g} with sd {sd:g}, of which rounding takes {rounding:.1g}: "
            "use --dtype float64, or --standardize"
        )
