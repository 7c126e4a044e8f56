"""Rows brought together by group, the groups in random order, beyond the size of the memory.

The rows are sorted by a keyed hash of their label, then the label, then their order in the table:
a group is contiguous, also if another label has the same hash, and the order of the groups is
that of the hashes. Rows go to buckets on disk by the next bits of the hash, and a bucket that fits
into memory is sorted there; a larger one is cut by further bits. A bucket of a single group needs
no sorting and is copied, so that a group may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.rng import Role, stream
from streammc.stores.format.layout import GROUP
from streammc.stores.ingest.shuffle import LEAF_BYTES, Records, append, permuted, read, take

Hashes = NDArray[np.uint64]

_BITS: Final = 8
"""Largest number of bits of the hash that choose a bucket at one level: 256 files."""


def group_key(seed: int) -> Hashes:
    """Return the (2,) key of the hash for a seed of the shuffle."""
    return stream(seed, 0, Role.SHUFFLE).integers(0, 2**64, 2, dtype=np.uint64)


def keyed_hash(labels: NDArray[Any], key: Hashes) -> Hashes:
    """Return hashes (m,) of labels (m,): ``splitmix64`` finalisers of each 8 bytes and the key.

    Parameters
    ----------
    labels
        int64, or UTF-8 texts as bytes; the width of the bytes does not matter.
    key
        (2,) random numbers.
    """
    if labels.dtype.kind != "S":
        return _mix(_mix(labels.astype(np.int64).view(np.uint64) ^ key[0]) + key[1])
    width = -(-labels.itemsize // 8) * 8
    words = labels.astype(f"S{width}").view(np.uint8).reshape(-1, width).view("<u8")
    found = np.full(labels.size, key[0])
    for index in range(words.shape[1]):
        word = words[:, index]
        mixed = _mix((found ^ word) + key[1])
        found = np.where(word != 0, mixed, found)
    return _mix(found)


def _mix(x: Hashes) -> Hashes:
    """Return the finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def group_order(labels: NDArray[Any], key: Hashes) -> NDArray[np.int64]:
    """Return the positions (m,) of the rows in the order of hash, label and row."""
    hashes = keyed_hash(labels, key)
    order = np.argsort(hashes, kind="stable")
    ordered, found = hashes[order], labels[order]
    if ((ordered[1:] == ordered[:-1]) & (found[1:] != found[:-1])).any():
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

    Parameters
    ----------
    blocks
        1-D arrays of ``dtype``, whose field ``group`` has the labels; the iterator may overwrite
        an array when it yields the next.
    n_rows
        Their total length.
    folder
        An existing private directory for the buckets; empty again at the end.
    key
        (2,) key of the hash.
    leaf_bytes
        Largest number of bytes that are sorted in memory at once.
    progress
        Called with the number of records scattered to buckets so far.
    used_bits
        Leading bits of the hash that all records share.
    """
    if n_rows * dtype.itemsize <= leaf_bytes or n_rows < 2 or used_bits >= 64:
        rows = np.empty(n_rows, dtype)
        filled = 0
        for block in blocks:
            rows[filled : filled + block.size] = block
            filled += block.size
        if filled != n_rows:
            raise ValueError(f"expected {n_rows} records, found {filled}")
        yield from permuted(rows, group_order(rows[GROUP], key))
        return
    # Buckets of half a leaf on average, since groups differ in size.
    wanted = 2 * n_rows * dtype.itemsize // leaf_bytes
    bits = min(_BITS, max(1, int(wanted).bit_length()), 64 - used_bits)
    sizes, single = _scatter(blocks, bits, used_bits, folder, key, progress)
    if sizes.sum() != n_rows:
        raise ValueError(f"expected {n_rows} records, found {sizes.sum()}")
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


def _scatter(
    blocks: Iterable[Records],
    bits: int,
    used_bits: int,
    folder: Path,
    key: Hashes,
    progress: Callable[[int], None] | None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Append each record to the bucket of its hash.

    Returns
    -------
    sizes, single
        (2^bits,) number of records of each bucket, and whether all of them have one label.
    """
    sizes = np.zeros(1 << bits, np.int64)
    single = np.ones(1 << bits, np.bool_)
    first: dict[int, Any] = {}
    for block in blocks:
        hashes = keyed_hash(block[GROUP], key)
        buckets = ((hashes << np.uint64(used_bits)) >> np.uint64(64 - bits)).astype(np.int64)
        counts = np.bincount(buckets, minlength=1 << bits)
        ordered = take(block, np.argsort(buckets.astype(np.uint8), kind="stable"))
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts):
            part = ordered[ends[bucket] - counts[bucket] : ends[bucket]]
            if single[bucket]:
                label = first.setdefault(int(bucket), part[GROUP][0])
                single[bucket] = bool((part[GROUP] == label).all())
            append(folder / str(bucket), part)
        sizes += counts
        if progress is not None:
            progress(int(sizes.sum()))
    return sizes, single
