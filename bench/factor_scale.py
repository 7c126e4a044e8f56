"""What scaling the 0/1 columns of a factor does to rare levels.

Run as ``python bench/factor_scale.py``. One table of 100,000 rows, a number and a factor
whose 60 levels have from 61,000 to 13 rows, one of them without a success; the same
logistic model and prior with the columns of levels divided by their standard deviation,
only centred, and as they are.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from arviz_stats import ess

import streammc
from streammc.stores.rows.row_blocks import whole

ROWS, LEVELS = 100_000, 60


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    share = 1 / np.arange(1, LEVELS + 1) ** 2.0
    g = rng.choice(LEVELS, ROWS, p=share / share.sum())
    x = rng.normal(size=ROWS)
    eta = -2 + rng.normal(0, 0.7, LEVELS)[g] + 0.5 * x
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame({"y": y, "x": x, "g": [f"L{level:02d}" for level in g]})


def main() -> None:
    warnings.simplefilter("ignore")
    options = {"standardize": False, "shuffle": True, "dtype": "float64"}
    store = streammc.from_table(table(), formula="y ~ x + g", **options)
    blocks = [whole(block) for block in store.blocks()]
    X = np.concatenate([block.X for block in blocks])
    y = np.concatenate([block.y for block in blocks])
    names = list(store.feature_names)
    level = np.array([name.startswith("g[") for name in names])
    print("| columns of levels | rows without C | C | k | min ESS | median ESS | largest sd | s |")
    print("|---|---|---|---|---|---|---|---|")
    for what in ("scaled", "centred", "as they are"):
        mean, sd = X.mean(axis=0), X.std(axis=0)
        mean[0], sd[0] = 0.0, 1.0
        sd[level] = sd[level] if what == "scaled" else 1.0
        mean[level] = 0.0 if what == "as they are" else mean[level]
        data = streammc.from_arrays((X - mean) / sd, y, feature_names=names)
        started = time.monotonic()
        run = streammc.sample(
            data,
            streammc.models.logistic(streammc.priors.normal(10.0)),
            sampler=streammc.samplers.hmc_ecs(),
            draws=1000,
            chains=4,
            seed=1,
        )
        seconds = time.monotonic() - started
        plan = streammc.facts(run)["plan"]
        sizes = ess(run["posterior"])["beta"].values
        spread = (run["posterior"]["beta"].values / sd).reshape(-1, len(names)).std(axis=0)
        needed = next(line.split()[3] for line in plan["reasons"] if line.startswith("without"))
        print(
            f"| {what} | {float(needed):.1e} | {plan['certainty_rows']} | {plan['k']} "
            f"| {sizes.min():.0f} | {np.median(sizes):.0f} | {spread.max():.3g} | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
