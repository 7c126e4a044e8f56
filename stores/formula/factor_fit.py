"""Fitters of factors in a formula: the levels in the rows in use, their order and the reference."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.formula.full_rank import MAX_COLUMNS
from streammc.stores.formula.nodes import Call, Node, label
from streammc.stores.formula.values import Level, State, level_of
from streammc.stores.ingest.exact_values import iso_word
from streammc.stores.ingest.level_order import LevelOrder
from streammc.stores.ingest.level_values import Coder


class Distinct:
    """Fitter of a numeric factor: its distinct values.

    Parameters
    ----------
    node
        The factor.
    boolean
        Whether the levels 0 and 1 are written as False and True.
    order
        Order of the levels; ``None`` sorts them.
    """

    def __init__(self, node: Node, boolean: bool, order: LevelOrder | None = None) -> None:
        self._node = node
        self._boolean = boolean
        self._order = order
        self._values: Vector = np.empty(0)

    def add(self, values: Vector) -> None:
        """Add the values (m,) of the next rows.

        Raises
        ------
        DataError
            If there are more levels than a formula may have columns.
        """
        self._values = np.union1d(self._values, values)
        _check_levels(self._node, self._values.size)

    def finish(self) -> State:
        """Return the levels and the reference level."""
        values = self._values.tolist()
        if self._order is not None and not _listed(self._node):
            values = self._order.arrange(values)
        levels = [level_of(value, self._boolean) for value in values]
        return factor_state(self._node, levels)


class TextLevels:
    """Fitter of a text factor: its distinct values in the rows in use."""

    def __init__(self, node: Node, coder: Coder) -> None:
        self._node = node
        self._coder = coder
        self._codes: Vector = np.empty(0)

    def add(self, values: Vector) -> None:
        """Add the codes (m,) of the next rows."""
        self._codes = np.union1d(self._codes, values)

    def finish(self) -> State:
        """Return the levels and the reference level."""
        codes = self._codes.astype(int).tolist()
        if _listed(self._node):
            levels = sorted(self._coder.values[code] for code in codes)
        else:
            levels = self._coder.ordered(codes)
        _check_levels(self._node, len(levels))
        return factor_state(self._node, levels)


def _listed(node: Node) -> bool:
    """Return whether a factor lists its levels, ``C(column, levels=[...])``."""
    return isinstance(node, Call) and "levels" in dict(node.options)


def factor_state(node: Node, found: list[Level]) -> State:
    """Return the levels and the reference level of a factor, checked against its options.

    Raises
    ------
    DataError
        If a level in the data is not in the list ``levels``, or the reference is not a level.
    """
    options = dict(node.options) if isinstance(node, Call) else {}
    levels = found
    if "levels" in options:
        levels = [_whole(level) for level in options["levels"]]
        for level in found:
            if level not in levels:
                raise DataError(
                    f"expected only the levels listed in {label(node)!r} of the formula, found "
                    f"{level!r} in the data: add it to levels=[...], or leave out the list"
                )
    base = options.get("contrasts", ())
    reference = _whole(base[0]) if base else levels[0]
    if reference not in levels:
        near = get_close_matches(str(reference), map(str, levels), n=1)
        shown = ", ".join(map(repr, levels[:8])) + (", ..." if len(levels) > 8 else "")
        hint = f"did you mean {near[0]!r}?" if near else f"choose among {shown}"
        raise DataError(
            f"expected a level of the data as the reference of {label(node)!r}, found "
            f"{reference!r}: {hint}"
        )
    return {"levels": levels, "reference": reference}


def _whole(level: Any) -> Level:
    if isinstance(level, str):
        return iso_word(level)
    if isinstance(level, float) and level.is_integer():
        return int(level)
    found: Level = level
    return found


def _check_levels(node: Node, count: int) -> None:
    if count > MAX_COLUMNS:
        raise DataError(
            f"expected at most {MAX_COLUMNS} levels in {label(node)!r} of the formula, found "
            f"{count}: group rare levels, or take the column as a number"
        )
