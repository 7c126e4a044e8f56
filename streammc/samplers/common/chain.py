"""What the kernels of all samplers share: batches of iterations, whose rows are gathered.

Iterations are handed to compiled code in batches. While one batch runs, the rows of the
next are on their way (``subsampling.lookahead``). Not one bit of the draws depends on the
size of a batch.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.likelihood.blocks import Block, allocate_rows
from streammc.likelihood.target import Base
from streammc.protocols import Index, Matrix, Rows, RowSource, Vector
from streammc.subsampling.certainty import leave_out
from streammc.subsampling.lookahead import Lookahead
from streammc.subsampling.units import UnitDesign

BATCH_SECONDS: Final = 0.1
BATCH_ROWS: Final = 16_384
DISPERSED: Final = 2.0
"""Laplace standard deviations by which chains that evaluate every row start apart."""
_INTEGERS: Final = frozenset({"n_steps", "n_rows"})


class StoppedError(Exception):
    """The chain was told to stop; the interval under way is lost, the last commit is not."""


def first_position(
    rng: np.random.Generator,
    dim: int,
    chain: int,
    attempt: int = 0,
    spread: float = 1.0,
    modes: Matrix | None = None,
) -> Vector:
    """Return where a chain starts, whitened, (d,).

    Chains take theta_star and the other ``modes`` (M, d) in turn: there exactly, around
    theta_star ``spread`` standard deviations wide, and less at later attempts.
    """
    z: Vector = rng.standard_normal(dim)
    which = chain % (1 + len(modes)) if modes is not None else 0
    if modes is not None and which and not attempt:
        start: Vector = modes[which - 1]
        return start
    return z if spread == 1.0 else z * spread * 0.95**attempt


class SharedProblem(Protocol):
    """What a chain asks of the problem that all chains share."""

    @property
    def base(self) -> Base:
        """Return Taylor sums, prior and scale."""

    @property
    def certainty_rows(self) -> Index:
        """Return the rows (sorted) that count 0 times in a subsample."""

    @property
    def design(self) -> UnitDesign | None:
        """Return the units; ``None`` where every row is evaluated."""

    @property
    def source(self) -> RowSource:
        """Return the rows."""

    @property
    def certain(self) -> Block:
        """Return the rows that every evaluation looks at."""

    @property
    def constrain(self) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        """Return what turns theta (..., d) into the parameters that are reported."""

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> Chain:
        """Return chain ``chain`` of the run with that seed."""


class Chain(ABC):
    """One chain: its streams of random numbers, its place, and the rows it has read."""

    statistics: tuple[str, ...]
    """Columns that :meth:`_run_batch` writes, in order."""
    threads: int = 1
    """That this chain may use by itself: cores that no other chain needs."""

    def __init__(
        self, problem: SharedProblem, seed: int, chain: int, *, batch_iterations: int
    ) -> None:
        self._shared = problem
        self.batch_iterations = batch_iterations
        self.iteration = 0
        self.rows_gathered = 0
        self._kernel_rng = streams.stream(seed, chain, streams.Role.KERNEL)
        self._seconds_per_iteration = 0.0
        self._ahead = None
        if problem.design:
            rng = streams.stream(seed, chain, streams.Role.SUBSAMPLE)
            self._ahead = Lookahead(problem.design, problem.source, rng)

    @abstractmethod
    def initialise(self) -> None:
        """Draw a start."""

    @abstractmethod
    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON from which :meth:`set_state` continues bit for bit."""

    @abstractmethod
    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""

    def tallies(self) -> dict[str, NDArray[Any]]:
        """Return what was counted per level or pair of levels since warm-up, by name.

        Kept in the group ``tempering`` of a run; nothing where there are no levels. ``beta``
        (L,) gives the number of levels: arrays (L,) are per level, (L - 1,) per pair of
        neighbours, (L, r) per level and energy ring, () per chain.
        """
        return {}

    @staticmethod
    def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
        """Return what the tallies of all chains say, as JSON: part of the summary.

        ``levels`` holds one list of numbers per column of a table with a line per level,
        the other entries are numbers or text; a list ``warnings`` joins those of the summary.
        """
        return {}

    @abstractmethod
    def _batch(self) -> int:
        """Return how many iterations to hand over at once."""

    @abstractmethod
    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows."""

    def advance(
        self, n: int, warmup: bool, stop: Callable[[], bool] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Run ``n`` iterations; return ``theta (n, d)`` and the statistics (n,) by name."""
        theta = np.empty((n, len(self._shared.base.theta_star)))
        statistics = np.empty((n, len(self.statistics)))
        done = 0
        while done < n:
            if stop is not None and stop():
                raise StoppedError
            count = min(n - done, self._batch())
            begun = time.perf_counter()
            self._run_batch(theta[done : done + count], statistics[done : done + count], warmup)
            self._seconds_per_iteration = (time.perf_counter() - begun) / count
            done += count
        out: dict[str, NDArray[Any]] = {"theta": theta}
        for column, name in enumerate(self.statistics):
            values = statistics[:, column]
            if name == "diverging":
                out[name] = values != 0.0
            else:
                out[name] = values.astype(np.int64) if name in _INTEGERS else values.copy()
        return out

    def _gather(self, units: Index) -> Rows:
        """Return the rows of ``units``; certainty rows count 0 times, rare units more than once."""
        problem = self._shared
        b = problem.base.unit_rows
        rows = allocate_rows(len(units) * b, problem.source.n_features)
        if problem.design:
            starts = problem.design.starts(units)
            problem.source.gather(starts, b, rows)
            leave_out(starts, b, problem.certainty_rows, rows.weight)
            problem.design.reweigh(units, rows.weight)
            self.rows_gathered += len(units) * b
        return rows
