"""Blocks of the table columns that a formula uses, and of the design columns made from them.

Ingestion reads the design from :class:`FormulaBlocks`, which reads columns of the table from
:class:`FormulaRows`. Where one pass is enough, :class:`EarlyScan` scans them in the pass that fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.protocols import Matrix, Vector
from streammc.stores.format.group_arrays import one_group
from streammc.stores.formula.bases import BASES, State
from streammc.stores.formula.expressions import Codes, Values, filled, finite, fitted_parts
from streammc.stores.formula.fitted import (
    FACTORS,
    Design,
    factor_node,
    has_levels,
    is_factor,
    mark_of,
    marked,
    read_design,
    remembering,
)
from streammc.stores.formula.parser import (
    MISSING,
    Call,
    Column,
    Node,
    Operation,
    Term,
    Terms,
    Text,
    argument_of,
    columns_of,
    label,
    read_terms,
    refuse_powers,
    walk,
)
from streammc.stores.formula.state_fitters import Distinct, Fitter, TextLevels, fitter
from streammc.stores.ingest.cells import CellTable, repeated
from streammc.stores.ingest.coded_factors import (
    CODED_ABOVE,
    CodedFactor,
    LevelCounts,
    coded_factors,
    lone_factors,
    stated_factors,
)
from streammc.stores.ingest.column_values import Coder, number_order
from streammc.stores.ingest.columns import (
    CENSORED,
    OTHERS,
    Columns,
    check_types,
    is_boolean,
    kind_of_column,
    require_column,
)
from streammc.stores.ingest.faults import FITTED_TEXT, Faults
from streammc.stores.ingest.ingest_options import INDICATOR, LEVEL, IngestOptions
from streammc.stores.ingest.row_labels import IdColumn
from streammc.stores.ingest.table_blocks import (
    Moments,
    ReadRecord,
    Scan,
    Scanner,
    TableBlocks,
    block_rows,
    complete_rows,
    no_rows,
)
from streammc.stores.iso_words import DATES, iso_word
from streammc.stores.sources.tables import Table


class FormulaRows(TableBlocks):
    """Blocks of the table columns in use; text, and dates as ISO text, become codes.

    ``kinds`` has the kind of each column of the formula (``formula.fitted.KINDS``); a column of
    dates is ``text``. ``orders`` has the order of the levels of each category.

    ``names`` are the columns of the formula, ``others`` numeric ones beside it, passed on
    unchanged. ``spool`` is the path of a temporary copy, if the table asks for one. ``labels`` are
    columns of row ids or of group labels, collected in the first pass. ``text`` are columns that
    are text in a fitted formula: those of a CSV file or of folders ``name=value`` are text then,
    also if every value looks like a number. ``roles`` name the use of columns in messages, such as
    ``offset``. ``fitted``: the formula is that of a store, not one to be fitted to this table.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        others: Sequence[str],
        spool: Path,
        labels: Sequence[IdColumn] = (),
        roles: Mapping[str, str] | None = None,
        text: Collection[str] = (),
        fitted: bool = False,
        watch: ReadRecord | None = None,
    ) -> None:
        for name in names:
            require_column(table, name, "a column of the formula")
        check_types(table, others, roles)
        check_types(table, names, dates=True)
        self._text = frozenset(text) & table.written
        self.booleans = frozenset(
            name for name in names if all(map(is_boolean, table.types_of(name)))
        )
        """Columns of truth values, also as categories."""
        self.kinds = {name: kind_of_column(table, name, name in self._text) for name in names}
        coders = {
            name: Coder(name, table.types_of(name), name in table.written)
            for name in names
            if self.kinds[name] == "text"
        }
        orders = {
            name: number_order(name, table.types_of(name))
            for name in names
            if self.kinds[name] == "category"
        }
        self._stand_ins: dict[str, State] = {}
        self._complete: list[int] | None = None
        super().__init__(
            table, [*names, *others], spool, coders, labels, orders, roles, fitted, watch
        )
        for name in others:
            if kind_of_column(table, name) == "text":
                raise self.text_error([name], "text")

    def checked(self, faults: Faults, *, drop_missing: bool) -> Iterator[tuple[int, Matrix]]:
        """Yield the first row number and the values (columns, rows) of each block of the table.

        The rows of a block are in the order of ``names``. Missing values are NaN; they and
        infinite values are recorded in ``faults``, with ``drop_missing`` only the latter.
        """
        for start, raw in self.first(faults):
            missing = np.isnan(raw)
            for index, name in enumerate(self.names):
                if not drop_missing and (self._complete is None or index in self._complete):
                    spelled = name in self.coders and name in self.table.written
                    kind = "missing texts" if spelled else "missing values"
                    kind = kind if self._complete is None else "missing values without a stand-in"
                    faults.add(kind, name, start, missing[index], raw[index])
                faults.add("infinite values", name, start, np.isinf(raw[index]), raw[index])
            yield start, raw

    def in_use(self, raw: Matrix) -> tuple[NDArray[np.intp], Values]:
        """Return the indices of the rows without missing values, and their values by column.

        What stands for missing values is in their place.
        """
        keep = complete_rows(raw if self._complete is None else raw[self._complete])
        chosen = raw if keep.size == raw.shape[1] else raw[:, keep]
        values: dict[str, Vector | Codes] = {}
        for name, column in zip(self.names, chosen, strict=True):
            coder = self.coders.get(name)
            values[name] = column if coder is None else Codes(column, coder.values)
        return keep, filled(values, self._stand_ins) if self._stand_ins else values

    def allow_missing(self, names: Collection[str]) -> None:
        """Keep rows with missing values in these columns."""
        complete = [index for index, name in enumerate(self.names) if name not in names]
        self._complete = complete if len(complete) < len(self.names) else None

    def stand_in(self, name: str) -> Any:
        """Return what stands for a missing value of a column; ``None`` if nothing does."""
        return self._stand_ins.get(name, {}).get("value")

    def fill_missing(self, stand_ins: Mapping[str, State]) -> None:
        """Put these values in place of missing ones, and refuse those of all other columns."""
        self._stand_ins = dict(stand_ins)
        self.allow_missing(stand_ins)

    def check_text(self, nodes: Sequence[Node], response: Node | None) -> None:
        """Refuse text where numbers are needed, and comparisons of numbers with text.

        The ``response``, one of the ``nodes``, never has levels.
        """
        for node in nodes:
            levels = has_levels(node, self.kinds) and node != response
            self._check_node(node, argument_of(node), levels)

    def absent_texts(self, nodes: Sequence[Node]) -> list[str]:
        """Return a warning for each text that a comparison names and no row has.

        To be called after the first pass over the table.
        """
        lines = []
        for part in dict.fromkeys(each for node in nodes for each in walk(node)):
            if not isinstance(part, Operation) or not isinstance(part.arguments[-1], Text):
                continue
            column, wanted = part.arguments[0], iso_word(part.arguments[-1].value)
            assert isinstance(column, Column)
            known = self.coders[column.name].values
            if wanted not in known:
                near = get_close_matches(wanted, known, n=1) or sorted(known)[:1]
                lines.append(
                    f"no row has {wanted!r} in column {column.name!r}, with which the formula "
                    f"compares it: the comparison is the same in every row; compare with a value "
                    f"of the column, such as {near[0]!r}"
                )
        return lines

    def check_kinds(self, design: Design | None) -> None:
        """Refuse a column of numbers that was text in the fit, and the reverse.

        Without a ``design`` every column must have numbers.
        """
        for name, kind_now in self.kinds.items():
            fitted = "number" if design is None else design.kinds[name]
            if kind_now == "text" and fitted != "text":
                raise self.text_error([name], "text", FITTED_TEXT)
            if fitted == "text" and kind_now != "text":
                raise DataError(
                    f"expected text in column {name!r}, as in the table that the formula was "
                    f"fitted to, found numbers in {self.table.sources[0].label}: convert the column"
                )

    def _check_node(self, node: Node, inner: Node, levels: bool) -> None:
        """Check one expression; text may be compared with text, or be the column of levels."""
        if levels and isinstance(inner, Column) and inner.name not in self.coders:
            self.levels.add(inner.name)
        if levels and isinstance(node, Column) and node.name not in self._text:
            check_types(self.table, [node.name])  # dates are a factor only inside C()
        compared = 0
        for part in walk(node):
            if isinstance(part, Operation) and isinstance(part.arguments[-1], Text):
                column = part.arguments[0]
                assert isinstance(column, Column)
                if column.name not in self.coders:
                    raise DataError(
                        f"expected text in column {column.name!r}, which the formula compares "
                        f"with {part.arguments[-1].value!r}, found numbers: compare numbers"
                    )
                compared += 1
            if isinstance(part, Call) and part.function in DATES:
                column = part.argument
                assert isinstance(column, Column)
                if column.name not in self.coders:
                    raise DataError(
                        f"expected dates in column {column.name!r}, of which the formula takes "
                        f"{part.label}, found numbers in {self.table.sources[0].label}: take the "
                        "column as it is, or write dates into the table"
                    )
                compared += 1
            if isinstance(part, Call) and part.function == MISSING:
                compared += part.argument.name in self.coders  # type: ignore[union-attr]
        columns = [part.name for part in walk(node) if isinstance(part, Column)]
        text = [name for name in columns if name in self.coders]
        if len(text) > compared and not (levels and isinstance(inner, Column)):
            raise self.text_error(text[:1], "text")


