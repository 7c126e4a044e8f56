"""Order of the levels of a factor, from the ordered categories of a table."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
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
        names = list(dict.fromkeys(level for order in self._orders for level in order))
        place = {level: index for index, level in enumerate(names)}
        after: list[set[int]] = [set() for _ in names]
        for order in self._orders:
            for low, high in pairwise(order):
                after[place[low]].add(place[high])
        waits = [0] * len(names)
        for later in after:
            for index in later:
                waits[index] += 1
        ready = [index for index, count in enumerate(waits) if not count]
        merged = []
        while ready:
            index = heapq.heappop(ready)
            merged.append(names[index])
            for follower in after[index]:
                waits[follower] -= 1
                if not waits[follower]:
                    heapq.heappush(ready, follower)
        if len(merged) < len(names):
            circle = " before ".join(repr(names[index]) for index in _circle(after, waits))
            raise DataError(
                f"expected one order of the categories of column {self._column!r}, found "
                f"{circle[:200]}: write them in one order, or name it in the formula, "
                "C(column, levels=[...])"
            )
        return merged


def _circle(after: list[set[int]], waits: list[int]) -> list[int]:
    """Return categories each of which comes before the next, the last of them the first again."""
    before: dict[int, int] = {}
    for index, later in enumerate(after):
        if waits[index]:
            before.update(dict.fromkeys(later, index))
    path = [next(index for index, count in enumerate(waits) if count)]
    while (index := before[path[-1]]) not in path:
        path.append(index)
    return [index, *reversed(path[path.index(index) :])]
