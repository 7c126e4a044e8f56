"""Labels of groups: integers or texts, one for each row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.group_table import GroupTable
from streammc.stores.format.group_arrays import group_starts, one_group
from streammc.stores.format.layout import ROW_GROUP
from streammc.stores.formula.group_terms import GroupTerms
from streammc.stores.formula.nodes import Column
from streammc.stores.ingest.columns import check_zones
from streammc.stores.ingest.exact_values import iso_text
from streammc.stores.ingest.exact_values import kind as kind_of
from streammc.stores.ingest.faults import Faults
from streammc.stores.rows.row_ids import IdColumn, append, converted, plain
from streammc.stores.sources.tables import Table

if TYPE_CHECKING:
    from streammc.stores.ingest.ingest_options import IngestOptions


class GroupColumn(IdColumn):
    """Labels of the groups of a table, kept like row ids.

    Booleans become 0 and 1, dates ISO text; NaN is missing.

    Parameters
    ----------
    table, column, folder
        As of ``IdColumn``.
    drop_missing
        Mark rows without a label, to be left out, instead of refusing them.

    Raises
    ------
    DataError
        If the column does not exist, or holds neither integers nor text nor dates.
    """

    role: ClassVar[str] = "group"
    what: ClassVar[str] = "group labels"

    def __init__(self, table: Table, column: str, folder: Path, drop_missing: bool) -> None:
        super().__init__(table, column, folder)
        check_zones(table, column)
        self.several = False
        """Whether two rows had different labels."""
        self._first: Any = None
        self._flags = folder / "group.missing" if drop_missing else None

    @staticmethod
    def kind(type_: Any) -> str:
        """Return ``"number"``, ``"text"`` or ``"other"`` for an Arrow type."""
        return _label_kind(type_)

    def add(self, array: Any, start: int, faults: Faults) -> None:
        """Add the labels of the rows from number ``start``; record unusable ones in ``faults``."""
        import pyarrow as pa
        import pyarrow.compute as pc

        array = _label_array(array)
        if not self.several and array.null_count < len(array):
            known = array.drop_null()
            self._first = known[0] if self._first is None else self._first
            self.several = bool(pc.any(pc.not_equal(known, self._first.cast(known.type))).as_py())
        if self._flags is not None:
            append(self._flags, array.is_null().to_numpy(zero_copy_only=False))
            if array.null_count:  # any label will do: the row is left out
                array = pc.fill_null(array, pa.scalar("0").cast(array.type))
        super().add(array, start, faults)

    def missing(self, start: int, count: int) -> NDArray[np.bool_] | None:
        """Return the rows to leave out (m,) among ``count`` from ``start``; ``None``: none are."""
        if self._flags is None:
            return None
        return np.fromfile(self._flags, np.bool_, count, offset=start)


def _in_memory(values: Any, n_rows: int) -> NDArray[Any]:
    """Return labels given as an array: (n,) int64, or UTF-8 texts as bytes of one width.

    Raises
    ------
    DataError
        If they are neither integers nor text nor dates, or not ``n_rows``, or one is missing.
    """
    import pyarrow as pa

    given = np.asarray(values, object if isinstance(values, (list, tuple)) else None)
    if given.shape != (n_rows,):
        raise DataError(
            f"expected {n_rows} values of groups, as X has, found shape {given.shape}"
            ": pass one label per row"
        )
    if given.dtype.kind not in "biufUM":
        given = given.astype(object)
    try:
        array = pa.array(given, from_pandas=True)
    except (ValueError, TypeError, OverflowError):
        raise DataError(
            f"expected integers or text as groups, found {type(given[0]).__name__}: convert them"
        ) from None
    if _label_kind(array.type) == "other":
        raise DataError(f"expected integers or text as groups, found {array.type}: convert them")
    return converted(_label_array(array), "groups", GroupColumn.what)


def group_column(
    table: Table,
    options: IngestOptions,
    groups: GroupTerms | None,
    folder: Path,
    messages: list[str],
) -> GroupColumn | None:
    """Return the column of the groups, or that of the store ``options.like``; or ``None``.

    If the table lacks the column of that store, ``messages`` gets a line.
    """
    name = None if groups is None else groups.column
    if options.like is not None:
        name = (options.like.get("groups") or {}).get("column", options.like.get(ROW_GROUP))
        if name is not None and name not in table:
            messages.append(
                f"no column {name!r}, the groups of the store given to --like: the rows are "
                "predicted as those of new groups"
            )
            name = None
    return None if name is None else GroupColumn(table, name, folder, options.drop_missing)


def arrange(
    effects: tuple[Any, Sequence[str], bool],
    features: Sequence[str],
    arrays: Sequence[NDArray[Any]],
    ids: NDArray[Any] | None,
) -> tuple[list[NDArray[Any]], NDArray[Any], GroupTable]:
    """Return arrays of rows, and their ids, group by group; and the groups.

    Parameters
    ----------
    effects
        The labels (n,), the terms, and whether they are correlated, as of ``from_arrays``.
    features
        Names of the columns of the first array.
    arrays
        (n, ..) each, or empty.
    ids
        (n,) row ids. ``None``: the numbers of the rows.

    Raises
    ------
    ConfigError
        If the terms are not an intercept and at most one feature, or there are no groups.
    DataError
        If the labels cannot be used.
    """
    from streammc.stores.ingest.grouping import group_key, group_order

    groups, given, correlated = effects
    terms = (given,) if isinstance(given, str) else tuple(given)
    if groups is None:
        raise ConfigError(
            f"expected groups with the terms {terms[:5]!r}, found none: pass the labels as groups"
        )
    if terms[:1] != ("1",) or len(terms) > 2 or any(name not in features for name in terms[1:]):
        raise ConfigError(
            f"expected ('1',) or ('1', name of a feature) as terms, found {terms[:5]!r}: give an "
            "intercept and at most one slope"
        )
    labels = _in_memory(groups, len(arrays[0]))
    order = group_order(labels, group_key(0))
    name = getattr(groups, "name", None)
    column = name if isinstance(name, str) and name else "group"
    slope = Column(terms[1]) if len(terms) == 2 else None
    chosen = GroupTerms(column, slope, bool(correlated) or slope is None)
    ordered = [array[order] if len(array) else array for array in arrays]
    return ordered, order if ids is None else ids[order], table_of(chosen, labels[order])


def table_of(terms: GroupTerms, labels: NDArray[Any]) -> GroupTable:
    """Return the groups of rows in memory, from the label of each row (n,), group by group.

    Raises
    ------
    DataError
        If there is one group.
    """
    starts = group_starts(labels)
    if starts.size < 2:
        raise one_group(terms.column)
    offset = np.append(starts, labels.size)
    offset.flags.writeable = False
    chosen = labels[starts]
    return GroupTable(
        terms.column,
        terms.terms,
        terms.correlated,
        offset,
        lambda start, stop: chosen[start:stop],
    )


def _label_kind(type_: Any) -> str:
    """Return ``"number"`` for integers, floats and booleans, ``"text"`` for texts and dates."""
    import pyarrow as pa

    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner):
        return "number"
    return "text" if kind_of(inner) in ("text", "date") else "other"


def _label_array(array: Any) -> Any:
    """Return an Arrow array as numbers with null for NaN, or as texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = iso_text(plain(array))
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array
