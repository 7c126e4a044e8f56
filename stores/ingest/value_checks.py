"""Checks and warnings after the first pass: values no store can hold, and doubtful columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from streammc.errors import DataError
from streammc.likelihood.pass_cost import pass_cost, seconds_text
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Vector
from streammc.stores.formula.fitted import Design, is_factor
from streammc.stores.formula.parser import label
from streammc.stores.ingest.coded_factors import CodedFactor, lone_factors
from streammc.stores.ingest.column_values import DECIMAL_COMMA, NUMBER, kind
from streammc.stores.ingest.columns import Columns
from streammc.stores.ingest.faults import QUOTE
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.table_blocks import Scan
from streammc.stores.iso_words import ISO_DATE
from streammc.stores.number_checks import LARGEST
from streammc.stores.rows.row_weights import all_censored
from streammc.stores.sources.tables import Table

# Largest rounding error of a column, in standard deviations: by float32, or in the table.
_ROUNDING: Final = 1e-6
_SHOWN: Final = 5
_UNNAMED_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
"""Arrow's name for the unnamed index of a sliced or filtered pandas frame."""


def row_warnings(
    table: Table, columns: Columns, dropped: int, missing: Mapping[str, int], spelled: bool
) -> list[str]:
    """Return the warnings about values, unused index columns and rows left out.

    ``missing`` counts the rows with a missing value in each column of the table; ``spelled`` says
    whether the spellings of a missing value in CSV were given.
    """
    lines = table.warnings()
    hidden = table.hidden - set(columns.names)
    unused = [name for name in hidden if not _UNNAMED_INDEX.fullmatch(name)]
    if unused:
        shown = ", ".join(map(repr, sorted(unused)))
        lines.append(f"not used, as an index: column {shown}")
    if dropped:
        lines.append(f"rows with missing values that were left out: {dropped}")
        lines[-1] += _by_column(table, missing, spelled)
    return lines


def _by_column(table: Table, missing: Mapping[str, int], spelled: bool) -> str:
    """Return the columns of missing values with their numbers, and advice for texts in CSV."""
    names = sorted((name for name in missing if missing[name]), key=lambda name: -missing[name])
    shown = ", ".join(f"{missing[name]} in {name!r}" for name in names[:_SHOWN])
    more = f" and some in {len(names) - _SHOWN} more columns" if len(names) > _SHOWN else ""
    texts = not spelled and any(
        name in table.written and "text" in map(kind, table.types_of(name)) for name in names
    )
    return f" ({shown}{more})" + f"; {QUOTE}" * texts


