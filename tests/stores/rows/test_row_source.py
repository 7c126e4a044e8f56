from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammc.errors import ConfigError
from streammc.protocols import Rows
from streammc.stores import from_arrays, open_store
from streammc.stores.rows.row_source import advise_rows, missing_runs


def _empty(rows: int, columns: int) -> Rows:
    return Rows(np.full((rows, columns), np.nan), *(np.full(rows, np.nan) for _ in range(3)))


def _gather(source: Any, starts: list[int], unit_rows: int) -> Rows:
    out = _empty(len(starts) * unit_rows, source.n_features)
    source.gather(np.array(starts, np.int64), unit_rows, out)
    return out


@pytest.fixture(scope="module")
def sources(write_store: Callable, tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    folder = tmp_path_factory.mktemp("sources")
    pairs = []
    for dtype, y_dtype, extras in (
        ("float32", "uint8", True),
        ("float64", "int64", False),
        ("float32", "float64", False),
    ):
        one = write_store(
            folder / f"{dtype}-{y_dtype}", dtype=dtype, y_dtype=y_dtype, extras=extras
        )
        more = {"offset": one.offset, "weight": one.weight} if extras else {}
        memory = from_arrays(one.X, one.y, **more)
        pairs.append((open_store(one.path).rows(), memory.rows(), one, extras))
    return pairs


@settings(deadline=None, max_examples=60)
@given(
    which=st.integers(0, 2),
    starts=st.lists(st.integers(-70, 10_080), max_size=12),
    unit_rows=st.integers(1, 70),
)
def test_mapped_and_memory_rows_are_those_of_the_table(
    sources: list[tuple], which: int, starts: list[int], unit_rows: int
) -> None:
    mapped, memory, table, extras = sources[which]
    rows = (np.array(starts, np.int64)[:, None] + np.arange(unit_rows)).reshape(-1)
    there = (rows >= 0) & (rows < table.y.size)
    safe = np.where(there, rows, 0)
    ones, zeros = np.ones(rows.size), np.zeros(rows.size)
    expected = Rows(
        table.X[safe].astype(float) * there[:, None],
        table.y[safe] * there.astype(float),
        (table.offset[safe] if extras else zeros) * there,
        (table.weight[safe] if extras else ones) * there,
    )
    mapped.will_need(np.array(starts, np.int64), unit_rows)
    for source in (mapped, memory):
        for wanted, found in zip(expected, _gather(source, starts, unit_rows), strict=True):
            assert np.array_equal(wanted, found)


def test_a_store_without_response_gives_zeros(write_store: Callable, tmp_path: Path) -> None:
    with_y = write_store(tmp_path / "a", extras=False)
    source = from_arrays(with_y.X, None).rows()
    assert not _gather(source, [0, 5], 3).y.any()


def test_row_bytes_count_every_array(sources: list[tuple]) -> None:
    assert [3 * 4 + 1 + 16, 3 * 8 + 8, 3 * 4 + 8] == [pair[0].row_bytes for pair in sources]


def test_many_threads_gather_the_same_rows_from_one_store(shared_sample) -> None:
    store = open_store(shared_sample.path)
    starts = np.random.default_rng(1).integers(0, 10_000, (8, 500))

    def work(part: np.ndarray) -> np.ndarray:
        return _gather(store.rows(), list(part), 2).X

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, starts))
    for part, X in zip(starts, found, strict=True):
        rows = (part[:, None] + np.arange(2)).reshape(-1)
        assert np.array_equal(shared_sample.X[rows].astype(float), X)


@pytest.mark.parametrize("shape", [(5, 3), (6, 2)])
def test_an_output_of_the_wrong_shape_is_refused(shared_sample, shape: tuple[int, int]) -> None:
    source = open_store(shared_sample.path).rows()
    with pytest.raises(ConfigError, match="expected arrays of 6 rows and 3 features as out"):
        source.gather(np.zeros(3, np.int64), 2, _empty(*shape))


def test_neighbouring_runs_become_one_request(shared_sample) -> None:
    X = open_store(shared_sample.path).rows().arrays[0]
    starts = np.array([0, 1, 2, 5_000, 5_001], np.int64)
    assert 2 == advise_rows(X.ctypes.data, 12, 10_001, starts, 1, 4096)


def test_mapped_arrays_cannot_be_written(shared_sample) -> None:
    X = open_store(shared_sample.path).rows().arrays[0]
    with pytest.raises(ValueError, match="read-only"):
        X[0, 0] = 1.0


def test_files_are_unmapped_when_the_last_array_is_gone(sample) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(sample.path))

    store = open_store(sample.path)
    part = store.rows().arrays[0][5:7]
    assert 12 == mapped()
    del store
    gc.collect()
    assert 3 == mapped()
    assert np.array_equal(sample.X[5:7], part)
    del part
    gc.collect()
    assert 0 == mapped()


def test_a_request_asks_only_for_what_is_not_in_memory(shared_sample, monkeypatch) -> None:
    """Runs in the page cache are seen there; where nobody may look, all are asked for."""
    rows = open_store(shared_sample.path).rows()
    X = rows.arrays[0]
    starts = np.arange(0, 10_000, 100, dtype=np.int64)
    requests = []

    def count(*arguments: object) -> int:
        requests.append(advise_rows(*arguments))
        return requests[-1]

    monkeypatch.setattr("streammc.stores.rows.row_source.advise_rows", count)
    place = (X.ctypes.data, 12, 10_001, starts, 4096, 1)
    _gather(rows, list(starts), 1)
    assert missing_runs(*place) == 0
    rows.will_need(starts, 1)
    assert requests == []
    rows._observable = False
    rows.will_need(starts, 1)
    assert len(requests) == 4  # X, y, offset, weight
    assert requests[0] > 0


def test_rows_that_left_the_page_cache_are_missing(write_store: Callable, tmp_path: Path) -> None:
    store = write_store(tmp_path / "cold", extras=False)
    for file in Path(store.path).rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    rows = open_store(store.path).rows()
    X = rows.arrays[0]
    starts = np.arange(0, 10_000, 1000, dtype=np.int64)
    place = (X.ctypes.data, X.itemsize * X.shape[1], rows.n_rows, starts, 4096, 1)
    if missing_runs(*place) == 0:
        pytest.skip("this file system keeps its files in memory")
    _gather(rows, list(starts), 1)
    assert missing_runs(*place) == 0
