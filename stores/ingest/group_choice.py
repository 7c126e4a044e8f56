"""The choice between integrated effects of a factor and columns with a sampled scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from streammc.errors import ConfigError, DataError
from streammc.stores.formula.factor_columns import MOST_LEVELS
from streammc.stores.formula.group_terms import GroupTerms
from streammc.stores.formula.nodes import columns_of
from streammc.stores.formula.terms import read_groups, read_terms
from streammc.stores.ingest.columns import require_column
from streammc.stores.ingest.exact_values import kind
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.table_blocks import block_rows
from streammc.stores.sources.tables import Table

COLUMNS: Final = "columns"
INTEGRATED: Final = "integrated"


def chosen_groups(
    table: Table, options: IngestOptions
) -> tuple[GroupTerms | None, tuple[str, ...]]:
    """Return the effects to integrate out, if any, and the factors that become columns.

    Neither for rows to predict. A single factor is integrated, and of several the one of more
    than 300 levels or with a slope; ``options.group_as`` decides otherwise.

    Raises
    ------
    ConfigError
        If the groups are given twice, rows are to keep their order, a choice names no factor, or
        two factors would have to be integrated.
    DataError
        If a factor to become columns has more than 300 levels.
    """
    if options.like is not None:
        return None, ()
    written = () if options.formula is None else read_groups(options.formula)
    if options.group is not None:
        if written:
            raise ConfigError(
                f"expected the groups in the formula or as --group, found both "
                f"{written[0].column!r} and {options.group!r}: leave out --group"
            )
        written = (GroupTerms(options.group),)
    said = _said(options, [each.column for each in written])
    if not written:
        return None, ()
    integrated, columns = _divided(table, written, said)
    if columns:
        assert options.formula is not None
        _check_roles(read_terms(options.formula).response, columns)
    if integrated is not None and not options.shuffle:
        raise ConfigError(
            "expected --shuffle with groups, found --no-shuffle: the rows of a group are put "
            "together, in a random order of the groups; leave out --no-shuffle"
        )
    return integrated, columns


def _said(options: IngestOptions, names: Sequence[str]) -> dict[str, str]:
    """Return the choices of the options by factor."""
    given = options.group_as or ()
    pairs = given.items() if isinstance(given, Mapping) else [_pair(text) for text in given]
    said: dict[str, str] = {}
    for name, way in pairs:
        if way not in (COLUMNS, INTEGRATED):
            raise ConfigError(
                f"expected {COLUMNS} or {INTEGRATED} for {name!r} in --group-as, found {way!r}: "
                f"write {name}={COLUMNS}"
            )
        if name not in names:
            known = f"choose from {', '.join(map(repr, names))}" if names else "leave it out"
            raise ConfigError(
                f"expected a factor of a term (1 | ...) in --group-as, found {name!r}: {known}"
            )
        said[name] = way
    if options.formula is None and COLUMNS in said.values():
        raise ConfigError(
            f"expected a formula for {options.group!r} as columns, found --group: write the term "
            f"(1 | {options.group}) in --formula"
        )
    return said


def _pair(text: str) -> tuple[str, str]:
    name, equals, way = str(text).rpartition("=")
    if not equals or not name:
        raise ConfigError(
            f"expected FACTOR={COLUMNS} or FACTOR={INTEGRATED} in --group-as, found {text!r}: "
            f"write {text}={COLUMNS}"
        )
    return name.strip(), way.strip()


def _divided(
    table: Table, written: Sequence[GroupTerms], said: Mapping[str, str]
) -> tuple[GroupTerms | None, tuple[str, ...]]:
    """Return the factor to integrate, if any, and the others."""
    if len(written) == 1 and said.get(written[0].column, INTEGRATED) == INTEGRATED:
        return written[0], ()
    for each in written:
        require_column(table, each.column, "a factor of the formula")
    counted = [each.column for each in written if said.get(each.column) != INTEGRATED]
    levels = count_levels(table, counted, MOST_LEVELS + 1)
    many = {name for name, count in levels.items() if count > MOST_LEVELS}
    integrated: list[GroupTerms] = []
    for each in written:
        way = said.get(each.column)
        if way == COLUMNS and each.slope is not None:
            raise ConfigError(
                f"expected an intercept alone for {each.column!r} as columns, found a slope: leave "
                f"out {each.column}={COLUMNS}, or the slope"
            )
        if way == COLUMNS and each.column in many:
            raise DataError(
                f"expected at most {MOST_LEVELS} levels of {each.column!r} as columns, found more: "
                f"write {each.column}={INTEGRATED} in --group-as, or merge the rare levels"
            )
        if way == INTEGRATED or each.slope is not None or each.column in many:
            integrated.append(each)
    if len(integrated) > 1:
        first, second = integrated[0], integrated[1]
        raise DataError(
            f"expected at most one factor of more than {MOST_LEVELS} levels, or with a slope, "
            f"found {first.column!r} and {second.column!r}: the effects of one factor can be "
            f"integrated out; leave out one, or merge the rare levels of one into at most "
            f"{MOST_LEVELS}, which become columns"
        )
    columns = tuple(each.column for each in written if each not in integrated)
    return (integrated[0] if integrated else None), columns


def count_levels(table: Table, columns: Sequence[str], most: int) -> dict[str, int]:
    """Return the number of levels of each column, ``most`` where there are as many or more."""
    import pyarrow.compute as pc

    found: dict[str, set[object]] = {name: set() for name in columns}
    text = frozenset(
        name for name in columns if {kind(type_) for type_ in table.types_of(name)} & {"text"}
    )
    for batch in table.batches(list(columns), block_rows(len(columns)), text=text):
        for index, name in enumerate(columns):
            if len(found[name]) < most:
                found[name].update(pc.unique(batch.column(index)).drop_null().to_pylist())
        if all(len(levels) >= most for levels in found.values()):
            break
    return {name: min(len(levels), most) for name, levels in found.items()}


def _check_roles(response: object, columns: Sequence[str]) -> None:
    """Refuse a response that is a factor."""
    own = columns_of(response)  # type: ignore[arg-type]
    both = next((name for name in columns if name in own), None)
    if both is not None:
        raise ConfigError(
            f"expected the response only left of '~', found {both!r} also as a factor: leave it "
            "out there"
        )
