"""A cold page cache, and what the disk under it can do: shared by the benchmarks."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core import types

PAGE = 4096
READS = 64_000

_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.intc, types.uintp, types.uintp, types.intp)
)
_fadvise: Any = types.ExternalFunction(
    "posix_fadvise", types.intc(types.intc, types.intp, types.intp, types.intc)
)


def drop_cache(store: Path, mapped: Iterable[np.ndarray] = ()) -> None:
    """Drop the files of ``store`` from the page cache; ``mapped`` arrays let go of them."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for array in mapped:
        if array.size:
            size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            libc.madvise(array.ctypes.data, size, mmap.MADV_DONTNEED)
    for path in store.resolve().rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@njit(nogil=True)
def _read(descriptors, files, offsets, ahead, buffer):  # type: ignore[no-untyped-def]
    """Read pages of files, ``ahead`` of them asked for before each batch of reads."""
    done = 0
    for start in range(0, files.shape[0], max(ahead, 1)):
        stop = min(start + max(ahead, 1), files.shape[0])
        if ahead > 1:
            for i in range(start, stop):
                _fadvise(descriptors[files[i]], offsets[i], 4096, 3)
        for i in range(start, stop):
            done += _pread(descriptors[files[i]], buffer.ctypes.data, 4096, offsets[i])
    return done


def random_reads(store: Path, reads: int = READS) -> float:
    """Return the random 4 kB reads a second that the disk gives, the best of three ways.

    128 threads of plain ``pread``; 4 and 16 threads that ask for 1024 pages ahead.
    """
    files = sorted(path for path in (store / "X").iterdir() if path.stat().st_size >= 1 << 20)
    best = 0.0
    rng = np.random.default_rng(int(time.time()))
    for threads, ahead in ((128, 1), (4, 1024), (16, 1024)):
        drop_cache(store)
        opened = [os.open(path, os.O_RDONLY) for path in files]
        try:
            for descriptor in opened:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            table, each = np.array(opened), reads // threads
            pages = np.array([os.fstat(descriptor).st_size // PAGE for descriptor in opened])
            jobs = []
            for _ in range(threads):
                chosen = rng.integers(0, len(opened), each)
                offsets = (rng.random(each) * pages[chosen]).astype(np.int64) * PAGE
                jobs.append((table, chosen, offsets, ahead, np.zeros(PAGE, np.uint8)))
            _read(table, jobs[0][1][:0], jobs[0][2][:0], ahead, jobs[0][4])  # compiles
            begun = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                done = sum(pool.map(lambda job: _read(*job), jobs))
            seconds = time.perf_counter() - begun
        finally:
            for descriptor in opened:
                os.close(descriptor)
        assert done == each * threads * PAGE, "a read came back short"
        best = max(best, each * threads / seconds)
    return best
