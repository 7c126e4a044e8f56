"""Whether intervals of hmc-ecs hold the truth as often as they say.

Run as ``python bench/interval_coverage.py [ROWS [SEEDS]]``, by default 1,000,000 rows and 20 seeds:
each seed simulates a store of 8 columns with its own truth and rows, which goes through
control variates and ``hmc-ecs``. Counts how often central 50 % and 90 % intervals hold
the true parameter, beside the same count for a posterior half as wide, which must fail.
Prints a table and one line of JSON.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

import streammc
from streammc.samplers import hmc_ecs
from streammc.stores.simulation import simulate

DIM = 8
LEVELS = (0.5, 0.9)


def draws_and_truth(folder: Path, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the draws (n, d) of one simulated store and its true parameters (d,)."""
    path = folder / f"{seed}.zarr"
    truth = simulate("logistic", path, rows, DIM, seed)["theta"]
    store = streammc.open_store(path)
    model = streammc.models.logistic(streammc.priors.normal(10.0))
    run = streammc.sample(store, model, sampler=hmc_ecs(), draws=1000, chains=4, seed=seed)
    values = run["posterior"]["beta"].to_numpy().reshape(-1, DIM)
    return values, np.array(truth)


def holds(draws: np.ndarray, truth: np.ndarray, level: float) -> np.ndarray:
    """Return whether the central interval of each parameter holds its true value."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return (low <= truth) & (truth <= high)


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    counts = {level: [0, 0] for level in LEVELS}
    largest = 0.0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(1, seeds + 1):
            draws, truth = draws_and_truth(Path(name), rows, seed)
            mean = draws.mean(axis=0)
            largest = max(largest, float(np.max(np.abs(mean - truth) / draws.std(axis=0))))
            for level in LEVELS:
                counts[level][0] += int(holds(draws, truth, level).sum())
                counts[level][1] += int(holds(mean + 0.5 * (draws - mean), truth, level).sum())
    n = seeds * DIM
    good = True
    print(f"{seeds} seeds x {DIM} parameters at {rows:,} rows; largest z {largest:.1f}\n")
    print("| interval | holds the truth | binomial z | of a posterior half as wide | z |")
    print("|---|---|---|---|---|")
    for level, (found, narrow) in counts.items():
        error = math.sqrt(level * (1 - level) / n)
        z, broken = ((count / n - level) / error for count in (found, narrow))
        good = good and abs(z) < 3.0 and broken < -4.0
        print(f"| {level:.0%} | {found / n:.3f} | {z:.1f} | {narrow / n:.3f} | {broken:.1f} |")
    print(json.dumps({"rows": rows, "seeds": seeds, "counts": counts, "largest_z": largest}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
