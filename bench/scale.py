"""Whether an iteration costs the same at every number of rows, also where memory ends.

Run as ``python bench/scale.py FOLDER [--rows 1000000,10000000,100000000,1000000000]``;
a store of a billion rows of 8 columns takes 33 GB of disk in FOLDER, and stores and
control variates that are already there are used. For each number of rows: the real
commands of ``billion_rows.py``, with the wall time of ``sample`` and the peak of anonymous
memory of all; then, in turns and in processes of their own, seconds per iteration of
four chains with the rows in memory and from the mapped files as they are after that; and
with the store's files dropped from the page cache, beside the disk's own random reads of 4 kB.
Medians of five. Prints a table and, last, one line of JSON; ``--plot FILE`` draws it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from billion_rows import stages
from cold import drop_cache, random_reads

CHAINS, ROUNDS = 4, 5
IN_MEMORY_ROWS = 1_000_000
ITERATIONS = {"memory": (100_000, 50_000), "mapped": (100_000, 50_000), "cold": (300, 10_000)}
"""Iterations that are not timed, and those that are. A new process has to learn where each
page of a mapped file is, at about a microsecond a page."""
PAGE = 4096


def read_bytes() -> int:
    """Return what this process has had read from disks so far, page cache aside."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def iterate(store: str, cv_path: str, mode: str) -> dict[str, float]:
    """Time iterations of four chains in lockstep; return seconds and pages read for each."""
    from streammc import models, open_store
    from streammc.control_variates.expansion import ControlVariates
    from streammc.control_variates.plan.subsample_plan import PlanRequest, plan_units
    from streammc.likelihood.blocks import memory_limit
    from streammc.priors import normal
    from streammc.samplers import hmc_ecs
    from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
    from streammc.samplers.hamiltonian.problem import subsampled
    from streammc.stores.rows.row_source import MemoryRows

    data, model = open_store(store), models.logistic(normal(10.0))
    cv = ControlVariates.open(cv_path, data, model)
    chosen = plan_units(cv, data, model, PlanRequest(), memory=2 * memory_limit())
    problem = subsampled(data, model, cv, chosen, hmc_ecs())
    if mode == "memory":
        n = min(IN_MEMORY_ROWS, data.n_rows)
        arrays = (np.array(a[:n]) if a.size else a for a in data.rows().arrays)
        design = replace(problem.design, n_rows=n)
        problem = replace(problem, source=MemoryRows(*arrays, n), design=design)
    if mode == "cold":
        del data
        drop_cache(Path(store), problem.source.arrays)
    kernels = [HamiltonianKernel(problem, 1, chain) for chain in range(CHAINS)]
    warmup, n = ITERATIONS[mode]
    with ThreadPoolExecutor(CHAINS) as pool:
        list(pool.map(lambda kernel: kernel.initialise(), kernels))
        list(pool.map(lambda kernel: kernel.advance(warmup, True), kernels))
        before, begun = read_bytes(), time.perf_counter()
        list(pool.map(lambda kernel: kernel.advance(n, False), kernels))
        seconds = time.perf_counter() - begun
    pages = (read_bytes() - before) / PAGE / (n * CHAINS)
    return {"seconds": seconds / n, "misses": pages, "k": chosen.k, "unit_rows": chosen.unit_rows}


def child(store: Path, cv: Path, mode: str) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    if mode == "disk":
        return {"reads": random_reads(store)}
    command = [sys.executable, __file__, "--iterate", str(store), str(cv), mode]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def at(folder: Path, rows: int) -> dict[str, Any]:
    """Measure everything at one number of rows."""
    commands = stages(folder, "dense", rows)
    parameters = commands["sample"]["result"]["parameters"].values()
    result: dict[str, Any] = {
        "rows": rows,
        "seconds": {name: stage["seconds"] for name, stage in commands.items()},
        "anonymous": max(stage["anonymous"] for stage in commands.values()),
        "ess": min(p["ess_bulk"] for p in parameters),
    }
    store, cv = folder / f"dense-{rows}.zarr", folder / f"dense-{rows}-cv.zarr"
    turns = [["memory", "mapped"], ["cold", "disk"] if rows >= 100_000_000 else []]
    measured: dict[str, list[dict[str, float]]] = {}
    for modes in turns:  # one after the other: what is cold leaves the files out of the cache
        for _ in range(ROUNDS):
            for mode in modes:
                measured.setdefault(mode, []).append(child(store, cv, mode))
    for mode, runs in measured.items():
        result[mode] = {n: statistics.median(run[n] for run in runs) for n in runs[0]}
    for mode in ("mapped", "cold"):
        if "disk" in measured and mode in result:
            reads = CHAINS * result[mode]["misses"] / result["disk"]["reads"]
            result[mode]["bound"] = max(result["memory"]["seconds"], reads)
    return result


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a table, times in microseconds."""
    lines = [
        "| rows | in memory | mapped | reads an iteration | cold | reads | bound | disk, reads/s "
        "| `sample` | ESS | anonymous, MB |",
        "|" + "---|" * 11,
    ]
    for r in results:
        cold, sample = r.get("cold"), r["seconds"]["sample"]
        cells = [f"{r['rows']:,}", _us(r["memory"]["seconds"]), _us(r["mapped"]["seconds"])]
        cells += [f"{r['mapped']['misses']:.2f}"]
        cells += [_us(cold["seconds"]), f"{cold['misses']:.2f}"] if cold else ["", ""]
        cells += [_us(cold["bound"]), f"{r['disk']['reads']:,.0f}"] if cold else ["", ""]
        cells += ["was there" if sample is None else f"{sample:.1f} s", f"{r['ess']:.0f}"]
        cells += [f"{r['anonymous'] / 1e6:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw time per iteration against rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    lines = {
        "rows in memory": ("memory", "seconds", "o--"),
        "from the store": ("mapped", "seconds", "s-"),
        "from a cold store": ("cold", "seconds", "^-"),
        "bound: memory or the disk's random reads": ("cold", "bound", "x:"),
    }
    for label, (mode, name, style) in lines.items():
        found = [(r["rows"], r[mode][name] * 1e6) for r in results if mode in r]
        if found:
            axes.plot(*zip(*found, strict=True), style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="microseconds an iteration")
    axes.set_title(f"hmc-ecs, {CHAINS} chains on {os.cpu_count()} cores, 8 columns", fontsize=10)
    axes.set_ylim(1.0, None)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", default="1000000,10000000,100000000,1000000000")
    parser.add_argument("--iterate", nargs=3)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    if asked.iterate:
        print(json.dumps(iterate(*asked.iterate)))
        return
    if asked.folder is None:
        parser.error("expected a folder for the stores")
    asked.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for rows in (int(n) for n in asked.rows.split(",")):
        results.append(at(asked.folder, rows))
        print(table(results[-1:]), file=sys.stderr, flush=True)
    print(f"{os.cpu_count()} cores, {CHAINS} chains; microseconds an iteration of all chains\n")
    print(table(results))
    print(json.dumps(results))
    if asked.plot:
        draw(results, asked.plot)


if __name__ == "__main__":
    main()
