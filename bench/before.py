"""Pass and iteration of links written by hand, beside those of another checkout.

    python bench/before.py CHECKOUT [--rounds 7] [--write]

Nanoseconds a row of the pass at order 2 with its four shifts, and microseconds of an iteration of
``hmc-ecs`` of 300 rows, of one core, in processor time, warm: 200,000 rows, ten columns. Each
checkout runs in processes of its own, in turn, each first in every other round; the least time of
each and their ratio, and the range of the ratios of neighbours. ``--write`` puts the table into
``docs/measurements/families.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

FAMILIES = ("logistic", "poisson", "negative-binomial", "student-t")
ROWS, COLUMNS, SUBSAMPLE, ITERATIONS, REPEATS = 200_000, 10, 300, 3000, 5
HERE = Path(__file__).resolve().parents[1]


def least(call: Callable[[], object]) -> float:
    """Return the least processor seconds of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        call()
        times.append(time.thread_time() - begun)
    return min(times)


def measure(name: str) -> tuple[float, float]:
    """Return nanoseconds a row of the pass, and microseconds of an iteration."""
    import numpy as np

    from streammc import from_arrays, registry
    from streammc.control_variates.bound import bind
    from streammc.control_variates.certify import compute
    from streammc.control_variates.full_pass.block_pass import RowSums
    from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
    from streammc.numerics.process_limits import single_threaded
    from streammc.samplers import hmc_ecs
    from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
    from streammc.samplers.hamiltonian.problem import subsampled

    rng = np.random.default_rng(1)
    X = np.c_[np.ones(ROWS), rng.standard_normal((ROWS, COLUMNS - 1))]
    family = registry.model(name)()
    eta = np.full((family.n_linear + family.n_scalar, ROWS), 0.5)
    eta[0] = 0.2 * (X @ rng.standard_normal(COLUMNS))
    y = family.simulate(eta, rng)
    store = from_arrays(X, y)
    model = bind(store, family).model
    cv = compute(store, model)
    shifts = rng.standard_normal((4, cv.dim)) @ cv.factor.T
    zeros, ones, squares = np.zeros(ROWS), np.ones(ROWS), np.empty(ROWS)

    def one_pass() -> None:
        RowSums(model, cv.theta_star, shifts, 2, COLUMNS).add(X, y, zeros, ones, squares)

    sampler = hmc_ecs(subsample_size=SUBSAMPLE, n_blocks=100, certainty=False, step_size=0.5)
    request = PlanRequest(subsample_size=SUBSAMPLE, n_blocks=100, certainty=False)
    design = plan(cv, store, model, request)
    chain = HamiltonianKernel(subsampled(store, model, cv, design, sampler), seed=1, chain=0)
    with single_threaded():
        chain.initialise()
        row = least(one_pass) / ROWS
        iteration = least(lambda: chain.advance(ITERATIONS, False)) / ITERATIONS
    return 1e9 * row, 1e6 * iteration


def in_checkout(checkout: Path, name: str) -> list[float]:
    """Return what :func:`measure` finds with the package of a checkout."""
    words = [sys.executable, __file__, "--measure", name]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure)))
        return
    from page import machine, publish

    lines = [
        f"{machine()}.", "",
        "| family | | before | now | ratio |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for name in FAMILIES:
        pairs = []
        for turn in range(asked.rounds):
            order = (asked.checkout, HERE) if turn % 2 else (HERE, asked.checkout)
            found = {place: in_checkout(place, name) for place in order}
            pairs.append((found[asked.checkout], found[HERE]))
        for k, what in enumerate(("pass, ns a row", "iteration, us")):
            before, now = zip(*((old[k], new[k]) for old, new in pairs), strict=True)
            ratios = [b / a for a, b in zip(before, now, strict=True)]
            lines.append(
                f"| {name} | {what} | {min(before):.3g} | {min(now):.3g} "
                f"| {min(now) / min(before):.3f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
            )
            print(lines[-1], flush=True)
    if asked.write:
        publish("families.md", "families-before", lines)


if __name__ == "__main__":
    main()
