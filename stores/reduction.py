"""A reduction over all rows with Dask, in a fixed tree.

The results of blocks are combined pairwise, level by level, in a tree that follows from the number
of blocks alone: any number of threads or workers, finishing in any order, gives the same bits. Dask
starts a map task only when a thread is free and combines depth first: memory holds only the blocks
in work and the results that wait for their neighbours.

Results of blocks that a failed pass leaves on its cluster stay in the memory of the workers for the
same pass given again. They are published under the token of the pass: a digest of the task, its
blocks and all versions. Nothing is read back into this process before the sums are complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial, reduce
from threading import Lock
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from threadpoolctl import threadpool_limits

from streammc.errors import ConfigError
from streammc.numerics.coded_matrix import expanded_pieces
from streammc.numerics.process_limits import available_threads
from streammc.protocols import PassTask, PieceTask
from streammc.stores.dask_cluster import (
    Need,
    connected,
    is_cluster,
    require_workers,
    results,
    same_versions,
    versions,
)
from streammc.stores.rows.row_blocks import Block, LaterBlock, StoreBlock

_MAP: Final = "streammc-map-"


BEGUN: Final = "begun"
DONE: Final = "done"
"""Events that workers report of a block."""

T = TypeVar("T")


KNOWN: Final = (
    "streammc",
    "numpy",
    "abc",
    "builtins",
    "copyreg",
    "collections",
    "pathlib",
    "typing",
)
"""Packages whose code the versions of workers and client pin."""


_VECTOR_BYTES: Final = 24
"""Bytes a row of response, offset and weight as a kernel takes them."""

Progress = Callable[[int, int], None]


def run(
    task: PassTask[T],
    blocks: Sequence[Block],
    *,
    scheduler: Any = None,
    progress: Progress | None = None,
) -> T:
    """Map every block and combine the results; see ``protocols.Dataset.reduce``."""
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
    earlier = kept_results(client, pinned)
    for number in {block_of(each) for node in earlier for each in leaves(nodes, node)}:
        assert number is not None
        count((0.0, (DONE, number)))
    client.subscribe_topic(topic, count)
    futures, asked = dict(earlier), tuple[Any, ...]()
    try:
        root = next(reversed(nodes))
        if root not in earlier:
            made = task_graph(task, blocks, token, topic, earlier)
            # One dictionary: merging graphs takes time of the square of their number.
            asked = client.get(dict(made[root].dask), list(made), sync=False)
            futures |= dict(zip(made, asked, strict=True))
            for key in made:  # a result is kept until what it is a part of is done
                futures[key].add_done_callback(partial(_drop_parts, futures, nodes[key]))
        sums = results([futures[root]], client, describe, need)
        assert sums is not None
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
    return sums[0]  # type: ignore[no-any-return]


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


def task_graph(
    task: PassTask[T],
    blocks: Sequence[Block],
    token: str,
    topic: str | None,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the reduction tree as ``Delayed`` objects by key; the root is last.

    What ``kept`` has a future of is not made again, nor are its parts.
    """
    from dask.delayed import delayed

    earlier = earlier or {}
    options = {"pure": False, "traverse": False}
    shared = delayed(task, name=f"streammc-task-{token}", **options)
    read = delayed(_apply, name=f"streammc-apply-{token}", **options)
    combine = delayed(_combine, name=f"streammc-join-{token}", **options)
    asked = (topic, os.getpid(), () if topic is None else tuple(versions().items()))
    nodes, made = reduction_tree(token, len(blocks)), dict[str, Any]()
    for key in wanted_nodes(nodes, earlier):
        block = block_of(key)
        if block is not None:
            made[key] = read(shared, BlockTask(blocks[block], *asked), dask_key_name=key)
        else:
            left, right = (earlier[each] if each in earlier else made[each] for each in nodes[key])
            made[key] = combine(shared, left, right, dask_key_name=key)
    return made


class BlockTask(Generic[T]):
    """One map task; safe to run twice. No dataclass: dask would look for collections in it.

    A worker of a cluster reports its block to ``topic``, which is ``None`` within this process.
    ``home`` is the id of the process that made the task: in another one the task first pins BLAS.
    ``pinned`` are the versions of that process, which a worker that came later must have, too.
    """

    def __init__(
        self, block: Block, topic: str | None, home: int, pinned: tuple[tuple[str, str], ...]
    ) -> None:
        self.block, self.topic, self.home, self.pinned = block, topic, home, pinned

    def __call__(self, task: PassTask[T]) -> T:
        """Return the result of the block."""
        if self.topic is not None and os.getpid() != self.home:
            same_versions(self.pinned)
            _pin_blas()
        self._log(BEGUN)
        result = reduce_block(task, self.block)
        self._log(DONE)
        return result

    def _log(self, what: str) -> None:
        if self.topic is not None:
            from distributed import get_worker

            get_worker().log_event(self.topic, (what, self.block.index))


