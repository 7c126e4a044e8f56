"""The experiments of Li and Wong 2017 (mini-batch tempered MCMC), beside the published figures.

Run as ``python -m bench.papers.mint WORK [part ...]``; parts: mixture, digits, mintee (default:
all that there are). WORK keeps the chains, so that the command continues where it was ended.
``--write`` writes docs/reproductions/mint.md, its pictures and bench/results/papers-mint.json;
``--iterations``, ``--runs`` and ``--digit-draws`` take less, ``--full`` is for mintee. The digits
need the folder of ``mnist_1v7.npz`` in STREAMMC_TEST_DATA. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from bench.page import machine
from bench.papers.mint import digits, mintee, mixture, report, temperatures
from bench.papers.records import log, plain

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reproductions" / "mint.md"
RESULTS = ROOT / "bench" / "results" / "papers-mint.json"
PARTS = ("mixture", "digits", "mintee")


def measure(part: str, options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Measure a part."""
    work, threads = options.work, options.threads
    if part == "mixture":
        return mixture.measure(work, pictures, options.iterations, options.runs, threads)
    if part == "digits":
        lengths = {
            digits.MINT: options.digit_draws,
            digits.TEMPERED: options.full_draws,
            digits.PLAIN: options.full_draws,
        }
        main = digits.measure(work, pictures, lengths, options.digit_runs, threads)
        return main | temperatures.measure(work, threads, main)
    found = mintee.measure(work, full=options.full, threads=threads)
    mintee.draw(found, pictures / "mintee.png")
    return found


def main() -> None:
    """Measure what was asked for, print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="part")
    parser.add_argument("--iterations", type=int, default=mixture.ITERATIONS)
    parser.add_argument("--runs", type=int, default=mixture.RUNS)
    parser.add_argument("--digit-draws", type=int, default=10_000, help="of a run of mint")
    parser.add_argument("--full-draws", type=int, default=1000, help="of a run on all rows")
    parser.add_argument("--digit-runs", type=int, default=10)
    parser.add_argument("--full", action="store_true", help="mintee at the length of the paper")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the page and the results")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    pictures = PAGE.with_suffix("") if options.write else options.work / "pictures"
    results = json.loads(RESULTS.read_text()) if options.write and RESULTS.exists() else {}
    for part in options.parts or PARTS:
        begun = time.perf_counter()
        found = measure(part, options, pictures)
        if found is None:
            continue
        results[part] = plain(found) | {"machine": machine()}
        log(f"{part}: {time.perf_counter() - begun:.0f} s")
        if options.write:
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            PAGE.write_text(report.page(results))
    print("\n".join(report.sections(results)))
    print(f"\npublished: {report.PUBLISHED}; pictures: {pictures}")


if __name__ == "__main__":
    main()
