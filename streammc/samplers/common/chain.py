"""Base class of the kernels of all samplers: batches of iterations, and their rows.

Compiled code runs iterations in batches. While one batch runs, the rows of the next are
prefetched (``subsampling.lookahead``). No bit of the draws depends on the size of a batch.
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
from streammc.numerics.compile_ahead import compile_ahead
from streammc.protocols import Index, Matrix, Rows, RowSource, Vector
from streammc.subsampling.certainty import leave_out
from streammc.subsampling.lookahead import Lookahead
from streammc.subsampling.units import UnitDesign

BATCH_SECONDS: Final = 0.1
BATCH_ROWS: Final = 16_384
DISPERSED: Final = 2.0
"""Spread of the starts of chains that evaluate every row, in Laplace standard deviations."""
_INTEGERS: Final = frozenset({"n_steps", "n_rows"})


class StoppedError(Exception):
    """A chain was stopped: the current interval is lost, the committed ones are not."""


def first_position(
    rng: np.random.Generator,
    dim: int,
    chain: int,
    attempt: int = 0,
    spread: float = 1.0,
    modes: Matrix | None = None,
) -> Vector:
    """Return the whitened start of a chain, (d,).

    Chains start at theta_star and at the other ``modes`` (M, d) in turn: exactly at a mode, and
    around theta_star with ``spread`` standard deviations, fewer at later attempts.
    """
    z: Vector = rng.standard_normal(dim)
    which = chain % (1 + len(modes)) if modes is not None else 0
    if modes is not None and which and not attempt:
        start: Vector = modes[which - 1]
        return start
    return z if spread == 1.0 else z * spread * 0.95**attempt


class SharedProblem(Protocol):
    """Interface of the problem that all chains of a run share."""

    @property
    def base(self) -> Base:
        """Return the constants of the target: Taylor sums, prior, scale."""

    @property
    def certainty_rows(self) -> Index:
        """Return the sorted certainty rows, which have weight 0 in a subsample."""

    @property
    def design(self) -> UnitDesign | None:
        """Return the sampling design; ``None`` if every row is evaluated."""

    @property
    def source(self) -> RowSource:
        """Return the source of the rows."""

    @property
    def certain(self) -> Block:
        """Return the block of rows that every evaluation uses."""

    @property
    def constrain(self) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        """Return the function from theta (..., d) to the reported parameters."""

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> Chain:
        """Return the kernel of chain ``chain`` of the run with this seed."""


class Chain(ABC):
    """One chain: its random streams, its iteration, and the number of rows it has read."""

    statistics: tuple[str, ...]
    """Names of the statistics that :meth:`_run_batch` writes, in the order of the columns."""
    threads: int = 1
    """Threads that this chain may use: cores not needed by other chains."""

    def __init__(
        self, problem: SharedProblem, seed: int, chain: int, *, batch_iterations: int
    ) -> None:
        # Compile here: outside the measured time, and in the thread that handles signals.
        compile_ahead(type(self).__module__)
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
        """Draw the start of the chain."""

    @abstractmethod
    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON from which :meth:`set_state` continues bit for bit."""

    @abstractmethod
    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""

    def tallies(self) -> dict[str, NDArray[Any]]:
        """Return the counts per level or pair of levels since warm-up, by name.

        They are kept in the group ``tempering`` of a run, and empty without levels. ``beta`` (L,)
        gives the number of levels: arrays (L,) are per level, (L - 1,) per pair of neighbours,
        (L, r) per level and energy ring, () per chain.
        """
        return {}

    @staticmethod
    def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
        """Return a summary of the tallies of all chains, as JSON.

        ``levels`` holds a table with one row per level, as a list of numbers per column; the other
        entries are numbers or text; a list ``warnings`` is added to those of the run's summary.
        """
        return {}

    @abstractmethod
    def _batch(self) -> int:
        """Return the number of iterations of the next batch."""

    @abstractmethod
    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows; write positions and statistics."""

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
        """Return the rows of ``units``: weight 0 for certainty rows, above 1 for unlikely units."""
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
