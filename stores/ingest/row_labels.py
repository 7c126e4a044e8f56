"""Labels of rows: their ids, and the groups of a mixed model.

Ids are integers or texts that join predictions with the rows of the original table. The effects of
groups are integrated out, or become columns of the design.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streammc.errors import ConfigError, DataError
from streammc.group_table import CrossedFactor, GroupTable
from streammc.stores.format.group_arrays import group_starts, one_group
from streammc.stores.format.layout import MAX_ID_BYTES, MAX_LEVELS, ROW_GROUP, ROW_ID
from streammc.stores.formula.bases import BASES
from streammc.stores.formula.fitted import MOST_LEVELS, has_levels
from streammc.stores.formula.parser import (
    Call,
    GroupTerms,
    Term,
    columns_of,
    read_groups,
    read_terms,
)
from streammc.stores.ingest.column_values import iso_text
from streammc.stores.ingest.column_values import kind as kind_of
from streammc.stores.ingest.columns import check_zones, kind_of_column, require_column
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.shuffle import append, group_key, group_order
from streammc.stores.ingest.table_blocks import block_rows
from streammc.stores.sources.csv_source import CsvSource
from streammc.stores.sources.tables import Table

COLUMNS: Final = "columns"
INTEGRATED: Final = "integrated"
CROSSED: Final = "crossed"
_WAYS: Final = (COLUMNS, INTEGRATED, CROSSED)

_INTEGER: Final = r"^(0|-?[1-9][0-9]{0,17})$"
"""A whole number of at most 18 digits in canonical form, which int64 holds without loss."""
_EXACT: Final = 2.0**53
_PIECE: Final = 1 << 20
"""Labels of a factor of a store that are read at once."""


class IdColumn:
    """Row ids of a table: copied to disk in the first pass, read back in the second.

    A column of a CSV file is kept as text, and becomes integers if every value is written as
    an integer in canonical form.

    With ``text`` it stays text.
    """

    role: ClassVar[str] = "row id"
    what: ClassVar[str] = "row ids"
    """Name of the values in messages."""

    def __init__(self, table: Table, column: str, folder: Path, text: bool = False) -> None:
        require_column(table, column, self.role)
        self.column = column
        source: Any = table.sources[0]
        source = getattr(source, "inner", source)  # without the columns of folders
        self.as_written = isinstance(source, CsvSource) and column in source.names
        kinds = {self.kind(type_) for type_ in table.types_of(column)}
        if not self.as_written and (len(kinds) > 1 or "other" in kinds):
            types = ", ".join(dict.fromkeys(map(str, table.types_of(column))))
            raise DataError(
                f"expected integers or text as {self.what} in column {column!r} of "
                f"{table.sources[0].label}, found {types}: convert it, or name another column"
            )
        self._text = self.as_written or kinds == {"text"}
        self._all_integers = column in table.integers and not text
        self._files = folder / f"{self.role}.values", folder / f"{self.role}.lengths"
        self._width = 1
        self._content_offset = 0

    def add(self, array: Any, start: int, faults: Faults) -> None:
        """Add the ids of the rows from number ``start``; record unusable ids in ``faults``."""
        if not self._text:
            append(self._files[0], integers(array, self.column, start, faults, self.what))
            return
        lengths, content = texts(array, self.column, start, faults, self.what)
        if self._all_integers:
            self._all_integers = _written_as_integers(array)
        self._width = max(self._width, int(lengths.max(initial=0)))
        append(self._files[0], content)
        append(self._files[1], lengths)

    @staticmethod
    def kind(type_: Any) -> str:
        """Return ``"number"``, ``"text"`` or ``"other"`` for an Arrow type."""
        inner = type_.value_type if pa.types.is_dictionary(type_) else type_
        if pa.types.is_integer(inner) or pa.types.is_floating(inner):
            return "number"
        return "text" if kind_of(inner) == "text" else "other"

    @staticmethod
    def prepared(array: Any) -> Any:
        """Return an Arrow array of such a type without dictionary and views."""
        return plain(array)

    def missing(self, start: int, count: int) -> NDArray[np.bool_] | None:
        """Return the rows to leave out (m,) among ``count`` from ``start``; ``None``: none are."""
        return None

    @property
    def dtype(self) -> str:
        """Dtype of the ids after the first pass: ``int64``, or ``S`` and the longest length."""
        return "int64" if self._all_integers or not self._text else f"S{self._width}"

    def read(self, start: int, count: int) -> NDArray[Any]:
        """Return the ids of the rows from ``start``; blocks are read in order, from row 0 on."""
        if not self._text:
            return np.fromfile(self._files[0], np.int64, count, offset=8 * start)
        lengths = np.fromfile(self._files[1], np.int32, count, offset=4 * start)
        self._content_offset = 0 if start == 0 else self._content_offset
        size = int(lengths.sum(dtype=np.int64))
        content = np.fromfile(self._files[0], np.uint8, size, offset=self._content_offset)
        self._content_offset += size
        ids = fixed_width(lengths, content, self._width)
        return ids.astype(np.int64) if self._all_integers else ids


def id_column(
    table: Table, options: IngestOptions, folder: Path, messages: list[str]
) -> IdColumn | None:
    """Return the column of the row ids: that of the options, or of the store ``options.like``.

    If the table lacks the column of that store, ``messages`` gets a line.
    """
    name = options.row_id
    if name is None and options.like is not None:
        name = options.like.get(ROW_ID)
        if name is not None and name not in table:
            messages.append(
                f"no column {name!r}, the row id of the store given to --like: the ids are "
                "positions in the table"
            )
            name = None
    return None if name is None else IdColumn(table, name, folder, name in options.text_labels)


def in_memory(
    values: Any, n_rows: int, name: str = "row_id", column: type[IdColumn] = IdColumn
) -> NDArray[Any]:
    """Return row ids given as an array: (n,) int64, or UTF-8 texts as bytes of one width.

    ``name`` is that of the argument in messages; the class ``column`` decides the types that are
    allowed.
    """
    # As objects: NumPy would give each text of a list the length of the longest.
    objects = np.asarray(values, object if isinstance(values, (list, tuple)) else None)
    if objects.shape != (n_rows,):
        raise DataError(
            f"expected {n_rows} values of {name}, as X has, found shape {objects.shape}"
            ": pass one per row"
        )
    if objects.dtype.kind not in "biufUM":
        objects = objects.astype(object)
    try:
        array = pa.array(objects, from_pandas=True)
    except (ValueError, TypeError, OverflowError):
        raise DataError(
            f"expected integers or text as {name}, found {type(objects[0]).__name__}: convert them"
        ) from None
    if column.kind(array.type) == "other":
        raise DataError(f"expected integers or text as {name}, found {array.type}: convert them")
    array, faults = column.prepared(array), Faults()
    locate = "row {} of the arrays, counted from 0".format
    if IdColumn.kind(array.type) == "number":
        numbers = integers(array, name, 0, faults, column.what)
        faults.refuse(locate)
        return numbers
    lengths, content = texts(array, name, 0, faults, column.what)
    faults.refuse(locate)
    return fixed_width(lengths, content, max(1, int(lengths.max(initial=0))))


def integers(array: Any, column: str, start: int, faults: Faults, what: str) -> NDArray[np.int64]:
    """Return an Arrow array of numbers as int64; record missing and inexact values."""
    array = plain(array)
    _add_missing(array, column, start, faults, what)
    array = pc.fill_null(array, 0)
    if pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        bad = ~((np.rint(values) == values) & (np.abs(values) <= _EXACT))
        values[bad] = 0.0
    else:
        values = array.to_numpy(zero_copy_only=False)
        bad = values > np.uint64(2**63 - 1) if values.dtype == np.uint64 else np.zeros(1, bool)
    faults.add(f"unusable {what}", column, start, bad, array)
    whole: NDArray[np.int64] = values.astype(np.int64)
    return whole


def texts(
    array: Any, column: str, start: int, faults: Faults, what: str
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the lengths in bytes (m,) of an Arrow array of texts, and their joined bytes."""
    array = plain(array)
    _add_missing(array, column, start, faults, what)
    try:
        array = array.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"expected {what} in UTF-8 in column {column!r}, found other bytes: correct the file"
        ) from error
    array = pc.fill_null(array, "")
    offsets, content = array.buffers()[1:]
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(ends)
    if content is None:
        return lengths.astype(np.int32), np.empty(0, np.uint8)
    joined = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    # An id may not contain NUL, which pads the ids to one width.
    bad = lengths > MAX_ID_BYTES
    if not joined.all():
        bad = bad | pc.match_substring(array, "\0").to_numpy(zero_copy_only=False)
    faults.add(f"unusable {what}", column, start, bad, array)
    return lengths.astype(np.int32), joined


