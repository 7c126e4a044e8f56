"""Full-rank design columns of the terms; formulaic omits levels and names, but in plain sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from streammc.errors import DataError
from streammc.stores.formula.nodes import Node, label
from streammc.stores.formula.terms import Term, Terms

MAX_COLUMNS: Final = 4096
"""Largest number of columns of one formula."""


class DesignColumn(NamedTuple):
    """A column of the design: ``scale`` times a product of fields."""

    name: str
    fields: tuple[tuple[Node, int], ...]
    """Pairs of an expression and the index of one of its fields."""
    scale: float


class Fields(NamedTuple):
    """Fields of an expression: the levels of a factor, or numeric columns."""

    value: Callable[[], Any]
    """Returns the value for one row, in the form that formulaic takes."""
    size: int
    dropped: int | None
    """Index of the field that is omitted beside an intercept."""
    names: tuple[str, ...] | None = None
    """Names of the others beside an intercept; ``None``: only formulaic knows them."""


def design_columns(terms: Terms, fields: dict[Node, Fields]) -> list[DesignColumn]:
    """Return the full-rank design columns of the terms, with the names of formulaic.

    Raises
    ------
    DataError
        If there are more than 4096 columns, none, or two of the same name.
    """
    _check_size(terms, fields)
    columns = plain_columns(terms.terms, fields)
    if columns is None:
        columns = _by_formulaic(terms, fields)
    names = [column.name for column in columns]
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if not names or len(names) > MAX_COLUMNS or repeated is not None:
        found = (
            "none" if not names else f"{len(names)}" if repeated is None else f"{repeated!r} twice"
        )
        raise DataError(
            f"expected 1 to {MAX_COLUMNS} columns of different names from the formula, "
            f"found {found}: change its terms"
        )
    return columns


def plain_columns(terms: Sequence[Term], fields: dict[Node, Fields]) -> list[DesignColumn] | None:
    """Return the columns of an intercept and of single expressions with known names.

    ``None`` if a term is anything else.
    """
    if not terms or terms[0].factors:
        return None
    columns: list[DesignColumn] = []
    for place, term in enumerate(terms):
        if term.scale != "1" or len(term.factors) != (place > 0):
            return None
        if not term.factors:
            columns.append(DesignColumn("Intercept", (), 1.0))
            continue
        (node,) = term.factors
        found = fields[node]
        if found.names is None:
            return None
        kept = [index for index in range(found.size) if index != found.dropped]
        columns += [
            DesignColumn(name, ((node, index),), 1.0)
            for name, index in zip(found.names, kept, strict=True)
        ]
    return columns


def _by_formulaic(terms: Terms, fields: dict[Node, Fields]) -> list[DesignColumn]:
    """Return the columns, with levels omitted and named by formulaic."""
    from formulaic import Formula, ModelSpec
    from formulaic.parser.types import Factor
    from formulaic.parser.types import Term as FormulaicTerm
    from pandas import DataFrame

    by_label = {label(node): node for node in fields}
    parsed = []
    for term in terms.terms:
        factors = [Factor(label(node), eval_method="lookup") for node in term.factors]
        if term.scale != "1" or not factors:
            factors.insert(0, Factor(term.scale, eval_method="literal"))
        parsed.append(FormulaicTerm(factors))
    context = {label(node): found.value() for node, found in fields.items()}
    spec = ModelSpec(formula=Formula(parsed, _ordering="none"), na_action="ignore", output="sparse")
    matrix = spec.get_model_matrix(DataFrame(index=[0]), context=context)
    columns = []
    for structure in matrix.model_spec.structure:
        recipes: list[DesignColumn] = []
        for scoped in structure.scoped_terms:
            ranges = []
            for part in scoped.factors:
                node = by_label[part.factor.expr]
                skipped = fields[node].dropped if part.reduced else None
                ranges.append([(node, i) for i in range(fields[node].size) if i != skipped])
            for choice in product(*reversed(ranges)):
                recipes.append(DesignColumn("", choice[::-1], float(scoped.scale)))
        for name, recipe in zip(structure.columns, recipes, strict=True):
            columns.append(recipe._replace(name=str(name)))
    return columns


def _check_size(terms: Terms, fields: dict[Node, Fields]) -> None:
    """Refuse a formula of too many columns, before any column is computed."""
    total = 0
    for term in terms.terms:
        counts = [
            max(1, fields[node].size - (fields[node].dropped is not None)) for node in term.factors
        ]
        total += prod(counts)
        if total > MAX_COLUMNS:
            widest = max(fields, key=lambda node: fields[node].size)
            raise DataError(
                f"expected at most {MAX_COLUMNS} columns from the formula, found more: "
                f"{label(widest)!r} has {fields[widest].size} levels or columns; group its rare "
                "levels, or leave it out of the interaction"
            )
