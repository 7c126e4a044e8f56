"""Records of the arrays of one Hamiltonian chain: state, scratch, units drawn ahead."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streammc.likelihood.blocks import Block
from streammc.likelihood.target import Point, Work, allocate_point
from streammc.numerics.records import record_type
from streammc.protocols import Index, Matrix, Rows, Vector
from streammc.samplers.hamiltonian.subsample import Proposal

MAX_DEPTH = 10


class Tree(NamedTuple):
    """Buffers of one trajectory; row 0 is the trajectory, rows 1 and up its new half."""

    first: Matrix
    """(MAX_DEPTH + 2, d) first momentum of each subtree, in the order it was built."""
    last: Matrix
    """(MAX_DEPTH + 2, d) last momentum of each subtree."""
    total: Matrix
    """(MAX_DEPTH + 2, d) summed momenta of each subtree."""
    z: Matrix
    """(2, d) position of the earliest and the latest state."""
    momentum: Matrix
    """(2, d) momentum of these states."""
    gradient: Matrix
    """(2, d) gradient at these states."""
    candidate: Point
    """State drawn from the new half."""


TREE_TYPE: Any = record_type(Tree)


def allocate_tree(d: int, k: int, m: int, p: int, *, used: bool = True) -> Tree:
    """Return buffers for points of this shape; empty buffers if they are not ``used``."""
    if not used:
        d, k, m, p = 0, 0, 0, 0
    size = MAX_DEPTH + 2
    subtrees = (np.zeros((size, d)), np.zeros((size, d)), np.zeros((size, d)))
    ends = (np.zeros((2, d)), np.zeros((2, d)), np.zeros((2, d)))
    return Tree(*subtrees, *ends, allocate_point(d, k, m, p))


class Buffers(NamedTuple):
    """State and scratch of one chain; written in place."""

    sub: Block
    """Rows of the subsample."""
    point: Point
    """Current state."""
    trial: Point
    """Current end of a trajectory."""
    proposal: Proposal
    work: Work
    tree: Tree
    tuning: Vector
    """State of the tuning; see :mod:`streammc.samplers.common.tuning`."""


BUFFERS_TYPE: Any = record_type(Buffers)


class Ahead(NamedTuple):
    """Units drawn ahead, in the order in which they are proposed."""

    rows: Rows
    units: Index


AHEAD_TYPE: Any = record_type(Ahead)
