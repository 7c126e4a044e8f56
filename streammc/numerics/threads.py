"""Number of threads that this process may run at once."""

from __future__ import annotations

import os


def available_threads() -> int:
    """Return the number of cores that this process may use: those of its affinity mask.

    ``taskset``, a batch system or a container may allow fewer than the machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
