"""A reduction over all rows with Dask, in a fixed tree.

The results of blocks are combined in the tree of ``reduction_tree``: any number of threads or
workers, finishing in any order, gives the same bits. Dask starts a map task only when a thread is
free and combines depth first: memory holds only the blocks in work and the results that wait for
their neighbours.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, reduce
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
from streammc.stores.full_pass.kept_results import (
    forget_results,
    keep_results,
    kept_results,
    pass_token,
)
from streammc.stores.full_pass.later_rows import LaterBlock
from streammc.stores.full_pass.reduction_tree import (
    block_key,
    block_of,
    leaves,
    reduction_tree,
    wanted_nodes,
)
from streammc.stores.full_pass.row_blocks import Block, StoreBlock

_BEGUN: Final = "begun"
_DONE: Final = "done"
"""Events that workers report of a block."""
_VECTOR_BYTES: Final = 24
"""Bytes a row of response, offset and weight as a kernel takes them."""

T = TypeVar("T")
Progress = Callable[[int, int], None]


class _Map(Generic[T]):
    """One map task; safe to run twice. No dataclass: dask would look for collections in it.

    Parameters
    ----------
    block
        Its rows.
    topic
        Topic to which a worker of a cluster reports the block; ``None`` within this process.
    home
        Id of the process that made the task; in another one the task first pins BLAS.
    pinned
        Versions of that process, which a worker that came later must have, too.
    """

    def __init__(
        self, block: Block, topic: str | None, home: int, pinned: tuple[tuple[str, str], ...]
    ) -> None:
        self.block, self.topic, self.home, self.pinned = block, topic, home, pinned

    def __call__(self, task: PassTask[T]) -> T:
        if self.topic is not None and os.getpid() != self.home:
            same_versions(self.pinned)
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


def _apply(task: PassTask[T], work: _Map[T]) -> T:
    return work(task)


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


def _graph(
    task: PassTask[T],
    blocks: Sequence[Block],
    token: str,
    topic: str | None,
    kept: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the reduction tree as ``Delayed`` objects by key; the root is last.

    What ``kept`` has a future of is not made again, nor are its parts.
    """
    from dask.delayed import delayed

    kept = kept or {}
    options = {"pure": False, "traverse": False}
    shared = delayed(task, name=f"streammc-task-{token}", **options)
    read = delayed(_apply, name=f"streammc-apply-{token}", **options)
    combine = delayed(_combine, name=f"streammc-join-{token}", **options)
    asked = (topic, os.getpid(), () if topic is None else tuple(versions().items()))
    nodes, made = reduction_tree(token, len(blocks)), dict[str, Any]()
    for key in wanted_nodes(nodes, kept):
        block = block_of(key)
        if block is not None:
            made[key] = read(shared, _Map(blocks[block], *asked), dask_key_name=key)
        else:
            left, right = (kept[each] if each in kept else made[each] for each in nodes[key])
            made[key] = combine(shared, left, right, dask_key_name=key)
    return made


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

    root = list(_graph(task, blocks, uuid4().hex[:8], None).values())[-1]
    done = 0

    def count(key: Any, *_: Any) -> None:
        nonlocal done
        if isinstance(key, str) and block_of(key) is not None:
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
    pinned = pass_token(task, blocks)
    token, topic = pinned or uuid4().hex, f"streammc-{uuid4().hex[:8]}"
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
        return _work_of(block_key(token, worst[1]) if worst[0] > 1 else key, blocks)

    need = _need_of(blocks)
    require_workers(client, need)
    nodes = reduction_tree(token, len(blocks))
    kept = kept_results(client, pinned)
    for number in {block_of(each) for node in kept for each in leaves(nodes, node)}:
        assert number is not None
        count((0.0, (_DONE, number)))
    client.subscribe_topic(topic, count)
    futures, asked = dict(kept), tuple[Any, ...]()
    try:
        from streammc.stores.cluster.waiting import results  # it imports asyncio

        root = next(reversed(nodes))
        if root not in kept:
            made = _graph(task, blocks, token, topic, kept)
            # One dictionary: merging graphs takes time of the square of their number.
            asked = client.get(dict(made[root].dask), list(made), sync=False)
            futures |= dict(zip(made, asked, strict=True))
            for key in made:  # a result is kept until what it is a part of is done
                futures[key].add_done_callback(partial(_drop_parts, futures, nodes[key]))
        found = results([futures[root]], client, describe, need)
        assert found is not None
    except BaseException:
        keep_results(client, pinned, dict(futures))
        for future in asked:  # else a task that failed would fail at once when asked for again
            future.release()
        raise
    finally:
        if client.status == "running":
            client.unsubscribe_topic(topic)
    forget_results(client, pinned)
    return found[0]  # type: ignore[no-any-return]


def _drop_parts(futures: dict[str, Any], parts: Sequence[str], done: Any) -> None:
    """Give up the parts of a result that is done."""
    if done.status == "finished":
        for part in parts:
            futures.pop(part, None)


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
    number = block_of(key)
    if number is None:
        return f"the task {key!r}"
    block = blocks[number]
    while isinstance(block, LaterBlock):
        block = block.block
    if not isinstance(block, StoreBlock):
        return f"block {number} of a pass"
    last = block.first_chunk + len(block.entries[0]) - 1
    first, end = (block.members[0].key(chunk) for chunk in (block.first_chunk, last))
    return f"block {number} of a pass, {first!r} to {end!r} of store {block.root!r},"
