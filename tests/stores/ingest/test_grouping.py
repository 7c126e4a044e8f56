"""Rows brought together by group, in memory and in buckets on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from streammc.stores.ingest import shuffle
from streammc.stores.ingest.shuffle import group_key, grouped, keyed_hash

KEY = group_key(1)


def records(labels: NDArray[Any]) -> NDArray[Any]:
    rows = np.zeros(
        labels.size, np.dtype([("X", "f4", (2,)), ("id", "i8"), ("group", labels.dtype)])
    )
    rows["id"] = np.arange(labels.size)
    rows["X"] = rows["id"][:, np.newaxis] * np.float32([1, 2])
    rows["group"] = labels
    return rows


def blocks(rows: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    buffer = np.empty(size, rows.dtype)
    for start in range(0, rows.size, size):
        part = rows[start : start + size]
        buffer[: part.size] = part  # the next block overwrites this one
        yield buffer[: part.size]


def run(
    folder: Path, labels: NDArray[Any], *, leaf_rows: int, size: int = 700, key: Any = KEY
) -> list[NDArray[Any]]:
    rows = records(labels)
    leaf_bytes = leaf_rows * rows.dtype.itemsize
    found = grouped(blocks(rows, size), rows.size, rows.dtype, folder, key, leaf_bytes=leaf_bytes)
    return [part.copy() for part in found]


def check(rows: NDArray[Any], found: NDArray[Any]) -> None:
    """Every row is there once, groups are contiguous, and rows of a group in their order."""
    assert rows.tobytes() == found[np.argsort(found["id"])].tobytes()
    labels = found["group"]
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    assert starts.size == np.unique(rows["group"]).size
    within = np.ones(labels.size, bool)
    within[starts] = False
    assert (np.diff(found["id"])[within[1:]] > 0).all()


def zipf(n: int) -> NDArray[Any]:
    return np.random.default_rng(3).zipf(1.5, n) % 997


LABELS = {
    "integers": zipf(2_000) - 400,
    "texts": np.array([f"label {k}" for k in zipf(2_000)], "S12"),
    "rows of their own": np.arange(1_000)[::-1],
    "one large group": np.where(np.arange(2_000) % 50, 7, zipf(2_000)),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("leaf_rows", [10_000, 500, 60, 9])
def test_rows_of_a_group_come_together(tmp_path: Path, kind: str, leaf_rows: int) -> None:
    labels = LABELS[kind]
    check(records(labels), np.concatenate(run(tmp_path, labels, leaf_rows=leaf_rows)))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", LABELS)
def test_order_depends_on_labels_and_key_alone(tmp_path: Path, kind: str) -> None:
    labels = LABELS[kind]
    whole = np.concatenate(run(tmp_path, labels, leaf_rows=10_000))
    for leaf_rows, size in ((500, 700), (60, 2_000), (9, 123)):
        found = np.concatenate(run(tmp_path, labels, leaf_rows=leaf_rows, size=size))
        assert whole.tobytes() == found.tobytes()
    other = np.concatenate(run(tmp_path, labels, leaf_rows=10_000, key=group_key(2)))
    assert not np.array_equal(whole["group"], other["group"])


@pytest.mark.parametrize("leaf_rows", [10_000, 500])
@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_labels_with_the_same_hash_stay_apart(
    tmp_path: Path, kind: str, leaf_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = LABELS[kind]
    monkeypatch.setattr(shuffle, "keyed_hash", lambda found, key: np.zeros(found.size, np.uint64))
    check(records(labels), np.concatenate(run(tmp_path, labels, leaf_rows=leaf_rows)))


def test_the_check_sees_groups_that_share_a_hash_and_are_not_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = LABELS["integers"]
    monkeypatch.setattr(shuffle, "keyed_hash", lambda found, key: np.zeros(found.size, np.uint64))
    monkeypatch.setattr(shuffle, "group_order", lambda found, key: np.arange(found.size))
    with pytest.raises(AssertionError):
        check(records(labels), np.concatenate(run(tmp_path, labels, leaf_rows=10_000)))


def test_a_group_larger_than_a_leaf_is_copied_in_pieces(tmp_path: Path) -> None:
    labels = np.where(np.arange(20_000) % 10, 5, np.arange(20_000))
    parts = run(tmp_path, labels, leaf_rows=400)
    assert max(part.size for part in parts) <= 400
    check(records(labels), np.concatenate(parts))


def test_hash_of_a_text_does_not_depend_on_the_width() -> None:
    texts = [b"", b"a", b"b", b"abcdefgh", b"abcdefghi", b"abcdefgh" * 3]
    narrow = keyed_hash(np.array(texts, "S24"), KEY)
    assert len(texts) == np.unique(narrow).size
    assert np.array_equal(narrow, keyed_hash(np.array(texts, "S77"), KEY))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("shift", [0, 8, 40, 56])
def test_bits_of_the_hash_are_uniform(text: bool, shift: int) -> None:
    numbers = np.arange(50_000) * 1_000
    labels = np.array([b"%07d" % k for k in numbers]) if text else numbers
    bits = (keyed_hash(labels, KEY) >> np.uint64(shift)) & np.uint64(255)
    counts = np.bincount(bits.astype(int), minlength=256)
    expected = labels.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255)


def test_first_group_is_any_of_the_groups_over_seeds() -> None:
    labels = np.arange(8)
    first = [shuffle.group_order(labels, group_key(seed))[0] for seed in range(800)]
    counts = np.bincount(first, minlength=8)
    assert ((counts - 100) ** 2 / 100).sum() < chi2.isf(1e-6, 7)


def test_a_wrong_number_of_rows_is_an_error(tmp_path: Path) -> None:
    rows = records(np.arange(50))
    for leaf_rows in (100, 5):
        parts = grouped(
            blocks(rows, 20), 49, rows.dtype, tmp_path, KEY,
            leaf_bytes=leaf_rows * rows.dtype.itemsize,
        )  # fmt: skip
        with pytest.raises(ValueError, match=r"expected 49 records|broadcast"):
            list(parts)
