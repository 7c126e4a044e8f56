"""The options that make a data set of a table: of Python, of ``streammc ingest`` and of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streammc.settings import setting


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Options that decide the columns and rows of a data set, but for its formula.

    Parameters
    ----------
    response
        Column ``y``. Stored as integers if every value is a whole number (whatever the type of
        the column), else as floating point numbers; always exactly.
    features
        Columns of ``X``, in this order. By default all columns without another role, except an
        index.
    offset
        Column added to the linear predictor unchanged: for an exposure, its logarithm.
    weight
        Column of weights, 0 to 2**53, such as frequencies or survey weights: the power of the
        likelihood of each row. Means and standard deviations of the features are not weighted.
    trials
        Column of binomial trials N, whole numbers of at least 0; the response holds the
        successes C, whole numbers up to N. The store has the proportion C/N as ``y`` (0 if
        N = 0) and N times the weight as ``weight``.
    censored
        Column of 0 and 1, or of truth values: 1 where the response is a time at which the event
        had not happened. The store has ``y`` below 0 there, for ``weibull``, ``exponential`` and
        ``lognormal``. Times are above 0.
    row_id
        Column of row ids, integers or text, which predictions carry. By default the position
        of the row in the table, from 0, over all sources; rows left out for missing values
        count.
    group
        Column of the groups of a mixed model: integers, text, categories or dates. Each group
        gets a random intercept, as by ``(1 | column)`` in a formula, which can also have a slope,
        ``(1 + x | column)``. The rows of a group are stored together, and the groups in random
        order. The column can have no other role.
    formula_for : text or list of texts
        ``"sigma ~ x"``: the columns on which another parameter of the model depends, beside those
        of ``formula`` for the response, a formula each. The store has the columns of all.
    group_as : mapping from factors to 'columns', 'integrated' or 'crossed', or None
        How the effects of the factors of terms ``(1 | g)`` are handled: integrated out, of one of
        them; as a column for each of at most 300 levels, with one sampled scale; or drawn with the
        parameters, of all together, by ``gibbs``. ``None``: a single factor is integrated, of
        several the one of more than 300 levels, if any, and where two have more all cross. Also a
        list of texts, ``["origin=columns"]``.
    shuffle
        Put the rows into a uniformly random order. ``None``: yes, except with ``like``, which
        keeps the order of the table.
    seed
        Seed of the shuffle, in ``[0, 2**64)``.
    dtype : {'float32', 'float64'}
        Dtype of the stored ``X``.
    standardize
        Store ``(x - mean) / sd`` (divisor n). A constant column, and a level of a factor
        in a formula, is only centred.
    intercept
        Put a column ``Intercept`` of ones first.
    drop_missing
        Leave out rows with a missing value in a column in use. By default they are refused.
    missing : list of texts or None
        Spellings of a missing value in CSV files, beside nothing at all, such as
        ``["NA", "-999"]``. ``None``: NA, N/A, NULL, nan and such. In a column of text they are
        text where they are quoted, as the NA of Namibia.
    missing_as : {'level', 'indicator'}, list of both, or None
        Keep rows with a missing value in a column right of the formula. ``level``: in a factor
        of text missing values are a level ``missing``, the last. ``indicator``: the mean of the
        others stands for a missing number, and a column ``missing(x)``, 1 in these rows and 0
        elsewhere, joins the formula. Only columns that have missing values change; how many is
        said. Rows to predict may then lack the same values. ``None``: such rows are refused, or
        left out with ``drop_missing``, as rows without a response are in any case.
    cells : {None, 'auto', 'yes', 'no'}
        Make one row of the rows that are equal in every column in use but the weight, which adds
        up: the same posterior from fewer rows. ``auto``: where a table of 65,536 rows or more
        has four and more for each such cell; ``yes``: also else, but refuse a table beyond a
        million rows that has not. Row ids keep rows apart. ``None``: ``auto`` in ``fit`` without a
        store, else ``no``.
    chunk_rows
        Rows of a chunk, rounded up to a multiple of 4096. ``None``: chosen by the width of a
        row.
    codes_above
        Number of columns above which a factor of the formula is stored as one integer a row in
        place of its columns. Results are the same but for rounding. ``None``: 64; 4096 for none.
    """

    response: str | None = setting(None, "Column y.", metavar="COLUMN", key="ingest")
    features: Sequence[str] | None = setting(
        None, "Columns of X; default: all others.", kind="names", key="ingest"
    )
    offset: str | None = setting(
        None, "Added to the linear predictor (log exposure).", metavar="COLUMN", key="ingest"
    )
    weight: str | None = setting(
        None, "Weights: powers of each row's likelihood.", metavar="COLUMN", key="ingest"
    )
    trials: str | None = setting(
        None, "Binomial trials; the response counts successes.", metavar="COLUMN", key="ingest"
    )
    censored: str | None = setting(
        None, "1 where a time is censored: no event by then.", metavar="COLUMN", key="ingest"
    )
    row_id: str | None = setting(
        None, "Ids of the rows in predictions; default: position.", metavar="COLUMN", key="ingest"
    )
    group: str | None = setting(
        None, "Groups with a random intercept, as (1 | COLUMN).", metavar="COLUMN", key="ingest"
    )
    formula_for: str | Sequence[str] = setting(
        (),
        "'sigma ~ x': columns of another parameter; repeatable.",
        kind="formulas",
        multiple=True,
        metavar="TEXT",
        key="ingest",
    )
    group_as: Mapping[str, str] | Sequence[str] | None = setting(
        None, "g=columns, g=integrated or g=crossed, of a term (1 | g).", kind="names", key="ingest"
    )
    shuffle: bool | None = setting(
        None, "Random row order, exact.  [default: yes, but with --like no]", key="ingest"
    )
    seed: int = setting(0, "Seed of the shuffle.", minimum=0, most=2**63 - 1, key="ingest")
    dtype: str = setting(
        "float32", "Dtype of the stored design.", choices=("float32", "float64"), key="ingest"
    )
    standardize: bool = setting(True, "Mean 0 and sd 1.  [default: yes]", key="ingest")
    intercept: bool = setting(True, "Add a column of ones.  [default: yes]", key="ingest")
    drop_missing: bool = setting(False, "Leave out rows with missing values.", key="ingest")
    missing: Sequence[str] | None = setting(
        None, "Missing values in CSV; default: NA, NULL, nan, ...", kind="spellings", key="ingest"
    )
    missing_as: str | Sequence[str] | None = setting(
        None,
        "Missing values: 'level' of factors, 'indicator' of numbers.",
        kind="names",
        key="ingest",
    )
    codes_above: int | None = setting(
        None,
        "Columns above which a factor is one integer a row.  [default: 64]",
        minimum=0,
        most=10**6,
        key="ingest",
    )
    cells: str | None = setting(
        None,
        "Make equal rows one weighted row; default: auto in fit without --store, else no.",
        choices=("auto", "yes", "no"),
        key="ingest",
    )
    chunk_rows: int | None = setting(None, "Rows per chunk.", minimum=1, most=10**12, key="ingest")


