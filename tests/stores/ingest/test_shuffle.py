from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from streammc.rng import Role, stream
from streammc.stores.ingest import shuffle
from streammc.stores.ingest.shuffle import shuffled

ROW = np.dtype([("X", "f4", (3,)), ("y", "u1"), ("id", "i8")])


def records(n: int, dtype: np.dtype[Any] = ROW) -> NDArray[Any]:
    rows = np.zeros(n, dtype)
    rows["id"] = np.arange(n)
    rows["y"] = np.arange(n) % 7
    rows["X"] = np.arange(n)[:, np.newaxis] * np.float32([1, 2, 3])[: dtype["X"].shape[0]]
    return rows


def blocks(rows: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    for start in range(0, rows.size, size):
        yield rows[start : start + size].copy()


def run(
    folder: Path, rows: NDArray[Any], size: int, leaf_rows: int, rng: np.random.Generator
) -> NDArray[Any]:
    parts = shuffled(
        blocks(rows, size),
        rows.size,
        rows.dtype,
        folder,
        rng,
        leaf_bytes=leaf_rows * rows.dtype.itemsize,
    )
    return np.concatenate(list(parts))


@pytest.mark.parametrize(
    ("n", "leaf_rows"), [(5_000, 10_000), (5_000, 1_000), (2_000, 50), (300, 1), (1, 1)]
)
def test_shuffle_is_a_permutation_of_whole_rows(tmp_path: Path, n: int, leaf_rows: int) -> None:
    rows = records(n)
    found = run(tmp_path, rows, 700, leaf_rows, stream(1, 0, Role.SHUFFLE))
    assert (n == 1) == (rows.tobytes() == found.tobytes())
    assert rows.tobytes() == found[np.argsort(found["id"])].tobytes()


def test_several_levels_of_buckets_leave_no_file(tmp_path: Path) -> None:
    rows = records(1_500)
    run(tmp_path, rows, 700, 3, stream(1, 0, Role.SHUFFLE))  # 256 buckets of about 6 rows
    assert [] == list(tmp_path.iterdir())


def test_same_seed_same_order_and_another_seed_another(tmp_path: Path) -> None:
    rows = records(2_000)
    first, second = (
        run(tmp_path, rows, 300, 100, stream(5, 0, Role.SHUFFLE))["id"] for _ in range(2)
    )
    other = run(tmp_path, rows, 300, 100, stream(6, 0, Role.SHUFFLE))["id"]
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_leaves_stay_below_the_limit(tmp_path: Path) -> None:
    rows = records(20_000)
    limit = 1_000 * ROW.itemsize
    rng = stream(2, 0, Role.SHUFFLE)
    parts = shuffled(blocks(rows, 512), rows.size, ROW, tmp_path, rng, leaf_bytes=limit)
    assert max(part.nbytes for part in parts) <= limit


def statistic(folder: Path, rows_of: Callable[[np.random.Generator], NDArray[Any]]) -> float:
    """Chi-square statistic of 1200 shuffles of 4 rows against 24 equal probabilities."""
    rng = stream(11, 0, Role.SHUFFLE)
    order = {order: index for index, order in enumerate(permutations(range(4)))}
    counts = np.zeros(24)
    for _ in range(1_200):
        counts[order[tuple(rows_of(rng)["id"].tolist())]] += 1
    return float(((counts - 50) ** 2 / 50).sum())


SMALL = np.dtype([("id", "i8"), ("X", "f4", (1,)), ("y", "u1")])
LIMIT = chi2.isf(1e-6, 23)


def test_every_order_is_equally_likely(tmp_path: Path) -> None:
    rows = records(4, SMALL)
    assert statistic(tmp_path, lambda rng: run(tmp_path, rows, 3, 2, rng)) < LIMIT


def test_the_check_of_uniformity_sees_buckets_that_are_not_permuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = records(4, SMALL)
    monkeypatch.setattr(shuffle, "take", lambda block, index: _scatter_only(block, index))
    assert statistic(tmp_path, lambda rng: run(tmp_path, rows, 3, 2, rng)) > LIMIT


def _scatter_only(block: NDArray[Any], index: NDArray[np.int64]) -> NDArray[Any]:
    """Take in the order of the buckets, but leave a bucket as it was filled."""
    in_bucket = np.sort(index) if block.size <= 2 else index
    return block[in_bucket]


def test_the_check_of_uniformity_sees_a_shuffle_within_blocks(tmp_path: Path) -> None:
    rows = records(4, SMALL)

    def within(rng: np.random.Generator) -> NDArray[Any]:
        return np.concatenate([part[rng.permutation(part.size)] for part in blocks(rows, 2)])

    assert statistic(tmp_path, within) > LIMIT


def test_a_wrong_number_of_rows_is_an_error(tmp_path: Path) -> None:
    for leaf_rows in (100, 5):
        rows = records(50)
        parts = shuffled(
            blocks(rows, 20),
            49,
            ROW,
            tmp_path,
            stream(1, 0, Role.SHUFFLE),
            leaf_bytes=leaf_rows * ROW.itemsize,
        )
        with pytest.raises(ValueError, match=r"expected 49 records|broadcast"):
            list(parts)
