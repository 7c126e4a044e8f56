"""The first pass of ``ingest`` over a table, and the encoding of its rows for the store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.group_table import CrossedFactor
from streammc.numerics.coded_matrix import CODE_DTYPE
from streammc.protocols import Index, Matrix, Vector
from streammc.rng import Role, stream
from streammc.stores.format.group_arrays import one_group
from streammc.stores.format.layout import (
    CELLS,
    CODES,
    CROSSED,
    GROUP,
    LEVEL,
    ROW_GROUP,
    ROW_ID,
    Effects,
    described_effects,
)
from streammc.stores.formula.encoded_blocks import FormulaBlocks
from streammc.stores.formula.fitted import DESIGNS, Design, described_stand_ins
from streammc.stores.formula.parser import Column, read_terms
from streammc.stores.in_threads import ahead
from streammc.stores.ingest.cells import (
    LEAST_PER_CELL,
    CellTable,
    NoCellsError,
    NoSumsError,
    Statistics,
    cells_of,
)
from streammc.stores.ingest.coded_factors import (
    CodedFactor,
    Expansion,
    LevelCounts,
    codes_attribute,
)
from streammc.stores.ingest.columns import (
    CENSORED,
    INTERCEPT,
    Columns,
    choose_columns,
    text_columns,
)
from streammc.stores.ingest.faults import FITTED_TEXT, Faults
from streammc.stores.ingest.ingest_options import (
    MISSING,
    IngestOptions,
    missing_spellings,
    refuse_spellings,
    unscored,
)
from streammc.stores.ingest.row_labels import (
    IdColumn,
    chosen_groups,
    group_column,
    id_column,
    level_columns,
    numbered_as,
    refuse_many,
)
from streammc.stores.ingest.shuffle import LEAF_BYTES, group_key, grouped, shuffled
from streammc.stores.ingest.table_blocks import (
    ReadRecord,
    Scan,
    Scanner,
    TableBlocks,
    checksum,
    complete_rows,
    no_rows,
)
from streammc.stores.ingest.value_checks import (
    beyond_dtype,
    check_values,
    doubtful_levels,
    large_store,
    largest,
    row_warnings,
    single_levels,
    wide_design,
)
from streammc.stores.rows.row_weights import proportions
from streammc.stores.sources.tables import Table

Progress = Callable[[int, "int | None", str], None]


class Prepared:
    """A table after the first pass: statistics, warnings, and the records of the second pass."""

    def __init__(
        self,
        table: Table,
        options: IngestOptions,
        folder: Path,
        progress: Progress | None,
        first_read: ReadRecord | None = None,
    ) -> None:
        self.first_read = first_read
        self.statistics: Statistics | None = None
        self._folder = folder
        self._progress = progress
        self.warnings: list[str] = []
        refuse_spellings(options, table)
        without = unscored(options, table)
        self._scored = without is None
        if without is not None:
            self.warnings.append(
                f"{table.sources[0].label} has no response: its rows can be predicted, not scored"
            )
            options = without
        self._ids = id_column(table, options, folder, self.warnings)
        chosen = chosen_groups(table, options)
        self.groups, grouping = chosen.integrated, chosen.columns
        self._labels = group_column(table, options, self.groups, folder, self.warnings)
        self._columns, self._levels = level_columns(
            table, options, [each.column for each in chosen.crossed], folder, self.warnings
        )
        self._effects = chosen.crossed
        self._numbered: list[NDArray[np.uint32]] = []
        """Of each factor the levels in a store of those of the table, once :meth:`number_as` is
        called."""
        labels = [each for each in (self._ids, self._labels, *self._columns) if each is not None]
        if self._levels:
            options = replace(options, cells="no")
        if options.cells in ("auto", "yes"):
            report = partial(self._report, total=table.n_rows, phase="cells")
            roles = [each.role for each in labels]
            sums = self.statistics = statistics_of(options)
            always = options.cells == "yes"
            table = cells_of(table, always, roles, report, sums, options.weight)
        self._table = table
        self._blocks: TableBlocks | FormulaBlocks
        self._design: Design | None = None
        self._designs: list[dict[str, Any]] = []
        factors: Sequence[CodedFactor] = ()
        self.codes: list[CodedFactor] = []
        early = None
        if options.formula is not None:
            self._blocks = formula = self._fit(options, labels, grouping)
            design, factors, self.codes = formula.design, formula.factors, formula.coded
            self._design = design
            self._effects = tuple(map(design.effects_of, self._effects))
            if self.groups is not None:
                self.groups = design.effects_of(self.groups)
            options = replace(options, intercept=formula.design.terms.intercept)
            self.columns, block_columns = formula.columns, formula.block_columns
            early = formula.early_scan
            if options.like is not None:
                self._designs = options.like.get(DESIGNS) or []
            elif options.driven:
                self._designs = formula.design.designs(options.driven)
            if options.like is None:
                self.warnings += doubtful_levels(formula.design)
                self.warnings += single_levels(formula.design)
                self.warnings += formula.absent_texts()
                filled = described_stand_ins(formula.design.stand_ins)
                self.warnings += [f"missing values: {line}" for line in filled]
        else:
            row_id = None if self._ids is None else self._ids.column
            self.columns = block_columns = choose_columns(table, options, row_id)
            self._blocks = TableBlocks(
                table,
                self.columns.names,
                folder / "table",
                labels=labels,
                roles=self.columns.roles,
                fitted=options.like is not None,
                watch=first_read,
            )
            text = text_columns(table, self.columns)
            if text:
                advice = None if options.like is None else FITTED_TEXT
                otherwise = (
                    "leave it out with --features, or take it as a factor: "
                    f"--formula 'y ~ C({text[0]})'"
                )
                raise self._blocks.text_error(text, "text", advice, otherwise)
        self._options = options
        # Means are subtracted if columns are standardised, but of a regression without intercept:
        # there, centring would change what the columns span. Columns without a response are
        # themselves what a model is of, and are centred.
        has_response = self._design is not None or self.columns.response is not None
        self._centred = options.standardize and (options.intercept or not has_response)
        n_features = len(self.columns.features)
        levels = LevelCounts(factors, n_features)
        self.scan = levels.widened(self._scan(block_columns, levels, early))
        self._count_levels()
        if self.groups is not None and self._labels is not None and not self._labels.several:
            raise one_group(self.groups.column)
        spelled = missing_spellings(options) is not None
        dropped, missing = self.scan.n_dropped, self._blocks.missing
        self.warnings += row_warnings(table, self.columns, dropped, missing, spelled)
        effects = () if self._design is None else self._design.effect_names
        doubts = check_values(self.columns, self.scan, options, self._centred, effects)
        # Rows to predict, or to append, are on the scale of a store, whatever they vary by.
        if options.like is None:
            means, width = self.scan.mean[:n_features], len(self.feature_names)
            sizes = [factor.columns for factor in self.codes]
            self.warnings += doubts
            self.warnings += wide_design(self._design, means, self.scan, width, sizes)
        mean, scale = self._mean, self._scale = self._standardization(n_features)
        beyond = beyond_dtype(self.scan, options.dtype, mean, scale)
        if beyond is not None:
            raise self._too_large(beyond, levels.dense.tolist())
        self.encoding = Encoding(
            block_columns,
            options.dtype,
            self.scan.y_dtype,
            mean[levels.dense],
            scale[levels.dense],
            self._id_dtype,
            None if self._labels is None else self._labels.dtype,
            GROUP if self.groups is not None else ROW_GROUP,
            len(self._levels),
            len(factors),
            isinstance(table, CellTable),
        )
        self._factors = factors
        self.expansion = self._expanding(self.encoding)

    def _count_levels(self) -> None:
        """Find the levels of factors that cross, of the rows that are kept."""
        if not self._levels:
            return
        combined = [each for each in self._levels if each not in self._columns]
        for column in (*self._columns, *combined):
            if self.scan.n_dropped:
                blocks = self._blocks.again()
                column.count((at, rows.shape[1], complete_rows(rows)) for at, rows in blocks)
            else:
                n, step = self.scan.n_rows, 1 << 20
                column.count((at, min(step, n - at), None) for at in range(0, n, step))
        for column in self._levels:
            if len(column.labels) < 2 and self._options.like is None:
                raise one_group(column.column)
            refuse_many(column.column, len(column.labels))

    def number_as(self, factors: Sequence[CrossedFactor]) -> dict[str, NDArray[Any]]:
        """Give rows their levels in the factors of a store; return the new labels of each."""
        new = {}
        for column, factor in zip(self._levels, factors, strict=True):
            levels, new[column.column] = numbered_as(factor, column.labels)
            self._numbered.append(levels)
        return new

    @property
    def crossed(self) -> dict[str, NDArray[Any]]:
        """Labels of the factors that cross, by column."""
        return {column.column: column.labels for column in self._levels}

    @property
    def effects(self) -> dict[str, Effects]:
        """Terms of the factors that cross, and if they are correlated, by column."""
        if self._options.like is not None:
            stated = self._options.like.get(CROSSED) or ()
            return {each["column"]: described_effects(each) for each in stated}
        return {each.column: (each.terms, each.correlated) for each in self._effects}

    def _expanding(self, encoding: Encoding) -> Expansion:
        """Return the expansion of the records of an encoding."""
        options = self._options
        return Expansion(
            encoding.dtype, options.intercept, options.dtype, self._factors, self.codes, self._mean,
            self._scale,
        )  # fmt: skip

    def in_order(self) -> RowReader:
        """Leave the rows in the order of the table; return what reads them so.

        The first read has to be on record.
        """
        assert self.first_read is not None
        self._options = replace(self._options, shuffle=False)
        encoding = replace(self.encoding, id_dtype=None, group_dtype=None, n_crossed=0)
        return RowReader(
            self._table,
            self._blocks,
            encoding,
            self._expanding(encoding),
            self.first_read.checksums,
            self.scan.n_dropped > 0,
        )

    def _standardization(self, n_features: int) -> tuple[Vector, Vector]:
        """Return what is subtracted from each feature, and its divisor."""
        options = self._options
        if not options.standardize:
            return np.zeros(n_features), np.ones(n_features)
        if options.like is not None:
            stored, first = options.like["standardization"], int(options.intercept)
            return np.array(stored["mean"][first:]), np.array(stored["scale"][first:])
        mean, scale = self.scan.mean[:n_features], self.scan.sd[:n_features]
        scale = np.where(scale == 0, 1.0, scale)
        mean = mean if self._centred else np.zeros(n_features)
        if self._design is not None:
            scale = np.where(self._design.levels_alone, 1.0, scale)
            mean = np.where(self._design.effects, 0.0, mean)
        # A slope without an intercept is one of the column as it is.
        alone = {name for each in self._effects if not each.intercept for name in each.terms}
        mean = np.where([name in alone for name in self.columns.features], 0.0, mean)
        return mean, scale

    def _too_large(self, feature: int, dense: Sequence[int]) -> DataError:
        """Return the error for a value that the dtype cannot hold, with its place."""
        mean, scale = np.float64(self._mean[feature]), np.float64(self._scale[feature])
        dtype, limit = self._options.dtype, largest(self._options.dtype)
        place, wider = "", False
        for start, values in self._blocks.again():
            column = values[dense.index(feature)]
            with np.errstate(over="ignore"):
                size = np.abs((column - mean) / scale)
            bad = np.flatnonzero(size > limit)
            if bad.size:
                row = int(bad[0])
                place = f"{column[row]:g} in {self._table.locate(start + row)}"
                wider = bool(size[row] <= largest("float64"))
                break
        advice = ", or make the store again with --dtype float64" if wider else ""
        return DataError(
            f"expected numbers in column {self.columns.features[feature]!r} that {dtype} can hold "
            f"on the scale of the store, (x - {mean:g}) / {scale:g} up to {limit:.3g} in size, "
            f"found {place}: correct the value{advice}"
        )

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of rows and of bytes of a row, before any compression."""
        return self.scan.n_rows, self.expansion.row_bytes

    def size_warnings(self, in_memory: bool = False) -> list[str]:
        """Return a warning if the rows take far more bytes than their source."""
        if self._options.cloud == "zstd":  # indicators are compressed to a few per cent
            return []
        # Groups are read at an address: their store has to be mapped.
        fixed = in_memory or self.groups is not None
        smaller = "" if fixed else "compress the store, --layout cloud --compression zstd"
        return large_store(self._design, self.codes, self.size, self._table.n_bytes, smaller)

    @property
    def dtype(self) -> str:
        """Dtype of the design."""
        return self._options.dtype

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of ``X``."""
        return [INTERCEPT] * self._options.intercept + list(self.columns.features)

    def records(self) -> Iterator[NDArray[Any]]:
        """Make the second pass: yield the rows as records, a slice of the expansion at a time."""
        rows = self.scan.n_rows
        dtype, step = self.encoding.dtype, self.expansion.slice_rows
        parts: Iterator[NDArray[Any]] = ahead(self._encoded())
        in_memory = rows * self.expansion.row_bytes <= LEAF_BYTES
        report = None if in_memory else lambda done: self._report(done, rows, "shuffle")
        buckets = self._folder / "buckets"
        buckets.mkdir(exist_ok=True)
        if self.groups is not None:
            key = group_key(int(self._options.seed))
            parts = grouped(
                parts, rows, dtype, buckets, key, leaf_bytes=LEAF_BYTES, progress=report
            )
        elif self._options.shuffle:
            parts = shuffled(
                parts,
                rows,
                dtype,
                buckets,
                stream(int(self._options.seed), 0, Role.SHUFFLE),
                leaf_bytes=LEAF_BYTES,
                row_bytes=self.expansion.row_bytes,
                progress=report,
            )
        done = 0
        try:
            for part in parts:
                for start in range(0, part.size, step):
                    piece = part[start : start + step]
                    done += piece.size
                    if done > rows:
                        break
                    yield piece
                    self._report(done, rows, "write")
            if done != rows:
                found = "more" if done > rows else str(done)
                raise DataError(
                    f"expected {rows} rows in the second pass, found {found}: try again"
                )
        except (DataError, IndexError, ValueError):
            # Such an error may come from a file that changed between the passes: report that.
            self._table.check_unchanged()
            raise
        self._table.check_unchanged()

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a store that describe its origin."""
        options, spellings = self._options, missing_spellings(self._options)
        standardization = None
        if options.standardize:
            standardization = {
                "mean": [0.0] * options.intercept + self._mean.tolist(),
                "scale": [1.0] * options.intercept + self._scale.tolist(),
            }
        attributes: dict[str, Any] = {
            "response": self.columns.response,
            "offset": self.columns.offset,
            "weight": self.columns.weight,
            "trials": self.columns.trials,
            **({} if self.columns.censored is None else {CENSORED: self.columns.censored}),
            "intercept": options.intercept,
            "standardization": standardization,
            "formula": self._design and self._design.document(),
            "shuffle_seed": int(options.seed) if options.shuffle else False,
            "sources": self._table.paths,
            "n_dropped": self.scan.n_dropped,
        }
        if self.encoding.cells:
            attributes[CELLS] = {"rows": self.scan.n_counted}
            if self.statistics is not None:
                attributes[CELLS]["statistics"] = self.statistics.kind
        if spellings is not None:
            attributes[MISSING] = list(spellings)
        if self._ids is not None:
            attributes[ROW_ID] = self._ids.column
        if self._design is not None and self._design.factors:
            attributes["factors"] = self._design.described_factors()
        if self._designs:
            attributes[DESIGNS] = self._designs
        if self.groups is not None:
            attributes["groups"] = self.groups.describe()
        elif self._labels is not None:
            attributes[ROW_GROUP] = self._labels.column
        return attributes

    @property
    def _id_dtype(self) -> str | None:
        """Dtype of the row ids; ``None`` if each id is the row's position in the store."""
        if self._ids is not None:
            return self._ids.dtype
        return "int64" if self._options.shuffle or self.scan.n_dropped else None

    def _fit(
        self, options: IngestOptions, labels: Sequence[IdColumn], grouping: Sequence[str]
    ) -> FormulaBlocks:
        for name in ("response", "features"):
            if getattr(options, name) is not None:
                raise ConfigError(f"expected a formula or --{name}, found both: leave out --{name}")
        if not options.intercept:
            raise ConfigError("expected the intercept in the formula: write '- 1' to leave it out")
        return FormulaBlocks(
            self._table,
            options,
            spool=self._folder / "table",
            progress=lambda done: self._report(done, self._table.n_rows, "formula"),
            labels=labels,
            scored=self._scored,
            factors=grouping,
            watch=self.first_read,
        )

    def _report(self, done: int, total: int | None, phase: str) -> None:
        if self._progress is not None:
            self._progress(done, total, phase)

    def _encoded(self) -> Generator[NDArray[Any]]:
        for start, values in self._blocks.again():
            ids = None
            if self._ids is not None:
                ids = self._ids.read(start, values.shape[1])
            elif self._id_dtype is not None:
                ids = np.arange(start, start + values.shape[1])
            labels = None if self._labels is None else self._labels.read(start, values.shape[1])
            levels = [column.levels(start, values.shape[1]) for column in self._levels]
            counts = self._table.counted(start, start + values.shape[1])
            if self.scan.n_dropped:
                complete = complete_rows(values)
                values, ids = values[:, complete], None if ids is None else ids[complete]
                labels = None if labels is None else labels[complete]
                levels = [each[complete] for each in levels]
                counts = None if counts is None else counts[complete]
            if self._numbered:
                pairs = zip(self._numbered, levels, strict=True)
                levels = [numbered[each] for numbered, each in pairs]
            yield self.encoding.encode(values, ids, labels, counts, levels)

    def codes_attribute(self) -> list[dict[str, Any]]:
        """Return the coded factors as in the attribute ``codes`` of a store."""
        return [] if self._design is None else codes_attribute(self.codes, self._design)

    def _scan(
        self,
        columns: Columns,
        levels: LevelCounts,
        early: Callable[[LevelCounts], Scan | None] | None,
    ) -> Scan:
        options, faults = self._options, Faults()
        rounding = options.dtype == "float32" and not self._centred
        scan = None if early is None or rounding else early(levels)
        if scan is not None:
            return scan
        drop = options.drop_missing
        scanner = Scanner(
            columns,
            faults,
            drop_missing=drop,
            rounding=rounding,
            count=levels.add,
            counted=self._table.counted,
        )
        for start, values in self._blocks.first(faults):
            scanner.add(start, values)
            self._report(scanner.seen, self._table.n_rows, "scan")
        scan = scanner.finish()
        faults.refuse(self._table.locate, self.columns.roles)
        if scan.n_rows == 0:
            raise no_rows(self._table, scan.n_dropped)
        return scan


