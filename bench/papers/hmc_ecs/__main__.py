"""Every table and figure of Dang et al. 2019 (HMC with energy conserving subsampling).

Run as ``python -m bench.papers.hmc_ecs WORK [part ...]``; parts: higgs, bankruptcy, scaling,
orders (default: all). WORK keeps stores and runs, so that the command continues where it was
ended; 12 GB of disk and 8 of memory. The tables are printed beside the published figures;
``--write`` writes docs/reproductions/hmc-ecs.md, its pictures, and
bench/results/papers-hmc-ecs.json. Everything has the paper's length, but for full-data HMC: 2
chains of 250 draws from theta_star; ``--full`` for its 3026 iterations. ``--higgs PATH`` takes
HIGGS.csv or HIGGS.csv.gz instead of the simulated rows, ``--rows N`` is a quick look with N rows.
Needs matplotlib, pandas and pyarrow.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from bench.page import machine
from bench.papers.hmc_ecs import accounting as acc
from bench.papers.hmc_ecs import (
    bankruptcy,
    figures,
    higgs,
    langevin,
    orders,
    prediction,
    published,
    report,
    scaling,
)
from bench.papers.hmc_ecs.methods import Case, control_variates
from bench.papers.measures import Run
from bench.papers.records import log

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reproductions" / "hmc-ecs.md"
RESULTS = ROOT / "bench" / "results" / "papers-hmc-ecs.json"
PARTS = ("higgs", "bankruptcy", "scaling", "orders")
ORDINARY, QUICK, PAPER_LENGTH = (250, 0, 2), (60, 0, 2), (acc.PAPER_DRAWS, acc.PAPER_WARMUP, 1)
"""Draws, warm-up and chains of full-data HMC."""


def common(runs: dict[str, Run], n: int, lengths: dict[str, int], first: float) -> dict[str, Any]:
    """Return what both data sets are measured for."""
    full = runs[acc.FULL]
    methods = {name: run for name, run in runs.items() if name != "first stage"}
    return {
        "rows": n,
        "costs": acc.costs(runs, n, lengths, first),
        "efficiencies": {name: acc.efficiencies(run, n) for name, run in methods.items()},
        "agreement": {
            name: acc.against_full(run, full) for name, run in methods.items() if run is not full
        },
    }


def higgs_part(options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Tables 1 and 2, figures 1 to 3."""
    case, test = higgs.case(options.work, options.rows or higgs.ROWS, options.higgs)
    runs = higgs.runs(case, options.full_draws)
    lengths = {name: higgs.SGHMC_STEPS if name.startswith("SG-HMC") else 1 for name in higgs.RIVALS}
    found = common(runs, case.store.n_rows, lengths, 0.0)
    shown = [acc.PERTURBED, acc.SIGNED, *higgs.RIVALS]
    figures.densities(runs, shown, _labels(case), pictures / "higgs-densities.png")
    figures.moments(runs, shown, pictures / "higgs-moments.png")
    curves = {name: prediction.roc(test, runs[name]) for name in (acc.FULL, *shown[:2])}
    found["roc"] = prediction.draw_roc(curves, acc.FULL, pictures / "higgs-roc.png")
    steps = {"SGLD": (runs["SGLD"], 2)}
    steps["SGLD, no control variates"] = (runs["SGLD, no control variates"], None)
    found["langevin"] = _langevin(case, runs, steps, higgs.SUBSAMPLE)
    found["sgld_step"] = higgs.langevin_step(case)
    found["file"] = options.higgs.name if options.higgs else None
    return found


