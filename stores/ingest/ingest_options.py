"""The options of ``ingest``, given one by one or taken from an existing store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.stores.formula.fitted import STAND_INS, read_design
from streammc.stores.formula.parser import Driven, columns_of, formula_of_all, read_terms
from streammc.stores.ingest.columns import INTERCEPT, OTHERS
from streammc.stores.ingest.table_options import TableOptions
from streammc.stores.sources.tables import Table

MISSING: Final = "missing"
"""Attribute of a store with the spellings of a missing value, where they were given."""
LEVEL: Final = "level"
INDICATOR: Final = "indicator"


@dataclass(frozen=True, kw_only=True)
class IngestOptions(TableOptions):
    """The options of a table, checked, with those of the store that they follow."""

    text_labels: tuple[str, ...] = ()
    """Columns of row ids and of factors that cross that stay text, also where each value in a CSV
    file is written as an integer."""
    sufficient: str | None = None
    """Statistics of the responses of a cell that suffice for the family of a fit; see ``Model``."""
    cloud: str | None = None
    """``None`` for chunks that are mapped; ``"raw"`` or ``"zstd"`` for shards."""
    driven: tuple[Driven, ...] = ()
    """Formula of each linear predictor where they have their own; ``formula`` has all terms."""
    like: Mapping[str, Any] | None = None
    """Attributes of an existing store: its columns, fitted formula and standardisation."""

    def __post_init__(self) -> None:
        if not (self.features is None or isinstance(self.features, str | Iterable)):
            raise ConfigError(
                f"expected the names of columns as features, found {self.features!r}: give a list"
            )
        if self.missing is not None and (
            isinstance(self.missing, str) or not all(isinstance(each, str) for each in self.missing)
        ):
            raise ConfigError(
                f"expected a list of texts as missing, found {self.missing!r}: give one, such as "
                "['NA', '-999']"
            )
        ways = [self.missing_as] if isinstance(self.missing_as, str) else self.missing_as
        if ways is not None:
            if not isinstance(ways, Iterable) or {*ways} - {LEVEL, INDICATOR}:
                raise ConfigError(
                    f"expected '{LEVEL}', '{INDICATOR}' or both as missing_as, found "
                    f"{self.missing_as!r}: choose among them"
                )
            if self.formula is None and self.like is None:
                raise ConfigError(
                    "expected a formula with --missing-as, found none: its terms say which columns "
                    "are levels and which numbers; give --formula"
                )
            object.__setattr__(self, "missing_as", tuple(dict.fromkeys(ways)) or None)
        if self.trials is not None and self.censored is not None:
            raise ConfigError(
                "expected --trials or --censored, found both: successes are no times; leave one out"
            )
        texts = [self.formula_for] if isinstance(self.formula_for, str) else self.formula_for
        if not isinstance(texts, Iterable) or not all(isinstance(each, str) for each in texts):
            raise ConfigError(
                f"expected texts as formula_for, found {self.formula_for!r:.60}: give one, such as "
                "'sigma ~ x', or a list of them"
            )
        object.__setattr__(self, "formula_for", tuple(texts))
        if isinstance(self.seed, bool) or not isinstance(self.seed, (int, np.integer)):
            raise ConfigError(
                f"expected an integer as seed, found {self.seed!r}: give a whole number"
            )
        if not 0 <= self.seed < 2**64:
            raise ConfigError(
                f"expected a seed from 0 to 2**64 - 1, found {self.seed}: choose another"
            )
        whole = isinstance(self.codes_above, (int, np.integer)) and self.codes_above >= 0
        if self.codes_above is not None and (isinstance(self.codes_above, bool) or not whole):
            raise ConfigError(
                f"expected a number of columns from 0 as codes_above, found {self.codes_above!r}: "
                "give a whole number, or leave it out"
            )
        if self.codes_above is not None and self.formula is None and self.like is None:
            raise ConfigError(
                "expected a formula with --codes-above, found none: factors are those of a "
                "--formula; leave out --codes-above"
            )
        if self.cells not in (None, "auto", "yes", "no"):
            raise ConfigError(
                f"expected 'auto', 'yes' or 'no' as cells, found {self.cells!r}: choose one of them"
            )
        if self.dtype not in ("float32", "float64"):
            raise ConfigError(
                f"expected the dtype float32 or float64, found {self.dtype!r}: choose one of them"
            )


def ways_of(document: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return ``missing_as`` with which a fitted formula was made."""
    values = [state["value"] for state in (document or {}).get(STAND_INS, {}).values()]
    return tuple({LEVEL if isinstance(each, str) else INDICATOR: None for each in values}) or None