def prepared_table(
    table: Table,
    options: IngestOptions,
    folder: Path,
    progress: Progress | None,
    first_read: ReadRecord | None = None,
) -> Prepared:
    """Return a table after its first pass: its cells, where the options and the rows allow it.

    ``first_read`` records that of rows, and not that of cells.

    Raises
    ------
    DataError
        If the rows make no cells, and they are not to be kept (``cells="yes"``). A fault is found
        among the cells, and reported by the rows, which are read again for it.
    """
    by_rows = replace(options, cells="no")
    if options.cells not in ("auto", "yes"):
        return Prepared(table, by_rows, folder, progress, first_read)
    own = folder / f"cells-{options.sufficient}"
    own.mkdir()  # labels of cells are others than those of rows
    try:
        return Prepared(table, options, own, progress)
    except NoSumsError:
        return prepared_table(
            table, replace(options, sufficient=None), folder, progress, first_read
        )
    except NoCellsError as error:
        if options.cells == "yes":
            raise DataError(
                f"expected rows that make cells, of {LEAST_PER_CELL} rows and more each, with "
                f"--cells yes in {table.sources[0].label}, found {error}: leave it out"
            ) from None
    except DataError:
        made = Prepared(table, by_rows, folder, progress, first_read)
        if options.cells == "auto":
            return made
        raise
    return Prepared(table, by_rows, folder, progress, first_read)