class RowReport:
    """Recorder of faults in the rows ``start + keep`` of the table, under these numbers."""

    def __init__(self, faults: Faults, start: int, keep: NDArray[np.intp]) -> None:
        self._faults = faults
        self._rows = start + keep

    def __call__(self, kind: str, name: str, bad: NDArray[np.bool_], values: Any) -> None:
        """Record the rows with ``bad`` (m,) true, with an example of ``values``."""
        positions = np.flatnonzero(bad)
        if positions.size:
            first = int(positions[0])
            row = int(self._rows[first])
            self._faults.count(kind, name, row, int(positions.size), values[first])


def other_columns(table: Table, used: Sequence[str], others: Mapping[str, str | None]) -> list[str]:
    """Return the columns of ``others`` (column by role); refuse one that the formula also uses."""
    chosen = {role: name for role, name in others.items() if name is not None}
    taken = dict.fromkeys(used, "in the formula")
    for role, name in chosen.items():
        require_column(table, name, role)
        if name in taken:
            raise DataError(
                f"expected different columns, found {name!r} {taken[name]} and as {role}"
                ": use it once"
            )
        taken[name] = f"as {role}"
    return list(chosen.values())


def _refuse_twice(column: str, terms: Terms, kinds: Mapping[str, str]) -> None:
    """Refuse a factor whose levels are columns too: their coefficients leave no effects."""
    for term in terms.terms:
        if len(term.factors) == 1 and has_levels(term.factors[0], kinds):
            name = label(term.factors[0])
            if columns_of(term.factors[0]) == [column]:
                raise DataError(
                    f"expected the levels of {column!r} as effects or as columns, found both, "
                    f"(... | {column}) and {name}: leave one out"
                )


