"""A uniformly random permutation of rows that do not fit into memory.

Every row goes to a bucket on disk, chosen independently and uniformly; the buckets
are permuted one by one in memory and concatenated. Given the sizes of the buckets every
order of the rows is equally likely, and therefore also unconditionally: Rao (1961) and
Sandelius (1962). A bucket that is still too large is shuffled in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Records = NDArray[Any]

LEAF_BYTES: Final = 64 << 20
_MAX_BUCKETS: Final = 256
_SLICE_BYTES: Final = 1 << 19
"""Bytes of the records that are gathered at once: a part of the second-level cache."""
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def shuffled(
    blocks: Iterable[Records],
    n_rows: int,
    dtype: np.dtype[Any],
    folder: Path,
    rng: np.random.Generator,
    *,
    leaf_bytes: int = LEAF_BYTES,
    row_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Records]:
    """Yield the records of ``blocks`` in random order, a slice of a leaf at a time.

    Peak memory is one leaf (a bucket permuted in memory) and one block; the files have the
    size of the records once. The order depends on the generator, the number of rows and the
    lengths of the blocks.

    Parameters
    ----------
    blocks
        1-D arrays of ``dtype``; the iterator may overwrite an array when it yields the next.
    n_rows
        Their total length.
    folder
        An existing private directory for the buckets; empty again at the end.
    rng
        Random generator; drawn from until the last record is yielded.
    leaf_bytes
        Largest number of bytes that are permuted in memory at once.
    row_bytes
        Bytes that a record counts for in ``leaf_bytes``, on which the order depends; ``None``:
        those of ``dtype``.
    progress
        Called with the number of records scattered to buckets so far.
    """
    size_of_row = dtype.itemsize if row_bytes is None else row_bytes
    if n_rows * size_of_row <= leaf_bytes or n_rows < 2:
        rows = np.empty(n_rows, dtype)
        filled = 0
        for block in blocks:
            rows[filled : filled + block.size] = block
            filled += block.size
        if filled != n_rows:
            raise ValueError(f"expected {n_rows} records, found {filled}")
        yield from permuted(rows, rng.permutation(n_rows))
        return
    # Buckets of 90 % of a leaf, so that by chance hardly any exceeds a leaf.
    n_buckets = max(2, min(_MAX_BUCKETS, -(-n_rows * size_of_row * 10 // (leaf_bytes * 9))))
    sizes = _scatter(blocks, n_buckets, folder, rng, progress)
    if sizes.sum() != n_rows:
        raise ValueError(f"expected {n_rows} records, found {sizes.sum()}")
    leaf_rows = leaf_bytes // size_of_row
    leaf = np.empty(min(leaf_rows, int(sizes.max())), dtype)
    for bucket, size in enumerate(sizes):
        if size == 0:
            continue
        path = folder / str(bucket)
        if size <= leaf_rows:
            yield from permuted(read_whole(path, leaf[:size]), rng.permutation(size))
            path.unlink()
            continue
        inner = folder / f"{bucket}.d"
        inner.mkdir()
        yield from shuffled(
            read(path, dtype, max(1, leaf_bytes // 4 // size_of_row) * dtype.itemsize),
            int(size),
            dtype,
            inner,
            rng,
            leaf_bytes=leaf_bytes,
            row_bytes=row_bytes,
        )
        path.unlink()
        inner.rmdir()


def permuted(rows: Records, order: NDArray[np.int64]) -> Iterator[Records]:
    """Yield the records at the positions ``order``, a slice at a time."""
    step = max(1, _SLICE_BYTES // rows.itemsize)
    for start in range(0, order.size, step):
        yield take(rows, order[start : start + step])


def _scatter(
    blocks: Iterable[Records],
    n_buckets: int,
    folder: Path,
    rng: np.random.Generator,
    progress: Callable[[int], None] | None,
) -> NDArray[np.int64]:
    """Append each record to a random bucket; return the number of records in each bucket."""
    sizes = np.zeros(n_buckets, np.int64)
    for block in blocks:
        labels = rng.integers(0, n_buckets, block.size, dtype=np.uint8)
        counts = np.bincount(labels, minlength=n_buckets)
        ordered = take(block, np.argsort(labels, kind="stable"))
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts):
            append(folder / str(bucket), ordered[ends[bucket] - counts[bucket] : ends[bucket]])
        sizes += counts
        if progress is not None:
            progress(int(sizes.sum()))
    return sizes


def take(records: Records, index: NDArray[np.int64]) -> Records:
    """Return the records at the positions ``index``."""
    # Twice as fast as take on the structured dtype.
    opaque = records.view(np.dtype((np.void, records.itemsize)))
    return opaque.take(index).view(records.dtype)


def append(path: Path, records: Records) -> None:
    """Append records to a file, which is made at the first call."""
    # Opened for each call: 256 open files per level would reach the limit of descriptors.
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        raw: Any = records.view(np.uint8)
        view = memoryview(raw)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def read_whole(path: Path, into: Records) -> Records:
    """Fill an array with the records of a file, and return it."""
    raw: Any = into.view(np.uint8)
    view, done = memoryview(raw), 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(view[done:]):
            done += count
    if done != len(view):
        raise ValueError(f"expected {len(view)} bytes of records, found {done}")
    return into


def read(path: Path, dtype: np.dtype[Any], block_bytes: int) -> Iterator[Records]:
    """Yield the records of a file, at most ``block_bytes`` at a time."""
    rows = max(1, block_bytes // dtype.itemsize)
    with open(path, "rb", buffering=0) as file:
        while True:
            block = np.fromfile(file, dtype, rows)
            if block.size == 0:
                return
            yield block
