"""A billion rows through the real commands: what every stage takes, and whether it is right.

Run as ``python bench/billion_rows.py FOLDER [--case dense|rare] [--rows N]``. ``dense`` is
a logistic regression of 8 columns (33 GB); its posterior is normal to within 1e-4, so that
the mode and the curvature at it are the right answer. ``rare`` has 4 columns (17 GB) and
about 500 events, and is not normal: what it should be is known from the audit's weights.
What is in FOLDER already is used as it is. Prints two tables and one line of JSON; the
exit code is 1 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from memory import measure

CASES = {
    "dense": ["--dim", "8", "--seed", "1"],
    "rare": ["--dim", "4", "--seed", "2", "--intercept", "-15.09"],
}
BOUNDS = {"mean": 0.05, "sd": 0.03, "z": 4.5, "correction": 0.1, "anonymous": 600e6}


def stages(folder: Path, case: str, rows: int) -> dict[str, dict[str, Any]]:
    """Run the commands; return what each took and printed."""
    store, cv, run = (str(folder / f"{case}-{rows}{end}") for end in (".zarr", "-cv.zarr", "-run"))
    model = ["--model", "logistic", "--prior-scale", "10"]
    quiet = ["--quiet", "--json"]
    chains = ["--draws", "4000", "--sampler", "hmc-ecs", "--no-audit", "--seed", "1"]
    commands = {
        "simulate": (store, ["logistic", store, "--rows", str(rows), *CASES[case]]),
        "summarize": (cv, [store, *model, "-o", cv]),
        "sample": (
            run,
            [store, *model, "-o", run, "--control-variates", cv, *chains],
        ),
        "audit": ("", [run]),
    }
    found: dict[str, dict[str, Any]] = {}
    for name, (made, arguments) in commands.items():
        there = made and Path(made).exists()
        usage = measure(name, *arguments, *quiet)
        found[name] = {
            "command": f"streammc {name} {' '.join(arguments)}",
            "seconds": None if there else usage.seconds,
            "anonymous": usage.anonymous,
            "resident": usage.resident,
            "result": json.loads(usage.output),
        }
        print(f"{name}: {usage.seconds:.1f} s", file=sys.stderr, flush=True)
    return found


def gigabytes(name: str, result: dict[str, Any], size: float) -> float:
    """Return the GB of rows that a command wrote or read."""
    if name == "summarize":
        return float(result["certificate"]["bytes_read"]) / 1e9
    return {"simulate": size, "audit": size}.get(name, 0.0)


def compare(found: dict[str, dict[str, Any]], cv_path: Path) -> tuple[list[str], dict[str, float]]:
    """Return a table of the posterior beside Laplace and truth, and the largest differences."""
    from streammc import models, open_store
    from streammc.control_variates.expansion import ControlVariates
    from streammc.priors import normal

    sample, audit = found["sample"]["result"], found["audit"]["result"]
    store = open_store(sample["store"])
    cv = ControlVariates.open(cv_path, store, models.logistic(normal(10.0)))
    mode, width = cv.theta_star + cv.newton_step, np.sqrt(np.sum(cv.factor**2, axis=1))
    truth = found["simulate"]["result"]["simulation"]["theta"]
    corrections = (audit.get("audit") or audit)["parameters"]
    worst = dict.fromkeys(("mean", "sd", "z", "correction"), 0.0)
    lines = [
        "| parameter | true | mean | sd | mean - Laplace, sd | sd / Laplace | (mean - true) / sd "
        "| correction by the audit, sd |",
        "|" + "---|" * 8,
    ]
    for j, (label, p) in enumerate(sample["parameters"].items()):
        gap, ratio = (p["mean"] - mode[j]) / width[j], p["sd"] / width[j]
        z, more = (p["mean"] - truth[j]) / p["sd"], corrections[label]["correction_sd"]
        for name, value in (("mean", gap), ("sd", ratio - 1), ("z", z), ("correction", more)):
            worst[name] = max(worst[name], abs(value))
        lines.append(
            f"| {label} | {truth[j]:.6f} | {p['mean']:.6f} | {p['sd']:.2e} | {gap:.3f} "
            f"| {ratio:.3f} | {z:.1f} | {more:.4f} |"
        )
    return lines, worst


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", choices=list(CASES), default="dense")
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    found = stages(asked.folder, asked.case, asked.rows)
    info = found["simulate"]["result"]
    size = info["bytes"] / 1e9
    print("```bash")
    for stage in found.values():
        print(stage["command"].replace(f"{asked.folder}/", ""))
    print("```\n\n| stage | seconds | GB | GB/s | anonymous, MB | with mapped files, MB |")
    print("|" + "---|" * 6)
    for name, stage in found.items():
        moved = gigabytes(name, stage["result"], size)
        seconds = stage["seconds"]
        speed = f"{moved / seconds:.2f}" if moved and seconds else ""
        print(
            f"| `{name}` | {'was there' if seconds is None else f'{seconds:.1f}'} "
            f"| {moved:.1f} | {speed} | {stage['anonymous'] / 1e6:.0f} "
            f"| {stage['resident'] / 1e6:.0f} |"
        )
    lines, worst = compare(found, asked.folder / f"{asked.case}-{asked.rows}-cv.zarr")
    print("\n" + "\n".join(lines) + "\n")
    worst["anonymous"] = max(stage["anonymous"] for stage in found.values())
    held = ["z", "correction", "anonymous"] + (["mean", "sd"] if asked.case == "dense" else [])
    failed = [name for name in held if not worst[name] < BOUNDS[name]]
    sampling = found["sample"]["result"]["sampling"]
    ess = min(p["ess_bulk"] for p in found["sample"]["result"]["parameters"].values())
    print(json.dumps({"worst": worst, "failed": failed, "ess": ess, "sampling": sampling}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