def bankruptcy_part(options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Tables 3 and 4, figures 4 to 6."""
    case, table = bankruptcy.case(options.work, options.rows or bankruptcy.ROWS)
    runs = bankruptcy.runs(case, options.full_draws)
    lengths = {f"SG-HMC, L = {steps}": steps for steps in bankruptcy.SGHMC_STEPS} | {"SGLD": 1}
    first = 7.0 * bankruptcy.FIRST_ITERATIONS * bankruptcy.first_size(case.store.n_rows)
    found = common(runs, case.store.n_rows, lengths, first)
    shown = [acc.PERTURBED, acc.SIGNED, *lengths]
    figures.densities(runs, shown, _labels(case), pictures / "bankruptcy-densities.png")
    figures.moments(runs, shown, pictures / "bankruptcy-moments.png")
    group, at = prediction.groups(table, "earnings")
    pair = {name: runs[name] for name in (acc.PERTURBED, acc.FULL)}
    predicted = prediction.calibration(case.store, group, pair)
    picture = pictures / "bankruptcy-predicted.png"
    found["predicted"] = prediction.draw_calibration(at, predicted, "earnings", picture)
    found["langevin"] = _langevin(case, runs, {"SGLD": (runs["SGLD"], 2)}, bankruptcy.SUBSAMPLE)
    found["sgld_step"] = bankruptcy.langevin_step(case)
    found["stage"] = float(runs["first stage"].stats["log_lik_variance"].mean())
    return found


def _langevin(case: Case, runs: dict[str, Run], steps: dict[str, Any], rows: int) -> Any:
    cv = control_variates(case, "certified")
    return langevin.directions(case, cv, runs[acc.PERTURBED], rows, steps)


def _labels(case: Case) -> list[str]:
    return [f"β {name}" for name in case.store.feature_names]


def scaling_part(options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Figure 7."""
    dimensions = scaling.DIMENSIONS[:3] if options.rows else scaling.DIMENSIONS
    lines = scaling.results(options.work, dimensions, 2000 if options.full else 500)
    figures.scaling(lines, pictures / "scaling.png")
    return {"lines": lines}


def orders_part(options: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Figures 8 and 9."""
    case, _ = higgs.case(options.work, options.rows or higgs.ROWS, options.higgs)
    found = orders.runs(case)
    full = higgs.full(case, options.full_draws)
    training, burn_in = higgs.FIRST_ITERATIONS, case.warmup
    figures.variances(found, training, burn_in, pictures / "orders-variance.png")
    named = {f"order {order}": entry["run"] for order, entry in found.items()}
    figures.moments(named | {acc.FULL: full}, list(named), pictures / "orders-moments.png")
    return {"orders": orders.results(found, full, case.store.n_rows)}


def main() -> None:
    """Measure what was asked for, print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="part")
    parser.add_argument("--full", action="store_true", help="full-data HMC of the paper's length")
    parser.add_argument("--rows", type=int, help="a quick look with fewer rows")
    parser.add_argument("--higgs", type=Path, help="HIGGS.csv or HIGGS.csv.gz")
    parser.add_argument("--write", action="store_true", help="write the page and the results")
    options = parser.parse_args()
    if options.write and options.rows:
        raise SystemExit("expected --write without --rows: the page is that of all rows")
    options.full_draws = PAPER_LENGTH if options.full else QUICK if options.rows else ORDINARY
    pictures = PAGE.with_suffix("") if options.write else options.work / "pictures"
    results = json.loads(RESULTS.read_text()) if options.write and RESULTS.exists() else {}
    measure = {
        "higgs": higgs_part,
        "bankruptcy": bankruptcy_part,
        "scaling": scaling_part,
        "orders": orders_part,
    }
    for part in options.parts or PARTS:
        begun = time.perf_counter()
        results[part] = measure[part](options, pictures) | {"machine": machine()}
        log(f"{part}: {time.perf_counter() - begun:.0f} s")
        if options.write:
            RESULTS.write_text(json.dumps(report.plain(results), indent=1, sort_keys=True) + "\n")
            PAGE.write_text(report.page(results))
    print("\n".join(report.tables(results)))
    if "scaling" in results:
        print("\n".join(scaling.lines(results["scaling"]["lines"])))
    print(f"\npublished: {published.SOURCE}; pictures: {pictures}")


if __name__ == "__main__":
    main()
