"""Items of an iterator, made ahead by a thread."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Generator[T]) -> Generator[T]:
    """Yield ``items``; a thread makes the next one while the caller uses the last.

    An error of ``items`` is raised where its item would have been yielded. ``items`` is closed
    when the caller stops, and must not overwrite an item when it makes the next.
    """
    try:
        with ThreadPoolExecutor(1, "streammc-ahead") as thread:
            following = thread.submit(next, items, None)
            while (item := following.result()) is not None:
                following = thread.submit(next, items, None)
                yield item
    finally:
        items.close()
