"""Every figure of Chen et al. 2016 (a simple minibatch acceptance test).

Run as ``python -m bench.papers.simple_minibatch WORK [part ...]``; parts: mixture, digits, network
(default: all). WORK keeps the runs, so that the command continues where it was ended. The tables
are printed beside what the paper prints; ``--write`` writes
docs/reproductions/simple-minibatch.md, its pictures and
bench/results/papers-simple-minibatch.json. ``--trials N`` takes fewer trials, ``--slow`` and
``--slow-draws`` and ``--costly-draws`` fewer of the methods that take thousands of rows a decision.
The digits need the folder of ``mnist_1v7.npz`` in STREAMMC_TEST_DATA.
Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from bench.page import machine
from bench.papers.minibatch_runs import Effort
from bench.papers.records import log, plain
from bench.papers.simple_minibatch import digits as chen_digits
from bench.papers.simple_minibatch import mixture as chen_mixture
from bench.papers.simple_minibatch import report as chen_report
from bench.papers.simple_minibatch.published import CHEN

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reproductions" / "simple-minibatch.md"
RESULTS = ROOT / "bench" / "results" / "papers-simple-minibatch.json"
PARTS = ("mixture", "digits", "network")


def measure(part: str, options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Measure a part."""
    work, effort = options.work, options.effort
    if part == "mixture":
        return chen_mixture.measure(work, pictures, effort)
    if part == "digits":
        return chen_digits.measure(work, pictures, effort)
    return network(work, pictures)


def network(work: Path, pictures: Path) -> dict[str, Any]:
    """Measure the network, or read what was kept."""
    kept = work / "network.json"
    if not kept.exists():
        from bench.papers.simple_minibatch import network as network_higgs

        kept.write_text(json.dumps(network_higgs.run(work, work)["lines"]))
    pictures.mkdir(parents=True, exist_ok=True)
    shutil.copy(work / "network.png", pictures)
    return {"lines": json.loads(kept.read_text())}


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
        if options.write:
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            PAGE.write_text(chen_report.page(results))
    print("\n".join(chen_report.tables(results)))
    print(f"\npublished: {CHEN}; pictures: {pictures}")


if __name__ == "__main__":
    main()
