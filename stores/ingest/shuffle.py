"""Rows in random order, or brought together by group, beyond the size of the memory.

Every row goes to a bucket on disk; the buckets are put in order one by one in memory and
concatenated. In a shuffle the bucket is chosen independently and uniformly, and its rows are
permuted. For groups it follows from a keyed hash of the label: the rows are sorted by the hash, the
label, and their order in the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.rng import Role, stream
from streammc.stores.format.layout import GROUP

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

    The iterator ``blocks`` may overwrite an array when it yields the next. ``folder`` is private
    to the buckets, and empty again at the end. A record counts as ``row_bytes`` in ``leaf_bytes``,
    on which the order depends: by default those of ``dtype``. ``progress`` gets the number of
    records scattered to buckets so far.
    """
    size_of_row = dtype.itemsize if row_bytes is None else row_bytes
    if n_rows * size_of_row <= leaf_bytes or n_rows < 2:
        rows = _together(blocks, n_rows, dtype)
        yield from permuted(rows, rng.permutation(n_rows))
        return
    # Buckets of 90 % of a leaf, so that by chance hardly any exceeds a leaf.
    n_buckets = max(2, min(_MAX_BUCKETS, -(-n_rows * size_of_row * 10 // (leaf_bytes * 9))))

    def at_random(block: Records) -> NDArray[Any]:
        return rng.integers(0, n_buckets, block.size, dtype=np.uint8)

    sizes, _ = _scatter(blocks, n_buckets, n_rows, folder, at_random, progress)
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


def _together(blocks: Iterable[Records], n_rows: int, dtype: np.dtype[Any]) -> Records:
    """Return blocks of records as one array."""
    rows = np.empty(n_rows, dtype)
    filled = 0
    for block in blocks:
        rows[filled : filled + block.size] = block
        filled += block.size
    if filled != n_rows:
        raise ValueError(f"expected {n_rows} records, found {filled}")
    return rows


def permuted(rows: Records, order: NDArray[np.int64]) -> Iterator[Records]:
    """Yield the records at the positions ``order``, a slice at a time."""
    step = max(1, _SLICE_BYTES // rows.itemsize)
    for start in range(0, order.size, step):
        yield take(rows, order[start : start + step])


def _scatter(
    blocks: Iterable[Records],
    n_buckets: int,
    n_rows: int,
    folder: Path,
    bucket_of: Callable[[Records], NDArray[Any]],
    progress: Callable[[int], None] | None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Append each record to its bucket.

    Returns
    -------
    sizes, single
        (buckets,) number of records of each bucket, and whether all of them are of one group.
    """
    sizes = np.zeros(n_buckets, np.int64)
    single = np.ones(n_buckets, np.bool_)
    first: dict[int, Any] = {}
    for block in blocks:
        buckets = bucket_of(block)
        counts = np.bincount(buckets, minlength=n_buckets)
        ordered = take(block, np.argsort(buckets.astype(np.uint8), kind="stable"))
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts):
            part = ordered[ends[bucket] - counts[bucket] : ends[bucket]]
            if single[bucket] and GROUP in (part.dtype.names or ()):
                label = first.setdefault(int(bucket), part[GROUP][0])
                single[bucket] = bool((part[GROUP] == label).all())
            append(folder / str(bucket), part)
        sizes += counts
        if progress is not None:
            progress(int(sizes.sum()))
    if sizes.sum() != n_rows:
        raise ValueError(f"expected {n_rows} records, found {sizes.sum()}")
    return sizes, single


def take(records: Records, index: NDArray[np.int64]) -> Records:
    """Return the records at the positions ``index``."""
    # Twice as fast as take on the structured dtype.
    opaque = records.view(np.dtype((np.void, records.itemsize)))
    return opaque.take(index).view(records.dtype)


def append(path: Path, values: NDArray[Any]) -> None:
    """Append the bytes of an array to a file, which is made at the first call."""
    # Opened for each call: 256 open files per level would reach the limit of descriptors.
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        raw: Any = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
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


Hashes = NDArray[np.uint64]

_BITS: Final = 8
"""Largest number of bits of the hash that choose a bucket at one level: 256 files."""


def group_key(seed: int) -> Hashes:
    """Return the (2,) key of the hash for a seed of the shuffle."""
    return stream(seed, 0, Role.SHUFFLE).integers(0, 2**64, 2, dtype=np.uint64)


def keyed_hash(labels: NDArray[Any], key: Hashes) -> Hashes:
    """Return hashes (m,) of labels (m,): ``splitmix64`` finalisers of each 8 bytes and the key.

    Labels are int64, or UTF-8 texts as bytes, whose width does not matter.
    """
    if labels.dtype.kind != "S":
        return _mix(_mix(labels.astype(np.int64).view(np.uint64) ^ key[0]) + key[1])
    width = -(-labels.itemsize // 8) * 8
    words = labels.astype(f"S{width}").view(np.uint8).reshape(-1, width).view("<u8")
    hashes = np.full(labels.size, key[0])
    for index in range(words.shape[1]):
        word = words[:, index]
        mixed = _mix((hashes ^ word) + key[1])
        hashes = np.where(word != 0, mixed, hashes)
    return _mix(hashes)


def _mix(x: Hashes) -> Hashes:
    """Return the finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def group_order(labels: NDArray[Any], key: Hashes) -> NDArray[np.int64]:
    """Return the positions (m,) of the rows in the order of hash, label and row."""
    hashes = keyed_hash(labels, key)
    order = np.argsort(hashes, kind="stable")
    sorted_hashes, sorted_labels = hashes[order], labels[order]
    same = sorted_hashes[1:] == sorted_hashes[:-1]
    if (same & (sorted_labels[1:] != sorted_labels[:-1])).any():
        by_label = np.argsort(labels, kind="stable")
        order = by_label[np.argsort(hashes[by_label], kind="stable")]
    return order


def grouped(
    blocks: Iterable[Records],
    n_rows: int,
    dtype: np.dtype[Any],
    folder: Path,
    key: Hashes,
    *,
    leaf_bytes: int = LEAF_BYTES,
    progress: Callable[[int], None] | None = None,
    used_bits: int = 0,
) -> Iterator[Records]:
    """Yield the records of ``blocks`` group by group, a slice of a leaf at a time.

    Peak memory is a few leaves (buckets sorted in memory) and one block; the files have the size
    of the records once, those of a bucket that is cut further twice. The order depends on the
    labels and the key, and on the order of the records within a group.

    The rows are sorted by a keyed hash of their label, then the label, then their order in the
    table: a group is contiguous, also if another label has the same hash. Rows go to buckets on
    disk by the next bits of the hash, and a bucket that fits into memory is sorted there; a larger
    one is cut by further bits. A bucket of a single group needs no sorting and is copied, so that a
    group may be larger than the memory.

    The field ``group`` has the labels. All records share the first ``used_bits`` bits of the hash.
    The other parameters are those of :func:`shuffled`.
    """
    if n_rows * dtype.itemsize <= leaf_bytes or n_rows < 2 or used_bits >= 64:
        rows = _together(blocks, n_rows, dtype)
        yield from permuted(rows, group_order(rows[GROUP], key))
        return
    # Buckets of half a leaf on average, since groups differ in size.
    wanted = 2 * n_rows * dtype.itemsize // leaf_bytes
    bits = min(_BITS, max(1, int(wanted).bit_length()), 64 - used_bits)

    def by_hash(block: Records) -> NDArray[np.int64]:
        hashes = keyed_hash(block[GROUP], key)
        return ((hashes << np.uint64(used_bits)) >> np.uint64(64 - bits)).astype(np.int64)

    sizes, single = _scatter(blocks, 1 << bits, n_rows, folder, by_hash, progress)
    for bucket in np.flatnonzero(sizes):
        path = folder / str(bucket)
        again = read(path, dtype, leaf_bytes // 4)
        if single[bucket]:
            yield from again
        else:
            inner = folder / f"{bucket}.d"
            inner.mkdir()
            yield from grouped(
                again,
                int(sizes[bucket]),
                dtype,
                inner,
                key,
                leaf_bytes=leaf_bytes,
                used_bits=used_bits + bits,
            )
            inner.rmdir()
        path.unlink()