class EarlyScan:
    """Scan of the dense columns and of the codes of a formula's factors, before its levels.

    A column of numbers without a fitted state is known before the levels are, and an indicator has
    the mean and the standard deviation of its count. Such a formula is scanned and fitted in one
    pass.

    ``others`` are the columns of ``columns.OTHERS`` by role, outside the formula. ``scored``
    says whether the table has the response. A lone factor is a term that is a factor of text and
    nothing else: its levels are counted as codes, and columns of all other terms are scanned.
    """

    def __init__(
        self,
        terms: Terms,
        kinds: Mapping[str, str],
        coders: Mapping[str, Coder],
        scored: bool,
        others: Mapping[str, str | None],
    ) -> None:
        self._terms, self._scored = terms, scored
        parts = [term for term in terms.terms if term.factors]
        self._nodes = [term.factors[0] for term in parts if _lone(term, kinds)]
        self._dense = [term for term in parts if not _lone(term, kinds)]
        self._coders = [coders[_column(node)] for node in self._nodes]
        self._counts = [np.zeros(0, np.int64) for _ in self._nodes]
        self._others = [name for name in others.values() if name is not None]
        offset = "offset" if terms.offsets else others.get("offset")
        features = tuple(f"\0{k}" for k in range(len(self._dense)))  # no column has such a name
        self._columns = Columns(
            label(terms.response) if scored else None,
            features,
            offset,
            others.get("weight"),
            others.get("trials"),
            others.get(CENSORED),
        )
        self._faults = Faults()
        self._scanner = Scanner(self._columns, self._faults, drop_missing=False, rounding=False)
        self._step = block_rows(2 * len(self._columns.names) + len(self._nodes))
        self._seen = 0

    def add(self, rows: int, used: int, values: Values) -> None:
        """Add the values (kept,) of the rows of a block that are kept, of ``rows`` in all."""
        start, self._seen = self._seen, self._seen + rows
        for k, node in enumerate(self._nodes):
            column = values[_column(node)]
            assert isinstance(column, Codes)
            counts = np.bincount(column.codes.astype(np.intp), minlength=len(self._counts[k]))
            counts[: len(self._counts[k])] += self._counts[k]
            self._counts[k] = counts
        for low in range(0, used, self._step):
            piece = slice(low, min(low + self._step, used))
            chosen = {
                name: Codes(column.codes[piece], column.values)
                if isinstance(column, Codes)
                else column[piece]
                for name, column in values.items()
            }
            self._scanner.add(start + low, self._block(chosen, piece.stop - low))

    def _block(self, values: Values, rows: int) -> Matrix:
        def report(kind: str, name: str, bad: object, _: object) -> None:
            self._faults.count(kind, name, 0, 1, "")

        block = np.empty((len(self._columns.names), rows))
        lines = iter(block)
        with np.errstate(over="ignore"):
            for term in self._dense:
                line = next(lines)
                line[:] = finite(term.factors[0], values, {}, report)
                for node in term.factors[1:]:
                    line *= finite(node, values, {}, report)
                if term.scale != "1":
                    line *= float(term.scale)
        if self._scored:
            next(lines)[:] = finite(self._terms.response, values, {}, report)
        if self._terms.offsets:
            next(lines)[:] = sum(finite(node, values, {}, report) for node in self._terms.offsets)
        for name in self._others:
            column = values[name]
            assert not isinstance(column, Codes)
            next(lines)[:] = column
        return block

    def finish(
        self, design: Design, factors: Sequence[CodedFactor], levels: LevelCounts
    ) -> Scan | None:
        """Return the scan of the design's dense columns, and add the counts to ``levels``.

        ``None`` if a value is in doubt, which another scan reports by row, or if the design has
        other columns than the terms.
        """
        named = [column for column in design.columns if column.fields]
        dense = [named[j] for j in levels.dense if j < len(named)]
        order = []
        for column in dense:
            nodes = sorted(label(node) for node, _ in column.fields)
            same = [
                k
                for k, term in enumerate(self._dense)
                if sorted(map(label, term.factors)) == nodes and float(term.scale) == column.scale
            ]
            order += same[:1]
        whole = sorted(order) == list(range(len(self._dense))) and len(order) == len(levels.dense)
        if self._faults or not whole or [each.node for each in factors] != self._nodes:
            return None
        scan = self._scanner.finish()
        for k, (factor, coder) in enumerate(zip(factors, self._coders, strict=True)):
            place = {level: code for code, level in enumerate(coder.values)}
            counts = self._counts[k]
            stated = design.states[label(factor.node)]["levels"]
            rows = [place.get(level, counts.size) for level in stated]
            by_level = np.array([counts[row] if row < counts.size else 0 for row in rows])
            levels.add_counts(k, np.bincount(factor.codes, by_level).astype(np.int64))
        first = len(self._dense)
        index = np.array([*order, *[0] * len(factors), *range(first, len(scan.mean))], np.intp)
        chosen = {
            name: getattr(scan, name)[index]
            for name in ("mean", "sd", "minimum", "maximum", "rounding")
        }
        return replace(scan, n_dropped=self._seen - scan.n_rows, **chosen)


