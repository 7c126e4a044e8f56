"""Rows of ``smh``, drawn ahead in a sequential read: the read itself, and what follows from it.

The rows that a chain will ask for are independent, with probabilities proportional to their bounds,
whatever its positions. Here they are a Poisson process: in one *sheet* of a chain a row stands a
Poisson number of times, of mean ``rate x bound``, and the sheet is then put into random order. So a
block of rows needs to know of no other block, and sheet follows sheet as independent draws. The
numbers of a sheet depend on the seed, the chain, the sheet and the rows alone: a read fills as many
sheets as fit into memory, and no draw depends on how many.

Rows whose bound is so large that they would be drawn in every few iterations are kept in memory and
always evaluated; they are never drawn.

The pass that certifies theta_star is the first such read. It knows theta_star, and not yet the
curvature of all rows: its bounds are in the coordinates ``C_0`` of an earlier pass or of rows in
memory. With ``M = C_0^-1 C`` and s its largest singular value, ``|C_0^-1 (theta - theta_star)| <= s
|eps|``, so that s^3 times the bounds hold in the coordinates ``C`` of the chains, within 1 / s of
the radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from streammc import rng as streams
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.mode.search import LARGEST_DECREMENT
from streammc.errors import OutOfMemoryError
from streammc.likelihood.blocks import memory_limit
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES
from streammc.numerics.process_limits import single_threaded
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Matrix, PassTask, RowBlock, Rows, Vector
from streammc.samplers.factorised.loop import PoolRows

if TYPE_CHECKING:
    from streammc.control_variates.mode.newton import Point
    from streammc.samplers.common.sampler import RunRequest

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
LARGEST_STRETCH: Final = 1.05
"""Largest s for which the sheets of the certifying pass are used: s^3 times as many rows."""


class PoolPlan(NamedTuple):
    """What a read keeps of the rows; numbers that a run records."""

    radius: float
    """Largest ``|C_0^-1 (theta - theta_star)|``: beyond it the Gaussian has at most the mass
    ``OUTSIDE``."""
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
    """(d, d) C_0."""


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


def offset_of(cv: ControlVariates) -> Vector:
    """Return (d,) ``eps`` of the centre of the Gaussian."""
    return np.asarray(np.linalg.solve(cv.factor, cv.newton_step), np.float64)


def needed_radius(offset: Vector) -> float:
    """Return the ``|eps|`` beyond which a Gaussian around ``offset`` has the mass ``OUTSIDE``."""
    return float(np.sqrt(offset @ offset)) + math.sqrt(float(chdtri(len(offset), OUTSIDE)))


def planned(at: Whitening, radius: float, dataset: Dataset) -> PoolPlan:
    """Return the plan of the reads, from a sample of the rows."""
    d = len(at.theta_star)
    generator = streams.stream(0, 7, streams.Role.PLAN)
    first, second = (generator.standard_normal((_PAIRS, d)) for _ in range(2))
    size = float(np.mean(sizes(first, second)))
    rows = draw_subset(dataset, SUBSET_BYTES)
    scale = dataset.n_rows / max(len(rows.y), 1)
    with single_threaded():
        bound = bounds(at, radius, rows).bound
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


def first_read(at: Whitening, plan: PoolPlan, request: RunRequest) -> PoolTask:
    """Return the task of the first read of a run.

    Raises
    ------
    OutOfMemoryError
        If a sheet of every chain does not fit.
    """
    chains, iterations = request.chains, request.warmup + request.draws
    row_bytes = 8 * (len(at.theta_star) + 8)
    sheet_bytes, memory = row_bytes * plan.sheet_rows * chains, _MEMORY * memory_limit()
    fit = int((memory - row_bytes * plan.certain) / sheet_bytes)
    if fit < 1:
        needed = 1e-6 * (sheet_bytes + row_bytes * plan.certain)
        raise OutOfMemoryError(
            f"expected at most {1e-6 * memory:,.1f} MB of rows in memory for smh, found "
            f"{needed:,.1f} MB for {plan.certain + plan.drawn:,.0f} rows an iteration of each of "
            f"{chains} chains: use fewer chains; or hmc-ecs, from a store, --store NAME.zarr, in "
            "Python store="
        )
    wanted = math.ceil(1.1 * plan.drawn * iterations / plan.sheet_rows) if plan.drawn else 1
    return PoolTask(at, plan, request.stream_seed, chains, 0, min(max(wanted, 1), fit))


class Ahead:
    """The first read of a run, made by the pass that certifies theta_star.

    Parameters
    ----------
    request
        The run.
    most_rows
        Rows an iteration up to which it is made.
    """

    def __init__(self, request: RunRequest, most_rows: float) -> None:
        self._request, self._most = request, most_rows
        self._made: tuple[PoolTask, Read] | None = None
        self._asked: PoolTask | None = None

    def task(self, at: Point) -> PoolTask | None:
        """Return the read at a centre; ``None`` where another way is better.

        Rows with codes are a cheaper pass by themselves.
        """
        request, self._asked = self._request, None
        model: Any = request.model
        if request.dataset.rows().columns is not None:
            return None
        where = Whitening(model, at.theta, np.ascontiguousarray(at.factor))
        farthest = needed_radius(np.zeros(len(at.theta))) + LARGEST_DECREMENT
        plan = planned(where, LARGEST_STRETCH * farthest, request.dataset)
        if plan.drawn + plan.certain <= self._most:
            with suppress(OutOfMemoryError):
                self._asked = first_read(where, plan, request)
        return self._asked

    def take(self, result: Read) -> None:
        """Take the rows of the last read."""
        assert self._asked is not None
        self._made = self._asked, result

    def around(self, cv: ControlVariates) -> tuple[PoolTask, Read] | None:
        """Return the read, if it was around theta_star of ``cv`` and its bounds are good."""
        if self._made is None or not np.array_equal(self._made[0].at.theta_star, cv.theta_star):
            return None
        task, _ = self._made
        stretch = Change.between(task.at.factor, cv.factor).stretch
        enough = stretch * needed_radius(offset_of(cv)) <= task.plan.radius
        return self._made if stretch <= LARGEST_STRETCH and enough else None


class Change(NamedTuple):
    """Change from the coordinates of the reads to those of the chains."""

    matrix: Matrix
    """(d, d) ``M = C_0^-1 C``."""
    stretch: float
    """Its largest singular value; 1 where nothing changes."""

    @staticmethod
    def between(of_reads: Matrix, of_chains: Matrix) -> Change:
        """Return the change from one factor to another, both (d, d) lower triangular."""
        if np.array_equal(of_reads, of_chains):
            return Change(np.eye(len(of_reads)), 1.0)
        with single_threaded():
            matrix = np.asarray(solve_triangular(of_reads, of_chains, lower=True), np.float64)
            largest = float(np.linalg.norm(matrix, 2))
        return Change(matrix, (1.0 + 1e-12) * largest)  # rounding of the norm

    def __call__(self, rows: PoolRows) -> PoolRows:
        """Return rows in the coordinates of the chains."""
        with single_threaded():
            return rows._replace(z=rows.z @ self.matrix, bound=rows.bound * self.stretch**3)


class Pool:
    """The sheets of all chains of a run: those that one read fills, and those of the read before.

    Parameters
    ----------
    dataset
        Data of the run.
    task
        The first read.
    read
        Its result, if the certifying pass made it.
    factor
        (d, d) C, of the coordinates of the chains.
    scheduler, progress
        As of ``Dataset.reduce``.
    """

    def __init__(
        self,
        dataset: Dataset,
        task: PoolTask,
        read: Read | None,
        factor: Matrix,
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._dataset, self._scheduler, self._progress = dataset, scheduler, progress
        self._task, self._sheets = task, dict[tuple[int, int], PoolRows]()
        self._change = Change.between(task.at.factor, factor)
        self._lock = Lock()
        self.sheets_of_a_read = task.last
        self.n_rows, self.chains = dataset.n_rows, task.chains
        self.radius = task.plan.radius / self._change.stretch
        """Largest ``|eps|`` for which the bounds hold."""
        read = self._fill(0, read)
        self.total = float(read.total.sum()) * self._change.stretch**3
        """Sum of the bounds of all rows that are drawn."""
        self.certain = self._finished(joined(read.certain, len(factor)))

    def sheet(self, chain: int, number: int) -> PoolRows:
        """Return a sheet of a chain; another read fills it where it is not in memory."""
        with self._lock:
            if (chain, number) not in self._sheets:
                self._fill(number, None)
            return self._sheets[chain, number]

    def _fill(self, first: int, read: Read | None) -> Read:
        """Take the sheets from ``first`` on, from a result or from another read."""
        count = self.sheets_of_a_read
        task = replace(self._task, first=first, last=first + count)
        if read is None:
            read = self._dataset.reduce(task, scheduler=self._scheduler, progress=self._progress)
        # Chains are at most an interval apart: the sheets before these may still be in use.
        sheets = {
            key: rows for key, rows in self._sheets.items() if first - count <= key[1] < first
        }
        for chain in range(task.chains):
            for number in range(first, first + count):
                rows = joined(read.sheets.get((chain, number), []), len(task.at.theta_star))
                order = streams.stream(task.seed, chain, streams.Role.POOL, number)
                sheets[chain, number] = self._finished(some(rows, order.permutation(len(rows.y))))
        self._sheets = sheets
        return read

    def _finished(self, rows: PoolRows) -> PoolRows:
        """Return rows in the coordinates of the chains, with their expansions."""
        return expanded(self._task.at.model, self._change(rows))