def missing_spellings(options: IngestOptions) -> Sequence[str] | None:
    """Return the spellings of a missing value: those of the options, else of ``options.like``."""
    if options.missing is not None or options.like is None:
        return options.missing
    spellings: Sequence[str] | None = options.like.get(MISSING)
    return spellings


def refuse_spellings(options: IngestOptions, table: Table) -> None:
    """Refuse spellings of a missing value for a table that has none: one that is not CSV."""
    if options.missing is not None and not set(table.names) <= table.written:
        raise ConfigError(
            f"expected CSV files with --missing, found {table.sources[0].label}: other tables mark "
            "a missing value themselves; leave out --missing"
        )


def unscored(options: IngestOptions, table: Table) -> IngestOptions | None:
    """Return options without a response, for a table of rows to predict, or ``None``.

    With ``options.like`` a table may lack response, trials, censoring and weight, which a
    prediction does not need. ``None`` if the table has a response, or without ``options.like``.
    """
    if options.like is None:
        return None
    if options.formula is None:
        needed = [] if options.response is None else [options.response]
    else:
        needed = columns_of(read_terms(options.formula).response)
    if not needed or any(name in table for name in needed):
        return None
    weight = options.weight if options.weight is not None and options.weight in table else None
    return replace(options, response=None, trials=None, censored=None, weight=weight)


def _joined(options: IngestOptions) -> IngestOptions:
    """Return options with the formula of all linear predictors.

    Raises
    ------
    ConfigError
        If there is no formula, a formula is wrong, or groups have effects.
    """
    if options.formula is None:
        raise ConfigError(
            f"expected a --formula beside --formula-for {options.formula_for[0]!r}, found none: "
            "give the formula of the response"
        )
    if options.group is not None or options.group_as is not None:
        raise ConfigError(
            f"expected a table without groups beside --formula-for {options.formula_for[0]!r}, "
            "found --group or --group-as: leave one of them out"
        )
    formula, driven = formula_of_all(options.formula, options.formula_for)
    # Sums of the responses of a cell are those of a family without further predictors.
    return replace(options, formula=formula, formula_for=(), driven=tuple(driven), sufficient=None)


def as_in(options: IngestOptions, store: Any) -> IngestOptions:
    """Return options that reproduce the columns of an existing store, on its scale.

    ``store`` is a data set or the path of one; ``None`` takes nothing from a store.
    """
    if options.shuffle is None:
        options = replace(options, shuffle=store is None)
    if store is None:
        return _joined(options) if options.formula_for else options
    if not hasattr(store, "attributes"):
        from streammc.stores.store import open_store

        store = open_store(store)
    if options.cells not in (None, "no"):
        raise ConfigError(
            f"expected --like or --cells {options.cells}, found both: rows to predict stay rows; "
            "leave out --cells"
        )
    attributes = dict(store.attributes)
    columns = ("formula", "response", "features", *OTHERS, "codes_above")
    decided = (*columns, "formula_for", "group", "group_as", "missing_as")
    for name in decided:
        if getattr(options, name) not in (None, ()):
            option = name.replace("_", "-")
            raise ConfigError(f"expected --like or --{option}, found both: leave out --{option}")
    for name in ("standardize", "intercept"):
        if not getattr(options, name):
            raise ConfigError(f"expected --like or --no-{name}, found both: leave out --no-{name}")
    document, intercept = attributes["formula"], bool(attributes["intercept"])
    others: dict[str, Any] = {key: attributes.get(key) for key in OTHERS}
    if document is not None:
        if read_design(document, "the store").terms.offsets:
            others["offset"] = None
        return replace(
            options,
            like=attributes,
            formula=document["text"],
            standardize=attributes["standardization"] is not None,
            **others,
        )
    return replace(
        options,
        like=attributes,
        response=attributes["response"],
        features=[name for name in attributes["features"] if not intercept or name != INTERCEPT],
        standardize=attributes["standardization"] is not None,
        intercept=intercept,
        **others,
    )
