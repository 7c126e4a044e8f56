"""How well chains share the cores: 1, 2, 4 chains on as many cores, beside bare loops.

    python bench/chains.py [--write]

hmc-ecs for a logistic regression of 29 columns, 100 and 1,300 rows; the chains are threads, as in
``sample``, without commits. The bare loop (``bench/bare_iteration.py``) runs in as many threads,
and says what the cores, their caches and the memory allow. Efficiency is the time of one chain on
one core over that of k chains on k cores, in turn, the median of nine; ``--write`` writes the table
to ``docs/measurements/iteration.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from iteration import ITERATIONS, problem, time_bare
from page import machine, publish

from streammc.numerics.process_limits import single_threaded

CASES = ((100, 3, 0.5), (1300, 6, 0.2))
REPEATS = 9
CORES = (1, 2, 4)


def wall(calls) -> float:
    """Return the wall time of calls, each in a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda call: None, calls))  # threads that have begun
        begun = time.perf_counter()
        list(pool.map(lambda call: call(), calls))
        return time.perf_counter() - begun


def efficiencies(m: int, steps: int, step: float, counts: list[int]) -> list[tuple[float, float]]:
    """Return ours and the bare loop's, for every number of chains."""
    cores = sorted(os.sched_getaffinity(0))
    most = counts[-1]
    chains = [problem(m, steps, step, min(m, 100))[0] for _ in range(most)]
    loops = [time_bare(problem(m, steps, step, 100)[1], m, steps, step, 100) for _ in range(most)]
    for chain in chains:
        chain.advance(1000, True)
    n = 4 * ITERATIONS
    ours: dict[int, list[float]] = {k: [] for k in counts}
    bare: dict[int, list[float]] = {k: [] for k in counts}
    for _ in range(REPEATS):
        for k in counts:
            os.sched_setaffinity(0, cores[:k])
            ours[k].append(wall([lambda c=c: c.advance(n, False) for c in chains[:k]]))
            bare[k].append(wall(loops[:k]))
    os.sched_setaffinity(0, cores)
    return [
        tuple(
            statistics.median(a / b for a, b in zip(times[1], times[k], strict=True))
            for times in (ours, bare)
        )
        for k in counts
    ]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    counts = [k for k in CORES if k <= len(os.sched_getaffinity(0))]
    head = "| m | steps | " + " | ".join(f"{k} chains | bare" for k in counts) + " |"
    lines = [head, "|" + "---|" * (2 + 2 * len(counts))]
    with single_threaded():
        for m, steps, step in CASES:
            found = efficiencies(m, steps, step, counts)
            cells = " | ".join(f"{a:.2f} | {b:.2f}" for a, b in found)
            lines.append(f"| {m} | {steps} | {cells} |")
    print("\n".join(lines))
    if write:
        publish("iteration.md", "chains", [*lines, "", f"{machine()}."])


if __name__ == "__main__":
    main()
