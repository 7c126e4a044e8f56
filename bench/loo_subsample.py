"""Leave-one-out scores of a large table from a sample of its rows, against all of them.

Run as ``python bench/loo_subsample.py [--write]``; ``--write`` puts the table into
``docs/explanation/score.md``. Data: ``STREAMMC_TEST_DATA``, else ``../shared/data`` beside the
repository. The exit code is 1 where a subsampled score is over 4.5 of its stated standard errors
from the full computation, or where surrogates of other rows would do as well.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from page import machine, publish, short
from real_data_sets import REAL_DATA

import streammc
from streammc.checks.scoring import Scored, ScoreRequest, score_run, totals
from streammc.prediction.predict import model_of
from streammc.trace.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMMC_TEST_DATA", ROOT / ".." / "shared" / "data")).resolve()
SET = "fretpl_claimnumber"
ROWS = (1_000, 10_000, 30_000)
SEEDS = 10
MOST = 4.5
DRAWS = 1000


def run_of(name: str, folder: str) -> tuple[Any, Any, RunDirectory]:
    """Return store, model and a finished run of a data set."""
    design = REAL_DATA[name](DATA)
    store = streammc.from_arrays(design.X, design.y, offset=design.offset)
    model = getattr(streammc.models, design.model)(**design.options)
    path = Path(folder) / "run"
    streammc.sample(store, model, path=path, chains=2, draws=1000, seed=1, audit=False)
    run = RunDirectory.open(path)
    return store, model_of(run, None), run


def of_other_rows(scored: Scored) -> float:
    """Return the sampling standard error that surrogates of other rows would leave."""
    assert scored.surrogate is not None
    moved = np.roll(scored.surrogate, 1, axis=0)
    return totals(scored.terms, moved, scored.sums, scored.sample)["elpd_loo"].error


def main() -> int:
    """Print the table; return 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--draws", type=int, default=DRAWS)
    asked = parser.parse_args()
    lines = [
        "| rows evaluated | share | elpd_loo | sampling se | of other rows | distance "
        "| in sampling se | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        store, model, run = run_of(SET, folder)
        request = ScoreRequest(draws=asked.draws)
        began = time.process_time()
        full = score_run(run, model, store, replace(request, rows=store.n_rows))
        seconds = time.process_time() - began
        exact = full.facts["elpd_loo"]["estimate"]
        for m in ROWS:
            found, times = [], []
            for seed in range(SEEDS):
                began = time.process_time()
                found.append(score_run(run, model, store, replace(request, rows=m, seed=seed)))
                times.append(time.process_time() - began)
            scores = [each.facts["elpd_loo"] for each in found]
            away = np.array([each["estimate"] - exact for each in scores])
            ratio = away / np.array([each["sampling_se"] for each in scores])
            wrong = of_other_rows(found[0])
            good &= bool(np.abs(ratio).max() < MOST) and wrong > 100 * scores[0]["sampling_se"]
            lines.append(
                f"| {m:,} | {100 * m / store.n_rows:.2f} % | {scores[0]['estimate']:,.4f} "
                f"| {short(scores[0]['sampling_se'])} | {short(wrong)} | {short(away[0])} "
                f"| {np.sqrt(np.mean(ratio**2)):.2f}, at most {np.abs(ratio).max():.2f} "
                f"| {short(np.median(times))} |"
            )
            print(lines[-1], flush=True)
        facts = full.facts["elpd_loo"]
        lines.append(
            f"| {store.n_rows:,} | 100 % | {exact:,.4f} (se {facts['se']:,.1f}) | 0 | | 0 | | "
            f"{short(seconds)} |"
        )
    lines += ["", f"{SET}, {store.n_rows:,} rows, {asked.draws:,} draws; {machine()}."]
    print("\n".join(lines))
    if asked.write:
        publish("score.md", "loo-subsample", lines)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
