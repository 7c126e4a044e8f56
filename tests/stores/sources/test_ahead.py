from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from streammc.stores.in_threads import ahead


def counted(n: int, threads: list[int], closed: list[bool]) -> Generator[int]:
    try:
        for number in range(1, n + 1):
            threads.append(threading.get_ident())
            yield number
        if n == 3:
            raise ValueError("after the third")
    finally:
        closed.append(True)


def test_items_come_in_order_from_another_thread() -> None:
    threads: list[int] = []
    closed: list[bool] = []
    assert [1, 2, 3, 4, 5] == list(ahead(counted(5, threads, closed)))
    assert 5 == len(threads)
    assert threading.get_ident() not in threads
    assert closed == [True]


def test_one_item_is_made_ahead_and_no_more() -> None:
    threads: list[int] = []
    items = ahead(counted(100, threads, []))
    for _ in range(10):
        next(items)
    items.close()
    assert 10 <= len(threads) <= 11


def test_an_error_is_raised_after_the_items_before_it() -> None:
    closed: list[bool] = []
    found = []
    with pytest.raises(ValueError, match="after the third"):
        for item in ahead(counted(3, [], closed)):
            found.append(item)
    assert [1, 2, 3] == found
    assert closed == [True]


def test_items_are_closed_with_their_reader() -> None:
    closed: list[bool] = []
    items = ahead(counted(100, [], closed))
    next(items)
    assert closed == []
    items.close()
    assert closed == [True]