def reduce_block(task: PassTask[T], block: Block) -> T:
    """Return the result of the task for the pieces of ``block``, in order."""
    pieces = block.pieces()
    if block.coded and not task.takes_codes:
        pieces = expanded_pieces(pieces)
    if isinstance(task, PieceTask):
        result: T = task.map_pieces(pieces)
        return result
    return reduce(task.combine, map(task.map, pieces))


def _apply(task: PassTask[T], work: BlockTask[T]) -> T:
    return work(task)


def _combine(task: PassTask[T], left: T, right: T) -> T:
    return task.combine(left, right)


@cache
def _pin_blas() -> Any:
    # Once per worker, and not as a context, whose end would restore the old limit.
    return threadpool_limits(limits=1)


def reduction_tree(token: str, count: int) -> dict[str, tuple[str, ...]]:
    """Return the keys of the reduction tree, each with those of its two parts; the root is last."""
    level = [block_key(token, block) for block in range(count)]
    nodes: dict[str, tuple[str, ...]] = dict.fromkeys(level, ())
    height = 0
    while len(level) > 1:
        height += 1
        pairs = list(zip(level[::2], level[1::2], strict=False))
        joined = [f"streammc-combine-{token}-{height}-{position}" for position in range(len(pairs))]
        nodes |= dict(zip(joined, pairs, strict=True))
        level = joined + level[len(pairs) * 2 :]
    return nodes


def wanted_nodes(nodes: dict[str, tuple[str, ...]], earlier: Collection[str]) -> list[str]:
    """Return the keys of a tree that are to be made, parts first."""
    wanted: set[str] = {next(reversed(nodes))}
    for key in reversed(nodes):
        if key in wanted:
            wanted.update(each for each in nodes[key] if each not in earlier)
    return [key for key in nodes if key in wanted]


def leaves(nodes: Mapping[str, tuple[str, ...]], key: str) -> list[str]:
    """Return the keys of the blocks below a node."""
    parts = nodes[key]
    return [leaf for part in parts for leaf in leaves(nodes, part)] if parts else [key]


def block_key(token: str, block: int) -> str:
    """Return the key of the task of a block.

    All tasks of blocks are of one group, ``streammc-map``, since dask cuts a key at its first word
    that is not of letters. They are then kept by the scheduler until a thread is free: a worker
    that dies has two of them, and not all that follow.
    """
    return f"{_MAP}{token}-{block}"


def block_of(key: str) -> int | None:
    """Return the block of the task with a key; ``None`` for a task of another kind."""
    return int(key.rpartition("-")[2]) if key.startswith(_MAP) else None


def pass_token(task: Any, blocks: Sequence[Block]) -> str | None:
    """Return a token that only an equal pass has; ``None`` if code of a user takes part.

    The sources of other packages are not among the versions that are compared: they may have
    changed under the same names.
    """
    file = io.BytesIO()
    watch = _Watch(file)
    try:
        watch.dump((task, tuple(blocks), tuple(versions().items())))
    except Exception:  # what a task holds decides which error this is; cloudpickle may know better
        return None
    if not watch.packages <= {*KNOWN}:
        return None
    return hashlib.sha256(file.getbuffer()).hexdigest()[:32]


class _Watch(pickle.Pickler):
    """Pickler that notes the packages of all classes and functions."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.packages: set[str] = set()

    def reducer_override(self, thing: Any) -> Any:
        """Note the package of a thing, and pickle it as usual."""
        for each in (thing, type(thing)):
            module = getattr(each, "__module__", None)
            if isinstance(module, str):
                self.packages.add(module.partition(".")[0])
        return NotImplemented


def kept_results(client: Any, token: str | None) -> dict[str, Any]:
    """Return the futures that a failed pass of this token has left, by key."""
    name = f"streammc-{token}"
    if token is None or name not in client.list_datasets():
        return {}
    futures = client.get_dataset(name)
    held = client.who_has(list(futures.values()))  # a future just received does not know its status
    return {key: future for key, future in futures.items() if held.get(key)}


def keep_results(client: Any, token: str | None, futures: Mapping[str, Any]) -> None:
    """Publish the futures that are finished; nothing if there are none or the cluster is gone."""
    done = {key: future for key, future in futures.items() if future.status == "finished"}
    if token is not None and done and client.status == "running":
        with suppress(Exception):  # the failure of the pass is what the user has to know
            client.publish_dataset(done, name=f"streammc-{token}", override=True)


def forget_results(client: Any, token: str | None) -> None:
    """Give up what a failed pass of this token has left."""
    name = f"streammc-{token}"
    with suppress(Exception):  # the sums are complete, whatever becomes of the cluster
        if token is not None and name in client.list_datasets():
            client.unpublish_dataset(name)
