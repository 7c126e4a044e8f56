"""How long one iteration of hmc-ecs takes, beside a bare loop and beside the processor's limits.

One core, warm, logistic regression with 29 columns, no certainty rows. The bare loop
(``bench/bare_iteration.py``) does the same arithmetic over plain arrays, in theta. Both run in turn
in one process; medians of CPU time, and of the ratios of neighbours.

The roofline is the least time that the products of rows can take: ``2 L + 1`` sweeps over the
``29 m`` numbers of the subsample (a predictor and a gradient each step, a gradient for the new
rows), and ``r + 1`` products with S. Their numbers are read at the rate of BLAS's ``ddot`` over as
many, or multiplied at that of ``dgemm``, whichever is slower; links and normal variates are not in
it. Run ``python bench/iteration.py [--write]``; it prints a table and one line of JSON, and writes
the table to ``docs/measurements/iteration.md``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
from bare_iteration import bare
from numba import njit
from page import machine, publish

from streammc import from_arrays
from streammc.control_variates.certify import compute
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.models import logistic
from streammc.numerics.process_limits import single_threaded
from streammc.numerics.row_products import aligned
from streammc.priors import normal
from streammc.samplers import hmc_ecs
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.problem import subsampled

N_ROWS, DIM, ITERATIONS, REPEATS = 100_000, 29, 4096, 11
CASES = ((30, 1, 1.5), (100, 3, 0.5), (1300, 6, 0.2))
"""Rows of the subsample, steps of a trajectory, step size."""


@njit(nogil=True)
def dots(x, y, repeats):
    """Return the sum of many equal products: their time is that of ``ddot``."""
    total = 0.0
    for _ in range(repeats):
        total += np.dot(x, y)
    return total


def seconds(call) -> float:
    """Return the least CPU time of nine calls."""
    call()
    times = []
    for _ in range(9):
        begun = time.thread_time()
        call()
        times.append(time.thread_time() - begun)
    return min(times)


def read_seconds(numbers: int) -> float:
    """Return the time of BLAS to read this many numbers again and again, without the call."""
    x, y = aligned(2, numbers // 2)
    repeats = 20_000_000 // numbers
    return (seconds(lambda: dots(x, y, repeats)) - seconds(lambda: dots(x[:8], y[:8], repeats))) / (
        repeats
    )


def multiply_adds_a_second() -> float:
    """Return the rate of BLAS for a product of matrices."""
    a = np.ones((512, 512))
    return 512**3 / seconds(lambda: a @ a)


def roofline(m: int, steps: int, proposed: int, rate: float) -> float:
    """Return the least microseconds of the products of an iteration."""
    sweeps, numbers = 2 * steps + 1, m * DIM
    whole = sweeps * numbers + (proposed + 1) * DIM * DIM
    # A design that fits into the first-level cache is read at the rate of a longer vector in it.
    size = max(numbers, 3000)
    return 1e6 * max(whole / size * read_seconds(size), whole / rate)


def problem(m: int, steps: int, step: float, blocks: int):
    """Return the production chain and the arrays of the bare kernel."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(N_ROWS), rng.standard_normal((N_ROWS, DIM - 1))]
    y = (rng.random(N_ROWS) < 1 / (1 + np.exp(-X @ (0.3 * rng.standard_normal(DIM))))).astype(float)
    store, model = from_arrays(X, y), logistic(prior=normal(scale=10.0))
    cv = compute(store, model)
    sampler = hmc_ecs(
        subsample_size=m,
        n_blocks=blocks,
        certainty=False,
        step_size=step,
        trajectory_length=steps * step,
    )
    design = plan(cv, store, model, PlanRequest(subsample_size=m, n_blocks=blocks, certainty=False))
    chain = HamiltonianKernel(subsampled(store, model, cv, design, sampler), seed=1, chain=0)
    chain.initialise()
    return chain, (X, y, cv, model)


def time_bare(arrays, m: int, steps: int, step: float, blocks: int):
    """Return a function that times ``ITERATIONS`` iterations of the bare kernel."""
    X, y, cv, model = arrays
    rng = np.random.default_rng(3)
    rows = rng.integers(0, N_ROWS, size=m)
    eta = X[rows] @ cv.theta_star
    taylor = np.zeros((3, m))
    model.link(eta[None].copy(), X[rows].T, y[rows], model.constants, 2, taylor)
    state = [
        np.ascontiguousarray(X[rows].T),
        y[rows].copy(),
        eta,
        taylor,
    ]
    per_iteration = max(m // blocks, 1)

    def go() -> float:
        units = rng.integers(0, N_ROWS, size=ITERATIONS * per_iteration)
        begun = time.thread_time()
        bare(
            model.link,
            model.constants,
            *state,
            X,
            y,
            units,
            cv.theta_star,
            cv.gradient,
            cv.hessian,
            np.ascontiguousarray(cv.factor),
            np.zeros(DIM),
            rng,
            steps,
            step,
            per_iteration,
        )
        return (time.thread_time() - begun) / ITERATIONS * 1e6

    return go


def timed(m: int, steps: int, step: float, rate: float) -> dict[str, float]:
    """Return the microseconds of one case."""
    blocks = min(m, 100)
    chain, arrays = problem(m, steps, step, blocks)
    chain.advance(1000, True)
    bare_time = time_bare(arrays, m, steps, step, blocks)
    bare_time()
    ours, theirs = [], []
    for _ in range(REPEATS):
        begun = time.thread_time()
        chain.advance(ITERATIONS, False)
        ours.append((time.thread_time() - begun) / ITERATIONS * 1e6)
        theirs.append(bare_time())
    ratio = statistics.median(x / y for x, y in zip(ours, theirs, strict=True))
    return {
        "m": m,
        "n_steps": steps,
        "streammc_us": round(statistics.median(ours), 2),
        "fastest_us": round(min(ours), 2),
        "bare_us": round(statistics.median(theirs), 2),
        "ratio": round(ratio, 3),
        "roofline_us": round(roofline(m, steps, m // blocks, rate), 2),
    }


def main() -> None:
    """Print microseconds per iteration and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table to the page")
    write = parser.parse_args().write
    lines = [
        "| m | steps | streammc, us | bare loop, us | ratio | roofline, us |",
        "|---|---|---|---|---|---|",
    ]
    with single_threaded():
        rate = multiply_adds_a_second()
        results = [timed(*case, rate) for case in CASES]
    for found in results:
        keys = ("m", "n_steps", "streammc_us", "bare_us", "ratio", "roofline_us")
        lines.append("| " + " | ".join(f"{found[key]:g}" for key in keys) + " |")
    print("\n".join(lines))
    print(json.dumps({"multiply_adds_a_ns": round(rate / 1e9, 1), "iteration": results}))
    if write:
        publish("iteration.md", "iteration", [*lines, "", f"One core of {machine()}, shared."])


if __name__ == "__main__":
    main()
