"""A fitted formula: its state as plain JSON, and the encoding of rows as design columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from streammc.errors import ConfigError, StoreError
from streammc.protocols import Matrix
from streammc.stores.formula.factor_columns import described_factors, factor_names, factor_node
from streammc.stores.formula.fit import fitted_parts
from streammc.stores.formula.full_rank import DesignColumn, Fields, design_columns
from streammc.stores.formula.nodes import Call, Column, Node, label, walk
from streammc.stores.formula.shared_columns import changing_together
from streammc.stores.formula.state_checks import good_state
from streammc.stores.formula.terms import Terms, read_groups, read_nodes, read_terms
from streammc.stores.formula.values import (
    Report,
    State,
    Values,
    as_matrix,
    fields,
    finite,
    transform,
)

KINDS: Final = ("number", "boolean", "text", "category")
"""Kinds of table columns; a category is a dictionary column whose levels are numbers."""
FACTORS: Final = "factors"
"""Key of a stored formula: grouping columns whose levels are columns of the design."""


class Design:
    """A formula with its fitted state.

    Parameters
    ----------
    terms
        The formula.
    kinds
        One of ``KINDS`` for each column of the table that the formula uses.
    states
        Fitted state of each expression (levels, knots, means), by its label.
    factors
        Grouping columns of the formula whose levels are columns of the design, after all others.
    """

    def __init__(
        self,
        terms: Terms,
        kinds: Mapping[str, str],
        states: dict[str, State],
        factors: Sequence[str] = (),
    ) -> None:
        self.terms = terms
        self.factors = tuple(factors)
        self.kinds = dict(kinds)
        self.states = states
        self.columns: list[DesignColumn] = list(_columns(terms, json.dumps(states)))
        self._nodes = terms.factors
        self.effect_names = [
            name for factor in self.factors for name in factor_names(factor, states)
        ]

    @property
    def names(self) -> list[str]:
        """Names of the columns, without the intercept."""
        return [column.name for column in self.columns if column.fields] + self.effect_names

    @property
    def table_columns(self) -> list[str]:
        """The columns of the table that are needed to encode rows."""
        return list(dict.fromkeys([*self.terms.columns, *self.factors]))

    @property
    def effects(self) -> list[bool]:
        """For each of :attr:`names`, whether it is of a factor: neither moved nor scaled."""
        return [False] * (len(self.names) - len(self.effect_names)) + [True] * len(
            self.effect_names
        )

    @property
    def levels_alone(self) -> list[bool]:
        """For each of :attr:`names`, whether it is a 0/1 indicator of levels."""
        alone = [
            all(is_factor(node, self.kinds) for node, _ in column.fields) and column.scale == 1
            for column in self.columns
            if column.fields
        ]
        return alone + [True] * len(self.effect_names)

    @property
    def only_together(self) -> list[str]:
        """Names of columns that cannot change while all others stay as they are."""
        return changing_together(self.columns)

    @property
    def references(self) -> dict[str, list[str]]:
        """Reference levels by column of levels: ``{"origin[T.ORD]": ["origin[ATL]"]}``.

        Columns of a factor of which no level is left out have none.
        """
        known = {frozenset(column.fields) for column in self.columns}
        places = {
            node: state["levels"].index(state["reference"])
            for node in self._nodes
            if "levels" in (state := self.states.get(label(node), {}))
        }
        found = {}
        for column in self.columns:
            missing = []
            for node in dict.fromkeys(node for node, _ in column.fields if node in places):
                of_reference = ((n, places[n] if n == node else i) for n, i in column.fields)
                if frozenset(of_reference) not in known:
                    missing.append(f"{label(node)}[{self.states[label(node)]['reference']}]")
            if missing:
                found[column.name] = missing
        return found

    def described_factors(self) -> list[dict[str, Any]]:
        """Return the factors as in the attribute ``factors`` of a store."""
        first = len(self.names) - len(self.effect_names) + self.terms.intercept
        return described_factors(self.factors, self.states, first)

    def encode(
        self, values: Values, report: Report, out: Matrix, coded: Sequence[tuple[Node, slice]] = ()
    ) -> None:
        """Write the columns without the intercept.

        Parameters
        ----------
        values
            (m,) values of each table column on the right side, none missing.
        report
            Called with values that are not finite, out of bounds or of an unseen level.
        out
            (number of names, m) float64, every value of which is written; without the columns of
            ``coded``.
        coded
            Factors and their columns, which are left out; their unseen levels are reported
            elsewhere.
        """
        away = {j for _, part in coded for j in range(part.start, part.stop)}
        reports = dict.fromkeys((node for node, _ in coded), _silent)
        names = [column for column in self.columns if column.fields]
        columns = [column for j, column in enumerate(names) if j not in away]
        nodes = self._nodes
        if coded:
            used = {node for column in columns for node, _ in column.fields}
            nodes = [node for node in nodes if node in used]
        found = {
            node: fields(node, values, self.states, reports.get(node, report)) for node in nodes
        }
        with np.errstate(over="ignore"):  # an overflow is refused later as infinite
            for row, column in zip(out, columns, strict=False):
                node, index = column.fields[0]
                row[:] = found[node][index]
                for node, index in column.fields[1:]:
                    row *= found[node][index]
                if column.scale != 1:
                    row *= column.scale
        at, first = len(columns), len(names)
        for factor in self.factors:
            node = factor_node(factor)
            count = len(self.states[label(node)]["levels"])
            if first not in away:
                out[at : at + count] = fields(node, values, self.states, report)
                at += count
            first += count + 1
            out[at] = 0.0
            at += 1

    def offset(self, values: Values, report: Report) -> Any:
        """Return the sum of the offsets, (m,) float64; 0.0 without any."""
        total: Any = 0.0
        for node in self.terms.offsets:
            total = total + finite(node, values, self.states, report)
        return total

    def response(self, values: Values, report: Report) -> Any:
        """Return the response, (m,) float64."""
        return finite(self.terms.response, values, self.states, report)

    def document(self) -> dict[str, Any]:
        """Return the design as plain JSON, for :func:`read_design` to restore."""
        stated = {"text": self.terms.text, "columns": self.kinds, "states": self.states}
        return stated | ({FACTORS: list(self.factors)} if self.factors else {})


def read_design(document: object, where: str) -> Design:
    """Return the design of a stored formula document, after checking all of it.

    Raises
    ------
    StoreError
        If the formula is not allowed, or the states are not those of its terms.
    """
    check_document(document, where)
    assert isinstance(document, dict)
    kinds, states, factors = document["columns"], document["states"], document.get(FACTORS, [])
    try:
        terms = read_terms(document["text"])
    except ConfigError as error:
        raise _not_allowed(where, error) from None
    for name in [*terms.columns, *factors]:
        if name not in kinds:
            raise _wrong(where, f"the kind of column {name!r}", "none")
    for node in remembering(terms, kinds, factors):
        if not good_state(node, states.get(label(node))):
            raise _wrong(where, f"the state of {label(node)!r}", repr(states.get(label(node))))
    try:
        return Design(terms, kinds, states, factors)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _wrong(where, "states that fit the formula", str(error)) from None


def check_document(document: object, where: str) -> None:
    """Check that a stored formula is in the allow-list, and its states are plain values.

    Raises
    ------
    StoreError
        If they are not; the message names the first wrong part.
    """
    if not isinstance(document, dict) or {*document} - {FACTORS} != {"text", "columns", "states"}:
        raise _wrong(where, "text, columns and states", repr(document))
    try:
        nodes = read_nodes(document["text"])
        grouping = [groups.column for groups in read_groups(document["text"])]
    except ConfigError as error:
        raise _not_allowed(where, error) from None
    factors = document.get(FACTORS, [])
    if not isinstance(factors, list) or any(name not in grouping for name in factors):
        raise _wrong(where, "factors among its grouping columns", repr(factors))
    nodes += [factor_node(name) for name in factors]
    kinds, states = document["columns"], document["states"]
    if not isinstance(kinds, dict) or any(kind not in KINDS for kind in kinds.values()):
        raise _wrong(where, "a kind for each column", repr(kinds))
    parts = [part for node in nodes for part in walk(node)]
    known = {label(part): part for part in parts if isinstance(part, (Call, Column))}
    for name, state in states.items() if isinstance(states, dict) else [("", None)]:
        if name not in known or not good_state(known[name], state):
            raise _wrong(where, f"the state of a term as {name!r}", repr(state))


def _not_allowed(where: str, error: ConfigError) -> StoreError:
    return StoreError(f"expected an allowed formula in {where}, found another: {error}")


def remembering(terms: Terms, kinds: Mapping[str, str], factors: Sequence[str] = ()) -> list[Node]:
    """Return the expressions of a formula that have a state, innermost first, each once.

    ``factors`` are the grouping columns whose levels are columns of the design.
    """
    nodes: list[Node] = []
    for factor in [*terms.factors, *terms.offsets, terms.response]:
        nodes += fitted_parts(factor)
        if is_factor(factor, kinds):
            nodes.append(factor)
    return list(dict.fromkeys([*nodes, *map(factor_node, factors)]))


def is_factor(node: Node, kinds: Mapping[str, str]) -> bool:
    """Return whether an expression is a factor, coded by levels."""
    if isinstance(node, Column):
        return kinds.get(node.name) in ("text", "category")
    return isinstance(node, Call) and node.function == "C"


@lru_cache(maxsize=16)
def _columns(terms: Terms, states: str) -> tuple[DesignColumn, ...]:
    """Return the design columns of a formula with the JSON of its states; 50 take 10 ms."""
    fitted = json.loads(states)
    return tuple(design_columns(terms, {node: _fields(node, fitted) for node in terms.factors}))


def _fields(node: Node, states: Mapping[str, State]) -> Fields:
    """Return the fields of an expression, as formulaic needs them to name its columns."""
    name = label(node)
    state = states.get(name, {})
    if "levels" in state:
        levels, reference = state["levels"], state["reference"]
        names = tuple(f"{name}[T.{level}]" for level in levels if level != reference)
        one_type = {type(level) for level in levels} in ({str}, {bool}, {int})  # as pandas has them
        alone = names if one_type and len(names) == len(levels) - 1 > 0 else None
        value = partial(_factor, levels, reference)
        return Fields(value, len(levels), levels.index(reference), alone)
    if isinstance(node, Call) and node.function in ("poly", "bs", "cr", "cc"):
        x = np.full(1, state.get("lower_bound", 0.0))
        found = transform(node, x, state)
        metadata = getattr(found, "__formulaic_metadata__", None)
        spans = metadata is not None and metadata.spans_intercept
        return Fields(lambda: found, len(as_matrix(found)), 0 if spans else None)
    return Fields(lambda: np.zeros(1), 1, None, (name,))


def _factor(levels: list[Any], reference: Any) -> Any:
    """Return one row of a factor as formulaic takes it."""
    from formulaic.transforms.contrasts import C, TreatmentContrasts
    from pandas import Series

    data = Series(levels[:1], dtype=object)
    return C(data, TreatmentContrasts(base=reference), levels=levels)


def _silent(*_: Any) -> None:
    """Do nothing: the values are reported elsewhere."""


def _wrong(where: str, expected: str, found: str) -> StoreError:
    return StoreError(
        f"expected {expected} in the formula of {where}, found {found[:100]}: "
        "copy or make the store again, with one version"
    )
