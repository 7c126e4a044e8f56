"""The choice of response, features, offset, weight and so on among the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streammc.errors import ConfigError, DataError
from streammc.stores.ingest.column_values import is_zoned, kind
from streammc.stores.ingest.faults import advice_for
from streammc.stores.sources.tables import Table

if TYPE_CHECKING:
    from streammc.stores.ingest.ingest_options import IngestOptions

INTERCEPT: Final = "Intercept"
CENSORED: Final = "censored"
OTHERS: Final = ("offset", "weight", "trials", CENSORED)
"""Roles of columns that are neither the response nor a feature."""


@dataclass(frozen=True)
class Columns:
    """The table columns in use, by role; each column has one role."""

    response: str | None
    features: tuple[str, ...]
    offset: str | None
    weight: str | None
    trials: str | None = None
    censored: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All columns: features, response, and those of :data:`OTHERS`."""
        others = (self.response, *(getattr(self, role) for role in OTHERS))
        return (*self.features, *(name for name in others if name is not None))

    @property
    def roles(self) -> dict[str, str]:
        """Role of each column that is not a feature, by column name."""
        chosen = {name: getattr(self, name) for name in ("response", *OTHERS)}
        return {column: role for role, column in chosen.items() if column is not None}

    def index(self, name: str | None) -> int | None:
        """Return the position of ``name`` in :attr:`names`; ``None`` for ``None``."""
        return None if name is None else self.names.index(name)


def choose_columns(table: Table, options: IngestOptions, row_id: str | None) -> Columns:
    """Return the columns in use; by default every column without another role is a feature.

    The columns ``row_id`` and ``options.group`` are not among them.
    """
    roles = {name: getattr(options, name) for name in ("response", *OTHERS)}
    roles |= {"row id": row_id, "group": options.group}
    for role, what in (("trials", "successes"), (CENSORED, "times")):
        if roles[role] is not None and options.response is None:
            raise ConfigError(
                f"expected the column of {what} as --response with --{role} {roles[role]}, "
                "found none: add --response"
            )
    taken: dict[str, str] = {}
    for role, name in roles.items():
        if name is None:
            continue
        require_column(table, name, role)
        if name in taken:
            raise ConfigError(
                f"expected different columns, found {name!r} as {taken[name]} and {role}"
                ": use each once"
            )
        taken[name] = role
    features = options.features
    if features is None:
        chosen = [name for name in table.names if name not in taken and name not in table.hidden]
    else:
        chosen = [features] if isinstance(features, str) else list(features)
        for name in chosen:
            require_column(table, name, "a feature")
            if name in taken:
                raise ConfigError(
                    f"expected different columns, found {name!r} as {taken[name]} and again as "
                    "a feature: use it once"
                )
            taken[name] = "a feature"
    if options.intercept and INTERCEPT in chosen:
        raise ConfigError(
            f"expected no column {INTERCEPT!r} beside the intercept that is added: "
            "use --no-intercept, or leave the column out with --features"
        )
    if not chosen and not options.intercept:
        raise ConfigError(
            "expected at least one feature or the intercept, found neither"
            ": name a feature, or add the intercept"
        )
    columns = Columns(
        options.response,
        tuple(chosen),
        options.offset,
        options.weight,
        options.trials,
        options.censored,
    )
    check_types(table, columns.names, columns.roles)
    _refuse_categories(table, columns.features)
    return columns


def _refuse_categories(table: Table, features: Sequence[str]) -> None:
    """Refuse features that are categories of numbers, as those of text are."""
    bad = [name for name in features if any(map(_is_category, table.types_of(name)))]
    if bad:
        name = bad[0] if bad[0].isidentifier() else f"`{bad[0]}`"
        more = f" (and in {len(bad) - 1} more columns)" if len(bad) > 1 else ""
        raise DataError(
            f"expected numbers in column {bad[0]!r} of {table.sources[0].label}, found categories"
            f"{more}: take it as a factor, --formula 'y ~ C({name})', convert it to numbers, or "
            "leave it out with --features"
        )


def _is_category(type_: Any) -> bool:
    """Return whether an Arrow type is a dictionary of numbers."""
    return pa.types.is_dictionary(type_) and kind(type_) == "number"


def text_columns(table: Table, columns: Columns) -> list[str]:
    """Return the chosen columns that are of a text type in some source."""
    return [
        name
        for name in columns.names
        if any(kind(type_) == "text" for type_ in table.types_of(name))
    ]


def require_column(table: Table, name: str, role: str) -> None:
    """Refuse a column that does not exist; the message has the nearest name."""
    if name in table:
        return
    near = get_close_matches(str(name), table.names, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        shown = ", ".join(table.names[:8]) + (", ..." if len(table.names) > 8 else "")
        hint = f"choose among {shown}"
    raise DataError(
        f"expected the column {name!r} as {role} in {table.sources[0].label}, found none: {hint}"
    )


def check_zones(table: Table, name: str) -> None:
    """Refuse a column of moments with a time zone in one source and without one in another."""
    first: dict[bool, tuple[str, Any]] = {}
    for source, type_ in zip(table.sources, table.types_of(name), strict=True):
        inner = type_.value_type if pa.types.is_dictionary(type_) else type_
        if kind(type_) == "date" and not pa.types.is_time(inner):
            first.setdefault(is_zoned(type_), (source.label, type_))
    if len(first) > 1:
        (zoned, type_), (label, other) = first[True], first[False]
        raise DataError(
            f"expected column {name!r} with a time zone in every source or in none, found {type_} "
            f"in {zoned} and {other} in {label}: write both in one way, such as UTC"
        )


def check_types(
    table: Table,
    names: Sequence[str],
    roles: Mapping[str, str] | None = None,
    *,
    dates: bool = False,
) -> None:
    """Refuse columns of a type that is neither a number nor text nor, with ``dates``, a date.

    Also moments with a time zone in one source and without one in another.
    """
    bad = []
    for name in names:
        check_zones(table, name)
        for source, type_ in zip(table.sources, table.types_of(name), strict=True):
            if kind(type_) == "other" or (kind(type_) == "date" and not dates):
                bad.append((name, source.label, type_))
                break
    if bad:
        name, label, type_ = bad[0]
        found = f"the type {type_}"
        advice = "encode it as numbers, or leave it out (--features, or not in the formula)"
        if kind(type_) == "date":
            found = "times" if pa.types.is_time(type_) else "dates"
            advice = advice_for("dates", name, (roles or {}).get(name))
        more = f" (and {len(bad) - 1} more columns)" if len(bad) > 1 else ""
        raise DataError(
            f"expected numbers in column {name!r} of {label}, found {found}{more}: {advice}"
        )


def kind_of_column(table: Table, name: str, text: bool = False) -> str:
    """Return the kind of a column over all sources; ``text`` if it is read as such."""
    types = table.types_of(name)
    if text or {"text", "date"} & {kind(type_) for type_ in types}:
        return "text"
    if any(pa.types.is_dictionary(type_) for type_ in types):
        return "category"
    return "boolean" if all(map(is_boolean, types)) else "number"


def is_boolean(type_: Any) -> bool:
    """Return whether an Arrow type is of truth values, or of categories of them."""
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_boolean(inner))
