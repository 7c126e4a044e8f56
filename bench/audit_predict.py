"""Seconds of a full pass, of an audit and of predictions, on one table: medians of one run.

    python bench/audit_predict.py [--rows 5000000] [--columns 10 50] [--draws 400]
                                  [--repeats 3] [--folder DIR]

A pass is what ``streammc sample`` makes of its passes over the table, on average: those of
Newton's method and the one of the score draws. The audit and ``predict`` each make one more
with all draws, which is as many log-likelihoods or mean responses per row; ``predict`` also
sorts them for the quantiles and counts them for the ROC curves.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import streammc
from streammc.control_variates.expansion import ControlVariates
from streammc.prediction.predict import write_predictions
from streammc.prediction.prediction_request import PredictionRequest
from streammc.runs.audit import audit_seconds, log_weights, thin
from streammc.runs.setup import CONTROL_VARIATES
from streammc.stores.simulation import simulate
from streammc.trace.run_directory import RunDirectory


def measure(folder: Path, columns: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of every repeat, a round of all three at a time."""
    path = folder / f"store-{columns}"
    if not path.exists():
        simulate("logistic", path, options.rows, columns, 1)
    store, model = streammc.open_store(path), streammc.models.logistic()
    found: dict[str, list[float]] = {"pass": [], "audit": [], "predict": [], "forecast": []}
    for repeat in range(options.repeats):
        where = folder / f"run-{columns}-{repeat}"
        counts = {"draws": options.draws // 4, "warmup": 100, "chains": 4, "seed": repeat}
        tree = streammc.sample(store, model, path=where, audit=False, **counts)
        sampling = streammc.facts(tree)["summary"]["sampling"]
        found["pass"].append(sampling["pass_seconds"] / sampling["passes"])
        run = RunDirectory.open(where)
        cv = ControlVariates.open(where / CONTROL_VARIATES, store, model)
        kept = thin(run.chains, run.draws, options.draws)
        theta = model.unconstrain(run.draws_matrix()[:, kept])
        nothing = np.zeros(theta.shape[:2])
        found["forecast"].append(audit_seconds(store, model, cv, theta))
        began = time.perf_counter()
        log_weights(store, model, cv, theta, nothing, nothing)
        found["audit"].append(time.perf_counter() - began)
        began = time.perf_counter()
        request = PredictionRequest(draws=options.draws)
        write_predictions(run, model, store, folder / f"p-{columns}-{repeat}", request)
        found["predict"].append(time.perf_counter() - began)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        print(f"{options.rows:,} rows, {options.draws} draws, logistic; {platform.processor()}")
        print(f"{platform.machine()}, {datetime.datetime.now():%Y-%m-%d}\n")
        print("| columns | pass, s | audit, s | passes | expected, s | predict, s | passes |")
        print("|---|---|---|---|---|---|---|")
        for columns in options.columns:
            found = measure(folder, columns, options)
            one = {name: statistics.median(values) for name, values in found.items()}
            print(
                f"| {columns} | {one['pass']:.2f} | {one['audit']:.1f} | "
                f"{one['audit'] / one['pass']:.1f} | {one['forecast']:.1f} | "
                f"{one['predict']:.1f} | {one['predict'] / one['pass']:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
