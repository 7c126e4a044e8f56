from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammc.errors import ConfigError, StoreError
from streammc.protocols import Index, Rows
from streammc.stores import open_store
from streammc.stores.rows.piece_cache import CachedRows, Pieces, cache_bytes
from streammc.stores.rows.row_source import MappedRows, MemoryRows

N, SIZE, COLUMNS = 1000, 64, 3


class Reader:
    """Pieces of arrays in memory; counts what is read."""

    def __init__(self, extras: bool = True) -> None:
        rng = np.random.default_rng(1)
        self.n_rows, self.piece_rows, self.columns, self.where = N, SIZE, COLUMNS, "memory"
        self.X = rng.normal(size=(N, COLUMNS)).astype("float32")
        self.y = rng.integers(0, 9, N).astype("int32")
        self.offset = rng.normal(size=N) if extras else np.empty(0)
        self.weight = rng.random(N) if extras else np.empty(0)
        self.dtypes: tuple[str, str | None, bool, bool] = ("float32", "int32", extras, extras)
        self.requests: list[list[int]] = []
        self.fail = False
        self.gate = threading.Event()
        self.gate.set()

    def read(self, pieces: Sequence[int]) -> list[Pieces]:
        self.requests.append(list(pieces))
        self.gate.wait(10)
        if self.fail:
            raise StoreError("expected a piece, found none: copy the store")
        return [
            Pieces(*(array[p * SIZE : (p + 1) * SIZE] for array in self.arrays)) for p in pieces
        ]

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.X, self.y, self.offset, self.weight


def empty(m: int) -> Rows:
    return Rows(np.full((m, COLUMNS), np.nan), *(np.full(m, np.nan) for _ in range(3)))  # type: ignore[call-arg]


def same(expected: Rows, found: Rows) -> None:
    for left, right in zip(expected, found, strict=True):
        np.testing.assert_array_equal(left, right)


def piece_bytes(reader: Reader) -> int:
    return SIZE * (4 * COLUMNS + 4 + (16 if reader.offset.size else 0))


@settings(max_examples=60, deadline=None)
@given(
    starts=st.lists(st.integers(-70, N + 70), max_size=60),
    unit_rows=st.integers(1, 150),
    slots=st.integers(4, 20),
    extras=st.booleans(),
)
def test_rows_are_those_of_arrays_in_memory(
    starts: list[int], unit_rows: int, slots: int, extras: bool
) -> None:
    reader = Reader(extras)
    memory = MemoryRows(*reader.arrays, N)
    cached = CachedRows(reader, slots * piece_bytes(reader))
    assert min(slots, -(-N // SIZE)) == cached.slots
    for chosen in (starts, starts[::-1]):
        at: Index = np.array(chosen, np.int64)
        m = len(at) * unit_rows
        expected, found = empty(m), empty(m)
        memory.gather(at, unit_rows, expected)
        cached.will_need(at, unit_rows)
        cached.gather(at, unit_rows, found)
        same(expected, found)


def test_threads_share_a_small_cache_without_a_wrong_row() -> None:
    reader = Reader()
    memory = MemoryRows(*reader.arrays, N)
    cached = CachedRows(reader, 5 * piece_bytes(reader))

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            starts = rng.integers(0, N, 40)
            expected, found = empty(120), empty(120)
            memory.gather(starts, 3, expected)
            cached.will_need(rng.integers(0, N, 40), 3)
            cached.gather(starts, 3, found)
            same(expected, found)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_piece_in_the_cache_is_not_read_again_and_the_oldest_leaves_first() -> None:
    reader = Reader()
    cached = CachedRows(reader, 4 * piece_bytes(reader))
    for piece in (0, 1, 2, 3, 0, 4, 0, 1):
        cached.gather(np.array([piece * SIZE]), 1, empty(1))
    assert [[0], [1], [2], [3], [4], [1]] == reader.requests


def test_piece_that_is_being_read_is_awaited() -> None:
    reader = Reader()
    cached = CachedRows(reader, 8 * piece_bytes(reader))
    reader.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(cached.gather, np.array([5]), 1, empty(1)) for _ in range(2)]
        while len(reader.requests) < 1:
            pass
        reader.gate.set()
        for future in both:
            future.result(10)
    assert [[0]] == reader.requests


def test_failed_read_is_an_error_and_leaves_no_row_behind() -> None:
    reader = Reader()
    cached = CachedRows(reader, 8 * piece_bytes(reader))
    reader.fail = True
    cached.will_need(np.array([5]), 1)
    with pytest.raises(StoreError, match="expected a piece"):
        cached.gather(np.array([5]), 1, empty(1))
    reader.fail = False
    out = empty(1)
    cached.gather(np.array([5]), 1, out)
    np.testing.assert_array_equal(reader.X[5], out.X[0])


def test_cache_too_small_for_four_pieces_is_refused_with_the_size_that_is_enough() -> None:
    with pytest.raises(StoreError, match="STREAMMC_CACHE_MB to 1 or more"):
        CachedRows(Reader(), 3 * piece_bytes(Reader()))


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "9" * 30])
def test_cache_of_no_whole_number_of_megabytes_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMC_CACHE_MB", text)
    with pytest.raises(ConfigError, match="STREAMMC_CACHE_MB"):
        cache_bytes()


def test_cached_rows_have_no_place_in_memory() -> None:
    with pytest.raises(ConfigError, match="streammc pull"):
        _ = CachedRows(Reader()).arrays


def test_output_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"out\.X has"):
        CachedRows(Reader()).gather(np.array([5]), 2, empty(1))


@pytest.mark.parametrize("cloud", ["raw", "zstd"])
@pytest.mark.parametrize("rows", [37, 4097, 40_000])
def test_sharded_store_has_the_rows_of_a_mapped_one(
    cloud: str, rows: int, write_store: Callable[..., Any], tmp_path: Path
) -> None:
    mapped = open_store(write_store(tmp_path / "a.zarr", rows=rows).path)
    options = {"cloud": cloud, "chunk_rows": 20_000}
    sharded = open_store(write_store(tmp_path / "b.zarr", rows=rows, **options).path)
    plain, cached = mapped.rows(), sharded.rows()
    assert isinstance(plain, MappedRows)
    assert isinstance(cached, CachedRows)
    starts: Index = np.random.default_rng(1).integers(-5, rows + 5, 300)
    expected, found = empty(600), empty(600)
    plain.gather(starts, 2, expected)
    cached.gather(starts, 2, found)
    same(expected, found)
    pieces = [
        np.concatenate([p.X.copy() for b in s.blocks() for p in b.pieces()])
        for s in (mapped, sharded)
    ]
    np.testing.assert_array_equal(*pieces)
