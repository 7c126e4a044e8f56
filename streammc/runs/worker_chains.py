"""Chains as tasks on the workers of a cluster: an interval of a chain is one call.

A call depends on its arguments alone: the run folder, from which the worker reads control variates
and plan, and the state of the chain at the last commit. It returns the draws and the next state, so
that a call that is made twice gives the same bits, and so does any number of workers. This process
keeps the states, and alone writes the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streammc.runs.setup import load
from streammc.samplers.common.chains import Chain, Chains, SharedProblem, StoppedError
from streammc.samplers.common.sampler import RunRequest, never
from streammc.trace.run_directory import RunDirectory

_problems: dict[str, SharedProblem] = {}
"""The problem of the run that this process works on, by its token."""
_kernels: dict[tuple[str, int], Chain] = {}
"""Its chains, by token and number."""
_lock = threading.RLock()


@dataclass(frozen=True)
class ChainSpec:
    """Specification from which a worker makes the chains of a run.

    Attributes
    ----------
    token
        Name of the run of this call, unlike any other.
    path
        Folder of the run.
    request
        Its request, without what only the calling process uses.
    """

    token: str
    path: str
    request: RunRequest


def advance_chain(
    spec: ChainSpec, chain: int, state: tuple[Any, Any], n: int, warmup: bool
) -> tuple[dict[str, NDArray[Any]], tuple[Any, Any]]:
    """Run ``n`` iterations of a chain from a state; return draws, statistics and the next state.

    Parameters
    ----------
    spec
        The run.
    chain
        Number of the chain.
    state
        Arrays and JSON, as ``Chain.get_state`` returns them.
    n
        Iterations.
    warmup
        Whether they are of the warm-up.
    """
    with _lock:
        kernel = _kernel(spec, chain)
    with kernel_lock(kernel):
        kernel.set_state(*state)
        return kernel.advance(n, warmup), kernel.get_state()


def kernel_lock(kernel: Any) -> threading.RLock:
    """Return the lock of a kernel, for a repeated call that comes while the first one runs."""
    with _lock:
        lock: threading.RLock = vars(kernel).setdefault("_worker_lock", threading.RLock())
        return lock


def _kernel(spec: ChainSpec, chain: int) -> Chain:
    """Return the kernel of a chain; those of another run are dropped."""
    if spec.token not in _problems:
        _problems.clear()
        _kernels.clear()
        request = spec.request
        setup = load(RunDirectory.open(spec.path, verify=False), request.dataset, request.model)
        _problems[spec.token] = setup.sampler.problem(request, setup)
    if (spec.token, chain) not in _kernels:
        problem, seed = _problems[spec.token], spec.request.stream_seed
        kernel = problem.kernel(seed, chain, batch_iterations=spec.request.batch_iterations)
        _kernels[spec.token, chain] = kernel
    return _kernels[spec.token, chain]


class WorkerChains(Chains):
    """The chains of a run, advanced by the workers of a cluster.

    Parameters
    ----------
    problem, request
        As of ``Chains``; the data set is a store on disk.
    path
        Folder of the run, which the workers see.
    tasks
        Function ``(function, calls, names, stop)``: it has workers make the calls, tuples of
        arguments, and returns their results in order, or ``None`` once ``stop()`` is true.
    """

    def __init__(self, problem: SharedProblem, request: RunRequest, path: Path, tasks: Any) -> None:
        super().__init__(
            problem,
            seed=request.stream_seed,
            chains=request.chains,
            threads=request.threads,
            batch_iterations=request.batch_iterations,
        )
        token = f"{path}-{time.time_ns()}"
        bare = replace(
            request,
            control_variates=None,
            progress=None,
            interrupted=never,
            on_draws=None,
            scheduler=None,
            attributes={},
            path=str(path),
        )
        self._spec = ChainSpec(token, str(path.resolve()), bare)
        self._tasks = tasks

    def _advanced(
        self, n: int, warmup: bool, stop: Callable[[], bool]
    ) -> list[dict[str, NDArray[Any]]]:
        """Run an interval of every chain on the workers; return draws and statistics."""
        calls = [
            (self._spec, chain, kernel.get_state(), n, warmup)
            for chain, kernel in enumerate(self.kernels)
        ]
        names = [f"an interval of chain {chain}" for chain in range(len(calls))]
        found = self._tasks(advance_chain, calls, names, stop)
        if found is None:
            raise StoppedError
        for kernel, (_, state) in zip(self.kernels, found, strict=True):
            kernel.set_state(*state)
        return [result for result, _ in found]
