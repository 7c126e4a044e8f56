"""All chains of a run, advanced in parallel by intervals that end with one commit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.numerics.threads import available_threads
from streammc.protocols import Trace
from streammc.samplers.common.chain import SharedProblem, StoppedError

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
