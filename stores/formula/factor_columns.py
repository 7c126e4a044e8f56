"""Factors of ``(1 | g)`` as columns of a design: an indicator of every level, and zeros.

No level is left out, and nothing is centred or scaled: the coefficient of an indicator is the
effect of its level, and that of the zeros the logarithm of the scale of the effects
(``models.base``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streammc.stores.formula.allowed_calls import parse_expression
from streammc.stores.formula.nodes import Node, label
from streammc.stores.formula.tokens import tokenize
from streammc.stores.formula.values import State

MOST_LEVELS: Final = 300
"""Largest number of levels of such a factor: every row has a number for each."""


def factor_node(column: str) -> Node:
    """Return the expression whose fields are the levels of a column, ``C(column)``."""
    node: Node = parse_expression(tokenize(f"C(`{column}`)"))
    return node


def factor_names(column: str, states: Mapping[str, State]) -> list[str]:
    """Return the names of the columns of a factor: ``u[g=a]`` for each level, ``tau[g]``."""
    levels = states[label(factor_node(column))]["levels"]
    return [*(f"u[{column}={level}]" for level in levels), f"tau[{column}]"]


def described_factors(
    factors: Sequence[str], states: Mapping[str, State], first: int
) -> list[dict[str, Any]]:
    """Return the attribute ``factors`` of a store: name, first column and number of levels.

    Parameters
    ----------
    first
        Number of the column of the design at which the factors begin.
    """
    found = []
    for column in factors:
        levels = len(factor_names(column, states)) - 1
        found.append({"column": column, "first": first, "levels": levels})
        first += levels + 1
    return found


def good_factors(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attribute ``factors``, if there is one, fits the features of a store."""
    stated = attributes.get("factors", [])
    if not isinstance(stated, list) or not all(isinstance(each, dict) for each in stated):
        return False
    end = 0
    for each in stated:
        first, levels = each.get("first"), each.get("levels")
        if (
            type(first) is not int
            or type(levels) is not int
            or not isinstance(each.get("column"), str)
        ):
            return False
        if first < end or not 1 < levels <= MOST_LEVELS:
            return False
        end = first + levels + 1
    return end <= len(attributes["features"])