@dataclass(frozen=True, kw_only=True)
class TableOptions(ColumnOptions):
    """Options that decide the columns and rows of a data set.

    Parameters
    ----------
    formula
        ``"late ~ distance + C(origin)"`` instead of ``response``, ``features`` and
        ``intercept``: see the how-to on formulas.
    """

    formula: str | None = setting(
        None, "'y ~ x + C(g)': response and features in one.", metavar="TEXT", key="ingest"
    )


@dataclass(frozen=True, kw_only=True)
class LikeOption:
    """Option of a table whose columns are those of an existing store.

    Parameters
    ----------
    like : store, path or None
        A store or its path: its columns, its formula with the fitted knots and levels, and its
        standardisation are used again, for a table of rows to predict. Excludes the options
        that the store decides. The column of its row ids is used again if the table has it.
        ``None``: the options and the table decide.
    """

    like: Any = setting(None, "A store whose columns, formula and scale to use.", kind="store")


@dataclass(frozen=True, kw_only=True)
class LayoutOptions:
    """Options of the form of a store on disk.

    Parameters
    ----------
    layout : {'local', 'cloud'}
        ``local``: uncompressed chunks that are memory-mapped. ``cloud``: shards of about a
        million rows, for object stores; they are read through a cache.
    compression : {None, 'zstd'}
        Compression of the pieces of shards.
    """

    layout: str = setting(
        "local",
        "Chunks that are mapped into memory, or shards for object stores.",
        choices=("local", "cloud"),
        key="ingest",
    )
    compression: str | None = setting(
        None, "Of the shards; default: none.", choices=("zstd",), key="ingest"
    )
