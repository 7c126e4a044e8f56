"""Every table and figure of Seita et al. 2017 (an efficient minibatch acceptance test).

Run as ``python -m bench.papers.minibatch WORK [part ...]``; parts: mixture, mnist-13k,
mnist-100k, steps, drop, search, correction (default: all). WORK keeps the runs, so that the
command continues where it was ended. The tables are printed beside the published figures;
``--write`` writes docs/reproductions/mhminibatch.md, its pictures and
bench/results/papers-mhminibatch.json. ``--trials N`` takes fewer trials than the paper, ``--slow``
and ``--slow-draws`` and ``--costly-draws`` fewer of the methods that take thousands of rows a
decision. The digits need the folder of ``mnist_1v7.npz`` in STREAMMC_TEST_DATA.
Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.page import machine
from bench.papers import minibatch_figures as figures
from bench.papers import mnist
from bench.papers.minibatch import digits, grid_search, mixture, report
from bench.papers.minibatch.published import LAMBDAS, METHODS, SEITA, SIGMAS, TABLE_3
from bench.papers.minibatch_runs import Effort
from bench.papers.records import log, plain

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reproductions" / "mhminibatch.md"
RESULTS = ROOT / "bench" / "results" / "papers-mhminibatch.json"
PARTS = ("mixture", "mnist-13k", "mnist-100k", "steps", "drop", "search", "correction")


def images(work: Path, title: str) -> mnist.Digits:
    """Return a data set of section 6.2."""
    small = mnist.digits()
    return small if title == digits.SMALL.title else mnist.held_copies(work / "copies.npz", small)


def correction(work: Path) -> dict[str, Any]:
    """Table 3: by N and sigma, for every lambda the error and that of renormalised weights."""
    kept = work / "correction.json"
    if kept.exists():
        held: dict[str, Any] = json.loads(kept.read_text())
        return held
    from streammc.samplers.metropolis.correction import ridge, worst

    found: dict[str, Any] = {}
    for n in TABLE_3:
        found[str(n)] = {}
        for sigma in SIGMAS:
            lines = []
            for penalty in LAMBDAS:
                cells, error = ridge(sigma, n=n, penalty=penalty)
                whole = cells._replace(masses=cells.masses / cells.masses.sum())
                lines.append([error, worst(whole, sigma)])
            found[str(n)][str(sigma)] = lines
    kept.write_text(json.dumps(found))
    return found


def measure(part: str, options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Measure a part."""
    work, effort = options.work, options.effort
    if part == "correction":
        return {"errors": correction(work)}
    if part == "search":
        return {"lines": grid_search.lines()}
    if part == "mixture":
        return mixture.measure(work, pictures, effort)
    if part == "steps":
        found = images(work, digits.LARGE.title)
        return digits.step_sizes(work, pictures, found, effort)
    if part == "drop":
        lines, curves = {}, {}
        for setting in (digits.SMALL, digits.LARGE):
            found = images(work, setting.title)
            one = digits.dropped(work, setting, found, effort)
            lines[setting.title], curves[setting.title] = one
        np.savez(work / "drop-curves.npz", **curves)
        return {"lines": lines}
    setting = digits.SMALL if part == "mnist-13k" else digits.LARGE
    return digits.measure(work, pictures, setting, images(work, setting.title), effort)


def draw_accuracy(work: Path, pictures: Path) -> None:
    """Draw figure 3 from what the parts left in ``work``."""
    panels: dict[str, Any] = {}
    for setting in (digits.SMALL, digits.LARGE):
        path = work / f"{setting.title.lower()}-curves.npz"
        if path.exists():
            with np.load(path) as held:
                panels[setting.title] = {
                    name: (held[f"{name}|0"], held[f"{name}|1"]) for name in METHODS
                }
    dropped = None
    if (work / "drop-curves.npz").exists():
        with np.load(work / "drop-curves.npz") as held:
            dropped = ({key: held[key] for key in held}, digits.DROP)
    if panels:
        figures.accuracy(panels, dropped, pictures / "accuracy.png")


def main() -> None:
    """Measure what was asked for, print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="part")
    parser.add_argument("--trials", type=int, help="at most so many trials of any method")
    parser.add_argument("--slow", type=int, help="the same where a decision takes many rows")
    parser.add_argument("--slow-draws", type=int, help="at most so many draws of these")
    parser.add_argument(
        "--costly-draws", type=int, help="the same where it takes tens of thousands"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the page and the results")
    options = parser.parse_args()
    limits = ("trials", "slow", "slow_draws", "costly_draws", "threads")
    options.effort = Effort(**{key: getattr(options, key) for key in limits})
    options.work.mkdir(parents=True, exist_ok=True)
    pictures = PAGE.with_suffix("") if options.write else options.work / "pictures"
    results = json.loads(RESULTS.read_text()) if options.write and RESULTS.exists() else {}
    for part in options.parts or PARTS:
        begun = time.perf_counter()
        results[part] = plain(measure(part, options, pictures)) | {"machine": machine()}
        log(f"{part}: {time.perf_counter() - begun:.0f} s")
        draw_accuracy(options.work, pictures)
        if options.write:
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            PAGE.write_text(report.page(results))
    print("\n".join(report.tables(results)))
    missed = report.misses(results)
    print("\n".join(missed) if missed else "every mean size is as near as promised")
    print(f"\npublished: {SEITA}; pictures: {pictures}")


if __name__ == "__main__":
    main()
