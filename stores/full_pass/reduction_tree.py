"""The fixed tree in which the results of blocks are combined, as keys of tasks.

Neighbours are combined pairwise, level by level; an odd last one moves up. The tree follows from
the number of blocks alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_MAP: Final = "streammc-map-"


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


def wanted_nodes(nodes: dict[str, tuple[str, ...]], kept: Collection[str]) -> list[str]:
    """Return the keys of a tree that are to be made, parts first."""
    wanted: set[str] = {next(reversed(nodes))}
    for key in reversed(nodes):
        if key in wanted:
            wanted.update(each for each in nodes[key] if each not in kept)
    return [key for key in nodes if key in wanted]


def leaves(nodes: Mapping[str, tuple[str, ...]], key: str) -> list[str]:
    """Return the keys of the blocks below a node."""
    parts = nodes[key]
    return [leaf for part in parts for leaf in leaves(nodes, part)] if parts else [key]
