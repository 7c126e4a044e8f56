"""Whether the levels of parallel tempering should run side by side: one chain on four threads.

Logistic regression, 7 levels down to beta 1/8, 5 leapfrog steps, short steps that are always
accepted. Serial and parallel batches in turn in one process; medians of seconds per iteration.
The draws are compared bit for bit. Run ``python bench/replicas.py``; it prints a table.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np

from streammc import from_arrays
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers import pt, spt
from streammc.samplers.common.sampler import RunRequest

SIZES = ((200_000, 30), (20_000, 30), (5_000, 10), (500, 3))
THREADS, REPEATS, WORK = 4, 7, 4_000_000


def seconds(build, n: int, d: int) -> tuple[float, float]:
    """Return seconds of an iteration, one level after the other and side by side."""
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
    data, model = from_arrays(X, rng.random(n) < 0.4), logistic(prior=normal(2.0))
    sampler = build(
        n_levels=7, beta_min=0.125, n_steps=5, step_size=1e-4, ladder="geometric",
        covariance="identity",
    )  # fmt: skip
    request = RunRequest(data, model, sampler)
    setup = decide(request)
    shared = sampler.problem(request, setup)
    alone, together = (shared.kernel(1, 0) for _ in range(2))
    together.threads, together._choice = THREADS, lambda seconds: True
    iterations = max(WORK // (n * d), 1)
    taken = {alone: [], together: []}
    for kernel in taken:
        kernel.initialise()
    for _ in range(REPEATS):
        draws = []
        for kernel, times in taken.items():
            begun = time.perf_counter()
            draws.append(kernel.advance(iterations, False)["theta"])
            times.append((time.perf_counter() - begun) / iterations)
        np.testing.assert_array_equal(*draws)
    return statistics.median(taken[alone]), statistics.median(taken[together])


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; one chain\n")
    print("| sampler | rows | columns | one thread, ms | four threads, ms | ratio |")
    print("|---|---|---|---|---|---|")
    for n, d in SIZES:
        for build in (pt, spt):
            alone, together = seconds(build, n, d)
            cells = (build.__name__, f"{n:,}", d, f"{1e3 * alone:.3g}", f"{1e3 * together:.3g}")
            print("|", *(f"{cell} |" for cell in cells), f"{alone / together:.2f} |", flush=True)


if __name__ == "__main__":
    main()
