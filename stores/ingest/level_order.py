"""Order of the levels of a factor, from the ordered categories of a table."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import pyarrow as pa

from streammc.errors import DataError


class LevelOrder:
    """Order of the categories of one column, merged from the ordered dictionaries of its parts.

    Files and row groups may have dictionaries of their own, each with some of the categories.

    Parameters
    ----------
    column
        Name of the column, for messages.
    levels_of
        Returns the levels of an Arrow dictionary in their order, without missing ones.
    """

    def __init__(self, column: str, levels_of: Callable[[Any], list[Any]]) -> None:
        self._column = column
        self._levels_of = levels_of
        self._dictionaries: list[Any] = []
        self._orders: list[list[Any]] = []

    def add(self, array: Any) -> None:
        """Record the order of an Arrow array, if it is of ordered categories."""
        if not pa.types.is_dictionary(array.type) or not array.type.ordered:
            return
        # An equal dictionary comes with every batch of a source.
        if not any(array.dictionary.equals(known) for known in self._dictionaries):
            self._dictionaries.append(array.dictionary)
            self._orders.append(self._levels_of(array.dictionary))

    def arrange(self, found: Iterable[Any]) -> list[Any]:
        """Return levels in the order of the categories; those that are none follow, sorted.

        Categories that no dictionary compares are in the order of their appearance.

        Raises
        ------
        DataError
            If the dictionaries contradict each other.
        """
        merged, levels = self._merged(), set(found)
        known = [level for level in merged if level in levels]
        return known + sorted(levels - {*known})

    def _merged(self) -> list[Any]:
        """Return all categories in one order that agrees with every dictionary."""
        if len(self._orders) < 2:
            return self._orders[0] if self._orders else []
        appeared = dict.fromkeys(level for order in self._orders for level in order)
        place = {level: index for index, level in enumerate(appeared)}
        sorter = TopologicalSorter[Any](dict.fromkeys(appeared, ()))
        for order in self._orders:
            for low, high in pairwise(order):
                sorter.add(high, low)
        try:
            sorter.prepare()
        except CycleError as error:
            circle = " before ".join(map(repr, error.args[1]))
            raise DataError(
                f"expected one order of the categories of column {self._column!r}, found "
                f"{circle[:200]}: write them in one order, or name it in the formula, "
                "C(column, levels=[...])"
            ) from None
        merged, ready = [], [(place[level], level) for level in sorter.get_ready()]
        heapq.heapify(ready)
        while ready:
            _, level = heapq.heappop(ready)
            merged.append(level)
            sorter.done(level)
            for follower in sorter.get_ready():
                heapq.heappush(ready, (place[follower], follower))
        return merged
