"""Factors of a formula whose columns a store holds as codes: one integer a row.

A factor is coded where its indicators stand alone in the design, one after the other, as those of
``C(g)`` or of a column of text. An interaction, such as ``x:C(g)``, stays as columns of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.protocols import Index, Vector
from streammc.stores.format.codes import described_codes
from streammc.stores.format.layout import CODES
from streammc.stores.formula.factor_columns import factor_node
from streammc.stores.formula.fitted import Design, is_factor
from streammc.stores.formula.nodes import Node, label
from streammc.stores.formula.values import Report, Values, level_index

CODED_ABOVE: Final = 64
"""Number of columns of a factor above which it is coded; ``bench/dimension.py`` has the times."""


class CodedFactor(NamedTuple):
    """A factor of a formula whose columns are codes."""

    node: Node
    first: int
    """Its first column among ``Design.names``."""
    codes: Index
    """(levels,) code of each level: 0, or the number of its column from 1."""

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.codes.max())

    @property
    def range(self) -> slice:
        """The columns among ``Design.names``."""
        return slice(self.first, self.first + self.columns)

    def encode(self, design: Design, values: Values, report: Report) -> Vector:
        """Return the codes of rows (m,) as numbers; report unseen levels."""
        levels = level_index(self.node, values, design.states, report)
        return self.codes[levels].astype(np.float64)


def coded_factors(design: Design, above: int) -> list[CodedFactor]:
    """Return the factors of more than ``above`` columns, in their order.

    The one of fewest columns stays as it is if the design would have no other column.
    """
    found = [each for each in lone_factors(design) if each.columns > above]
    coded = sum(each.columns for each in found)
    if found and coded == len(design.names) and not design.terms.intercept:
        found.remove(min(found, key=lambda each: each.columns))
    return found


def stated_factors(design: Design, attributes: Mapping[str, Any]) -> list[CodedFactor]:
    """Return the factors that a store has as codes."""
    stated = {each["first"] - design.terms.intercept for each in attributes.get(CODES, ())}
    return [each for each in lone_factors(design) if each.first in stated]


def described(factors: Sequence[CodedFactor], design: Design) -> list[dict[str, Any]]:
    """Return the attribute ``codes`` of a store."""
    shift = int(design.terms.intercept)
    return [described_codes(label(each.node), each.first + shift, each.columns) for each in factors]


def lone_factors(design: Design) -> list[CodedFactor]:
    """Return every factor whose indicators stand alone, one after the other, with its codes."""
    columns = [column for column in design.columns if column.fields]
    found, at = [], 0
    while at < len(columns):
        node, _ = columns[at].fields[0]
        end = at
        while end < len(columns) and len(columns[end].fields) == 1:
            if columns[end].fields[0][0] != node or columns[end].scale != 1:
                break
            end += 1
        fields = [column.fields[0][1] for column in columns[at:end]]
        if is_factor(node, design.kinds) and len(set(fields)) == len(fields) > 0:
            found.append(CodedFactor(node, at, _codes(design, node, fields)))
        at = max(end, at + 1)
    for factor in design.factors:
        node = factor_node(factor)
        levels = len(design.states[label(node)]["levels"])
        found.append(CodedFactor(node, at, _codes(design, node, range(levels))))
        at += levels + 1
    return found


def _codes(design: Design, node: Node, fields: Sequence[int]) -> Index:
    codes = np.zeros(len(design.states[label(node)]["levels"]), np.int64)
    codes[np.asarray(fields)] = np.arange(1, len(fields) + 1)
    return codes
