"""Rows of ``smh``, drawn ahead in a sequential read: the read itself, and what follows from it.

The rows that a chain will ask for are independent, with probabilities proportional to their bounds,
whatever its positions. Here they are a Poisson process: in one *sheet* of a chain a row stands a
Poisson number of times, of mean ``rate x bound``, and the sheet is then put into random order. So a
block of rows needs to know of no other block, and sheet follows sheet as independent draws. The
numbers of a sheet depend on the seed, the chain, the sheet and the rows alone: a read fills as many
sheets as fit into memory, and no draw depends on how many.

Rows whose bound is so large that they would be drawn in every few iterations are kept in memory and
always evaluated; they are never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.special import chdtri

from streammc import rng as streams
from streammc.control_variates.expansion import ControlVariates
from streammc.errors import OutOfMemoryError
from streammc.likelihood.blocks import memory_limit
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES
from streammc.numerics.process_limits import single_threaded
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Matrix, PassTask, RowBlock, Rows, Vector
from streammc.samplers.factorised.loop import PoolRows

OUTSIDE: Final = 1e-12
"""Mass of the Gaussian outside the radius."""
_ALWAYS: Final = 0.25
"""Times an iteration that a row would be drawn, from which on it is always evaluated."""
_PAIRS: Final = 2048
"""Pairs of draws of the Gaussian over which ``f`` is averaged."""
_SHEET: Final = 8192
"""Rows of a sheet; more where iterations take more."""
_ITERATIONS: Final = 4
"""A sheet has rows for so many iterations of the largest size."""
_MEMORY: Final = 0.25
"""Share of ``memory_limit`` for sheets."""
_SLICE: Final = 2**14
"""Rows whose bounds are computed together."""


class PoolPlan(NamedTuple):
    """What a read keeps of the rows; numbers that a run records."""

    radius: float
    """Largest ``|eps|``: beyond it the Gaussian has the mass ``OUTSIDE``."""
    threshold: float
    """Bound from which on a row is always evaluated."""
    rate: float
    """Mean number of times that a row stands in a sheet, divided by its bound."""
    sheet_rows: float
    """Predicted number of rows of a sheet."""
    drawn: float
    """Predicted rows that an iteration draws, where proposals are independent."""
    certain: float
    """Predicted rows that are always evaluated."""


class Whitening(NamedTuple):
    """Model and coordinates of a read."""

    model: Any
    theta_star: Vector
    factor: Matrix
    """(d, d) C."""


def bounds(at: Whitening, radius: float, rows: Rows) -> PoolRows:
    """Return whitened rows with their bounds, without expansions."""
    model = at.model
    X = np.ascontiguousarray(rows.X, np.float64)
    z = X @ at.factor
    norm = np.sqrt(np.einsum("ij,ij->i", z, z))
    eta = X @ at.theta_star + rows.offset
    y, weight = (np.ascontiguousarray(part, np.float64) for part in (rows.y, rows.weight))
    largest = np.empty(len(y))
    model.third_derivative(eta, norm * radius, y, model.constants, largest)
    bound = np.where(weight > 0.0, weight * largest * norm**3, 0.0)
    return PoolRows(z, y, weight, eta, np.zeros((0, 3)), bound)


def expanded(model: Any, rows: PoolRows) -> PoolRows:
    """Return rows with their weighted expansions at theta_star."""
    out = np.zeros((3, len(rows.y)))
    model.link(rows.eta[None], rows.z.T, rows.y, model.constants, 2, out)
    return rows._replace(expansion=np.ascontiguousarray((rows.weight * out).T))


def joined(parts: list[PoolRows], d: int) -> PoolRows:
    """Return rows one after the other."""
    if not parts:
        none = np.zeros(0)
        return PoolRows(np.zeros((0, d)), none, none, none, np.zeros((0, 3)), none)
    return PoolRows(
        *(np.ascontiguousarray(np.concatenate(column)) for column in zip(*parts, strict=True))
    )


def some(rows: PoolRows, which: Any) -> PoolRows:
    """Return the rows at ``which``, an index array, a mask or a slice."""
    expansion = rows.expansion[which] if len(rows.expansion) else rows.expansion
    return PoolRows(
        rows.z[which], rows.y[which], rows.weight[which], rows.eta[which], expansion,
        rows.bound[which],
    )  # fmt: skip


def planned(model: Any, cv: ControlVariates, dataset: Dataset) -> PoolPlan:
    """Return the plan of the reads, from a sample of the rows."""
    d = cv.dim
    offset = np.linalg.solve(cv.factor, cv.newton_step)
    away = float(np.sqrt(offset @ offset))
    radius = away + math.sqrt(float(chdtri(d, OUTSIDE)))
    generator = streams.stream(0, 7, streams.Role.PLAN)
    first, second = (offset + generator.standard_normal((_PAIRS, d)) for _ in range(2))
    size = float(np.mean(sizes(first, second)))
    rows = draw_subset(dataset, SUBSET_BYTES)
    scale = dataset.n_rows / max(len(rows.y), 1)
    with single_threaded():
        bound = bounds(Whitening(model, cv.theta_star, cv.factor), radius, rows).bound
    threshold = _ALWAYS / size
    drawn = bound < threshold
    total = scale * float(bound[drawn].sum())
    sheet = float(max(_SHEET, _ITERATIONS * most_rows(total, radius)))
    rate = sheet / max(total, threshold)  # the sample may have none that is drawn
    return PoolPlan(radius, threshold, rate, sheet, size * total, scale * float((~drawn).sum()))


def sizes(first: Matrix, second: Matrix) -> Vector:
    """Return ``f`` (see ``loop``) between pairs of ``eps`` (S, d)."""
    old, new = (np.sqrt((each**2).sum(axis=1)) for each in (first, second))
    moved = np.sqrt(((second - first) ** 2).sum(axis=1))
    f: Vector = np.minimum((old**3 + new**3) / 6.0, 0.5 * np.maximum(old, new) ** 2 * moved)
    return f


def most_rows(total: float, radius: float) -> int:
    """Return how many rows an iteration takes at most, but for a chance below 1e-20."""
    mean = total * radius**3 / 3.0
    return int(mean + 12.0 * math.sqrt(mean) + 30.0)


class Read(NamedTuple):
    """Result of a read of some rows, in order."""

    total: Matrix
    """(2, 1) sum of the bounds of rows that are drawn, and what it lost to rounding."""
    certain: list[PoolRows]
    """Rows that are always evaluated."""
    sheets: dict[tuple[int, int], list[PoolRows]]
    """Rows by chain and sheet, in the order of the rows."""


@dataclass(frozen=True)
class PoolTask(PassTask[Read]):
    """Sheets ``first`` to ``last`` of all chains, and the rows that are always evaluated."""

    at: Whitening
    plan: PoolPlan
    seed: int
    chains: int
    first: int
    last: int

    def map(self, block: RowBlock) -> Read:
        """Return what a piece of the rows gives."""
        plan, m = self.plan, len(block.y)
        parts, keep = [], []
        for start in range(0, m, _SLICE):
            stop = start + _SLICE
            piece = Rows(*(part[start:stop] for part in block[2:]))
            parts.append(bounds(self.at, plan.radius, piece))
            keep.append(parts[-1].bound < plan.threshold)
        rows = joined(parts, len(self.at.theta_star))
        drawn = np.concatenate(keep) if keep else np.zeros(0, np.bool_)
        certain = some(rows, ~drawn)
        edges = np.cumsum(np.where(drawn, rows.bound, 0.0))
        total = float(edges[-1]) if m else 0.0
        sheets: dict[tuple[int, int], list[PoolRows]] = {}
        last = int(np.flatnonzero(edges == total)[0]) if total > 0.0 else 0
        for chain in range(self.chains):
            for sheet in range(self.first, self.last):
                generator = streams.stream(self.seed, chain, streams.Role.POOL, sheet, block.start)
                count = generator.poisson(plan.rate * total)
                places = np.searchsorted(edges, total * generator.random(count), side="right")
                if count:
                    sheets[chain, sheet] = [some(rows, np.minimum(places, last))]
        return Read(np.array([[total], [0.0]]), [certain] if len(certain.y) else [], sheets)

    def combine(self, left: Read, right: Read) -> Read:
        """Return the rows of both, one after the other."""
        sheets = {
            key: left.sheets.get(key, []) + right.sheets.get(key, [])
            for key in {**left.sheets, **right.sheets}
        }
        total = merge_compensated(left.total, right.total)
        return Read(total, left.certain + right.certain, sheets)


class Pool:
    """The sheets of all chains of a run: those that one read fills, and those of the read before.

    Parameters
    ----------
    dataset
        Data of the run.
    at, plan
        Coordinates of the run, and its plan.
    seed, chains
        Of the run.
    iterations
        Iterations of a chain, for which the first read should suffice.
    scheduler, progress
        As of ``Dataset.reduce``.

    Raises
    ------
    OutOfMemoryError
        If a sheet of every chain does not fit.
    """

    def __init__(
        self,
        dataset: Dataset,
        at: Whitening,
        plan: PoolPlan,
        *,
        seed: int,
        chains: int,
        iterations: int,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._dataset, self._scheduler, self._progress = dataset, scheduler, progress
        self._task = PoolTask(at, plan, seed, chains, 0, 0)
        self._sheets: dict[tuple[int, int], PoolRows] = {}
        self._lock = Lock()
        row_bytes = 8 * (len(at.theta_star) + 8)
        sheet_bytes, memory = row_bytes * plan.sheet_rows * chains, _MEMORY * memory_limit()
        fit = int((memory - row_bytes * plan.certain) / sheet_bytes)
        if fit < 1:
            needed = 1e-9 * (sheet_bytes + row_bytes * plan.certain)
            raise OutOfMemoryError(
                f"expected at most {1e-9 * memory:.1f} GB of rows in memory for smh, found "
                f"{needed:.1f} GB for {plan.certain + plan.drawn:,.0f} rows an iteration: use "
                "hmc-ecs"
            )
        wanted = math.ceil(1.1 * plan.drawn * iterations / plan.sheet_rows) if plan.drawn else 1
        self.sheets_of_a_read = min(max(wanted, 1), fit)
        self.n_rows, self.chains = dataset.n_rows, chains
        read = self._read(0)
        self.total = float(read.total.sum())
        self.certain = expanded(at.model, joined(read.certain, len(at.theta_star)))

    def sheet(self, chain: int, number: int) -> PoolRows:
        """Return a sheet of a chain; another read fills it where it is not in memory."""
        with self._lock:
            if (chain, number) not in self._sheets:
                self._read(number)
            return self._sheets[chain, number]

    def _read(self, first: int) -> Read:
        count, at = self.sheets_of_a_read, self._task.at
        task = replace(self._task, first=first, last=first + count)
        read = self._dataset.reduce(task, scheduler=self._scheduler, progress=self._progress)
        # Chains are at most an interval apart: the sheets before these may still be in use.
        sheets = {
            key: rows for key, rows in self._sheets.items() if first - count <= key[1] < first
        }
        for chain in range(task.chains):
            for number in range(first, first + count):
                rows = joined(read.sheets.get((chain, number), []), len(at.theta_star))
                order = streams.stream(task.seed, chain, streams.Role.POOL, number)
                mixed = some(rows, order.permutation(len(rows.y)))
                sheets[chain, number] = expanded(at.model, mixed)
        self._sheets = sheets
        return read
