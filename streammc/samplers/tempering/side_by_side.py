"""The inner kernels of one iteration on several threads, the same bits as one after the other.

Compiled code is without the GIL, and every level touches its own replica, step size and
rates. Swaps follow when all levels are done.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.protocols import Index

LEAST_SECONDS: Final = 0.005
"""Duration of an iteration below which threads are not tried. A call of compiled code with
pointers to functions takes 0.3 ms, and an iteration has one for every thread and one for swaps."""
WORTH_IT: Final = 0.9
"""Threads stay where they save a tenth of the time."""


def shares(cost: Index, threads: int) -> list[Index]:
    """Return the levels of every thread: the dearest first, to the thread with the least work."""
    taken: list[list[int]] = [[] for _ in range(threads)]
    load = np.zeros(threads)
    for level in np.argsort(-cost, kind="stable"):
        thread = int(np.argmin(load))
        taken[thread].append(int(level))
        load[thread] += cost[level]
    return [np.array(levels, dtype=np.int64) for levels in taken]


class Choice:
    """Whether threads pay, by the seconds that an iteration took with them and without."""

    def __init__(self) -> None:
        self._alone = 0.0
        self._decided: bool | None = None

    def __call__(self, seconds: float) -> bool:
        """Return whether to use threads next, ``seconds`` after the last batch; 0 before any."""
        if self._decided is not None:
            return self._decided
        if self._alone > 0.0:
            self._decided = seconds < WORTH_IT * self._alone
            return self._decided
        if seconds < LEAST_SECONDS:
            return False
        self._alone = seconds
        return True
