"""Every table and figure of van de Meent et al. 2014 (tempering by subsampling).

Run as ``python -m bench.papers.tempering WORK [part ...]``; parts: time, gaussian,
gp, tuned (default: all). WORK keeps the runs, so that the command continues where it was ended.
The tables are printed beside the published figures; ``--write`` writes
docs/reproductions/tempering-by-subsampling.md, its pictures and
bench/results/papers-tempering-by-subsampling.json. A chain of a cell has ``--seconds`` of
processor time: a sixth of it for the Gaussian mean, half for the Gaussian process with MH, three
times as much for figure 2, at most 30.
``--full`` takes 30 seconds, the Gaussian process at the paper's N = 512 instead of 128, and up to
1024 in figure 3. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
from bench.page import machine
from bench.papers.records import log, plain
from bench.papers.tempering import figures, published, report, runs
from bench.papers.tempering.problems import GAUSSIAN, HMC, METHODS, MH, PROCESS, Cell

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reproductions" / "tempering-by-subsampling.md"
RESULTS = ROOT / "bench" / "results" / "papers-tempering-by-subsampling.json"
PARTS = ("time", GAUSSIAN, PROCESS, "tuned")
DIMS = {GAUSSIAN: (5, 10, 50, 100), PROCESS: (5, 10, 15, 20, 25)}
TIMED = {GAUSSIAN: 50, PROCESS: 20}
"""|theta| of figure 1."""
SHARE = {
    (GAUSSIAN, HMC): 1 / 6,
    (GAUSSIAN, MH): 1 / 6,
    (PROCESS, HMC): 1.0,
    (PROCESS, MH): 0.5,
}
"""Of the seconds: less where chains converge in less."""
CURVE = 3.0
"""Chains of figure 2 have so many times the seconds of a chain, at most 30."""


def rows_of(model: str, inner: str, *, full: bool) -> int:
    """Return N of the tables."""
    few = model == PROCESS and not full
    return 128 if few else published.ROWS[model, inner]


def sizes_of(model: str, *, full: bool) -> tuple[int, ...]:
    """Return N of figures 1 and 3."""
    if model == GAUSSIAN:
        return (64, 128, 256, 512, 1024, 2048)
    return (64, 128, 256, 512, 1024) if full else (64, 128, 256)


def table_cells(model: str, *, full: bool, tuned: bool) -> list[Cell]:
    """Return the cells of table 1 or 2."""
    return [
        Cell(model, inner, dim, rows_of(model, inner, full=full), method, tuned, row_sd)
        for inner, row_sd in report.halves(model, tuned=tuned)
        for dim in DIMS[model]
        for method in METHODS
    ]


def size_cells(model: str, *, full: bool) -> list[Cell]:
    """Return the cells of figure 3."""
    return [
        Cell(model, inner, dim, n, method)
        for name, inner, dim, _ in published.FIGURE_3
        if name == model
        for n in sizes_of(model, full=full)
        for method in METHODS
    ]


def curve_cells(*, full: bool) -> list[Cell]:
    """Return the cells of figure 2."""
    model, inner, dim, _ = published.FIGURE_2
    n = rows_of(model, inner, full=full)
    return [Cell(model, inner, dim, n, method) for method in METHODS]


def times(options: argparse.Namespace) -> dict[str, Any]:
    """Return figure 1 by model, or read what was kept."""
    kept = options.work / "time.json"
    if not kept.exists():
        found = {}
        for model, dim in TIMED.items():
            sizes = sizes_of(model, full=True)
            rounds = runs.run_times(model, dim, sizes)
            found[model] = {"dim": dim, "sizes": sizes, "times": rounds}
        kept.write_text(json.dumps(found))
    held: dict[str, Any] = json.loads(kept.read_text())
    return held


def measure(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a part."""
    full = options.full
    if part == "time":
        return {"models": times(options)}
    if part == "tuned":
        cells = [c for m in DIMS for c in table_cells(m, full=full, tuned=True)]
    else:
        cells = [*table_cells(part, full=full, tuned=False), *size_cells(part, full=full)]
    seconds = {c: options.seconds * SHARE[c.model, c.inner] for c in cells}
    if part == PROCESS:
        seconds |= dict.fromkeys(curve_cells(full=full), min(CURVE * options.seconds, 30.0))
    found = runs.run_cells(options.work, cells, seconds, options.threads)
    drawn = {cell.name for cell in curve_cells(full=full)}
    for name in found.keys() - drawn:
        found[name].pop("curve", None)
    return {"cells": found, "limit": options.seconds, "full": full}


def draw(results: dict[str, Any], pictures: Path) -> None:
    """Draw what was measured."""
    if "time" in results:
        figures.run_time(results["time"]["models"], pictures / "run-time.png")
    panels = []
    for model, inner, dim, _ in published.FIGURE_3:
        if model not in results:
            continue
        full, lines = results[model]["full"], results[model]["cells"]
        sizes = sizes_of(model, full=full)
        by_method = {
            method: [lines[Cell(model, inner, dim, n, method).name] for n in sizes]
            for method in METHODS
        }
        panels.append(
            {"model": model, "inner": inner, "dim": dim, "sizes": sizes, "lines": by_method}
        )
    if panels:
        figures.against_rows(panels, pictures / "against-rows.png")
    if PROCESS in results:
        cells = curve_cells(full=results[PROCESS]["full"])
        curves = {cell.method: results[PROCESS]["cells"][cell.name] for cell in cells}
        title = f"Gaussian process, HMC, |θ| = {cells[0].dim}, N = {cells[0].rows}"
        figures.convergence(curves, title, pictures / "convergence.png")


def main() -> None:
    """Measure what was asked for, print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="part")
    parser.add_argument("--full", action="store_true", help="the paper's sizes, 30 s a chain")
    parser.add_argument("--seconds", type=float, help="of a chain (default 5; --full 30)")
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the page and the results")
    options = parser.parse_args()
    options.seconds = options.seconds or (30.0 if options.full else 5.0)
    options.work.mkdir(parents=True, exist_ok=True)
    pictures = PAGE.with_suffix("") if options.write else options.work / "pictures"
    results = json.loads(RESULTS.read_text()) if options.write and RESULTS.exists() else {}
    for part in options.parts or PARTS:
        begun = time.perf_counter()
        results[part] = plain(measure(part, options)) | {"machine": machine()}
        log(f"{part}: {time.perf_counter() - begun:.0f} s")
        draw(results, pictures)
        if options.write:
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            PAGE.write_text(report.page(results))
    print("\n".join(report.tables(results)))
    print(f"\npublished: {published.PAPER}; pictures: {pictures}")


if __name__ == "__main__":
    main()
