"""The tasks of a reduction, and their graph.

A task takes one block, or combines the results of two; it may run twice, and on any worker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any, Final, Generic, TypeVar

from threadpoolctl import threadpool_limits

from streammc.numerics.coded_matrix import expanded_pieces
from streammc.protocols import PassTask, PieceTask
from streammc.stores.cluster.worker_checks import same_versions, versions
from streammc.stores.full_pass.reduction_tree import block_of, reduction_tree, wanted_nodes
from streammc.stores.full_pass.row_blocks import Block

BEGUN: Final = "begun"
DONE: Final = "done"
"""Events that workers report of a block."""

T = TypeVar("T")


class BlockTask(Generic[T]):
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
    if getattr(block, "coded", False) and not getattr(task, "takes_codes", False):
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


def task_graph(
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
            made[key] = read(shared, BlockTask(blocks[block], *asked), dask_key_name=key)
        else:
            left, right = (kept[each] if each in kept else made[each] for each in nodes[key])
            made[key] = combine(shared, left, right, dask_key_name=key)
    return made
