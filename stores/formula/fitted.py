"""A fitted formula: its state as plain JSON, and the encoding of rows as design columns.

The columns have full rank: formulaic omits levels and names the columns, but in plain sums.

Factors of ``(1 | g)`` that are columns have an indicator of every level, and zeros. No level is
left out, and nothing is centred or scaled: the coefficient of an indicator is the effect of its
level, and that of the zeros the logarithm of the scale of the effects (``models.base``).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.errors import ConfigError, DataError, StoreError
from streammc.protocols import Matrix, Vector
from streammc.stores.formula.bases import BASES, State, as_matrix, transform
from streammc.stores.formula.expressions import Report, Values, fields, finite, fitted_parts
from streammc.stores.formula.parser import (
    MAX_COLUMNS,
    MISSING,
    Call,
    Column,
    Driven,
    GroupTerms,
    Node,
    Term,
    Terms,
    coding_of,
    columns_of,
    label,
    parse_expression,
    read_groups,
    read_nodes,
    read_terms,
    tokenize,
    values_of,
    walk,
)

MOST_LEVELS: Final = 300
"""Largest number of levels of a factor ``(1 | g)`` in columns: every row has a number for each."""


def factor_node(column: str) -> Node:
    """Return the expression whose fields are the levels of a column, ``C(column)``."""
    node: Node = parse_expression(tokenize(f"C(`{column}`)"))
    return node


def factor_names(column: str, states: Mapping[str, State]) -> list[str]:
    """Return the names of the columns of a factor: ``u[g=a]`` for each level, ``tau[g]``."""
    levels = states[label(factor_node(column))]["levels"]
    return [*(f"u[{column}={level}]" for level in levels), f"tau[{column}]"]


def good_factors(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attribute ``factors``, if there is one, fits the features of a store."""
    stated = attributes.get("factors", [])
    if not isinstance(stated, list) or not all(isinstance(each, dict) for each in stated):
        return False
    end = 0
    for each in stated:
        column, first, levels = (each.get(key) for key in ("column", "first", "levels"))
        if not isinstance(column, str) or type(first) is not int or type(levels) is not int:
            return False
        if first < end or not 1 < levels <= MOST_LEVELS:
            return False
        end = first + levels + 1
    return end <= len(attributes["features"])


