"""A reduction over all rows with Dask, in a fixed tree.

The results of blocks are combined in a binary tree over block indices (neighbours pairwise,
level by level; an odd last one moves up), so that any number of threads or workers, finishing
in any order, gives the same bits. Dask starts a map task only when a thread is free and
combines depth first: memory holds only the blocks in work and the results that wait for their
neighbours.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, reduce
from threading import Lock
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from threadpoolctl import threadpool_limits

from streammc.errors import ConfigError
from streammc.numerics.coded_matrix import expanded_pieces
from streammc.numerics.threads import available_threads
from streammc.protocols import PassTask, PieceTask
from streammc.stores.cluster.scheduler_connection import connected, is_cluster
from streammc.stores.cluster.worker_checks import Need, require_workers, same_versions, versions
from streammc.stores.full_pass.later_rows import LaterBlock
from streammc.stores.full_pass.row_blocks import Block, StoreBlock

_BEGUN: Final = "begun"
_DONE: Final = "done"
"""Events that workers report of a block."""
_VECTOR_BYTES: Final = 24
"""Bytes a row of response, offset and weight as a kernel takes them."""

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class _Map(Generic[T]):
    """One map task; safe to run twice."""

    block: Block
    topic: str | None = None
    """Topic to which a worker of a cluster reports the block; ``None`` within this process."""
    home: int = 0
    """Id of the process that made the task; in another one the task first pins BLAS."""
    versions: tuple[tuple[str, str], ...] = ()
    """Versions of that process, which a worker that came later must have, too."""

    def __call__(self, task: PassTask[T]) -> T:
        if self.topic is not None and os.getpid() != self.home:
            same_versions(self.versions)
            _pin_blas()
        self._log(_BEGUN)
        result = _reduce(task, self.block)
        self._log(_DONE)
        return result

    def _log(self, what: str) -> None:
        if self.topic is not None:
            from distributed import get_worker

            get_worker().log_event(self.topic, (what, self.block.index))


def _reduce(task: PassTask[T], block: Block) -> T:
    """Return the result of the task for the pieces of ``block``, in order."""
    pieces = block.pieces()
    if getattr(block, "coded", False) and not getattr(task, "takes_codes", False):
        pieces = expanded_pieces(pieces)
    if isinstance(task, PieceTask):
        result: T = task.map_pieces(pieces)
        return result
    return reduce(task.combine, map(task.map, pieces))


def _combine(task: PassTask[T], left: T, right: T) -> T:
    return task.combine(left, right)


@cache
def _pin_blas() -> Any:
    # Once per worker, and not as a context, whose end would restore the old limit.
    return threadpool_limits(limits=1)


def run(
    task: PassTask[T],
    blocks: Sequence[Block],
    *,
    scheduler: Any = None,
    progress: Progress | None = None,
) -> T:
    """Map every block and combine the results; see ``protocols.Dataset.reduce``.

    Raises
    ------
    ConfigError
        If ``scheduler`` is not of an accepted kind.
    UnavailableError
        If there is no scheduler at the address, or no worker.
    BusyError
        If the scheduler goes away, or a worker does not answer.
    IdentityError, StoreError
        If a worker has other versions, or does not see the store.
    OutOfMemoryError
        If a worker has too little memory for the chunks of the store.
    """
    if scheduler is None:
        scheduler = available_threads()
    if scheduler == "sync" or (type(scheduler) is int and scheduler >= 1):
        return _run_in_process(task, blocks, scheduler, progress)
    if is_cluster(scheduler):
        with connected(scheduler) as client:
            return _run_on_cluster(task, blocks, client, progress)
    raise ConfigError(
        "expected a scheduler None, 'sync', a positive number of threads, 'tcp://HOST:PORT', "
        "'tls://HOST:PORT', 'FILE.json', 'local:N' or a distributed.Client, found "
        f"{repr(scheduler)[:100]}: give one of them"
    )


def _graph(task: PassTask[T], blocks: Sequence[Block], name: str, topic: str | None) -> Any:
    """Return the root of the reduction tree as a ``Delayed``; its keys begin with ``name``."""
    from dask.delayed import delayed

    options = {"pure": False, "traverse": False}
    shared = delayed(task, name=f"{name}-task", **options)
    combine = delayed(_combine, name=f"{name}-combine", **options)
    ours = () if topic is None else tuple(versions().items())
    asked = (topic, os.getpid(), ours)
    level = [
        delayed(_Map(block, *asked), name=f"{name}-read-{block.index}", **options)(
            shared, dask_key_name=f"{name}-map-{block.index}"
        )
        for block in blocks
    ]
    height = 0
    while len(level) > 1:
        height += 1
        pairs = [
            combine(shared, left, right, dask_key_name=f"{name}-level{height}-{position}")
            for position, (left, right) in enumerate(zip(level[::2], level[1::2], strict=False))
        ]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _run_in_process(
    task: PassTask[T], blocks: Sequence[Block], scheduler: Any, progress: Progress | None
) -> T:
    if len(blocks) == 1:  # without the import of Dask, 0.08 s
        with threadpool_limits(limits=1):
            only = _reduce(task, blocks[0])
        if progress is not None:
            progress(1, 1)
        return only
    import dask
    from dask import threaded
    from dask.callbacks import Callback
    from dask.local import get_sync

    name = f"streammc-{uuid4().hex[:8]}"
    root = _graph(task, blocks, name, None)
    done = 0

    def count(key: Any, *_: Any) -> None:
        nonlocal done
        if isinstance(key, str) and key.startswith(f"{name}-map-"):
            done += 1
            if progress is not None:
                progress(done, len(blocks))

    # One BLAS thread per task: more would compete for the cores and change the last bits.
    with threadpool_limits(limits=1), Callback(posttask=count):
        if scheduler == "sync":
            (result,) = dask.compute(root, scheduler=get_sync, optimize_graph=False)
            return result  # type: ignore[no-any-return]
        pool = ThreadPoolExecutor(scheduler, thread_name_prefix="streammc-pass")
        try:
            (result,) = dask.compute(root, scheduler=threaded.get, pool=pool, optimize_graph=False)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return result  # type: ignore[no-any-return]


def _run_on_cluster(
    task: PassTask[T], blocks: Sequence[Block], client: Any, progress: Progress | None
) -> T:
    name = f"streammc-{uuid4().hex[:8]}"
    begun: Counter[int] = Counter()
    seen: set[int] = set()
    lock = Lock()

    def count(event: tuple[float, tuple[str, int]]) -> None:
        what, block = event[1]
        with lock:
            if what == _BEGUN:
                begun[block] += 1
            elif block not in seen:  # a task may run twice
                seen.add(block)
                if progress is not None:
                    progress(len(seen), len(blocks))

    def describe(key: str) -> str:
        """Name the block that began most often and never ended: others wait at its workers."""
        with lock:
            tried = [(times, block) for block, times in begun.items() if block not in seen]
        worst = max(tried, default=(0, 0))
        return _work_of(f"{name}-map-{worst[1]}" if worst[0] > 1 else key, blocks)

    need = _need_of(blocks)
    require_workers(client, need)
    client.subscribe_topic(name, count)
    try:
        future = client.compute(_graph(task, blocks, name, name), optimize_graph=False)
        from streammc.stores.cluster.waiting import results  # it imports asyncio

        found = results([future], client, describe, need)
        assert found is not None
        return found[0]  # type: ignore[no-any-return]
    finally:
        if client.status == "running":
            client.unsubscribe_topic(name)


def _need_of(blocks: Sequence[Block]) -> Need:
    """Return what a worker needs for the blocks: the store, and memory for its chunks."""
    block = blocks[0]
    while isinstance(block, LaterBlock):
        block = block.block
    if not isinstance(block, StoreBlock):
        return Need()
    row_bytes = sum(member.row_bytes for member in block.members) + _VECTOR_BYTES
    return Need(block.root, block.fingerprint, block.chunk_rows * row_bytes)


def _work_of(key: str, blocks: Sequence[Block]) -> str:
    """Return in words what the task with a key does, with the files that it reads."""
    _, found, number = key.rpartition("-map-")
    if not found:
        return f"the task {key!r}"
    block = blocks[int(number)]
    while isinstance(block, LaterBlock):
        block = block.block
    if not isinstance(block, StoreBlock):
        return f"block {number} of a pass"
    last = block.first_chunk + len(block.entries[0]) - 1
    first, end = (block.members[0].key(chunk) for chunk in (block.first_chunk, last))
    return f"block {number} of a pass, {first!r} to {end!r} of store {block.root!r},"