class KnownValues:
    """What stands for missing values, of the first pass over a table.

    ``ways`` say for which columns: ``level`` for text whose levels are columns of the design,
    ``indicator`` for numbers. Columns of the response, of offsets and of dates have to be known.
    """

    def __init__(self, terms: Terms, kinds: Mapping[str, str], ways: Collection[str]) -> None:
        nodes = [part for node in terms.factors for part in walk(node)]
        dates = [part for part in nodes if isinstance(part, Call) and part.function in DATES]
        away = {
            name for node in [*terms.offsets, terms.response, *dates] for name in columns_of(node)
        }
        levels = {
            name for node in terms.factors if has_levels(node, kinds) for name in columns_of(node)
        }
        free = [name for name in terms.columns if name not in away]
        self.texts = [name for name in free if kinds[name] == "text" and LEVEL in ways]
        self._means = {
            name: Moments(1)
            for name in free
            if kinds[name] in ("number", "boolean") and name not in levels and INDICATOR in ways
        }
        self._rows = dict.fromkeys([*self.texts, *self._means], 0)

    @property
    def columns(self) -> list[str]:
        """The columns whose values may be missing."""
        return list(self._rows)

    def add(self, values: Values, counts: NDArray[np.int64] | None) -> None:
        """Add rows; each is ``counts`` (m,) rows of the table, one with ``None``."""
        for name in self._rows:
            column = values[name]
            gone = np.isnan(column.codes if isinstance(column, Codes) else column)
            self._rows[name] += int(gone.sum() if counts is None else counts[gone].sum())
            if not isinstance(column, Codes) and not gone.all():
                known = column[~gone]
                parts = [known] if counts is None else repeated(known, counts[~gone])
                for part in parts:
                    self._means[name].add(part[np.newaxis])

    def finish(self, coders: Mapping[str, Coder]) -> dict[str, State]:
        """Return what stands for the missing values of each column that has some.

        Raises
        ------
        DataError
            If a column has nothing but missing values, or already has the level for them.
        """
        found: dict[str, State] = {}
        for name, rows in self._rows.items():
            if not rows:
                continue
            if name in self.texts:
                if _MISSING_LEVEL in coders[name].values:
                    raise DataError(
                        f"expected no value {_MISSING_LEVEL!r} in column {name!r}, whose missing "
                        f"values become that level, found some: write these as missing values"
                    )
                coders[name].code(_MISSING_LEVEL)
                found[name] = {"value": _MISSING_LEVEL, "rows": rows}
                continue
            if not self._means[name].count:
                raise DataError(
                    f"expected numbers in column {name!r}, whose mean stands for missing values, "
                    f"found none: leave it out"
                )
            found[name] = {"value": float(self._means[name].finish()[0][0]), "rows": rows}
        return found


