"""Work in threads: calls with a bounded number of waiting results, and items made ahead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def in_threads(
    function: Callable[[S], T], items: Iterable[S], threads: int, finished: Callable[[T], None]
) -> None:
    """Call ``function`` for every item in threads, and ``finished`` with each result.

    Results come in the order in which they are ready. No thread is at work when this
    returns or raises, also after an interruption: calls that have begun are completed, and
    calls that have not are dropped.

    Items are taken one by one, a few ahead of the work. ``finished`` is called in the calling
    thread.
    """
    waiting: set[Future[T]] = set()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="streammc-worker")

    def collect(most: int) -> None:
        nonlocal waiting
        while len(waiting) > most:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                finished(future.result())

    try:
        for item in items:
            collect(2 * threads - 1)
            waiting.add(pool.submit(function, item))
        collect(0)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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
