from __future__ import annotations

import gc
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streammc import models
from streammc.control_variates import compute
from streammc.errors import ConfigError, StoreError, UnavailableError
from streammc.protocols import PassTask, RowBlock
from streammc.stores import Store, dask_cluster, from_arrays, open_store
from streammc.stores.reduction import pass_token, run
from streammc.stores.rows.row_blocks import MemoryBlock

ROWS = 60_000


class Sums(PassTask[np.ndarray]):
    """Sums whose last bits depend on the order: a fixed tree must fix them."""

    def map(self, block: RowBlock) -> np.ndarray:
        X = block.X.astype(float)
        y, offset, weight = block.y, block.offset, block.weight
        return np.array([*(X.T @ (weight * np.exp(y + offset))), weight.sum(), weight @ y])

    def combine(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left + right


class Order(PassTask[str]):
    """The tree itself."""

    def map(self, block: RowBlock) -> str:
        return str(block.index)

    def combine(self, left: str, right: str) -> str:
        return f"({left} {right})"


class Slow(Sums):
    """Blocks that end in another order than they begin."""

    def map(self, block: RowBlock) -> np.ndarray:
        time.sleep(0.02 * ((block.index * 7) % 4))
        return super().map(block)


@pytest.fixture(scope="module")
def table(write_store: Callable, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_store(tmp_path_factory.mktemp("pass") / "table.zarr", rows=ROWS)


@pytest.mark.trust(11)
def test_every_row_is_seen_once(table) -> None:
    found = open_store(table.path).reduce(Sums())
    factor = table.weight * np.exp(table.y + table.offset)
    expected = [*(table.X.astype(float).T @ factor), table.weight.sum(), table.weight @ table.y]
    np.testing.assert_allclose(expected, found, rtol=1e-12)


@pytest.mark.trust(11)
def test_blocks_that_end_in_any_order_give_the_same_bits(
    table, record_property: Callable[[str, object], None]
) -> None:
    """The partner adds blocks as they end; its last bits depend on the order."""
    store = open_store(table.path)
    expected = store.reduce(Sums(), scheduler="sync").tobytes()
    rng = np.random.default_rng(3)
    parts = [Sums().map(piece) for block in store.blocks() for piece in block.pieces()]
    naive = set()
    for _ in range(tried := 20):
        pauses = rng.permutation(len(store.blocks()))

        class Shuffled(Sums):
            def map(self, block: RowBlock, pauses: np.ndarray = pauses) -> np.ndarray:
                time.sleep(0.002 * pauses[block.index])
                return super().map(block)

        assert expected == store.reduce(Shuffled(), scheduler=5).tobytes()
        naive.add(sum(parts[i] for i in rng.permutation(len(parts))).tobytes())
    assert len(naive) > 1
    record_property("figure", f"{tried} of {tried} orders of completion: the same bits")
    record_property("caught", f"sums in order of completion ({len(naive)} different answers)")


@pytest.mark.trust(11)
@pytest.mark.parametrize("scheduler", ["sync", 1, 2, 5, None])
def test_result_is_the_same_bit_for_bit(table, scheduler: Any) -> None:
    store = open_store(table.path)
    assert len(store.blocks()) > 4
    expected = store.reduce(Sums(), scheduler="sync")
    for _ in range(3):
        assert expected.tobytes() == store.reduce(Slow(), scheduler=scheduler).tobytes()


def test_memory_and_disk_with_equal_chunks_agree_bit_for_bit(table) -> None:
    memory = from_arrays(
        table.X, table.y, offset=table.offset, weight=table.weight, chunk_rows=4096
    )
    assert memory.block_rows() == open_store(table.path).block_rows()
    assert memory.reduce(Sums()).tobytes() == open_store(table.path).reduce(Sums()).tobytes()


@pytest.mark.parametrize(
    ("count", "tree"),
    [(1, "0"), (2, "(0 1)"), (5, "(((0 1) (2 3)) 4)"), (7, "(((0 1) (2 3)) ((4 5) 6))")],
)
def test_tree_is_binary_over_block_indices(count: int, tree: str) -> None:
    empty = np.empty(0)
    blocks = [MemoryBlock(i, i, 1, np.ones((1, 1)), empty, empty, empty) for i in range(count)]
    assert tree == run(Order(), blocks, scheduler=2)


def test_progress_counts_every_block(table) -> None:
    calls: list[tuple[int, int]] = []
    store = open_store(table.path)
    store.reduce(Sums(), progress=lambda done, total: calls.append((done, total)))
    total = len(store.blocks())
    assert [(done, total) for done in range(1, total + 1)] == calls


def test_full_pass_keeps_neither_results_nor_blocks() -> None:
    """Besides the blocks being mapped, only the frontier of the tree is alive."""
    alive: weakref.WeakSet[Result] = weakref.WeakSet()
    reading, most_reading, most_alive = 0, 0, 0
    lock = threading.Lock()

    class Result:
        pass

    class Source:
        coded = False

        def __init__(self, index: int) -> None:
            self.index = index

        def pieces(self) -> Any:
            nonlocal reading, most_reading
            with lock:
                reading += 1
                most_reading = max(most_reading, reading)
            yield self

    class Task(PassTask[Result]):
        def map(self, block: Any) -> Result:
            nonlocal reading, most_alive
            time.sleep(0.001)
            result = Result()
            with lock:
                reading -= 1
                alive.add(result)
                most_alive = max(most_alive, len(alive))
            return result

        def combine(self, left: Result, right: Result) -> Result:
            result = Result()
            with lock:
                alive.add(result)
            return result

    gc.collect()
    run(Task(), [Source(index) for index in range(256)], scheduler=2)
    assert most_reading <= 2
    assert most_alive <= 8 + 2 * 2 + 4


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)


def _swap(path: Path) -> None:
    other = path.with_name("c.0.0")
    path.rename(path.with_name("x"))
    other.rename(path)
    path.with_name("x").rename(other)


@pytest.mark.parametrize(
    ("damage", "key"),
    [
        (_flip, "X/c.1.0"),
        (_flip, "y/c.2"),
        (_flip, "weight/c.0"),
        (Path.unlink, "X/c.1.0"),
        (_swap, "X/c.1.0"),
        (lambda path: os.truncate(path, 100), "offset/c.1"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "X/c.1.0"),
        (lambda path: (path.unlink(), path.symlink_to("c.0.0")), "X/c.1.0"),
        (lambda path: (path.unlink(), path.mkdir()), "X/c.1.0"),
    ],
)
@pytest.mark.parametrize("scheduler", ["sync", 2])
def test_damage_after_opening_stops_the_pass_and_names_the_chunk(
    sample, damage: Callable[[Path], Any], key: str, scheduler: Any
) -> None:
    store = open_store(sample.path)
    damage(sample.path / key)
    pattern = r"X/c\.[01]\.0" if damage is _swap else key.replace(".", r"\.")
    with pytest.raises(StoreError, match=pattern):
        store.reduce(Sums(), scheduler=scheduler)


def test_integers_that_float64_would_round_are_refused(
    write_store: Callable, tmp_path: Path
) -> None:
    from streammc.stores import StoreWriter

    with StoreWriter(tmp_path / "s", features=["a"], y_dtype="int64") as writer:
        writer.append(np.ones((3, 1)), np.array([0, 2**53 + 1, 1]))
        writer.commit({"response": "y"})
    with pytest.raises(StoreError, match=r"up to 2\*\*53"):
        open_store(tmp_path / "s").reduce(Sums())


def test_an_error_in_the_task_arrives_as_it_is(table) -> None:
    class Broken(Sums):
        def map(self, block: RowBlock) -> np.ndarray:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        open_store(table.path).reduce(Broken())


@pytest.mark.parametrize("scheduler", [0, -1, True, "threads", 1.5, object(), "s3://x"])
def test_invalid_scheduler_is_refused(table, scheduler: Any) -> None:
    with pytest.raises(ConfigError, match="expected a scheduler"):
        open_store(table.path).reduce(Sums(), scheduler=scheduler)


def test_no_cluster_at_the_address_is_unavailable(table, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("nobody there")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(UnavailableError, match="tcp://127"):
        open_store(table.path).reduce(Sums(), scheduler="tcp://127.0.0.1:1")


def test_a_program_that_is_no_scheduler_is_unavailable(table) -> None:
    """What it answers is read as a length: an allocation of exabytes fails."""
    pytest.importorskip("distributed")

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request" + 200 * b" ")
            connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="something else that answers there"):
            open_store(table.path).reduce(Sums(), scheduler=address)


class Leaving(Sums):
    """A pass during which every worker goes away."""

    def map(self, block: RowBlock) -> np.ndarray:
        time.sleep(3.0)
        return super().map(block)


@pytest.mark.slow
def test_a_cluster_that_cannot_work_is_unavailable(table, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(dask_cluster, "WORKER_SECONDS", 1.0)
    monkeypatch.setattr(dask_cluster, "POLL_SECONDS", 0.25)
    store = open_store(table.path)
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        with pytest.raises(UnavailableError, match="found none for 1 s: start one with"):
            store.reduce(Sums(), scheduler=client)
        cluster.scale(1)
        client.wait_for_workers(1)
        with monkeypatch.context() as patch:
            answers = {"tcp://a:1": None, "tcp://b:1": "there"}
            patch.setattr(dask_cluster, "ask", lambda *_, **__: answers)
            with pytest.raises(UnavailableError, match=r"found 1 of 2 without it \(tcp://a:1\)"):
                store.reduce(Sums(), scheduler=client)
        with monkeypatch.context() as patch:
            patch.setattr(client, "scheduler_info", lambda **_: {"workers": {}})
            with pytest.raises(UnavailableError, match="expected a worker at"):
                store.reduce(Leaving(), scheduler=client)


def test_passes_of_this_package_have_a_token_and_those_of_others_have_none(
    table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token, what a failed pass has left on a cluster is used again."""
    dataset, tasks, reduce = open_store(table.path), [], Store.reduce

    def noted(self: Store, task: Any, **options: Any) -> Any:
        tasks.append(task)
        return reduce(self, task, **options)

    monkeypatch.setattr(Store, "reduce", noted)
    compute(dataset, models.gaussian(), scheduler="sync")
    assert tasks
    assert all(pass_token(task, dataset.blocks()) for task in tasks)
    assert pass_token(Sums(), dataset.blocks()) is None


def test_a_cluster_gives_the_same_bits_and_the_same_errors(table, sample) -> None:
    distributed = pytest.importorskip("distributed")
    store = open_store(table.path)
    expected = store.reduce(Sums(), scheduler="sync")
    broken = open_store(sample.path)
    _flip(sample.path / "X/c.1.0")
    calls: list[tuple[int, int]] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = store.reduce(
            Sums(), scheduler=client, progress=lambda done, total: calls.append((done, total))
        )
        assert expected.tobytes() == found.tobytes()
        assert calls == sorted(set(calls))
        with pytest.raises(StoreError, match=r"X/c\.1\.0"):
            broken.reduce(Sums(), scheduler=client)


def test_pages_of_a_store_above_half_the_memory_are_dropped_behind_a_pass(
    table, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(table.path)
    assert not any(block.forget for block in store.blocks())
    expected = store.reduce(Sums(), scheduler=2)
    row_bytes = store.layout.row_bytes
    monkeypatch.setattr("streammc.stores.rows.row_blocks.cached_bytes", lambda: 20_000 * row_bytes)
    asked: list[int] = []
    advise = os.posix_fadvise
    monkeypatch.setattr(os, "posix_fadvise", lambda *a: (asked.append(a[3]), advise(*a)))
    forgetful = [block for block in store.blocks() if block.forget]
    assert [block for block in store.blocks() if block.start >= 20_000] == forgetful
    assert 0 < len(forgetful) < len(store.blocks())
    assert store.reduce(Sums(), scheduler=2).tobytes() == expected.tobytes()
    files = sum(len(block.members) * len(block.entries[0]) for block in forgetful)
    assert files == asked.count(os.POSIX_FADV_DONTNEED)
