"""A full pass on two workers of a Dask cluster against one, and what the scheduler costs.

    python bench/cluster.py [--rows 100000000] [--columns 20] [--repeats 3] [--write]

A scheduler and worker processes of one thread run on the loopback interface; one and two workers,
and one and two threads of this process, are timed in turn: threads show what the second core of
the machine is worth. The pass is that of ``summarize`` with 8 score draws, of a logistic regression
and of a negative binomial one, which computes three times as long with a row. Wall seconds: the
machine has to be idle, and have at least two cores. A pass over blocks without rows
(``empty_blocks``) shows what graph and scheduler take, in threads of this process and on two
workers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from empty_blocks import RESULT_NUMBERS, EmptyPass, empty_blocks
from page import machine, publish, short

import streammc
from streammc.control_variates.full_pass.block_pass import ExpansionPass
from streammc.stores.reduction import run
from streammc.stores.simulation import simulate

DIM = 8
DRAWS = 8
GOAL = 1.7
EMPTY_ROWS = (10**8, 10**9, 10**10)
MODELS: dict[str, Any] = {
    "logistic": streammc.models.logistic,
    "negative-binomial": streammc.models.negative_binomial,
}
Taken = dict[tuple[str, int], float]
CALL = "import sys; from distributed.cli.{0} import main; sys.exit(main())"


def start(name: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a program of Dask."""
    command = [sys.executable, "-c", CALL.format(name), *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}  # workers import empty_blocks
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def clusters(folder: Path, processes: list[subprocess.Popen[bytes]]) -> dict[int, Any]:
    """Start a cluster of one worker and one of two; return a client of each."""
    from distributed import Client

    found = {}
    for workers in (1, 2):
        file = folder / f"{workers}.json"
        listen = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        processes.append(start("dask_scheduler", *listen, "--scheduler-file", str(file)))
        for number in range(workers):
            local = ("--local-directory", str(folder / f"worker-{workers}-{number}"))
            words = ("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", *local)
            dashboard = ("--dashboard-address", "127.0.0.1:0")
            processes.append(start("dask_worker", *words, *dashboard))
        while not file.exists():
            time.sleep(0.1)
        found[workers] = Client(scheduler_file=str(file), timeout="60s", set_as_default=False)
        found[workers].wait_for_workers(workers)
    return found


def scheduler_lines(client: Any) -> list[str]:
    """Return a table of the seconds of a pass without rows."""
    lines = [
        "",
        f"Without rows ({DIM} columns; each result has {RESULT_NUMBERS:,} numbers), so that graph, "
        "scheduler and sums are left:",
        "",
        "| rows of the table | blocks | threads of one process, s | two workers, s | ms a block |",
        "|---|---|---|---|---|",
    ]
    for rows in EMPTY_ROWS:
        blocks = empty_blocks(rows, DIM)
        spent, sums = [], set()
        for scheduler in (2, client):
            begun = time.perf_counter()
            found = run(EmptyPass(), blocks, scheduler=scheduler)
            spent.append(time.perf_counter() - begun)
            sums.add(found.tobytes())
        assert len(sums) == 1
        a_block = 1000 * spent[1] / len(blocks)
        shown = (f"{rows:.0e}".replace("+", ""), f"{len(blocks):,}", *map(short, (*spent, a_block)))
        lines.append(f"| {' | '.join(shown)} |")
        print(lines[-1], flush=True)
    return lines


def timed(kind: str, path: Path, asked: argparse.Namespace, clients: dict[int, Any]) -> Taken:
    """Return median seconds of a pass over simulated rows by side and number of workers."""
    simulate(kind, path, rows=asked.rows, dim=asked.columns, seed=1)
    store = streammc.open_store(path)
    model = MODELS[kind](prior=streammc.priors.normal(scale=10.0))
    d = model.dim(asked.columns)
    shifts = np.random.default_rng(1).normal(0.0, 1e-3, (DRAWS, d))
    task = ExpansionPass(model, np.zeros(d), shifts, 2, 20_000, False)
    digests, seconds = set(), defaultdict(list)
    sides = {"workers": clients, "threads of this process": {1: 1, 2: 2}}
    for repeat in range(asked.repeats + 1):  # the first loads the kernels and the pages
        for side, schedulers in sides.items():
            for number, scheduler in schedulers.items():
                begun = time.perf_counter()
                sums = store.reduce(task, scheduler=scheduler)
                spent = time.perf_counter() - begun
                digests.add(sums.totals.tobytes() + sums.histogram.moments.tobytes())
                if repeat:
                    seconds[side, number].append(spent)
                    print(kind, side, number, round(spent, 2), flush=True)
    shutil.rmtree(path)
    if len(digests) != 1:
        raise SystemExit("the bits of the sums depend on the number of workers")
    return {place: median(each) for place, each in seconds.items()}


def lines_of(taken: dict[str, Taken]) -> list[str]:
    """Return the table of the passes."""
    lines = ["| model | | one, s | two, s | times as fast |", "|---|---|---|---|---|"]
    for kind, each in taken.items():
        for side in ("workers", "threads of this process"):
            one, two = each[side, 1], each[side, 2]
            lines.append(f"| {kind} | {side} | {' | '.join(map(short, (one, two, one / two)))} |")
    return lines


def main() -> None:
    """Measure, print and, if asked, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            clients = clusters(folder, processes)
            taken = {kind: timed(kind, folder / "s.zarr", asked, clients) for kind in MODELS}
            empty = scheduler_lines(clients[2])
            for client in clients.values():
                client.close()
        finally:
            for process in processes:
                process.kill()
                process.wait()
    found = [
        f"{kind}: {short(each['workers', 1] / each['workers', 2])} times, with one worker "
        f"{short(each['workers', 1])} s"
        for kind, each in taken.items()
    ]
    lines = [
        *lines_of(taken),
        "",
        f"{asked.rows:,} rows of {asked.columns} columns, medians of {asked.repeats} in turn. Two "
        f"workers against one (goal {GOAL} at a pass of 20 s): {'; '.join(found)}. {machine()}.",
        *empty,
    ]
    print("\n".join(lines))
    if asked.write:
        publish("cluster.md", "cluster", lines)


if __name__ == "__main__":
    main()
