"""Chains of a cell until a limit of processor time, in processes of their own; timed rounds.

Time is that of the processor, without what compiling takes: one core works for one chain.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.measures import Array
from bench.papers.records import log
from bench.papers.tempering import measures, problems
from bench.papers.tempering.problems import Cell

MOST_DRAWS = 40_000
"""Of a chain: more change no figure."""
_LEAST, _SLICE_SECONDS = 4, 0.2
_MEANS = ("n_rows", "acceptance_rate", "swap_accepted")


@dataclass
class Chain:
    """What one chain drew."""

    draws: Array
    """(n, d), all of them."""
    kept: Array
    """(k, d): the second half, or what came after the warm-up."""
    seconds: float
    means: Mapping[str, float]


def _advance(kernel: Any, seconds: float, most: int, *, warmup: bool) -> list[dict[str, Array]]:
    """Run until the time is spent or enough is drawn."""
    parts: list[dict[str, Array]] = []
    begun, done, count = time.process_time(), 0, _LEAST
    while done < most:
        parts.append(kernel.advance(min(count, most - done), warmup))
        done += len(parts[-1]["theta"])
        spent = time.process_time() - begun
        if spent >= seconds:
            break
        share = min(_SLICE_SECONDS, seconds - spent)
        count = max(_LEAST, min(4 * count, int(done / max(spent, 1e-6) * share)))
    return parts


def run_chain(cell: Cell, chain: int, seconds: float, most: int = MOST_DRAWS) -> Chain:
    """Run a chain of a cell; where it is tuned, half of the time is warm-up."""
    problems.kernel(cell, chain, seed=0).advance(2, False)  # compiles, or loads what is compiled
    kernel = problems.kernel(cell, chain)
    begun = time.process_time()
    parts = []
    if cell.tuned:
        _advance(kernel, seconds / 2, most // 2, warmup=True)
        parts = _advance(kernel, seconds / 2, most // 2, warmup=False)
    else:
        parts = _advance(kernel, seconds, most, warmup=False)
    spent = time.process_time() - begun
    draws = np.concatenate([part["theta"] for part in parts])
    means = {
        key: float(np.nanmean(np.concatenate([part[key] for part in parts])))
        for key in _MEANS
        if key in parts[0]
    }
    kept = draws if cell.tuned else draws[len(draws) // 2 :]
    return Chain(draws, kept, spent, means)


def summarise(cell: Cell, chains: list[Chain], seconds: float) -> dict[str, Any]:
    """Return what the tables need of the chains of a cell."""
    kept = min(len(chain.kept) for chain in chains)
    draws = np.stack([chain.kept[len(chain.kept) - kept :] for chain in chains])
    # Chains differ in length by little; the time of what is left out is left out.
    spent = sum(chain.seconds * kept / len(chain.kept) for chain in chains)
    per_draw = sum(chain.seconds for chain in chains) / sum(len(chain.draws) for chain in chains)
    judged, auto = measures.judge(draws), measures.autocorrelated(draws)
    found: dict[str, Any] = {
        "limit": seconds,
        "rate": float(np.median(judged.ess)) / spent,
        "auto_rate": auto / spent,
        "rhat": measures.median_rhat(draws),
        "draws": len(chains[0].draws),
        "kept": kept,
        "seconds_per_draw": per_draw,
        **{key: np.mean([chain.means[key] for chain in chains]) for key in chains[0].means},
    }
    if not cell.tuned:
        at, curve = measures.convergence([chain.draws for chain in chains])
        found["curve"] = {"draws": at.tolist(), "rhat": curve.tolist()}
    if cell.model == problems.GAUSSIAN and auto > 0.0:
        mean, variance = problems.exact_moments(cell)
        off = (draws.mean(axis=(0, 1)) - mean) / np.sqrt(variance / auto)
        found["rms_z"] = float(np.sqrt(np.mean(off**2)))
        found["variance_ratio"] = float(np.median(draws.var(axis=(0, 1))) / variance)
    return found


def run_cells(
    work: Path, cells: Iterable[Cell], seconds: Mapping[Cell, float], threads: int
) -> dict[str, dict[str, Any]]:
    """Run the cells, or read those that were kept with the same limit of time."""
    folder = work / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    missing = []
    for cell in dict.fromkeys(cells):
        path = folder / f"{cell.name}.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("limit") == seconds[cell]:
            found[cell.name] = kept
        else:
            missing.append(cell)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(threads, mp_context=context) as pool:
        chains = range(len(problems.SCALES))
        runs: dict[Cell, list[Future[Chain]]] = {
            cell: [pool.submit(run_chain, cell, chain, seconds[cell]) for chain in chains]
            for cell in missing
        }
        for done, (cell, futures) in enumerate(runs.items(), 1):
            line = summarise(cell, [future.result() for future in futures], seconds[cell])
            futures.clear()  # and the draws
            (folder / f"{cell.name}.json").write_text(json.dumps(line))
            found[cell.name] = line
            log(f"{done} of {len(runs)}: {cell.name}: {line['rate']:.3g} a second")
    return found


def run_times(
    model: str, dim: int, sizes: Iterable[int], rounds: int = 7, seconds: float = 0.03
) -> dict[str, dict[str, list[float]]]:
    """Return seconds and rows of a draw by method and N, with HMC inside.

    Methods take turns; the median over the rounds, each at least ``seconds`` long. Where a draw
    of the last takes over a second, there are three rounds.
    """
    found: dict[str, dict[str, list[float]]] = {
        method: {"seconds": [], "rows": []} for method in problems.METHODS
    }
    for n in sizes:
        kernels, counts, spent, rows = {}, {}, {}, {}
        for method in problems.METHODS:
            kernel = problems.kernel(Cell(model, problems.HMC, dim, n, method), 0)
            kernel.advance(1, False)
            begun = time.process_time()
            kernel.advance(1, False)
            once = time.process_time() - begun
            kernels[method], counts[method] = kernel, max(1, int(seconds / max(once, 1e-6)))
            spent[method], rows[method] = [], []
        # The longest draws take seconds: then three rounds do.
        for _ in range(rounds if once < 1.0 else 3):
            for method, kernel in kernels.items():
                begun = time.process_time()
                out = kernel.advance(counts[method], False)
                spent[method].append((time.process_time() - begun) / counts[method])
                rows[method].append(float(out["n_rows"].mean()))
        for method in problems.METHODS:
            found[method]["seconds"].append(float(np.median(spent[method])))
            found[method]["rows"].append(float(np.mean(rows[method])))
        log(f"{model}, N = {n}: {found['inner']['seconds'][-1]:.3g} s a draw of HMC")
    return found
