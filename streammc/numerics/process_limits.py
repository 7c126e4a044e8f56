"""Limits of this process: threads, memory, and BLAS beside compiled kernels.

While compiled kernels run in threads of streammc, BLAS has one thread (:func:`single_threaded`).
A product split over two BLAS threads is summed in another order than on one, and
two of these threads with two BLAS threads each are slower than with one. The limit is a
property of the process, so the threads inside are counted: the first to enter sets the
limit, and the last to leave removes it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from streammc.errors import OutOfMemoryError


def available_threads() -> int:
    """Return the number of cores that this process may use: those of its affinity mask.

    ``taskset``, a batch system or a container may allow fewer than the machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_BASE: Final = {"DATA": 256 << 20, "AS": 512 << 20}
"""Bytes that the compiled code and the libraries of a command take."""
_PER_CORE: Final = {"DATA": 32 << 20, "AS": 96 << 20}
"""Bytes of the buffers, stacks and heaps of the threads of a core."""
_OPTIONS: Final = {"DATA": "-d", "AS": "-v"}
_USED: Final = {"DATA": "VmData:", "AS": "VmSize:"}
_GROUPS: Final = (  # cgroups v1, then v2: folder, files of limit and use, entry of cached bytes
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ("", "memory.max", "memory.current", "inactive_file"),
)


def check_process_limits() -> None:
    """Raise OutOfMemoryError if ``ulimit`` leaves less memory than libraries need to load.

    BLAS and the interpreter end a process, or never return, where memory ends while they load.
    """
    cores = available_threads()
    for name, limit in _process_limits().items():
        least = _BASE[name] + cores * _PER_CORE[name]
        if limit < least:
            raise OutOfMemoryError(
                f"expected at least {least >> 20} MB of memory for a process on {cores} cores, "
                f"found a limit of {limit >> 20} MB (ulimit {_OPTIONS[name]}): raise the limit"
            )


def free_within_limits() -> int | None:
    """Return the bytes that the limits of this process leave; None without limits."""
    free = []
    for name, limit in _process_limits().items():
        free.append(limit - _status(_USED[name]))
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        free += [each for line in lines if (each := _free_in_group(line)) is not None]
    except OSError:
        pass
    return max(0, min(free)) if free else None


def _process_limits() -> dict[str, int]:
    """Return the limits of ``ulimit`` in bytes, without those that are not set."""
    try:
        import resource
    except ImportError:
        return {}
    found = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in _BASE}
    return {name: limit for name, limit in found.items() if limit != resource.RLIM_INFINITY}


def _status(key: str) -> int:
    """Return an entry of the status of this process in bytes; 0 where there is none."""
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))
    except (OSError, StopIteration):
        return 0


def _free_in_group(line: str) -> int | None:
    """Return the bytes that a line of ``/proc/self/cgroup`` leaves; None without a limit."""
    _, controllers, name = line.split(":", 2)
    if controllers not in ("memory", ""):
        return None
    folder, limit, used, cached = _GROUPS[controllers == ""]
    group = Path("/sys/fs/cgroup", folder, name.strip("/"))
    try:
        most = (group / limit).read_text().strip()
        if most == "max" or int(most) >= 2**60:
            return None
        counts = (entry.split() for entry in (group / "memory.stat").read_text().splitlines())
        reclaimable = next((int(value) for key, value in counts if key == cached), 0)
        return int(most) - int((group / used).read_text()) + reclaimable
    except (OSError, ValueError):
        return None


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


def available_memory() -> int:
    """Return the memory in bytes that the system and the limits of this process leave.

    Half of the physical memory if the system does not report the available memory.
    """
    within = free_within_limits()
    return _system_memory() if within is None else min(within, _system_memory())


def _system_memory() -> int:
    """Return the available memory of the system in bytes."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