_MISSING_LEVEL: Final = "missing"


def can_scan_early(terms: Terms, kinds: Mapping[str, str]) -> bool:
    """Return whether the columns of a formula beside lone factors of text have no fitted state."""
    parts = [*terms.offsets, terms.response]
    for term in terms.terms:
        if _lone(term, kinds):
            continue
        if not term.factors and term.scale != "1":
            return False
        parts += term.factors
    return not any(
        fitted_parts(node)
        or has_levels(node, kinds)
        or (isinstance(node, Call) and node.function in BASES)
        for node in parts
    )


def _lone(term: Term, kinds: Mapping[str, str]) -> bool:
    """Return whether a term is a factor of a column of text alone."""
    if len(term.factors) != 1 or term.scale != "1" or not is_factor(term.factors[0], kinds):
        return False
    node = term.factors[0]
    inner = argument_of(node)
    return isinstance(inner, Column) and kinds[inner.name] == "text"


def _column(node: Node) -> str:
    inner = argument_of(node)
    assert isinstance(inner, Column)
    return inner.name


_TESTS = frozenset({"<", "<=", ">", ">=", "==", "!="})


class FormulaBlocks:
    """Blocks of the design of a formula, with the methods of ``TableBlocks``.

    The constructor fits the formula in one pass over the table. Each level of nested
    expressions with a state, each degree of a polynomial and the mean of a centred spline
    take one more pass.

    With ``options.like`` the formula is the fitted one of a store. The offset, weight and trials
    columns are passed on after the design. ``scored`` says whether the table has the response; the
    levels of ``factors`` become columns of the design.
    """

    def __init__(
        self,
        table: Table,
        options: IngestOptions,
        *,
        spool: Path,
        progress: Callable[[int], None],
        labels: Sequence[IdColumn],
        scored: bool,
        factors: Sequence[str] = (),
        watch: ReadRecord | None = None,
    ) -> None:
        self._drop_missing = options.drop_missing
        self._progress = progress
        self._scored = scored
        text, fitted = options.formula or "", options.like and options.like["formula"]
        others = {name: getattr(options, name) for name in OTHERS}
        terms = read_terms(text)
        if fitted is None:
            refuse_powers(text)
        own = [terms.response] if scored else []
        if terms.offsets and others.get("offset") is not None:
            raise ConfigError(
                "expected one offset, found offset(...) in the formula and --offset: leave one out"
            )
        factors = factors if fitted is None else fitted.get(FACTORS, ())
        of_response = [name for node in own for name in columns_of(node)]
        used = list(dict.fromkeys([*terms.columns, *factors, *of_response]))
        self._others = other_columns(table, used, others)
        of_labels: list[str] = []
        for column in labels:  # a factor may be one of the terms too
            taken = used if column.role == IdColumn.role else of_response
            taken = [*taken, *self._others, *of_labels]
            of_labels += other_columns(table, taken, {column.role: column.column})
        roles = {name: role for role, name in others.items() if name is not None}
        roles |= {name: "response" for node in own for name in columns_of(node)}
        known = None if fitted is None else read_design(fitted, "the store")
        wanted = () if known is None else [name for name in used if known.kinds.get(name) == "text"]
        self._rows = FormulaRows(
            table,
            used,
            self._others,
            spool,
            labels,
            roles,
            wanted,
            fitted=known is not None,
            watch=watch,
        )
        for group in terms.groups if known is None else ():
            _refuse_twice(group.column, terms, self._rows.kinds)
        self._early: EarlyScan | None = None
        self._known: KnownValues | None = None
        plain = fitted is None and not factors and not options.missing_as
        early = plain and not isinstance(table, CellTable)
        if early and can_scan_early(terms, self._rows.kinds):
            self._early = EarlyScan(terms, self._rows.kinds, self._rows.coders, scored, others)
        levels = [factor_node(name) for name in factors]
        self._rows.check_text([*terms.factors, *levels, *terms.offsets, *own], terms.response)
        if known is None:
            self.design = self._fit(terms, options, factors)
        else:
            self._rows.fill_missing(known.stand_ins)
            self._pass(True, [], {})
            self.design = known
            self._rows.check_kinds(self.design)
        self.factors = lone_factors(self.design)
        if options.like is not None:
            self.coded = stated_factors(self.design, options.like)
        else:
            above = CODED_ABOVE if options.codes_above is None else options.codes_above
            self.coded = coded_factors(self.design, above)
        features = self.design.names
        offset = " + ".join(map(label, terms.offsets)) or others.get("offset")
        self.columns = Columns(
            label(terms.response) if scored else None,
            tuple(features),
            offset,
            others.get("weight"),
            others.get("trials"),
            others.get(CENSORED),
        )
        dense = [features[j] for j in LevelCounts(self.factors, len(features)).dense]
        codes = [label(factor.node) for factor in self.factors]
        self.block_columns = replace(self.columns, features=(*dense, *codes))

    def early_scan(self, levels: LevelCounts) -> Scan | None:
        """Return the scan of the design from the fit, and add its counts to ``levels``.

        ``None`` if the fit could not make it: the blocks have to be read.
        """
        if self._early is None:
            return None
        return self._early.finish(self.design, self.factors, levels)

    @property
    def missing(self) -> Counter[str]:
        """Rows of the table with a missing value for which nothing stands, by column."""
        filled = self.design.stand_ins
        return Counter({name: n for name, n in self._rows.missing.items() if name not in filled})

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields that encode rows: none of the fit."""
        return {**vars(self), "_progress": None, "_early": None, "_known": None}

    @property
    def raw_rows(self) -> int:
        """Rows of a block of :meth:`raw`."""
        return self._rows.raw_rows

    @property
    def texts(self) -> dict[str, list[str]]:
        """What the codes of text columns stand for; see ``TableBlocks.texts``."""
        return self._rows.texts

    @property
    def divisible(self) -> bool:
        """Whether :meth:`raw` can begin at any block, in any process."""
        return self._rows.divisible

    def raw(self, first: int = 0, stop: int | None = None) -> Iterator[Matrix]:
        """Yield the values of blocks of the table columns; see ``TableBlocks.raw``."""
        return self._rows.raw(first, stop)

    def first(self, faults: Faults) -> Iterator[tuple[int, Matrix]]:
        """Yield ``(first row, block)``, block (columns, m) float64 with NaN in omitted rows.

        Its columns are ``block_columns``: the last features are one column of codes for each of
        :attr:`factors`. Values that the formula cannot compute are recorded in ``faults``.
        """
        # As many rows as of dense columns: means and scales then have the same bits.
        step = block_rows(max(len(self.columns.names), len(self._rows.names)))
        for start, raw in self._rows.again():
            for low in range(0, raw.shape[1], step):
                yield start + low, self._encode(start + low, raw[:, low : low + step], faults)

    def again(self) -> Iterator[tuple[int, Matrix]]:
        """Yield the blocks of :meth:`first` again, without a record of faults."""
        return self.first(Faults())

    def encoded(self, values: Matrix) -> Matrix:
        """Return the block of the rows ``values`` (c, m) of :meth:`raw`."""
        return self._encode(0, values, Faults())

    def absent_texts(self) -> list[str]:
        """Return a warning for each text of a comparison in the formula that no row has."""
        terms = self.design.terms
        own = [terms.response] if self._scored else []
        return self._rows.absent_texts([*terms.factors, *terms.offsets, *own])

    def _encode(self, start: int, raw: Matrix, faults: Faults) -> Matrix:
        keep, values = self._rows.in_use(raw)
        report = RowReport(faults, start, keep)
        coded = [(factor.node, factor.range) for factor in self.factors]
        others: list[Any] = [factor.encode(self.design, values, report) for factor in self.factors]
        if self._scored:
            others.append(self.design.response(values, report))
        if self.design.terms.offsets:
            others.append(self.design.offset(values, report))
        others += [values[name] for name in self._others]
        n = len(self.design.names) - sum(part.stop - part.start for _, part in coded)
        block = np.empty((n + len(others), keep.size))
        self.design.encode(values, report, block[:n], coded)
        for row, part in zip(block[n:], others, strict=True):
            row[:] = part
        if keep.size == raw.shape[1]:
            return block
        out = np.full((len(block), raw.shape[1]), np.nan)
        out[:, keep] = block
        return out

    def _fit(self, terms: Terms, options: IngestOptions, factors: Sequence[str]) -> Design:
        """Return the formula fitted to the table: the states of all expressions that have one.

        In each pass over the table those are fitted whose inner expressions have their states; a
        state may take several passes. What stands for missing values is of one more pass before,
        and so are the terms ``missing(x)``.
        """
        states: dict[str, State] = {}
        first, seed = True, int(options.seed)
        stand_ins: dict[str, State] = {}
        if options.missing_as:
            stand_ins = self._missing(terms, options.missing_as)
            first = False
            more = [name for name in stand_ins if self._rows.kinds[name] != "text"]
            added = [mark_of(name) for name in more if name not in marked(terms)]
            terms = read_terms(" + ".join([terms.text, *added]))
        for name in marked(terms):
            if name not in stand_ins:
                raise DataError(
                    f"expected missing values in column {name!r}, which the formula marks by "
                    f"missing({name}), found none that stay: "
                    + (
                        "leave it out"
                        if options.missing_as
                        else "give --missing-as indicator (in Python missing_as='indicator')"
                    )
                )
        nodes = remembering(terms, self._rows.kinds, factors)
        while first or len(states) < len(nodes):
            waiting = [node for node in nodes if label(node) not in states]
            ready = [node for node in waiting if not any(p in waiting for p in walk(node)[:-1])]
            running = [(node, self._fitter(node, seed)) for node in ready]
            while running or first:
                self._pass(first, running, states)
                first = False
                unfinished = []
                for node, fit in running:
                    state = fit.finish()
                    if state is None:
                        unfinished.append((node, fit))
                    else:
                        states[label(node)] = state
                running = unfinished
        for factor in factors:
            if len(states[label(factor_node(factor))]["levels"]) < 2:
                raise one_group(factor)
        return Design(terms, self._rows.kinds, states, factors, stand_ins)

    def _missing(self, terms: Terms, ways: Collection[str]) -> dict[str, State]:
        """Read the table once; return what stands for missing values from then on."""
        self._known = KnownValues(terms, self._rows.kinds, ways)
        self._rows.allow_missing(self._known.columns)
        self._pass(True, [], {})
        stand_ins = self._known.finish(self._rows.coders)
        self._rows.fill_missing(stand_ins)
        return stand_ins

    def _pass(
        self, first: bool, running: list[tuple[Node, Fitter]], states: dict[str, State]
    ) -> None:
        """Read the table once, and pass every row in use to the fitters of ``running``."""
        faults, seen, used = Faults(), 0, 0
        rows = self._rows
        drop = self._drop_missing
        for start, raw in rows.checked(faults, drop_missing=drop) if first else rows.again():
            keep, values = rows.in_use(raw)
            seen, used = seen + raw.shape[1], used + keep.size
            report = RowReport(faults, start, keep)
            for node, fit in running if keep.size and not faults else []:
                inner = argument_of(node)
                text = values.get(inner.name) if isinstance(inner, Column) else None
                if isinstance(text, Codes):
                    fit.add(text.codes)
                    continue
                found = finite(inner, values, states, report, label(node))
                counts = rows.table.counted(start, start + raw.shape[1])
                if counts is None or isinstance(fit, Distinct):
                    fit.add(found)
                else:
                    for part in repeated(found, counts[keep]):
                        fit.add(part)
            if first and self._known is not None and not faults:
                counts = rows.table.counted(start, start + raw.shape[1])
                self._known.add(values, None if counts is None else counts[keep])
            if first and self._early is not None and not faults:
                self._early.add(raw.shape[1], keep.size, values)
            self._progress(seen)
        faults.refuse(rows.table.locate)
        if first and not used:
            raise no_rows(rows.table, seen)

    def _fitter(self, node: Node, seed: int) -> Fitter:
        if not has_levels(node, self._rows.kinds):
            assert isinstance(node, Call)
            return fitter(node, seed)
        inner = argument_of(node)
        if isinstance(inner, Column) and inner.name in self._rows.coders:
            last = self._rows.stand_in(inner.name)
            return TextLevels(node, self._rows.coders[inner.name], last)
        order = self._rows.orders.get(inner.name) if isinstance(inner, Column) else None
        return Distinct(node, self._is_boolean(inner), order)

    def _is_boolean(self, node: Node) -> bool:
        """Return whether a numeric factor has the levels False and True."""
        if isinstance(node, Call) and node.function == "I":
            return self._is_boolean(node.argument)
        if isinstance(node, Column):
            return node.name in self._rows.booleans
        return isinstance(node, Operation) and node.operator in _TESTS
