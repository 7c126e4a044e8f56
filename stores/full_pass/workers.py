"""Calls of one function in a few threads, with a bounded number of waiting results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def in_threads(
    function: Callable[[S], T],
    items: Iterable[S],
    threads: int,
    finished: Callable[[T], None],
) -> None:
    """Call ``function`` for every item in threads, and ``finished`` with each result.

    Results come in the order in which they are ready. No thread is at work when this
    returns or raises, also after an interruption: calls that have begun are completed, and
    calls that have not are dropped.

    Parameters
    ----------
    function
        Called in ``threads`` threads.
    items
        Arguments, taken one by one, a few ahead of the work.
    threads
        Number of threads, at least 1.
    finished
        Called in the calling thread.
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
