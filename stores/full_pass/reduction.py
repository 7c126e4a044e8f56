"""A reduction over all rows with Dask, in a fixed tree.

The results of blocks are combined in a binary tree over block indices (neighbours pairwise,
level by level; an odd last one moves up), so that any number of threads or workers, finishing
in any order, gives the same bits. Dask starts a map task only when a thread is free and
combines depth first: memory holds only the blocks in work and the results that wait for their
neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, reduce
from importlib.util import find_spec
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import uuid4

import dask
from dask import threaded
from dask.callbacks import Callback
from dask.delayed import delayed
from dask.local import get_sync
from threadpoolctl import threadpool_limits

from streammc.errors import ConfigError, UnavailableError
from streammc.numerics.coded_matrix import expanded_pieces
from streammc.numerics.threads import available_threads
from streammc.protocols import PassTask, PieceTask
from streammc.stores.full_pass.row_blocks import Block

_WORKER_SECONDS = 30.0
"""Seconds that a cluster may have no worker."""
_POLL_SECONDS = 5.0

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

    def __call__(self, task: PassTask[T]) -> T:
        if self.topic is not None and os.getpid() != self.home:
            _pin_blas()
        result = _reduce(task, self.block)
        if self.topic is not None:
            from distributed import get_worker

            get_worker().log_event(self.topic, self.block.index)
        return result


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
        If there is no scheduler at the address.
    """
    if scheduler is None:
        scheduler = available_threads()
    if scheduler == "sync" or (type(scheduler) is int and scheduler >= 1):
        return _run_in_process(task, blocks, scheduler, progress)
    if isinstance(scheduler, str) and scheduler.startswith(("tcp://", "tls://")):
        with _connect(scheduler) as client:
            return _run_on_cluster(task, blocks, client, progress)
    # A Client, without an import of distributed.
    if hasattr(scheduler, "compute") and hasattr(scheduler, "subscribe_topic"):
        return _run_on_cluster(task, blocks, scheduler, progress)
    raise ConfigError(
        "expected a scheduler None, 'sync', a positive number of threads, 'tcp://HOST:PORT' or a "
        f"distributed.Client, found {repr(scheduler)[:100]}: give one of them"
    )


def _graph(task: PassTask[T], blocks: Sequence[Block], name: str, topic: str | None) -> Any:
    """Return the root of the reduction tree as a ``Delayed``; its keys begin with ``name``."""
    options = {"pure": False, "traverse": False}
    shared = delayed(task, name=f"{name}-task", **options)
    combine = delayed(_combine, name=f"{name}-combine", **options)
    level = [
        delayed(_Map(block, topic, os.getpid()), name=f"{name}-read-{block.index}", **options)(
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
    seen: set[int] = set()
    lock = Lock()

    def count(event: tuple[float, int]) -> None:
        with lock:
            if event[1] not in seen:  # a task may run twice
                seen.add(event[1])
                if progress is not None:
                    progress(len(seen), len(blocks))

    _require_workers(client)
    client.subscribe_topic(name, count)
    try:
        future = client.compute(_graph(task, blocks, name, name), optimize_graph=False)
        return _result(future, client)  # type: ignore[no-any-return]
    finally:
        client.unsubscribe_topic(name)


def _require_workers(client: Any) -> None:
    """Refuse a cluster without workers, or with a worker that lacks streammc."""
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except TimeoutError:
        raise _no_worker(client) from None
    found = client.run(find_spec, "streammc")
    without = [worker for worker, spec in found.items() if spec is None]
    if without:
        address = client.scheduler.address
        raise UnavailableError(
            f"expected streammc on every worker of {address}, found {len(without)} of {len(found)} "
            f"without it ({without[0]}): install the same version there"
        )


def _result(future: Any, client: Any) -> Any:
    """Wait for a result; raise if the cluster has no worker for ``_WORKER_SECONDS``."""
    idle_seconds = 0.0
    while True:
        try:
            return future.result(timeout=_POLL_SECONDS)
        except TimeoutError:
            if future.done():  # the task raised it
                raise
        idle_seconds = 0.0 if client.scheduler_info()["workers"] else idle_seconds + _POLL_SECONDS
        if idle_seconds >= _WORKER_SECONDS:
            future.cancel()
            raise _no_worker(client)


def _no_worker(client: Any) -> UnavailableError:
    address = client.scheduler.address
    return UnavailableError(
        f"expected a worker at the scheduler {address}, found none for {_WORKER_SECONDS:g} s: "
        f"start one with 'dask worker {address}', or omit --scheduler"
    )


@contextmanager
def _connect(address: str) -> Iterator[Any]:
    """Connect to the existing cluster at ``address``; never start one."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "a scheduler address needs the package distributed: pip install distributed"
        ) from error
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"expected a dask scheduler at {address!r}, found none: start one, or omit --scheduler"
        ) from error
    except Exception as error:  # any type: an answer in another protocol is misread
        raise UnavailableError(
            f"expected a dask scheduler at {address!r}, found something else that answers there "
            f"({type(error).__name__}): check the port; that of the dashboard is another"
        ) from error
    try:
        yield client
    finally:
        client.close()
