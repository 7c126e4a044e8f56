"""Chains of a run: the problem they share, one chain in batches, and all advanced in parallel."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.likelihood.blocks import Block, allocate_rows
from streammc.likelihood.drawn_units import Lookahead, UnitDesign, leave_out
from streammc.likelihood.target import Base
from streammc.numerics.dispatchers import compile_ahead
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Index, Matrix, Rows, RowSource, Trace, Vector

# Base class of the kernels of all samplers: batches of iterations, and their rows.
#
# Compiled code runs iterations in batches. While one batch runs, the rows of the next are
# prefetched (``likelihood.drawn_units``). No bit of the draws depends on the size of a batch.


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


COMMIT_SECONDS: Final = 0.25
"""Intervals that take less time together are committed together."""


class Chains:
    """The kernels of one run, and the threads that run them.

    Chains are threads: the compiled transition releases the GIL, so they share the
    mapped files, the certainty rows and the compiled code.
    """

    def __init__(
        self,
        problem: SharedProblem,
        *,
        seed: int,
        chains: int,
        threads: int | None = None,
        batch_iterations: int = 4096,
    ) -> None:
        self.problem = problem
        self.kernels = [
            problem.kernel(seed, chain, batch_iterations=batch_iterations)
            for chain in range(chains)
        ]
        available = threads or available_threads()
        for kernel in self.kernels:
            kernel.threads = max(available // chains, 1)
        self.clock = {"warmup": 0.0, "draws": 0.0}
        self._seconds_per_iteration = math.inf
        self._pool = ThreadPoolExecutor(min(chains, available))

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def initialise(self) -> None:
        """Draw the start of every chain."""
        list(self._pool.map(lambda kernel: kernel.initialise(), self.kernels))

    def restore(self, checkpoint: tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]) -> None:
        """Continue every chain from a checkpoint."""
        arrays, meta = checkpoint
        for chain, kernel in enumerate(self.kernels):
            prefix = f"chain{chain}_"
            kernel.set_state(
                {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)},
                meta["chains"][chain],
            )
        self.clock = dict(meta["clock"])

    def checkpoint(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the states of all chains, and the clock."""
        arrays: dict[str, NDArray[Any]] = {}
        metas = []
        for chain, kernel in enumerate(self.kernels):
            state, meta = kernel.get_state()
            arrays |= {f"chain{chain}_{name}": array for name, array in state.items()}
            metas.append(meta)
        return arrays, {"chains": metas, "clock": self.clock}

    def intervals(self, length: int, whole: int) -> int:
        """Return how many of the next ``whole`` intervals to commit together, at least 1.

        Those that take a quarter of a second, at the speed of the last ones: of a small table a
        commit takes longer than its draws. No bit of the run depends on it.
        """
        seconds = max(self._seconds_per_iteration * length, 1e-9)
        return max(1, min(whole, int(min(COMMIT_SECONDS / seconds, whole))))

    def advance(
        self, trace: Trace, phase: str, n: int, stop: Callable[[], bool]
    ) -> dict[str, NDArray[Any]]:
        """Run one interval of ``n`` iterations, or several, on every chain and commit them.

        Raises
        ------
        StoppedError
            If ``stop()`` became true; these intervals are lost, the last commit is not.
        """
        begun = time.perf_counter()
        results = self._advanced(n, phase == "warmup", stop)
        seconds = time.perf_counter() - begun
        self.clock[phase] += seconds
        self._seconds_per_iteration = seconds / n
        merged = {name: np.stack([result[name] for result in results]) for name in results[0]}
        with np.errstate(over="ignore"):  # the trace refuses infinite values
            theta = self.problem.constrain(merged.pop("theta"))
        trace.append(phase, theta, merged, self.checkpoint())
        return merged

    def _advanced(
        self, n: int, warmup: bool, stop: Callable[[], bool]
    ) -> list[dict[str, NDArray[Any]]]:
        """Run an interval of every chain in threads; return draws and statistics."""
        futures = [self._pool.submit(kernel.advance, n, warmup, stop) for kernel in self.kernels]
        # Wait for every chain before an error is raised: no chain may keep running.
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]


__all__ = ["Chains", "StoppedError"]
