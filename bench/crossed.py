"""Two factors that cross, of the size of MovieLens-25M, through ``streammc.fit``'s own steps.

    python bench/crossed.py [--rows 25000095] [--users 162541] [--items 59047] [--folder DIR]

Sizes of levels follow Zipf's law, and the smallest levels have one row. Each size is made and
sampled by a process of its own, whose seconds and memory are printed: effective draws of every
scale, and the distance of the posterior from the values that made the table.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TRUTH = {"beta[Intercept]": 3.5, "beta[x]": 0.1, "sigma": 0.85, "tau[user]": 0.45, "tau[item]": 0.5}


def sizes(levels: int, rows: int, power: float, rng: np.random.Generator) -> Any:
    """Return the level of each row: every level once, the others by a law of Zipf."""
    weight = (np.arange(levels) + 10.0) ** -power
    more = rng.choice(levels, rows - levels, p=weight / weight.sum())
    found = np.concatenate([np.arange(levels), more]).astype(np.int64)
    rng.shuffle(found)
    return found


def made(family: str, rows: int, users: int, items: int, folder: Path) -> dict[str, Any]:
    """Make the table as Parquet, and a store of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import streammc

    rng = np.random.default_rng(rows)
    user, item = sizes(users, rows, 0.8, rng), sizes(items, rows, 1.1, rng)
    a, b = TRUTH["tau[user]"] * rng.normal(size=users), TRUTH["tau[item]"] * rng.normal(size=items)
    x = rng.normal(size=rows)
    y = TRUTH["beta[Intercept]"] + TRUTH["beta[x]"] * x + a[user] + b[item]
    if family == "gaussian":
        y += TRUTH["sigma"] * rng.normal(size=rows)
    else:  # centred, so that both values are about as frequent
        y = (rng.logistic(size=rows) < y - TRUTH["beta[Intercept]"]).astype(np.uint8)
    pq.write_table(pa.table({"y": y, "x": x, "user": user, "item": item}), folder / "t.parquet")
    del user, item, x, y
    begun = time.perf_counter()
    formula = "y ~ x + (1 | user) + (1 | item)"
    report = streammc.ingest(folder / "t.parquet", folder / "t.zarr", formula=formula)
    return {"ingest_seconds": time.perf_counter() - begun, "store_gb": report["bytes"] / 1e9}


def sampled(family: str, folder: Path, draws: int, warmup: int) -> dict[str, Any]:
    """Sample the store; return seconds, memory, effective draws and distances."""
    import streammc
    from streammc.trace.run_directory import RunDirectory

    store = streammc.open_store(folder / "t.zarr")
    begun = time.perf_counter()
    tree = streammc.sample(
        store, getattr(streammc.models, family)(), seed=1, chains=4, draws=draws, warmup=warmup,
        path=folder / "run.zarr",
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    table = RunDirectory.open(folder / "run.zarr").attributes["summary"]["parameters"]
    truth = TRUTH if family == "gaussian" else TRUTH | {"beta[Intercept]": 0.0}
    away = {name: (row["mean"] - truth[name]) / row["sd"] for name, row in table.items()}
    del tree
    return {
        "seconds": seconds,
        "ess": {name: round(row["ess_bulk"]) for name, row in table.items()},
        "rhat": max(row["r_hat"] for row in table.values()),
        "away": {name: round(each, 2) for name, each in away.items()},
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    """Run the steps in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default="gaussian", choices=["gaussian", "logistic"])
    parser.add_argument("--rows", type=int, default=25_000_095)
    parser.add_argument("--users", type=int, default=162_541)
    parser.add_argument("--items", type=int, default=59_047)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", choices=["make", "sample"])
    asked = parser.parse_args()
    if asked.step:
        if asked.step == "make":
            found = made(asked.family, asked.rows, asked.users, asked.items, asked.folder)
        else:
            found = sampled(asked.family, asked.folder, asked.draws, asked.warmup)
        print(json.dumps(found))
        return
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="crossed-"))
    folder.mkdir(exist_ok=True)
    try:
        for step in ("make", "sample"):
            command = [sys.executable, __file__, "--step", step, "--folder", str(folder)]
            for name in ("family", "rows", "users", "items", "draws", "warmup"):
                command += [f"--{name}", str(getattr(asked, name))]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            print(step, out.splitlines()[-1], flush=True)
    finally:
        if asked.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
