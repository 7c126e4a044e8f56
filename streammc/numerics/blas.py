"""Limit of BLAS to one thread while compiled kernels run in threads of streammc.

A product split over two BLAS threads is summed in another order than on one, and
two of these threads with two BLAS threads each are slower than with one. The limit is a
property of the process, so the threads inside are counted: the first to enter sets the
limit, and the last to leave removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()
_entries = 0
_limit: Any = None


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  the BLAS that compiled code calls is scipy's
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit every BLAS of this process to one thread until the block ends."""
    global _entries, _limit
    with _lock:
        if _entries == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
            _limit.__enter__()
        _entries += 1
    try:
        yield
    finally:
        with _lock:
            _entries -= 1
            if _entries == 0:
                _limit.__exit__(None, None, None)
                _limit = None
