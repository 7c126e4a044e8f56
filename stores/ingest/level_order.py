"""Order of the levels of a factor, from the categories of a table."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import pyarrow as pa

from streammc.errors import DataError


class LevelOrder:
    """Order of the categories of one column, merged from the dictionaries of its parts.

    Files and row groups may have dictionaries of their own, each with some of the categories.
    Ordered dictionaries must agree. Unordered ones are joined in the order of their appearance,
    as pandas joins them.

    Parameters
    ----------
    column
        Name of the column, for messages.
    levels_of
        Returns the levels of an Arrow dictionary in their order, without missing ones.
    unordered
        Whether unordered dictionaries count, those of a column of categories. They do not where
        the column is text that is only read as a dictionary.
    """

    def __init__(
        self, column: str, levels_of: Callable[[Any], list[Any]], unordered: bool = True
    ) -> None:
        self._column = column
        self._levels_of = levels_of
        self._unordered = unordered
        self._dictionaries: list[Any] = []
        self._orders: list[list[Any]] = []
        self._last: Any = None
        self._appeared: dict[Any, None] = {}

    def add(self, array: Any) -> None:
        """Record the order of an Arrow array, if it is of categories."""
        if not pa.types.is_dictionary(array.type):
            return
        words = array.dictionary
        # An equal dictionary comes with every batch of a source.
        if not array.type.ordered:
            if self._unordered and (self._last is None or not words.equals(self._last)):
                self._last = words
                self._appeared |= dict.fromkeys(self._levels_of(words))
        elif not any(words.equals(known) for known in self._dictionaries):
            self._dictionaries.append(words)
            self._orders.append(self._levels_of(words))

    def arrange(self, found: Iterable[Any]) -> list[Any]:
        """Return levels in the order of the categories; those that are none follow, sorted.

        Categories that no ordered dictionary compares are in the order of their appearance.

        Raises
        ------
        DataError
            If ordered dictionaries contradict each other, or one has a category twice with
            another one in between.
        """
        levels = set(found)
        ranked = dict.fromkeys([*self._merged(), *self._appeared])
        known = [level for level in ranked if level in levels]
        return known + sorted(levels - {*known})

    def _merged(self) -> list[Any]:
        """Return all categories in one order that agrees with every ordered dictionary."""
        appeared = dict.fromkeys(level for order in self._orders for level in order)
        place = {level: index for index, level in enumerate(appeared)}
        sorter = TopologicalSorter[Any](dict.fromkeys(appeared, ()))
        for order in self._orders:
            for low, high in pairwise(order):
                if low != high:  # two neighbours of a dictionary may be one level
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