def fixed_width(
    lengths: NDArray[np.int32], content: NDArray[np.uint8], width: int
) -> NDArray[np.bytes_]:
    """Return texts (m,) as bytes of one width, padded with NUL."""
    padded = np.zeros((len(lengths), width), np.uint8)
    padded[np.arange(width) < lengths[:, None]] = content
    return padded.reshape(-1).view(f"S{width}")


def plain(array: Any) -> Any:
    """Return an Arrow array without dictionary and views."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string()) if pa.types.is_string_view(array.type) else array


def _add_missing(array: Any, column: str, start: int, faults: Faults, what: str) -> None:
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        faults.add(f"missing {what}", column, start, missing, array)


def _written_as_integers(array: Any) -> bool:
    return pc.all(pc.match_substring_regex(plain(array), _INTEGER)).as_py() is not False


def id_values(values: NDArray[Any]) -> NDArray[Any]:
    """Return row ids (m,); the stored bytes (m, width) of a store become text."""
    if values.ndim == 1:
        return values
    return id_texts(np.ascontiguousarray(values).view(f"S{values.shape[1]}")[:, 0])


def id_texts(ids: NDArray[Any]) -> NDArray[Any]:
    """Return row ids with bytes as texts."""
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids


class ChosenGroups(NamedTuple):
    """What becomes of the random effects of a formula."""

    integrated: GroupTerms | None = None
    """The effects to integrate out."""
    columns: tuple[str, ...] = ()
    """Factors whose levels become columns of the design."""
    crossed: tuple[GroupTerms, ...] = ()
    """Factors whose levels are kept with the rows; ``a:b`` has the labels of two columns."""


def chosen_groups(table: Table, options: IngestOptions) -> ChosenGroups:
    """Return what becomes of the random effects; nothing for rows to predict.

    A single factor with an intercept and at most one slope is integrated. Of several, those of at
    most 300 levels become columns, and one of more levels or with a slope is integrated; where two
    have more, or one has more slopes, all cross.
    ``options.group_as`` decides otherwise.
    """
    if options.like is not None:
        return ChosenGroups()
    written = () if options.formula is None else read_groups(options.formula)
    if options.group is not None:
        if written:
            raise ConfigError(
                f"expected the groups in the formula or as --group, found both "
                f"{written[0].column!r} and {options.group!r}: leave out --group"
            )
        written = (GroupTerms(options.group),)
    choices = _choices(options, [each.column for each in written])
    if not written:
        return ChosenGroups()
    chosen = _chosen(table, written, choices)
    if chosen.columns or chosen.crossed:
        assert options.formula is not None
        response = read_terms(options.formula).response
        _check_roles(response, (*chosen.columns, *(each.column for each in chosen.crossed)))
    if chosen.integrated is not None and not options.shuffle:
        raise ConfigError(
            "expected --shuffle with groups, found --no-shuffle: the rows of a group are put "
            "together, in a random order of the groups; leave out --no-shuffle"
        )
    if chosen.crossed and options.cells == "yes":
        raise ConfigError(
            "expected rows as they are with factors that cross, "
            f"{', '.join(each.column for each in chosen.crossed)}, found --cells yes: leave it out"
        )
    return chosen


def _choices(options: IngestOptions, names: Sequence[str]) -> dict[str, str]:
    """Return the choices of the options by factor."""
    asked = options.group_as or ()
    pairs = asked.items() if isinstance(asked, Mapping) else [_pair(text) for text in asked]
    choices: dict[str, str] = {}
    for name, way in pairs:
        if way not in _WAYS:
            raise ConfigError(
                f"expected {', '.join(_WAYS)} for {name!r} in --group-as, found {way!r}: "
                f"write {name}={COLUMNS}"
            )
        if name not in names:
            known = f"choose from {', '.join(map(repr, names))}" if names else "leave it out"
            raise ConfigError(
                f"expected a factor of a term (1 | ...) in --group-as, found {name!r}: {known}"
            )
        choices[name] = way
    if options.formula is None and {COLUMNS, CROSSED} & {*choices.values()}:
        raise ConfigError(
            f"expected a formula for {options.group!r} in --group-as, found --group: write the "
            f"term (1 | {options.group}) in --formula"
        )
    return choices


def _pair(text: str) -> tuple[str, str]:
    name, equals, way = str(text).rpartition("=")
    if not equals or not name:
        raise ConfigError(
            f"expected FACTOR={COLUMNS}, FACTOR={INTEGRATED} or FACTOR={CROSSED} in --group-as, "
            f"found {text!r}: write {text}={COLUMNS}"
        )
    return name.strip(), way.strip()


def _chosen(
    table: Table, written: Sequence[GroupTerms], choices: Mapping[str, str]
) -> ChosenGroups:
    """Return what becomes of the effects that are written."""
    combined = [each for each in written if each.parts]
    alone = len(written) == 1 and not combined
    many_slopes = [
        each
        for each in written
        if not each.intercept
        or len(each.slopes) > 1
        or any(_makes_several(table, slope) for slope in each.slopes)
    ]
    if alone and not many_slopes and choices.get(written[0].column, INTEGRATED) == INTEGRATED:
        return ChosenGroups(written[0])
    for each in written:
        for name in each.table_columns:
            require_column(table, name, "a factor of the formula")
    if combined or many_slopes or CROSSED in choices.values():
        return _all_crossed(written, choices)
    counted = [each.column for each in written if choices.get(each.column) != INTEGRATED]
    levels = count_levels(table, counted, MOST_LEVELS + 1)
    many = {name for name, count in levels.items() if count > MOST_LEVELS}
    integrated: list[GroupTerms] = []
    for each in written:
        way = choices.get(each.column)
        if way == COLUMNS and each.slopes:
            raise ConfigError(
                f"expected an intercept alone for {each.column!r} as columns, found a slope: leave "
                f"out {each.column}={COLUMNS}, or the slope"
            )
        if way == COLUMNS and each.column in many:
            raise DataError(
                f"expected at most {MOST_LEVELS} levels of {each.column!r} as columns, found more: "
                f"write {each.column}={INTEGRATED} in --group-as, or merge the rare levels"
            )
        if way == INTEGRATED or each.slopes or each.column in many:
            integrated.append(each)
    if len(integrated) > 1:
        return _all_crossed(written, choices)
    columns = tuple(each.column for each in written if each not in integrated)
    return ChosenGroups(integrated[0] if integrated else None, columns)


def _makes_several(table: Table, slope: Term) -> bool:
    """Return whether a slope can be several columns of the design: levels, a basis, a product."""
    kinds = {
        name: kind_of_column(table, name) for node in slope.factors for name in columns_of(node)
    }
    return len(slope.factors) > 1 or any(
        has_levels(node, kinds) or (isinstance(node, Call) and node.function in BASES)
        for node in slope.factors
    )


def _all_crossed(written: Sequence[GroupTerms], choices: Mapping[str, str]) -> ChosenGroups:
    """Return all factors as such that cross.

    DataError if the name of one has a colon, ConfigError if one is asked for in another way.
    """
    for each in written:
        if ":" in each.column and not each.parts:
            raise DataError(
                f"expected factors that cross without ':' in their names, found {each.column!r}: "
                "rename the column"
            )
        way = choices.get(each.column, CROSSED)
        if way != CROSSED:
            raise ConfigError(
                f"expected {CROSSED} for every factor where factors cross or have several slopes, "
                f"found {each.column}={way}: leave it out of --group-as"
            )
    return ChosenGroups(crossed=tuple(written))


def count_levels(table: Table, columns: Sequence[str], most: int) -> dict[str, int]:
    """Return the number of levels of each column, ``most`` where there are as many or more."""
    levels_of: dict[str, set[object]] = {name: set() for name in columns}
    text = frozenset(
        name for name in columns if {kind_of(type_) for type_ in table.types_of(name)} & {"text"}
    )
    for batch in table.batches(list(columns), block_rows(len(columns)), text=text):
        for index, name in enumerate(columns):
            if len(levels_of[name]) < most:
                levels_of[name].update(pc.unique(batch.column(index)).drop_null().to_pylist())
        if all(len(levels) >= most for levels in levels_of.values()):
            break
    return {name: min(len(levels), most) for name, levels in levels_of.items()}


def _check_roles(response: object, columns: Sequence[str]) -> None:
    """Refuse a response that is a factor."""
    own = columns_of(response)  # type: ignore[arg-type]
    both = next((name for name in columns if name in own), None)
    if both is not None:
        raise ConfigError(
            f"expected the response only left of '~', found {both!r} also as a factor: leave it "
            "out there"
        )


class GroupColumn(IdColumn):
    """Labels of the groups of a table, kept like row ids.

    Booleans become 0 and 1, dates ISO text; NaN is missing.

    With ``drop_missing`` rows without a label are marked, to be left out, and not refused.
    """

    role: ClassVar[str] = "group"
    what: ClassVar[str] = "group labels"

    def __init__(
        self, table: Table, column: str, folder: Path, drop_missing: bool, text: bool = False
    ) -> None:
        super().__init__(table, column, folder, text)
        check_zones(table, column)
        self.several = False
        """Whether two rows had different labels."""
        self._first: Any = None
        self._flags = folder / "group.missing" if drop_missing else None

    @staticmethod
    def kind(type_: Any) -> str:
        """Return ``"number"``, ``"text"`` or ``"other"`` for an Arrow type; dates are text."""
        inner = type_.value_type if pa.types.is_dictionary(type_) else type_
        if pa.types.is_boolean(inner):
            return "number"
        return "text" if kind_of(inner) == "date" else IdColumn.kind(inner)

    @staticmethod
    def prepared(array: Any) -> Any:
        """Return an Arrow array of such a type as numbers with null for NaN, or as texts."""
        array = iso_text(plain(array))
        if pa.types.is_boolean(array.type):
            return array.cast(pa.int8())
        if pa.types.is_floating(array.type):
            return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        return array

    def add(self, array: Any, start: int, faults: Faults) -> None:
        """Add the labels of the rows from number ``start``; record unusable ones in ``faults``."""
        array = self.prepared(array)
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


def different(blocks: Iterable[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """Return the different values of all blocks, sorted.

    What has been found is merged with what is at least half as much, so that of many different
    values each is merged a few times, and not once for every block.
    """
    found = [np.empty(0, dtype)]
    for block in blocks:
        own = _merged(block)
        while len(found) > 1 and len(found[-1]) <= 2 * len(own):
            own = _merged(found.pop(), own)
        found.append(own)
    while len(found) > 1:
        found.append(_merged(found.pop(), found.pop()))
    return found[0]


def _merged(*parts: NDArray[Any]) -> NDArray[Any]:
    """Return different values, sorted: two sorted parts in one pass; np.unique is slower by far."""
    values = np.sort(np.concatenate(parts), kind="stable")
    first = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


class LevelColumn(GroupColumn):
    """Labels of a factor that crosses others, kept like those of groups; read back as levels."""

    def __init__(
        self, table: Table, column: str, folder: Path, options: IngestOptions, number: int
    ) -> None:
        self.role = f"factor {number + 1}"  # type: ignore[misc]
        text = column in options.text_labels
        super().__init__(table, column, folder, options.drop_missing, text)
        if options.drop_missing:
            self._flags = folder / f"{self.role}.missing"
        self.labels: NDArray[Any] = np.empty(0)
        """(levels,) sorted, once :meth:`count` has seen the rows."""

    def count(self, rows: Iterable[tuple[int, int, NDArray[np.intp] | None]]) -> None:
        """Find the labels in runs of rows: first row, their number, places of those kept."""

        def blocks() -> Iterator[NDArray[Any]]:
            for start, count, kept in rows:
                labels = self.read(start, count)
                yield labels if kept is None else labels[kept]

        self.labels = different(blocks(), self.dtype)

    def levels(self, start: int, count: int) -> NDArray[np.uint32]:
        """Return the levels of the rows from ``start`` on."""
        return np.searchsorted(self.labels, self.read(start, count)).astype(np.uint32)


class CombinedLevels:
    """Levels of a factor ``a:b``: the combinations of labels of several columns that occur."""

    def __init__(self, column: str, parts: Sequence[LevelColumn]) -> None:
        self.column = column
        self._parts = parts
        self._found = np.empty(0, np.uint64)
        self.labels: NDArray[Any] = np.empty(0)
        """(levels,) ``A:B``, in the order of the labels of the parts."""

    def count(self, rows: Iterable[tuple[int, int, NDArray[np.intp] | None]]) -> None:
        """Find the combinations in runs of rows; the parts have seen them before.

        DataError if a label has a colon, so that two combinations could be written alike, or if
        there are too many combinations to number.
        """
        for part in self._parts:
            texts = part.labels if part.labels.dtype.kind == "S" else part.labels[:0].astype("S1")
            colon = np.flatnonzero(np.strings.find(texts, b":") >= 0)
            if len(colon):
                raise DataError(
                    f"expected labels without ':' in column {part.column!r}, whose labels are "
                    f"combined, found {texts[colon[0]].decode()[:60]!r}: write another sign there"
                )
        possible = math.prod(len(part.labels) for part in self._parts)
        if possible >= 2**64:
            raise DataError(
                f"expected fewer than 2**64 combinations of the labels of {self.column!r}, found "
                f"{possible:.2g}: combine fewer columns"
            )

        def blocks() -> Iterator[NDArray[Any]]:
            for start, count, kept in rows:
                own = self._numbers(start, count)
                yield own if kept is None else own[kept]

        self._found = different(blocks(), np.uint64)
        rest: NDArray[Any] = self._found
        labels: list[NDArray[Any]] = []
        for part in reversed(self._parts):
            rest, at = np.divmod(rest, np.uint64(len(part.labels)))
            own = part.labels[at.astype(np.intp)]
            labels.insert(0, own if own.dtype.kind == "S" else own.astype("S20"))
        self.labels = labels[0]
        for each in labels[1:]:
            self.labels = np.strings.add(np.strings.add(self.labels, b":"), each)

    def levels(self, start: int, count: int) -> NDArray[np.uint32]:
        """Return the levels of the rows from ``start`` on."""
        return np.searchsorted(self._found, self._numbers(start, count)).astype(np.uint32)

    def _numbers(self, start: int, count: int) -> NDArray[np.uint64]:
        numbers = np.zeros(count, np.uint64)
        for part in self._parts:
            numbers = numbers * np.uint64(len(part.labels)) + part.levels(start, count)
        return numbers


def level_columns(
    table: Table,
    options: IngestOptions,
    crossed: Sequence[str],
    folder: Path,
    messages: list[str],
) -> tuple[list[LevelColumn], list[LevelColumn | CombinedLevels]]:
    """Return columns of labels, and the factors that cross, or those of ``options.like``.

    For each factor that the table lacks ``messages`` gets a line.
    """
    names = list(crossed)
    if options.like is not None:
        stated = [each["column"] for each in options.like.get(CROSSED) or ()]
        names = [name for name in stated if all(part in table for part in name.split(":"))]
        messages += [
            f"no column {name!r}, a factor of the store given to --like: the rows are predicted as "
            "those of new levels"
            for name in stated
            if name not in names
        ]
    columns = {
        name: LevelColumn(table, name, folder, options, number)
        for number, name in enumerate(
            dict.fromkeys(part for factor in names for part in factor.split(":"))
        )
    }
    factors = [
        columns[name]
        if name in columns
        else CombinedLevels(name, [columns[part] for part in name.split(":")])
        for name in names
    ]
    return [*columns.values()], factors


def numbered_as(
    factor: CrossedFactor, labels: NDArray[Any]
) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """Return the levels (k,) of different labels in a factor, and the labels that it does not have.

    These get the levels behind those of the factor, in their order.
    """
    order = np.argsort(labels)
    ordered = labels[order]
    levels = np.full(len(labels), -1)
    for start in range(0, factor.n_groups, _PIECE):
        known = factor.labels(start, min(start + _PIECE, factor.n_groups))
        at = np.minimum(np.searchsorted(ordered, known), len(ordered) - 1)
        same = ordered[at] == known
        levels[order[at[same]]] = start + np.flatnonzero(same)
    new = levels < 0
    refuse_many(factor.column, factor.n_groups + int(new.sum()))
    levels[new] = factor.n_groups + np.arange(new.sum())
    return levels.astype(np.uint32), labels[new]


def refuse_many(column: str, levels: int) -> None:
    """Raise DataError for more levels of a factor that crosses others than a store can have."""
    if levels > MAX_LEVELS:
        raise DataError(
            f"expected at most {MAX_LEVELS:,} levels of {column!r}, a factor that crosses others, "
            f"found {levels:,}: merge rare levels, or leave the factor out"
        )


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

    ``effects`` are the labels (n,), the terms, and whether they are correlated, as of
    ``from_arrays``. ``features`` are the columns of the first array; arrays are (n, ..) or empty.
    Without ``ids`` (n,) these are the numbers of the rows.
    """
    groups, names, correlated = effects
    terms = (names,) if isinstance(names, str) else tuple(names)
    if groups is None:
        raise ConfigError(
            f"expected groups with the terms {terms[:5]!r}, found none: pass the labels as groups"
        )
    if terms[:1] != ("1",) or len(terms) > 2 or any(name not in features for name in terms[1:]):
        raise ConfigError(
            f"expected ('1',) or ('1', name of a feature) as terms, found {terms[:5]!r}: give an "
            "intercept and at most one slope"
        )
    labels = in_memory(groups, len(arrays[0]), "groups", GroupColumn)
    order = group_order(labels, group_key(0))
    name = getattr(groups, "name", None)
    column = name if isinstance(name, str) and name else "group"
    chosen = GroupTerms(column, (), bool(correlated) or len(terms) == 1).of_columns(terms[1:])
    ordered = [array[order] if len(array) else array for array in arrays]
    return ordered, order if ids is None else ids[order], table_of(chosen, labels[order])


def table_of(terms: GroupTerms, labels: NDArray[Any]) -> GroupTable:
    """Return the groups of rows in memory, from the label of each row (n,), group by group."""
    starts = group_starts(labels)
    if starts.size < 2:
        raise one_group(terms.column)
    offset = np.append(starts, labels.size)
    offset.flags.writeable = False
    chosen = labels[starts]
    return GroupTable(
        terms.column, terms.terms, terms.correlated, offset, lambda start, stop: chosen[start:stop]
    )
