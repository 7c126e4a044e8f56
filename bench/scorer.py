"""Rows a second of a model file: three numbers and a factor of 20 levels, 200 draws.

Run ``python bench/scorer.py``; it needs a minute and no files.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import streammc

ROWS, FITTED = 1_000_000, 5_000


def table(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
    frame["origin"] = rng.choice([f"airport {k}" for k in range(20)], rows)
    return frame.assign(y=rng.random(rows) < 1.0 / (1.0 + np.exp(-frame["a"])))


def main() -> None:
    run = streammc.fit(table(FITTED), "y ~ a + b + c + C(origin)", "logistic", seed=1)
    with tempfile.TemporaryDirectory() as folder:
        facts = streammc.export(run, Path(folder) / "model.json")
        model = streammc.scorer.load(Path(folder) / "model.json")
    rows = table(ROWS)
    print(f"{facts['bytes']:,} bytes, {facts['draws']} draws, {ROWS:,} rows")
    for interval in (0.9, None):
        for threads in (1, None):
            best = min(timed(model, rows, interval, threads) for _ in range(3))
            what = "mean alone" if interval is None else "mean and interval"
            used = "one thread" if threads == 1 else "all threads"
            print(f"{what}, {used}: {ROWS / best / 1e6:.2f} million rows a second")


def timed(
    model: streammc.scorer.Scorer, rows: pd.DataFrame, interval: float | None, threads: int | None
) -> float:
    began = time.perf_counter()
    model.predict(rows, interval=interval, threads=threads)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
