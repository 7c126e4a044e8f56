"""Published tables of factors that cross: gibbs, the exact posterior, and the REML fit of lme4.

    python bench/crossed_real.py DATA [--write] [--only NAME ...]

DATA is the folder of real data sets, with ``grouped/InstEval.csv.gz`` and
``grouped/sleepstudy.csv.gz``. Means and sds of the exact posterior are those of the marginal
likelihood at Sobol points. ``--write`` puts the table into docs/measurements/crossed.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from page import machine, publish

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from crossed_exact import by_importance, log_half_t
from crossed_published import PUBLISHED, exact, published_table, sampled
from crossed_tables import summary

DRAWS = {"Penicillin": 4000, "Pastes": 40_000, "sleepstudy": 4000}


def measured(name: str, data: Path) -> list[str]:
    """Return the lines of a table."""
    case = PUBLISHED[name]
    table = published_table(case.table, data)
    draws = DRAWS.get(name, 4000)
    run: Any = sampled(case, table, seed=1, draws=draws, warmup=300)
    found = summary(run)
    scales = [np.log(value) for each, value in case.reml.items() if not each.startswith("beta")]
    power = 10 if case.table == "InstEval" else 13
    mean, sd, effective = by_importance(
        exact(case, table), log_half_t(case.priors[2]), np.array(scales), power
    )
    print(name, mean, sd, effective, flush=True)
    lines = []
    for (each, reml), m, s in zip(case.reml.items(), mean, sd, strict=True):
        row = found[each]
        digits = max(0, 2 - int(np.floor(np.log10(s))))
        z = (row["mean"] - m) / np.hypot(row["mcse_mean"], s / np.sqrt(effective))
        cells = [
            name, f"`{each}`", f"{row['mean']:.{digits}f}, {row['sd']:.{digits}f}",
            f"{m:.{digits}f}, {s:.{digits}f}", f"{z:.1f}", f"{row['ess_bulk'] / 2 / draws:.3f}",
            f"{reml:.{digits}f}", f"{(reml - m) / s:.2f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print, or write, the lines of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(PUBLISHED))
    asked = parser.parse_args()
    begun = time.perf_counter()
    lines = [line for name in asked.only for line in measured(name, asked.data)]
    print(f"{time.perf_counter() - begun:.0f} s")
    if asked.write:
        head = (
            "| table | parameter | `gibbs`: mean, sd | exact: mean, sd | z "
            "| ess an iteration | REML of lme4 | from the exact mean, sds |"
        )
        publish("crossed.md", "crossed-real", [f"{machine()}.", "", head, "|" + "---|" * 8, *lines])


if __name__ == "__main__":
    main()