def statistics_of(options: IngestOptions) -> Statistics | None:
    """Return the response whose sums suffice; ``None`` if it is no column used as it is."""
    if options.sufficient is None or (options.trials or options.censored) is not None:
        return None
    name = options.response
    if options.formula is not None:
        node = read_terms(options.formula).response
        name = node.name if isinstance(node, Column) else None
    return None if name is None else Statistics(name, options.sufficient)


@dataclass(frozen=True)
class Encoding:
    """Encoder of table blocks as records.

    A record has, if there are any, the fields ``X`` of dense columns without the intercept, and
    ``codes`` (K,), ``y``, ``offset`` and ``weight``; ``coded_factors.Expansion`` makes the
    arrays of a store of it. With trials ``y`` is the proportion of successes, and
    ``weight`` is multiplied by the trials; that of a cell by its rows. Of a time that is censored
    ``y`` is minus the time. The last fields are
    ``row_id``, ``group`` or ``row_group`` and ``level`` (F,), if there are row ids, labels of
    groups or factors that cross.
    """

    columns: Columns
    x_dtype: str
    y_dtype: str | None
    mean: Vector
    """(number of dense features,) subtracted from them; zeros without standardisation."""
    scale: Vector
    """(number of dense features,) their divisors; ones without standardisation."""
    id_dtype: str | None = None
    """Dtype of the row ids, ``int64`` or ``S`` and a length; ``None`` if not stored."""
    group_dtype: str | None = None
    """Dtype of the labels of the groups, likewise."""
    group_field: str = GROUP
    """``group`` if rows are brought together, ``row_group`` if they keep their order."""
    n_crossed: int = 0
    """Number of factors that cross."""
    n_codes: int = 0
    """Number of coded factors, the last of the features of a block."""
    cells: bool = False
    """Whether each row is a cell, of which the weight counts the rows."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Structured dtype of a record."""
        fields: list[tuple[Any, ...]] = []
        if len(self.mean):
            fields.append(("X", self.x_dtype, (len(self.mean),)))
        if self.n_codes:
            fields.append((CODES, CODE_DTYPE, (self.n_codes,)))
        for name, there, dtype in (
            ("y", self.columns.response is not None, self.y_dtype),
            ("offset", self.columns.offset is not None, "float64"),
            ("weight", self.weighted, "float64"),
        ):
            if there:
                fields.append((name, dtype))
        for name, dtype in ((ROW_ID, self.id_dtype), (self.group_field, self.group_dtype)):
            if dtype is not None:
                fields.append((name, dtype))
        if self.n_crossed:
            fields.append((LEVEL, "uint32", (self.n_crossed,)))
        return np.dtype(fields)

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.cells or (self.columns.weight or self.columns.trials) is not None

    def encode(
        self,
        values: Matrix,
        ids: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
        counts: Index | None = None,
        levels: Sequence[NDArray[np.uint32]] = (),
    ) -> NDArray[Any]:
        """Return the records (m,) of a block ``values`` (c, m): X = (x - mean) / scale.

        ``ids`` (m,) are the row ids and ``labels`` (m,) those of the groups, if there are any;
        ``counts`` (m,) the rows of cells; ``levels`` (m,) those of each factor that crosses others.
        """
        records = np.empty(values.shape[1], self.dtype)
        dense = len(self.mean)
        for index in range(dense):
            records["X"][:, index] = (values[index] - self.mean[index]) / self.scale[index]
        if self.n_codes:
            records[CODES] = values[dense : dense + self.n_codes].T
        for name, column in (
            ("y", self.columns.response),
            ("offset", self.columns.offset),
            ("weight", self.columns.weight),
        ):
            position = self.columns.index(column)
            if position is not None:
                records[name] = values[position]
        trials = self.columns.index(self.columns.trials)
        if trials is not None:
            records["y"] = proportions(
                values[self.columns.index(self.columns.response)], values[trials]
            )
            records["weight"] = values[trials]
            if self.columns.weight is not None:
                records["weight"] *= values[self.columns.index(self.columns.weight)]
        censored = self.columns.index(self.columns.censored)
        if censored is not None:
            np.negative(records["y"], out=records["y"], where=values[censored] == 1)
        if counts is not None:
            weighted = (self.columns.weight or self.columns.trials) is not None
            records["weight"] = records["weight"] * counts if weighted else counts
        if self.id_dtype is not None:
            records[ROW_ID] = ids
        if self.group_dtype is not None:
            records[self.group_field] = labels
        for number, each in enumerate(levels):
            records[LEVEL][:, number] = each
        return records


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of a table again, in its order and as often as needed, in any process."""

    table: Table
    source: TableBlocks | FormulaBlocks
    encoding: Encoding
    expansion: Expansion
    checksums: Sequence[int]
    """Of the blocks of the first read: rows have to stay as they were."""
    drops: bool
    """Whether rows with missing values are left out."""

    @property
    def divisible(self) -> bool:
        """Whether a read can begin at any block."""
        return self.source.divisible and not self.drops

    def blocks(self, first: int = 0, stop: int | None = None) -> Iterator[Matrix]:
        """Yield blocks (c, m) of the table as they are read; all, or some of a divisible one.

        Raises
        ------
        DataError
            If they are not those of the first read.
        """
        last, number = len(self.checksums) if stop is None else stop, first
        try:
            for values in self.source.raw(first, stop):
                if number >= last or checksum(values) != self.checksums[number]:
                    raise self._changed()
                yield values
                number += 1
            if number < last:
                raise self._changed()
        except (DataError, IndexError, ValueError):
            # Such an error may come from a file that changed between the reads: report that.
            self.table.check_unchanged()
            raise
        self.table.check_unchanged()

    def arrays(self, values: Matrix) -> dict[str, NDArray[Any]]:
        """Return the arrays of a store of some rows (c, m) of a block, by name."""
        block = self.source.encoded(values)
        if self.drops:
            block = block[:, complete_rows(block)]
        records = self.encoding.encode(block)
        arrays, step = self.expansion.empty(len(records)), self.expansion.slice_rows
        for start in range(0, len(records), step):
            part = {name: each[start : start + step] for name, each in arrays.items()}
            self.expansion.write(records[start : start + step], part)
        return arrays

    def _changed(self) -> DataError:
        return DataError(
            f"expected the rows of the first read of {self.table.sources[0].label}, found others: "
            "wait until no program writes to it, and begin again"
        )
