"""The scan of a formula's columns in the pass that finds the levels of its factors.

A column of numbers without a fitted state is known before the levels are, and an indicator has
the mean and the standard deviation of its count. Such a formula is scanned and fitted in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from streammc.protocols import Matrix
from streammc.stores.formula.coded_factors import CodedFactor
from streammc.stores.formula.fit import fitted_parts
from streammc.stores.formula.fitted import Design, is_factor
from streammc.stores.formula.nodes import Call, Column, Node, label
from streammc.stores.formula.terms import Term, Terms
from streammc.stores.formula.values import Codes, Values, finite
from streammc.stores.ingest.columns import Columns
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.level_counts import LevelCounts
from streammc.stores.ingest.level_values import Coder
from streammc.stores.ingest.scan import Scan, Scanner
from streammc.stores.ingest.table_blocks import block_rows

_SEVERAL = ("poly", "bs", "cr", "cc")


class EarlyScan:
    """Scan of the dense columns and of the codes of a formula's factors, before its levels.

    Parameters
    ----------
    terms
        The formula, which :func:`can_scan_early` accepts.
    kinds
        Kind of each column of the table.
    coders
        Coders of the text columns.
    scored
        Whether the table has the response.
    others
        Names of the offset, weight and trials columns by role, outside the formula.
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
        )
        self._faults = Faults()
        self._scanner = Scanner(self._columns, self._faults, drop_missing=False, rounding=False)
        self._step = block_rows(2 * len(self._columns.names) + len(self._nodes))
        self._seen = 0

    def add(self, rows: int, kept: int, values: Values) -> None:
        """Add the values (kept,) of the rows of a block that are kept, of ``rows`` in all."""
        start, self._seen = self._seen, self._seen + rows
        for k, node in enumerate(self._nodes):
            column = values[_column(node)]
            assert isinstance(column, Codes)
            found = np.bincount(column.codes.astype(np.intp), minlength=len(self._counts[k]))
            found[: len(self._counts[k])] += self._counts[k]
            self._counts[k] = found
        for low in range(0, kept, self._step):
            piece = slice(low, min(low + self._step, kept))
            chosen = {
                name: Codes(column.codes[piece], column.values)
                if isinstance(column, Codes)
                else column[piece]
                for name, column in values.items()
            }
            self._scanner.add(start + low, self._block(chosen, piece.stop - low))

    def _block(self, values: Values, rows: int) -> Matrix:
        def report(kind: str, name: str, bad: object, found: object) -> None:
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
        found = self._scanner.finish()
        for k, (factor, coder) in enumerate(zip(factors, self._coders, strict=True)):
            place = {level: code for code, level in enumerate(coder.values)}
            counts = self._counts[k]
            stated = design.states[label(factor.node)]["levels"]
            rows = [place.get(level, counts.size) for level in stated]
            by_level = np.array([counts[row] if row < counts.size else 0 for row in rows])
            levels.add_counts(k, np.bincount(factor.codes, by_level).astype(np.int64))
        first = len(self._dense)
        index = np.array([*order, *[0] * len(factors), *range(first, len(found.mean))], np.intp)
        chosen = {
            name: getattr(found, name)[index]
            for name in ("mean", "sd", "minimum", "maximum", "rounding")
        }
        return replace(found, n_dropped=self._seen - found.n_rows, **chosen)


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
        or is_factor(node, kinds)
        or (isinstance(node, Call) and node.function in _SEVERAL)
        for node in parts
    )


def _lone(term: Term, kinds: Mapping[str, str]) -> bool:
    """Return whether a term is a factor of a column of text alone."""
    if len(term.factors) != 1 or term.scale != "1" or not is_factor(term.factors[0], kinds):
        return False
    node = term.factors[0]
    inner = node.argument if isinstance(node, Call) else node
    return isinstance(inner, Column) and kinds[inner.name] == "text"


def _column(node: Node) -> str:
    inner = node.argument if isinstance(node, Call) else node
    assert isinstance(inner, Column)
    return inner.name
