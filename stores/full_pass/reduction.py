"""A reduction over all rows with Dask, in a fixed tree.

The results of blocks are combined in the tree of ``reduction_tree``: any number of threads or
workers, finishing in any order, gives the same bits. Dask starts a map task only when a thread is
free and combines depth first: memory holds only the blocks in work and the results that wait for
their neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import uuid4

from threadpoolctl import threadpool_limits

from streammc.errors import ConfigError
from streammc.numerics.process_limits import available_threads
from streammc.protocols import PassTask
from streammc.stores.cluster.scheduler_connection import connected, is_cluster
from streammc.stores.cluster.waiting import results
from streammc.stores.cluster.worker_checks import Need, require_workers
from streammc.stores.full_pass.block_tasks import BEGUN, DONE, reduce_block, task_graph
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
)
from streammc.stores.full_pass.row_blocks import Block, StoreBlock

_VECTOR_BYTES: Final = 24
"""Bytes a row of response, offset and weight as a kernel takes them."""

T = TypeVar("T")
Progress = Callable[[int, int], None]


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
        # At an address a thread waits for its first rows while another computes: over 5 Gbit/s and
        # 15 ms two cores read 0.84 of what the link carries with two threads, 0.98 with four.
        scheduler = available_threads() * (2 if _at_an_address(blocks) else 1)
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


def _run_in_process(
    task: PassTask[T], blocks: Sequence[Block], scheduler: Any, progress: Progress | None
) -> T:
    if len(blocks) == 1:  # without the import of Dask, 0.08 s
        with threadpool_limits(limits=1):
            only = reduce_block(task, blocks[0])
        if progress is not None:
            progress(1, 1)
        return only
    import dask
    from dask import threaded
    from dask.callbacks import Callback
    from dask.local import get_sync

    root = list(task_graph(task, blocks, uuid4().hex[:8], None).values())[-1]
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
            if what == BEGUN:
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
        count((0.0, (DONE, number)))
    client.subscribe_topic(topic, count)
    futures, asked = dict(kept), tuple[Any, ...]()
    try:
        root = next(reversed(nodes))
        if root not in kept:
            made = task_graph(task, blocks, token, topic, kept)
            # One dictionary: merging graphs takes time of the square of their number.
            asked = client.get(dict(made[root].dask), list(made), sync=False)
            futures |= dict(zip(made, asked, strict=True))
            for key in made:  # a result is kept until what it is a part of is done
                futures[key].add_done_callback(partial(_drop_parts, futures, nodes[key]))
        found = results([futures[root]], client, describe, need)
        assert found is not None
    except BaseException:
        keep_results(client, pinned, dict(futures))
        raise
    finally:
        # Else a task that failed would fail at once when asked for again, and the sums would stay
        # in the memory of the workers for as long as the callbacks keep their futures.
        for future in asked:
            future.release()
        if client.status == "running":
            client.unsubscribe_topic(topic)
    forget_results(client, pinned)
    return found[0]  # type: ignore[no-any-return]


def _drop_parts(futures: dict[str, Any], parts: Sequence[str], done: Any) -> None:
    """Give up the parts of a result that is done."""
    if done.status == "finished":
        for part in parts:
            futures.pop(part, None)


def _read_from(block: Block) -> Block:
    """Return the block that reads the rows of a block."""
    while isinstance(block, LaterBlock):
        block = block.block
    return block


def _at_an_address(blocks: Sequence[Block]) -> bool:
    block = _read_from(blocks[0])
    return isinstance(block, StoreBlock) and block.at_an_address


def _need_of(blocks: Sequence[Block]) -> Need:
    """Return what a worker needs for the blocks: the store, and memory for its chunks."""
    block = _read_from(blocks[0])
    if not isinstance(block, StoreBlock):
        return Need()
    row_bytes = sum(member.row_bytes for member in block.members) + _VECTOR_BYTES
    return Need(block.root, block.fingerprint, block.chunk_rows * row_bytes)


def _work_of(key: str, blocks: Sequence[Block]) -> str:
    """Return in words what the task with a key does, with the files that it reads."""
    number = block_of(key)
    if number is None:
        return f"the task {key!r}"
    block = _read_from(blocks[number])
    if not isinstance(block, StoreBlock):
        return f"block {number} of a pass"
    last = block.first_chunk + len(block.entries[0]) - 1
    first, end = (block.members[0].key(chunk) for chunk in (block.first_chunk, last))
    return f"block {number} of a pass, {first!r} to {end!r} of store {block.root!r},"
