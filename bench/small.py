"""Small tables: seconds from a pandas data frame to 1,000 effective draws, beside the peers.

    PEERS=path/to/python python bench/small.py [--rows 1e3 ...] [--columns 10 50]
        [--models logistic ...] [--cold] [--write]

Every tool gets the same data frame and the same priors, in a fresh process of its own
(``peer_small.py``), one after the other on the same cores: conversion, set-up, compilation that
the tool does at every start, warm-up, draws and, of streammc, summary and audit. The draws of a
chain are those with which the worst parameter has 1,000 effective draws (bulk, ArviZ). The first
run of a process counts the import of the tool, but not of numpy and pandas; a later one is the
median of further runs with other seeds, of NumPyro with arguments for which it keeps its compiled
code, of nutpie with its compiled model. A peer that takes longer than ``--budget`` is ended.
``--cold`` empties the cache of compiled code of streammc before a run of the smallest table of
each model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import arviz_stats
import numpy as np
from page import machine, publish, short

WORKER = Path(__file__).with_name("peer_small.py")
PEERS = ("numpyro-parallel", "numpyro-vectorized", "nutpie")
MODELS = ("logistic", "poisson", "gaussian", "student_t")
TARGET, MOST = 1000, 2000
"""Effective draws; a run with more than ``MOST`` is made again with fewer draws."""
DRAWS = {"ours": 300}
OTHER_DRAWS = 250
"""Draws of a chain of the first attempt; NUTS often has more effective draws than draws."""
LATER = 3


def make_table(folder: Path, kind: str, n: int, d: int) -> None:
    """Write ``table.npz``: standard normal columns and a response."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, d))
    eta = X @ (rng.normal(size=d) / np.sqrt(d)) * (0.5 if kind == "poisson" else 1.0) - 0.3
    if kind == "logistic":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    elif kind == "poisson":
        y = rng.poisson(np.exp(eta)).astype(float)
    else:
        y = eta + (rng.normal(size=n) if kind == "gaussian" else rng.standard_t(5, size=n))
    np.savez(folder / "table.npz", X=X, y=y)


def once(tool: str, job: dict[str, Any], budget: float, cache: str | None = None) -> Any:
    """Run a tool once; return its document with effective draws and draws, or None in time."""
    python = sys.executable if tool == "ours" else os.environ["PEERS"]
    environment = dict(os.environ)
    if cache is not None:
        environment["XDG_CACHE_HOME"] = cache
    words = [python, str(WORKER), json.dumps({**job, "tool": tool})]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=budget, env=environment, check=False
        )
        lines, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired as ended:
        lines, error = (ended.stdout or b"").decode(), ""
    found = [line for line in lines.splitlines() if line.startswith("{")]
    if not found:
        if error:
            raise SystemExit(f"{tool} {job}: {error}")
        return None
    document = json.loads(found[-1])
    draws = np.load(Path(job["folder"]) / "draws.npy").astype(float)
    ess = [float(arviz_stats.ess(draws[:, :, j], method="bulk")) for j in range(draws.shape[2])]
    flat = draws.reshape(-1, draws.shape[2])
    return {**document, "ess": min(ess), "mean": flat.mean(axis=0), "sd": flat.std(axis=0)}


def reach(tool: str, job: dict[str, Any], budget: float) -> Any:
    """Run a tool with as many draws as 1,000 effective ones need; None if it takes too long."""
    job = {**job, "draws": DRAWS.get(tool, OTHER_DRAWS)}
    found = once(tool, job, budget)
    if found is not None and not 0.95 * TARGET <= found["ess"] <= MOST:
        again = max(50, math.ceil(job["draws"] * 1.05 * TARGET / found["ess"]))
        found = once(tool, {**job, "draws": again}, budget)
    return found


def cells(kind: str, n: int, d: int, slow: set[tuple[str, str, int]], options: Any) -> list[str]:
    """Return a line of the table: ours, and the fastest peer of the first and of later runs."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_table(folder, kind, n, d)
        job = {"folder": place, "kind": kind, "draws": DRAWS["ours"], "later": LATER}
        ours = reach("ours", job, 20 * options.budget)
        cold = ""
        if options.cold and n == min(options.rows) and d == min(options.columns):
            cache = f"{place}/cache"
            cold = short(once("ours", {**job, "later": 0}, 20 * options.budget, cache)["first"][0])
        peers = {}
        for tool in options.peers:
            if (tool, kind, d) in slow:
                continue
            peers[tool] = reach(tool, job, options.budget)
            if peers[tool] is None or not peers[tool].get("later"):
                slow.add((tool, kind, d))
    line = [kind, f"{n:,}", str(d), ours["note"], cold]
    line += [f"{short(ours[run][0])} ({short(ours[run][1])})" for run in ("first", "later")]
    apart = 0.0
    for run in ("first", "later"):
        known = {tool: each[run] for tool, each in peers.items() if each and each.get(run)}
        if not known:
            line += [f"> {options.budget:g}" if peers else "not run", ""]
            continue
        best = min(known, key=lambda tool: known[tool][0])
        line += [
            f"{short(known[best][0])} ({short(known[best][1])}), {best}",
            short(known[best][0] / ours[run][0]),
        ]
        gap = np.abs(peers[best]["mean"] - ours["mean"]) / ours["sd"]
        apart = max(apart, float(gap.max()))
    return [*line, f"{apart:.2f}" if apart else ""]


def main() -> None:
    """Measure the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=lambda text: int(float(text)),
                        default=[1_000, 10_000, 100_000, 1_000_000])  # fmt: skip
    parser.add_argument("--columns", nargs="*", type=int, default=[10, 50])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--peers", nargs="*", default=PEERS)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    head = [
        "model", "rows", "columns", "sampler", "first, nothing compiled, s", "first, s",
        "later, s", "best peer, first, s", "ratio", "best peer, later, s", "ratio",
        "means apart, sd",
    ]  # fmt: skip
    lines = [f"{machine()}:", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    slow: set[tuple[str, str, int]] = set()
    for kind, d, n in itertools.product(options.models, options.columns, options.rows):
        lines.append(f"| {' | '.join(cells(kind, n, d, slow, options))} |")
        print(lines[-1], flush=True)
    if options.write:
        publish("small-tables.md", "small", lines)


if __name__ == "__main__":
    main()
