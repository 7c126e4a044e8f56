"""Blocks of the design columns that a formula computes from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streammc.errors import ConfigError, DataError
from streammc.protocols import Matrix
from streammc.stores.format.group_arrays import one_group
from streammc.stores.formula.coded_factors import (
    CODED_ABOVE,
    coded_factors,
    lone_factors,
    stated_factors,
)
from streammc.stores.formula.early_scan import EarlyScan, can_scan_early
from streammc.stores.formula.factor_columns import factor_node
from streammc.stores.formula.factor_fit import Distinct, TextLevels
from streammc.stores.formula.fit import Fitter, fitter
from streammc.stores.formula.fitted import FACTORS, Design, is_factor, read_design, remembering
from streammc.stores.formula.nodes import Call, Column, Node, Operation, columns_of, label, walk
from streammc.stores.formula.terms import Terms, read_terms, refuse_powers
from streammc.stores.formula.used_columns import FormulaRows, RowReport, other_columns
from streammc.stores.formula.values import Codes, State, finite
from streammc.stores.ingest.columns import Columns
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.level_counts import LevelCounts
from streammc.stores.ingest.scan import Scan
from streammc.stores.ingest.table_blocks import block_rows
from streammc.stores.rows.row_ids import IdColumn
from streammc.stores.sources.tables import Table

_TESTS = frozenset({"<", "<=", ">", ">=", "==", "!="})


class FormulaBlocks:
    """Blocks of the design of a formula, with the methods of ``TableBlocks``.

    The constructor fits the formula in one pass over the table. Each level of nested
    expressions with a state, each degree of a polynomial and the mean of a centred spline
    take one more pass.

    Parameters
    ----------
    table
        The table to read.
    options
        The formula, or with ``options.like`` the fitted formula of a store; the offset, weight
        and trials columns, passed on after the design; the treatment of missing values; the
        seed of the sample for knots.
    spool
        Path for a temporary copy of the columns in use, if the table asks for one.
    progress
        Called with the number of rows read so far, in each pass.
    labels
        Columns of row ids or of group labels, collected in the first pass.
    scored
        Whether the table has the response of the formula.
    factors
        Grouping columns whose levels become columns of the design.

    Raises
    ------
    ConfigError
        If the formula is not allowed.
    DataError
        If it does not fit the table, or values are missing or cannot be used.
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
    ) -> None:
        self._drop_missing = options.drop_missing
        self._progress = progress
        self._scored = scored
        text, fitted = options.formula or "", options.like and options.like["formula"]
        others = {name: getattr(options, name) for name in ("offset", "weight", "trials")}
        terms = read_terms(text)
        if fitted is None:
            refuse_powers(text)
        own = [terms.response] if scored else []
        if terms.offsets and others.get("offset") is not None:
            raise ConfigError(
                "expected one offset, found offset(...) in the formula and --offset: leave one out"
            )
        factors = factors if fitted is None else fitted.get(FACTORS, ())
        of_response = (name for node in own for name in columns_of(node))
        used = list(dict.fromkeys([*terms.columns, *factors, *of_response]))
        self._others = other_columns(table, used, others)
        if labels:
            names = {column.role: column.column for column in labels}
            other_columns(table, [*used, *self._others], names)
        roles = {name: role for role, name in others.items() if name is not None}
        roles |= {name: "response" for node in own for name in columns_of(node)}
        known = None if fitted is None else read_design(fitted, "the store")
        wanted = () if known is None else [name for name in used if known.kinds.get(name) == "text"]
        self._rows = FormulaRows(table, used, self._others, spool, labels, roles, wanted)
        self._rows.fitted = known is not None
        self._early: EarlyScan | None = None
        if fitted is None and not factors and can_scan_early(terms, self._rows.kinds):
            self._early = EarlyScan(terms, self._rows.kinds, self._rows.coders, scored, others)
        levels = [factor_node(name) for name in factors]
        self._rows.check_text([*terms.factors, *levels, *terms.offsets, *own], terms.response)
        if known is None:
            self.design = self._fit(terms, int(options.seed), factors)
        else:
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

    def absent_texts(self) -> list[str]:
        """Return a warning for each text of a comparison in the formula that no row has."""
        terms = self.design.terms
        own = [terms.response] if self._scored else []
        return self._rows.absent_texts([*terms.factors, *terms.offsets, *own])

    def find_text(self, names: Sequence[str], faults: Faults) -> None:
        """Do nothing: the fit of the formula has already searched for text."""

    def _encode(self, start: int, raw: Matrix, faults: Faults) -> Matrix:
        keep, values = self._rows.kept(raw)
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

    def _fit(self, terms: Terms, seed: int, factors: Sequence[str]) -> Design:
        states: dict[str, State] = {}
        nodes = remembering(terms, self._rows.kinds, factors)
        first = True
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
        return Design(terms, self._rows.kinds, states, factors)

    def _pass(
        self, first: bool, running: list[tuple[Node, Fitter]], states: dict[str, State]
    ) -> None:
        """Read the table once, and pass every row in use to the fitters of ``running``."""
        faults, seen, kept = Faults(), 0, 0
        rows = self._rows
        drop = self._drop_missing
        for start, raw in rows.first(faults, drop_missing=drop) if first else rows.again():
            keep, values = rows.kept(raw)
            seen, kept = seen + raw.shape[1], kept + keep.size
            report = RowReport(faults, start, keep)
            for node, fit in running if keep.size and not faults else []:
                inner = node.argument if isinstance(node, Call) else node
                text = values.get(inner.name) if isinstance(inner, Column) else None
                if isinstance(text, Codes):
                    fit.add(text.codes)
                else:
                    fit.add(finite(inner, values, states, report, label(node)))
            if first and self._early is not None and not faults:
                self._early.add(raw.shape[1], keep.size, values)
            self._progress(seen)
        faults.refuse(rows.table.locate)
        if first and not kept:
            lost = f"{seen} rows, all with missing values" if seen else "none"
            raise DataError(
                f"expected at least one row in {rows.table.sources[0].label}, found {lost}"
                ": check the file"
            )

    def _fitter(self, node: Node, seed: int) -> Fitter:
        if not is_factor(node, self._rows.kinds):
            assert isinstance(node, Call)
            return fitter(node, seed)
        inner = node.argument if isinstance(node, Call) else node
        if isinstance(inner, Column) and inner.name in self._rows.coders:
            return TextLevels(node, self._rows.coders[inner.name])
        order = self._rows.orders.get(inner.name) if isinstance(inner, Column) else None
        return Distinct(node, self._is_boolean(inner), order)

    def _is_boolean(self, node: Node) -> bool:
        """Return whether a numeric factor has the levels False and True."""
        if isinstance(node, Call) and node.function == "I":
            return self._is_boolean(node.argument)
        if isinstance(node, Column):
            return node.name in self._rows.booleans
        return isinstance(node, Operation) and node.operator in _TESTS