def check_values(
    columns: Columns, scan: Scan, options: IngestOptions, centred: bool, factors: Collection[str]
) -> list[str]:
    """Refuse columns that cannot be stored; return the warnings about constant columns.

    ``factors`` are columns that may be constant: the prior of their coefficients is known.
    """
    for name, what in ((columns.weight, "weight"), (columns.trials, "count")):
        index = columns.index(name)
        if index is not None and scan.maximum[index] == 0:
            raise DataError(
                f"expected a positive {what} in {name!r}, found only 0"
                ": check the column, or leave it out"
            )
    index = columns.index(columns.censored)
    if index is not None and scan.minimum[index] == 1 and options.like is None:
        raise all_censored(columns.names[index])
    # Features are excluded if they are scaled, or checked for float32 below.
    keeps = options.dtype == "float64" and not options.standardize
    scaled = 0 if keeps else len(columns.features)
    for name in columns.names[scaled:]:
        index = columns.names.index(name)
        size = max(-scan.minimum[index], scan.maximum[index])
        if size > LARGEST:
            advice = "--standardize" if name in columns.features else "another unit"
            raise DataError(
                f"expected numbers of at most {LARGEST:g} in size in column {name!r}, found "
                f"{size:g}: use {advice}"
            )
    lines: list[str] = []
    constant: list[str] = []
    for index, name in enumerate(columns.features):
        low, high, sd = scan.minimum[index], scan.maximum[index], scan.sd[index]
        _check_range(name, index, scan, options)
        if name in factors:
            continue
        if sd == 0 and (options.intercept or centred or low == 0):
            constant.append(f"column {name!r} is constant ({low:g})")
        elif sd and 2.0**-53 * max(-low, high) > _ROUNDING * sd:
            lines.append(
                f"column {name!r} has sd {sd:.3g} around {scan.mean[index]:.6g}: "
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


def beyond_dtype(scan: Scan, dtype: str, mean: Vector, scale: Vector) -> int | None:
    """Return the first feature with a value that ``dtype`` cannot hold on its scale, or ``None``.

    It can be on the scale of another table: ``(x - mean) / scale``.
    """
    with np.errstate(over="ignore"):
        low = np.abs((scan.minimum[: mean.size] - mean) / scale)
        high = np.abs((scan.maximum[: mean.size] - mean) / scale)
    size = np.maximum(low, high)
    return next(iter(np.flatnonzero(size > largest(dtype)).tolist()), None)


def _check_range(name: str, index: int, scan: Scan, options: IngestOptions) -> None:
    """Refuse a feature whose range or variation the dtype cannot hold."""
    low, high, sd = scan.minimum[index], scan.maximum[index], scan.sd[index]
    with np.errstate(over="ignore"):
        span = high - low
    if options.standardize and not np.isfinite([span, scan.mean[index], sd]).all():
        raise DataError(
            f"expected the range of column {name!r} within float64, found {low:g} to "
            f"{high:g}: rescale it, or leave it out with --features"
        )
    rounding = scan.rounding[index]
    if not np.isfinite(rounding) or rounding > _ROUNDING * sd > 0:
        raise DataError(
            f"expected column {name!r} to fit into float32, found values up to "
            f"{max(-low, high):g} with sd {sd:g}, of which rounding takes {rounding:.1g}: "
            "use --dtype float64, or --standardize"
        )


def doubtful_levels(design: Design) -> list[str]:
    """Return a warning for each text factor whose levels look like dates or numbers.

    A factor that is written as ``C(column)`` is meant, but for numbers with a decimal comma.
    """
    lines = []
    for name, state in design.states.items():
        levels = [level for level in state.get("levels", ()) if isinstance(level, str)]
        commas = [level for level in levels if re.fullmatch(DECIMAL_COMMA, level)]
        dates = [level for level in levels if re.fullmatch(ISO_DATE, level)]
        if name in design.kinds and len(dates) * 2 > len(levels):
            lines.append(
                f"{name} is text, a factor of {len(levels)} levels that look like dates "
                f"({dates[0]!r}): write C({name}) if that is meant, or days({name}) for a "
                "trend"
            )
        if commas and len(commas) * 2 > len(levels):
            lines.append(
                f"{name} is text, a factor of {len(levels)} levels that look like numbers with a "
                f"decimal comma ({commas[0]!r}): write them with a point to have one column"
            )
        elif name in design.kinds:
            lines += _mostly_numbers(name, levels, commas)
    return lines


def single_levels(design: Design) -> list[str]:
    """Return a warning for each term that makes no column because a factor has one level."""
    made = {frozenset(node for node, _ in column.fields) for column in design.columns}
    lines = []
    for term in design.terms.terms:
        for node in term.factors if frozenset(term.factors) not in made else ():
            levels = design.states.get(label(node), {}).get("levels", ())
            if len(levels) == 1:
                name = ":".join(map(label, term.factors))
                lines.append(
                    f"{name} makes no column: {label(node)} has one level ({levels[0]!r}) in the "
                    "rows in use, with nothing to compare; leave it out of the formula, or check "
                    "the column"
                )
                break
    return lines


def _mostly_numbers(name: str, levels: list[str], commas: list[str]) -> list[str]:
    """Return the warning if most levels are numbers, with a decimal comma or without."""
    numbers = [level for level in levels if re.fullmatch(NUMBER, level)] + commas
    if len(numbers) * 2 <= len(levels):
        return []
    others = sorted({*levels} - {*numbers})
    shares, advice = f"{len(numbers)} are numbers", "write the column as numbers"
    if others:
        shown = others[0] if len(others[0]) <= 40 else others[0][:37] + "..."
        shares += f" and {len(others)} not ({shown!r})"
        advice = "correct or empty the others"
    if commas:
        shares += f", some with a decimal comma ({commas[0]!r})"
        advice += ", with a point for the comma,"
    shown = name if name.isidentifier() else f"`{name}`"
    return [
        f"{name} is text, a factor of {len(levels)} levels of which {shares}: {advice} to have one "
        f"column, or write C({shown}) if a factor is meant"
    ]


LARGE_BYTES: Final = 10**8
"""Bytes of rows from which their size is said before they are written."""
TIMES_SOURCE: Final = 10
"""Bytes of rows over those of their source above which there is a warning."""
MANY_COLUMNS: Final = 1000
"""Number of columns from which a design gets a warning."""
_FEW_ROWS: Final = 10


def wide_design(
    design: Design | None, mean: Vector, scan: Scan, n_features: int, codes: Sequence[int] = ()
) -> list[str]:
    """Return a warning if the design has so many columns that sampling would be slow.

    ``mean`` (c,) is that before standardisation, without the intercept: that of a level's
    indicator is its share of the rows. ``codes`` has the number of columns of each coded factor.
    """
    if n_features < MANY_COLUMNS:
        return []
    threads = available_threads()
    cost = pass_cost(scan.n_rows, n_features, threads=threads, codes=codes)
    levels = "" if design is None else _levels(design, mean, scan.n_counted)
    advice = "leave out those that matter least"
    if levels:
        advice = "merge rare levels into one before the ingest, or leave the column out"
    return [
        f"the design has {n_features:,} columns{levels}: the Hessian of a full pass is "
        f"{n_features:,} x {n_features:,} numbers ({8e-6 * n_features**2:,.0f} MB, several times"
        f"{'' if codes else ' per thread'}), a pass with one linear predictor takes about "
        f"{seconds_text(cost.pass_seconds)} on {threads} threads, and what comes before the first "
        f"draw about {seconds_text(cost.seconds)} and {cost.memory_bytes / 1e9:.2g} GB of memory; "
        f"{advice}"
    ]


def large_store(
    design: Design | None,
    stored: Sequence[CodedFactor],
    size: tuple[int, int],
    source_bytes: int | None,
    smaller: str,
) -> list[str]:
    """Return a warning if rows take over 100 MB and ten times the bytes of their source.

    ``stored`` are the factors that are codes, ``size`` the numbers of rows and of bytes of a row,
    and ``smaller`` another way to fewer bytes, or empty.
    """
    n_rows, row_bytes = size
    total = n_rows * row_bytes
    if not source_bytes or total < LARGE_BYTES or total <= TIMES_SOURCE * source_bytes:
        return []
    ways = [smaller] if smaller else []
    widest = ""
    if design is not None:
        widths, alone = _widths(design, stored)
        name = max(widths, key=lambda term: widths[term], default="")
        columns = sum(widths.values())
        if name and 3 * widths[name] > columns > 3:
            widest = f", {widths[name]:,} of the {columns:,} columns are those of {name}"
            if name in alone:
                ways.insert(0, "store factors as codes, --codes-above 0")
            else:
                ways.insert(0, "merge rare levels or leave it out")
    return [
        f"the rows take {bytes_text(total)} ({n_rows:,} rows of {row_bytes:,} bytes), "
        f"{total / source_bytes:.0f} times their source of {bytes_text(source_bytes)}{widest}: "
        f"{', or '.join(ways) or 'leave out columns'}"
    ]


def bytes_text(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / 1e9:.2g} GB" if size >= 1e9 else f"{max(size / 1e6, 0.1):,.3g} MB"


def _widths(design: Design, stored: Sequence[CodedFactor]) -> tuple[dict[str, int], set[str]]:
    """Return the number of stored columns by term, and the terms that are lone factors."""
    dense = np.ones(len(design.names), np.bool_)
    for factor in stored:
        dense[factor.range] = False
    widths: dict[str, int] = {}
    for column, is_dense in zip(design.columns, dense, strict=False):
        if is_dense:
            name = ":".join(label(node) for node, _ in column.fields) or "Intercept"
            widths[name] = widths.get(name, 0) + 1
    factors = {label(each.node): each for each in lone_factors(design)}
    for name, factor in factors.items():  # those of (1 | g) are no columns of the terms
        if dense[factor.first]:
            widths[name] = factor.columns
    return widths, set(factors)


def _levels(design: Design, mean: Vector, n_rows: int) -> str:
    """Return the text about the factor of most levels and the rows of its rarest levels."""
    names = [column for column in design.columns if column.fields]
    counts: dict[str, list[int]] = {}
    for column, share in zip(names, mean, strict=False):  # levels of (1 | g) follow
        ((node, _), *others) = column.fields
        if not others and column.scale == 1 and is_factor(node, design.kinds):
            counts.setdefault(label(node), []).append(round(float(share) * n_rows))
    if not counts:
        return ""
    name = max(counts, key=lambda factor: len(counts[factor]))
    levels = len(design.states[name]["levels"])
    rows = np.array(counts[name])
    if len(rows) == levels - 1:
        rows = np.append(rows, n_rows - rows.sum())
    few = int((rows < _FEW_ROWS).sum())
    least = int(rows.min())
    return (
        f", of which {name} has {levels:,} levels, the rarest of {least:,} "
        f"row{'s' * (least != 1)}, {few:,} of fewer than {_FEW_ROWS} rows (the prior decides "
        "about those)"
    )