def good_designs(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attribute ``designs`` fits the features of a store."""
    stated, features = attributes["designs"], {*attributes["features"]}
    if not isinstance(stated, list) or len(stated) < 2:
        return False
    for place, each in enumerate(stated):
        if not isinstance(each, dict) or {*each} != {"parameter", "formula", "columns"}:
            return False
        parameter, columns = each["parameter"], each["columns"]
        if not isinstance(parameter, str) or not isinstance(each["formula"], str):
            return False
        if (parameter == "") != (place == 0) or not isinstance(columns, list):
            return False
        known = all(isinstance(name, str) and name in features for name in columns)
        if not columns or not known or len({*columns}) != len(columns):
            return False
    return True


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
    contrasts: int | None = None
    """Number of columns of contrasts, which stand beside an intercept in place of all fields."""

    def places(self, reduced: bool) -> list[int]:
        """Return the indices of the fields, beside an intercept with ``reduced``."""
        if reduced and self.contrasts is not None:
            return [*range(self.size, self.size + self.contrasts)]
        return [i for i in range(self.size) if not (reduced and i == self.dropped)]


def design_columns(terms: Terms, fields: dict[Node, Fields]) -> list[DesignColumn]:
    """Return the full-rank design columns of the terms, with the names of formulaic."""
    _check_size(terms, fields)
    columns = plain_columns(terms.terms, fields)
    if columns is None:
        columns = _by_formulaic(terms, fields)
    names = [column.name for column in columns]
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if not names or len(names) > MAX_COLUMNS or repeated is not None:
        found = "none" if not names else f"{len(names)}"
        found = found if repeated is None else f"{repeated!r} twice"
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
        own = fields[node]
        if own.names is None:
            return None
        columns += [
            DesignColumn(name, ((node, index),), 1.0)
            for name, index in zip(own.names, own.places(True), strict=True)
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
    context = {label(node): own.value() for node, own in fields.items()}
    spec = ModelSpec(formula=Formula(parsed, _ordering="none"), na_action="ignore", output="sparse")
    matrix = spec.get_model_matrix(DataFrame(index=[0]), context=context)
    columns = []
    for structure in matrix.model_spec.structure:
        recipes: list[DesignColumn] = []
        for scoped in structure.scoped_terms:
            ranges = []
            for part in scoped.factors:
                node = by_label[part.factor.expr]
                ranges.append([(node, i) for i in fields[node].places(part.reduced)])
            for choice in product(*reversed(ranges)):
                recipes.append(DesignColumn("", choice[::-1], float(scoped.scale)))
        for name, recipe in zip(structure.columns, recipes, strict=True):
            columns.append(recipe._replace(name=str(name)))
    return columns


def _check_size(terms: Terms, fields: dict[Node, Fields]) -> None:
    """Refuse a formula of too many columns, before any column is computed."""
    total = 0
    for term in terms.terms:
        total += prod(max(1, len(fields[node].places(True))) for node in term.factors)
        if total > MAX_COLUMNS:
            widest = max(fields, key=lambda node: fields[node].size)
            raise DataError(
                f"expected at most {MAX_COLUMNS} columns from the formula, found more: "
                f"{label(widest)!r} has {fields[widest].size} levels or columns; group its rare "
                "levels, or leave it out of the interaction"
            )


_MAX_NUMBERS: Final = 10_000


def good_state(node: Node, state: object) -> bool:
    """Return whether a stored state has the fields, types and sizes that its term needs."""
    if not isinstance(state, dict):
        return False
    if not isinstance(node, Call) or node.function == "C":
        levels = state.get("levels")
        return (
            isinstance(levels, list)
            and 0 < len(levels) <= MAX_COLUMNS
            and all(type(level) in (str, int, float, bool) for level in levels)
            and all(type(level) is str or math.isfinite(level) for level in levels)
            and len(set(levels)) == len(levels)
            and state.get("reference") in levels
        )
    if node.function in ("center", "scale"):
        values = [state.get(key, "absent") for key in ("center", "scale")]
        return values[1] != 0 and _finite([0 if value is None else value for value in values])
    if node.function == "poly":
        alpha, norms = _numbers(state.get("alpha")), _numbers(state.get("norms2"))
        degree = int(dict(node.options).get("degree", 1))
        sizes = len(alpha) == degree and len(norms) == degree + 1
        return sizes and min(norms) > 0
    knots = _numbers(state.get("knots"))
    bounds = _numbers([state.get("lower_bound"), state.get("upper_bound")])
    mean = state.get("constraints")
    return (
        len(knots) >= 2
        and len(bounds) == 2
        and knots == sorted(knots)
        and (mean is None or (isinstance(mean, list) and len(mean) == 1 and _finite(mean[0])))
        and state.get("cyclic", node.function == "cc") is (node.function == "cc")
    )


def _numbers(values: Any) -> list[float]:
    """Return a list of finite numbers; an empty one for anything else."""
    return values if _finite(values) else []


def _finite(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= _MAX_NUMBERS
        and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    )


KINDS: Final = ("number", "boolean", "text", "category")
"""Kinds of table columns; a category is a dictionary column whose levels are numbers."""
FACTORS: Final = "factors"
"""Key of a stored formula: grouping columns whose levels are columns of the design."""
DESIGNS: Final = "designs"
"""Attribute of a store: ``parameter``, ``formula`` and names of the ``columns`` of each predictor.

The parameter of the first is empty. Absent where all predictors have all columns.
"""
STAND_INS: Final = "missing"
"""Key of a stored formula: what stands for the missing values of columns that had some.

By column: ``value``, the mean of the others or the text of a level, and the number of ``rows``.
"""


class Design:
    """A formula with its fitted state.

    ``kinds`` has one of ``KINDS`` for each column of the table that the formula uses, ``states``
    the fitted state of each expression (levels, knots, means) by its label. The levels of the
    grouping columns ``factors`` are columns of the design, after all others.
    """

    def __init__(
        self,
        terms: Terms,
        kinds: Mapping[str, str],
        states: dict[str, State],
        factors: Sequence[str] = (),
        stand_ins: Mapping[str, State] | None = None,
    ) -> None:
        self.terms = terms
        self.stand_ins = dict(stand_ins or {})
        """What stands for missing values; see ``STAND_INS``."""
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
        n_effects = len(self.effect_names)
        return [False] * (len(self.names) - n_effects) + [True] * n_effects

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
        """Names of columns that cannot change while all others stay as they are.

        Such a column is of a basis or an interaction, or a column of the table that it is made of
        is also in another term: in an interaction, or beside it as in ``x + I(x ** 2)``. Columns of
        the same expressions, such as the levels of one factor, are one term.
        """
        terms = {each.name: frozenset(node for node, _ in each.fields) for each in self.columns}
        sources = {
            term: {name for node in term for name in values_of(node)} for term in terms.values()
        }
        times = Counter(name for names in sources.values() for name in names)
        return [
            name
            for name, term in terms.items()
            if len(term) > 1
            or any(isinstance(node, Call) and node.function in BASES for node in term)
            or any(coding_of(node) is not None for node in term)
            or any(times[source] > 1 for source in sources[term])
        ]

    @property
    def references(self) -> dict[str, list[str]]:
        """Reference levels by column of levels: ``{"origin[T.ORD]": ["origin[ATL]"]}``.

        Columns of a factor of which no level is left out have none.
        """
        known = {frozenset(column.fields) for column in self.columns}
        places = {
            node: state["levels"].index(state["reference"])
            for node in self._nodes
            if is_factor(node, self.kinds)
            and (state := self.states.get(label(node), {})).get("levels")
        }
        by_column = {}
        for column in self.columns:
            missing = []
            for node in dict.fromkeys(node for node, _ in column.fields if node in places):
                of_reference = ((n, places[n] if n == node else i) for n, i in column.fields)
                if frozenset(of_reference) not in known:
                    missing.append(f"{label(node)}[{self.states[label(node)]['reference']}]")
            if missing:
                by_column[column.name] = missing
        return by_column

    def described_factors(self) -> list[dict[str, Any]]:
        """Return the factors as in the attribute ``factors`` of a store."""
        first = len(self.names) - len(self.effect_names) + self.terms.intercept
        attribute = []
        for column in self.factors:
            levels = len(factor_names(column, self.states)) - 1
            attribute.append({"column": column, "first": first, "levels": levels})
            first += levels + 1
        return attribute

    def encode(
        self, values: Values, report: Report, out: Matrix, coded: Sequence[tuple[Node, slice]] = ()
    ) -> None:
        """Write the columns without the intercept.

        ``values`` are those of each table column on the right side (m,), none missing. Every value
        of ``out`` (names, m) float64 is written; it lacks the columns of the factors ``coded``,
        whose unseen levels are reported elsewhere.
        """
        away = {j for _, part in coded for j in range(part.start, part.stop)}
        reports = dict.fromkeys((node for node, _ in coded), _silent)
        names = [column for column in self.columns if column.fields]
        columns = [column for j, column in enumerate(names) if j not in away]
        nodes = self._nodes
        if coded:
            used = {node for column in columns for node, _ in column.fields}
            nodes = [node for node in nodes if node in used]
        by_node = {
            node: fields(node, values, self.states, reports.get(node, report)) for node in nodes
        }
        write_columns(columns, by_node, out)
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

    def some(self, places: Sequence[int], values: Values) -> Matrix:
        """Return some of the columns (k, m), by their places among :attr:`names`.

        ``values`` are those of the table columns that they are made of.

        Raises
        ------
        DataError
            If a value is outside the bounds of a spline, of an unknown level, or not finite.
        """
        named = [column for column in self.columns if column.fields]
        columns = [named[place] for place in places]
        by_node = {
            node: fields(node, values, self.states, refused)
            for node in dict.fromkeys(node for column in columns for node, _ in column.fields)
        }
        out = np.empty((len(columns), next(iter(by_node.values())).shape[1]))
        write_columns(columns, by_node, out)
        return out

    def offset(self, values: Values, report: Report) -> Any:
        """Return the sum of the offsets, (m,) float64; 0.0 without any."""
        total: Any = 0.0
        for node in self.terms.offsets:
            total = total + finite(node, values, self.states, report)
        return total

    def response(self, values: Values, report: Report) -> Any:
        """Return the response, (m,) float64."""
        return finite(self.terms.response, values, self.states, report)

    def designs(self, driven: Sequence[Driven]) -> list[dict[str, Any]]:
        """Return the columns of each predictor as in the attribute ``designs`` of a store.

        Raises
        ------
        ConfigError
            If a column of one is none of all: their terms give it another coding.
        """
        designs, left = [], dict.fromkeys(each.name for each in self.columns)
        for parameter, formula in driven:
            names, other = self._named(_columns(read_terms(formula), json.dumps(self.states)))
            if other is not None:
                raise ConfigError(
                    f"expected {other!r} of {formula[:60]!r} among the columns of all "
                    "formulas, found levels coded in another way: write its interactions with "
                    "their main effects in every formula"
                )
            for name in names:
                left.pop(name, None)
            designs.append({"parameter": parameter, "formula": formula, "columns": names})
        if left:
            raise ConfigError(
                f"expected every column in a formula, found {next(iter(left))!r} in none: leave "
                "out --missing-as, or write interactions with their main effects"
            )
        return designs

    def effects_of(self, groups: GroupTerms) -> GroupTerms:
        """Return random effects with the columns of their slopes.

        Raises
        ------
        ConfigError
            If a column of one is none of the formula: without their intercept effects have one
            of each level.
        """
        own = (Term((), "1"),) * groups.intercept  # of effects: coefficients may have none
        terms = replace(self.terms, terms=(*own, *groups.slopes), groups=())
        columns = _columns(terms, json.dumps(self.states))
        names, other = self._named([column for column in columns if column.fields])
        if other is not None:
            raise ConfigError(
                f"expected the columns of the slopes of {groups.column!r} among those of the "
                f"formula, found {other!r}, which is not: write levels with an intercept, "
                f"(1 + ... | {groups.column}), and interactions with their main effects"
            )
        return groups.of_columns(names)

    def _named(self, columns: Sequence[DesignColumn]) -> tuple[list[str], str | None]:
        """Return columns by their names here, up to the first that has none, and that one."""
        # A column is what it is made of: a:b is b:a.
        known = {(frozenset(each.fields), each.scale): each.name for each in self.columns}
        names: list[str] = []
        for column in columns:
            name = known.get((frozenset(column.fields), column.scale))
            if name is None:
                return names, column.name
            names.append(name)
        return names, None

    def document(self) -> dict[str, Any]:
        """Return the design as plain JSON, for :func:`read_design` to restore."""
        stated = {"text": self.terms.text, "columns": self.kinds, "states": self.states}
        stated |= {FACTORS: list(self.factors)} if self.factors else {}
        return stated | ({STAND_INS: self.stand_ins} if self.stand_ins else {})


def write_columns(
    columns: Sequence[DesignColumn], by_node: Mapping[Node, Matrix], out: Matrix
) -> None:
    """Write columns of the design to the first rows of ``out`` (.., m), from the fields by node."""
    with np.errstate(over="ignore"):  # an overflow is refused later as infinite
        for row, column in zip(out, columns, strict=False):
            node, index = column.fields[0]
            row[:] = by_node[node][index]
            for node, index in column.fields[1:]:
                row *= by_node[node][index]
            if column.scale != 1:
                row *= column.scale


def read_design(document: object, where: str) -> Design:
    """Return the design of a stored formula document, after checking all of it."""
    check_document(document, where)
    assert isinstance(document, dict)
    kinds, states, factors = document["columns"], document["states"], document.get(FACTORS, [])
    stand_ins = document.get(STAND_INS, {})
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
    for name in marked(terms):
        if name not in stand_ins:
            raise _wrong(where, f"what stands for a missing value of {name!r}", "nothing")
    try:
        return Design(terms, kinds, states, factors, stand_ins)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _wrong(where, "states that fit the formula", str(error)) from None


def check_document(document: object, where: str) -> None:
    """Check that a stored formula is in the allow-list, and its states are plain values."""
    optional = {FACTORS, STAND_INS}
    if not isinstance(document, dict) or {*document} - optional != {"text", "columns", "states"}:
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
    stand_ins = document.get(STAND_INS, {})
    for name, state in stand_ins.items() if isinstance(stand_ins, dict) else [("", None)]:
        kind = kinds.get(name)
        if kind is None or not good_stand_in(state, kind):
            raise _wrong(where, f"what stands for a missing value as {name!r}", repr(state))


def good_stand_in(state: object, kind: str) -> bool:
    """Return whether a state says what stands for missing values of a column of this kind."""
    if not isinstance(state, dict) or {*state} != {"value", "rows"}:
        return False
    value = state["value"]
    return type(value) is str if kind == "text" else _finite([value])


def described_stand_ins(stand_ins: Mapping[str, State]) -> list[str]:
    """Return for each column what stands for its missing values, and for how many."""
    lines = []
    for name, state in stand_ins.items():
        value, rows = state["value"], state["rows"]
        how = f"are the level {value!r}" if isinstance(value, str) else f"stand at {value:g}"
        also = "" if isinstance(value, str) else f", their mean, and are marked by {mark_of(name)}"
        lines.append(f"{rows:,} of {name!r} {how}{also}")
    return lines


def mark_of(column: str) -> str:
    """Return the term that marks the missing values of a column, ``missing(x)``."""
    return label(parse_expression(tokenize(f"{MISSING}(`{column}`)")))


def marked(terms: Terms) -> list[str]:
    """Return the columns whose missing values a formula marks, ``missing(x)``."""
    nodes = [*terms.factors, *terms.offsets, terms.response]
    calls = [part for node in nodes for part in walk(node) if isinstance(part, Call)]
    named = (name for each in calls if each.function == MISSING for name in columns_of(each))
    return list(dict.fromkeys(named))


def _not_allowed(where: str, error: ConfigError) -> StoreError:
    return StoreError(f"expected an allowed formula in {where}, found another: {error}")


def remembering(terms: Terms, kinds: Mapping[str, str], factors: Sequence[str] = ()) -> list[Node]:
    """Return the expressions of a formula that have a state, innermost first, each once.

    ``factors`` are the grouping columns whose levels are columns of the design.
    """
    nodes: list[Node] = []
    for factor in [*terms.factors, *terms.offsets, terms.response]:
        nodes += fitted_parts(factor)
        if has_levels(factor, kinds):
            nodes.append(factor)
    return list(dict.fromkeys([*nodes, *map(factor_node, factors)]))


def refused(kind: str, name: str, bad: Any, values: Any) -> None:
    """Raise DataError where a value cannot be computed; see ``Report``."""
    if np.any(bad):
        first = np.flatnonzero(bad)[0]
        raise DataError(
            f"expected values that {name!r} of the formula was fitted for, found {kind}, such as "
            f"{np.asarray(values, object).flat[first]!r}: change the column by less"
        )


def has_levels(node: Node, kinds: Mapping[str, str]) -> bool:
    """Return whether an expression is a factor, of any coding."""
    if isinstance(node, Column):
        return kinds.get(node.name) in ("text", "category")
    return isinstance(node, Call) and node.function == "C"


def is_factor(node: Node, kinds: Mapping[str, str]) -> bool:
    """Return whether an expression is a factor whose columns are indicators of its levels."""
    return has_levels(node, kinds) and coding_of(node) is None


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
        if (coding := coding_of(node)) is not None:
            own = partial(_factor, levels, reference, coding)
            named = tuple(f"{name}[{each}]" for each in _contrast_names(coding, levels))
            known = named if len(set(named)) == len(named) > 0 else None
            return Fields(own, len(levels), None, known, len(levels) - 1)
        names = tuple(f"{name}[T.{level}]" for level in levels if level != reference)
        one_type = {type(level) for level in levels} in ({str}, {bool}, {int})  # as pandas has them
        alone = names if one_type and len(names) == len(levels) - 1 > 0 else None
        value = partial(_factor, levels, reference)
        return Fields(value, len(levels), levels.index(reference), alone)
    if isinstance(node, Call) and node.function in BASES:
        x = np.full(1, state.get("lower_bound", 0.0))
        row = transform(node, x, state)
        metadata = getattr(row, "__formulaic_metadata__", None)
        spans = metadata is not None and metadata.spans_intercept
        return Fields(lambda: row, len(as_matrix(row)), 0 if spans else None)
    return Fields(lambda: np.zeros(1), 1, None, (name,))


def _contrast_names(coding: str, levels: Sequence[Any]) -> list[str]:
    """Return the names of contrasts, as formulaic has them."""
    if coding == "poly":
        return [[".L", ".Q", ".C"][d - 1] if d < 4 else f"^{d}" for d in range(1, len(levels))]
    if coding == "sum":
        return [f"S.{level}" for level in levels[:-1]]
    return [f"H.{level}" for level in levels[1:]]


def _factor(levels: list[Any], reference: Any, coding: str | None = None) -> Any:
    """Return one row of a factor as formulaic takes it."""
    from formulaic.transforms import contrasts
    from pandas import Series

    data = Series(levels[:1], dtype=object)
    kinds = {
        "sum": contrasts.SumContrasts,
        "helmert": contrasts.HelmertContrasts,
        "poly": contrasts.PolyContrasts,
    }
    made = contrasts.TreatmentContrasts(base=reference) if coding is None else kinds[coding]()
    return contrasts.C(data, made, levels=levels)


def _silent(*_: Any) -> None:
    """Do nothing: the values are reported elsewhere."""


def _wrong(where: str, expected: str, found: str) -> StoreError:
    return StoreError(
        f"expected {expected} in the formula of {where}, found {found[:100]}: "
        "copy or make the store again, with one version"
    )


def covariate(attributes: Mapping[str, Any], name: str) -> tuple[Vector, float]:
    """Return ``(a, c)`` so that ``X_i . a + c`` is the column ``name`` on the table's scale.

    A feature is ``mean + scale X_j``. The argument of a B-spline is linear in its columns too: a
    basis of degree ``p >= 1`` with the knots ``t`` reproduces straight lines (Marsden's identity),

        x = sum over k of xi_k B_k(x),    xi_k = (t_{k+1} + ... + t_{k+p}) / p,

    A basis without its first function has it as one minus the sum of the others. The covariate of
    a smooth effect is therefore a linear function of the stored columns, up to rounding.

    Other possible names are columns that stand alone in a ``bs()``, ``center()`` or ``scale()``.
    """
    features = list(attributes["features"])
    table = attributes["standardization"] or {}
    mean = np.asarray(table.get("mean", np.zeros(len(features))))
    scale = np.asarray(table.get("scale", np.ones(len(features))))
    factors = {feature: {feature: 1.0} for feature in features}
    constants = dict.fromkeys(features, 0.0)
    if attributes["formula"] is not None:
        _add_arguments(attributes["formula"], factors, constants)
    if name not in factors:
        near = get_close_matches(name, factors, n=1)
        names = [key for key in factors if key not in features] + features
        more = ", ..." if len(names) > 8 else ""
        hint = (
            f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(names[:8])}{more}"
        )
        raise DataError(
            f"expected a feature, or a column that the formula has in bs() without "
            f"extrapolation 'clip' or 'zero', as covariate, found {name!r}: {hint}"
        )
    weights, constant = np.zeros(len(features)), constants[name]
    for feature, factor in factors[name].items():
        index = features.index(feature)
        weights[index] = factor * scale[index]
        constant += factor * mean[index]
    return weights, float(constant)


def _add_arguments(
    document: Any, factors: dict[str, dict[str, float]], constants: dict[str, float]
) -> None:
    """Add the table columns inside bs(), center() and scale() as functions of the features."""
    design = read_design(document, "the store")
    fields: dict[Node, dict[int, str]] = {}
    for column in design.columns:
        if len(column.fields) == 1 and column.scale == 1:
            node, index = column.fields[0]
            fields.setdefault(node, {})[index] = column.name
    for node, names in fields.items():
        if not isinstance(node, Call) or not isinstance(node.argument, Column):
            continue
        name = node.argument.name
        if name in factors or node.function not in ("bs", "center", "scale"):
            continue
        state, options = design.states[node.label], dict(node.options)
        if node.function != "bs":
            factors[name] = {names[0]: float(state["scale"] or 1.0)}
            constants[name] = float(state["center"] or 0.0)
            continue
        degree, knots = int(options.get("degree", 3)), np.asarray(state["knots"])
        centres = np.array(
            [knots[k + 1 : k + 1 + degree].mean() for k in range(len(knots) - degree - 1)]
        )
        left_out = len(centres) - len(names)
        # Outside of its bounds a clipped basis gives the bound, and one of zeros gives 0.
        if degree < 1 or left_out not in (0, 1) or options.get("extrapolation") in ("clip", "zero"):
            continue
        first = float(centres[0]) if left_out else 0.0
        factors[name] = {
            names[index]: float(centre) - first
            for index, centre in zip(sorted(names), centres[left_out:], strict=True)
        }
        constants[name] = first
