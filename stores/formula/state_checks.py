"""Checks of the states of a stored formula: plain values of the right types and sizes."""

from __future__ import annotations

import math
from typing import Any, Final

from streammc.stores.formula.full_rank import MAX_COLUMNS
from streammc.stores.formula.nodes import Call, Node

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
