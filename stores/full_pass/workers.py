"""Independent pieces of work on a few threads, a bounded number of them at once."""

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
    """Call ``function`` for every item, and ``finished`` here with each result.

    Results come in the order in which they are ready. No thread is at work when this
    returns or raises, also by an interruption: what was begun is ended first, and
    what was not is dropped.

    Parameters
    ----------
    function
        Called in ``threads`` threads.
    items
        Taken one by one, a few ahead of the work.
    threads
        At least 1.
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
