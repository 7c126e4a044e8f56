"""Blocks of the table columns that a formula uses, as numbers and codes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.protocols import Matrix, Vector
from streammc.stores.formula.fitted import Design, is_factor
from streammc.stores.formula.nodes import Call, Column, Node, Operation, Text, walk
from streammc.stores.formula.values import Codes, Values
from streammc.stores.ingest.columns import check_types, require_column
from streammc.stores.ingest.exact_values import iso_word, kind
from streammc.stores.ingest.faults import FITTED_TEXT, LATE_TEXT, Faults
from streammc.stores.ingest.level_values import Coder, number_order
from streammc.stores.ingest.missing import kept_rows
from streammc.stores.ingest.table_blocks import TableBlocks
from streammc.stores.rows.row_ids import IdColumn
from streammc.stores.sources.csv_source import NotANumberError
from streammc.stores.sources.tables import Table


class FormulaRows:
    """Blocks of the table columns in use; text, and dates as ISO text, become codes.

    ``kinds`` has the kind of each column of the formula (``formula.fitted.KINDS``); a column of
    dates is ``text``. ``orders`` has the order of the levels of each category.

    Parameters
    ----------
    table
        The table to read.
    names
        Columns of the formula.
    others
        Numeric columns beside the formula, such as weights: passed on unchanged.
    spool
        Path for a temporary copy of the columns, if the table asks for one.
    labels
        Columns of row ids or of group labels, collected in the first pass.
    roles
        See :meth:`streammc.stores.ingest.faults.Faults.refuse`.
    text
        Columns that are text in a fitted formula: those of a CSV file or of folders ``name=value``
        are text then, also if every value looks like a number.

    Raises
    ------
    DataError
        If a column does not exist or is of a type that is neither number nor text nor date.
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
    ) -> None:
        self.table = table
        self._roles = roles
        self.fitted = False
        """Whether the columns have to be as in the table that the formula was fitted to."""
        for name in names:
            require_column(table, name, "a column of the formula")
        self.names = [*names, *others]
        check_types(table, others, roles)
        check_types(table, names, dates=True)
        self._text = frozenset(text) & table.written
        self.booleans = frozenset(
            name for name in names if all(map(_is_boolean, table.types_of(name)))
        )
        """Columns of truth values, also as categories."""
        self.kinds = {name: _kind(table, name, name in self._text) for name in names}
        self.coders = {
            name: Coder(name, table.types_of(name), name in table.written)
            for name in names
            if self.kinds[name] == "text"
        }
        self.orders = {
            name: number_order(name, table.types_of(name))
            for name in names
            if self.kinds[name] == "category"
        }
        self._blocks = TableBlocks(table, self.names, spool, self.coders, labels, self.orders)
        for name in others:
            if _kind(table, name) == "text":
                raise self.text_error("text", [name])

    def first(self, faults: Faults, *, drop_missing: bool) -> Iterator[tuple[int, Matrix]]:
        """Yield the first row number and the values (columns, rows) of each block of the table.

        The rows of a block are in the order of ``names``. Missing values are NaN; they and
        infinite values are recorded in ``faults``, with ``drop_missing`` only the latter.

        Raises
        ------
        DataError
            If a column of numbers has text in it.
        """
        try:
            for start, raw in self._blocks.first(faults):
                missing = np.isnan(raw)
                for index, name in enumerate(self.names):
                    if not drop_missing:
                        spelled = name in self.coders and name in self.table.written
                        found = "missing texts" if spelled else "missing values"
                        faults.add(found, name, start, missing[index], raw[index])
                    faults.add("infinite values", name, start, np.isinf(raw[index]), raw[index])
                yield start, raw
        except NotANumberError as error:
            advice = FITTED_TEXT if self.fitted else LATE_TEXT
            raise self.text_error(str(error), advice=advice) from error

    def again(self) -> Iterator[tuple[int, Matrix]]:
        """Yield the blocks of :meth:`first` again."""
        return self._blocks.again()

    def kept(self, raw: Matrix) -> tuple[NDArray[np.intp], Values]:
        """Return the indices of the rows without missing values, and their values by column."""
        keep = kept_rows(raw)
        chosen = raw if keep.size == raw.shape[1] else raw[:, keep]
        values: dict[str, Vector | Codes] = {}
        for name, column in zip(self.names, chosen, strict=True):
            coder = self.coders.get(name)
            values[name] = column if coder is None else Codes(column, coder.values)
        return keep, values

    def check_text(self, nodes: Sequence[Node], response: Node | None) -> None:
        """Refuse text where numbers are needed, and comparisons of numbers with text.

        Parameters
        ----------
        nodes
            Expressions of the formula: factors, offsets and the response.
        response
            The one that is the response, which never has levels.

        Raises
        ------
        DataError
            With the name of the column, and the first row with text.
        """
        for node in nodes:
            has_levels = is_factor(node, self.kinds) and node != response
            self._check_node(node, node.argument if isinstance(node, Call) else node, has_levels)

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

        Parameters
        ----------
        design
            The fitted formula; ``None`` requires numbers in every column.

        Raises
        ------
        DataError
            With the name of the column, and the first row with text.
        """
        for name, found in self.kinds.items():
            fitted = "number" if design is None else design.kinds[name]
            if found == "text" and fitted != "text":
                raise self.text_error("text", [name], FITTED_TEXT)
            if fitted == "text" and found != "text":
                raise DataError(
                    f"expected text in column {name!r}, as in the table that the formula was "
                    f"fitted to, found numbers in {self.table.sources[0].label}: convert the column"
                )

    def _check_node(self, node: Node, inner: Node, has_levels: bool) -> None:
        """Check one expression; text may be compared with text, or be the column of levels."""
        if has_levels and isinstance(inner, Column) and inner.name not in self.coders:
            self._blocks.levels.add(inner.name)
        if has_levels and isinstance(node, Column) and node.name not in self._text:
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
        columns = [part.name for part in walk(node) if isinstance(part, Column)]
        text = [name for name in columns if name in self.coders]
        if len(text) > compared and not (has_levels and isinstance(inner, Column)):
            raise self.text_error("text", text[:1])

    def text_error(
        self, found: str, names: Sequence[str] = (), advice: str | None = None
    ) -> DataError:
        """Search the table for text in numeric columns; return the error with its place.

        ``advice`` replaces the usual one, to take the column as a factor.
        """
        faults = Faults()
        names = names or [name for name in self.names if name not in self.coders]
        self._blocks.find_text(names, faults)
        try:
            faults.refuse(self.table.locate, self._roles, advice)
        except DataError as error:
            return error
        advice = advice or "take it as a factor, C(column)"
        return DataError(
            f"expected numbers in column {names[0]!r} of {self.table.sources[0].label}, found "
            f"{found}: convert it, or {advice}"
        )


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
    """Return the columns of ``others`` (column by role); refuse one that the formula also uses.

    Raises
    ------
    DataError
        If a column does not exist, or is used twice.
    """
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


def _kind(table: Table, name: str, text: bool = False) -> str:
    """Return the kind of a column over all sources; ``text`` if it is read as such."""
    types = table.types_of(name)
    if text or {"text", "date"} & {kind(type_) for type_ in types}:
        return "text"
    if any(pa.types.is_dictionary(type_) for type_ in types):
        return "category"
    return "boolean" if all(map(_is_boolean, types)) else "number"


def _is_boolean(type_: Any) -> bool:
    """Return whether an Arrow type is of truth values, or of categories of them."""
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_boolean(inner))
