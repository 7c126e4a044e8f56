"""Warnings about a design of thousands of columns, and about a store far above its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streammc.likelihood.pass_cost import pass_cost, seconds_text
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Vector
from streammc.stores.formula.coded_factors import CodedFactor, lone_factors
from streammc.stores.formula.fitted import Design, is_factor
from streammc.stores.formula.nodes import label

LARGE_BYTES: Final = 10**8
"""Bytes of rows from which their size is said before they are written."""
TIMES_SOURCE: Final = 10
"""Bytes of rows over those of their source above which there is a warning."""
MANY_COLUMNS: Final = 1000
"""Number of columns from which a design gets a warning."""
_FEW_ROWS: Final = 10


def wide_design(
    design: Design | None, mean: Vector, n_rows: int, n_features: int, codes: Sequence[int] = ()
) -> list[str]:
    """Return a warning if the design has so many columns that sampling would be slow.

    Parameters
    ----------
    design
        The fitted formula with its levels; ``None`` without a formula.
    mean
        (c,) means of the columns before standardisation, without the intercept; the mean of
        a level's indicator is its share of the rows.
    n_rows, n_features
        Numbers of rows and of columns of the store.
    codes
        Number of columns of each coded factor.
    """
    if n_features < MANY_COLUMNS:
        return []
    threads = available_threads()
    cost = pass_cost(n_rows, n_features, threads=threads, codes=codes)
    found = "" if design is None else _levels(design, mean, n_rows)
    advice = "leave out those that matter least"
    if found:
        advice = "merge rare levels into one before the ingest, or leave the column out"
    return [
        f"the design has {n_features:,} columns{found}: the Hessian of a full pass is "
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

    Parameters
    ----------
    design, stored
        The fitted formula, and its factors that are stored as codes.
    size
        Numbers of rows and of bytes of a row.
    source_bytes
        Bytes of the source; ``None`` if they are not known.
    smaller
        Another way to fewer bytes, or empty.
    """
    n_rows, row_bytes = size
    total = n_rows * row_bytes
    if not source_bytes or total < LARGE_BYTES or total <= TIMES_SOURCE * source_bytes:
        return []
    ways = [smaller] if smaller else []
    found = ""
    if design is not None:
        widths, alone = _widths(design, stored)
        name = max(widths, key=lambda term: widths[term], default="")
        columns = sum(widths.values())
        if name and 3 * widths[name] > columns > 3:
            found = f", {widths[name]:,} of the {columns:,} columns are those of {name}"
            if name in alone:
                ways.insert(0, "store factors as codes, --codes-above 0")
            else:
                ways.insert(0, "merge rare levels or leave it out")
    return [
        f"the rows take {bytes_text(total)} ({n_rows:,} rows of {row_bytes:,} bytes), "
        f"{total / source_bytes:.0f} times their source of {bytes_text(source_bytes)}{found}: "
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
    for column, kept in zip(design.columns, dense, strict=False):
        if kept:
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
