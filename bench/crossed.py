"""Two factors that cross, up to the size of MovieLens-25M, and many slopes of one factor.

Effective draws, seconds, memory.

    python bench/crossed.py [--write] [--only N ...] [--folder DIR]

Sizes of levels that cross follow Zipf's law, and the smallest levels have one row. Each table is
made and sampled by processes of their own. ``--write`` puts them into docs/measurements/crossed.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from page import machine, publish, published, short

TRUTH = {"beta[Intercept]": 3.5, "beta[x]": 0.1, "sigma": 0.85, "tau[user]": 0.45, "tau[item]": 0.5}


def sizes(levels: int, rows: int, power: float, rng: np.random.Generator) -> Any:
    """Return the level of each row: every level once, the others by a law of Zipf."""
    weight = (np.arange(levels) + 10.0) ** -power
    more = rng.choice(levels, rows - levels, p=weight / weight.sum())
    found = np.concatenate([np.arange(levels), more]).astype(np.int64)
    rng.shuffle(found)
    return found


def slopes_of(case: Case) -> tuple[list[str], Any, Any]:
    """Return the columns of slopes, and of intercept and slopes scales and correlations."""
    rng = np.random.default_rng(case.slopes)
    root = rng.normal(size=(case.slopes + 1, case.slopes + 1))
    R = root @ root.T + (case.slopes + 1) * np.eye(case.slopes + 1)
    scale = np.sqrt(np.diag(R))
    names = [f"x{k}" for k in range(case.slopes)]
    return names, np.append(0.8, rng.uniform(0.3, 0.7, case.slopes)), R / np.outer(scale, scale)


def truth_of(case: Case) -> dict[str, float]:
    """Return the parameters that made the table, as the run names them."""
    truth = TRUTH if case.family == "gaussian" else TRUTH | {"beta[Intercept]": 0.0}
    if not case.slopes:
        return truth
    names, tau, R = slopes_of(case)
    every = ["Intercept", *names]
    truth = {f"beta[{each}]": 0.1 for each in every}
    truth |= {f"tau[user:{each}]": tau[k] for k, each in enumerate(every)}
    pairs = [(i, j) for i in range(len(every)) for j in range(i)]
    return truth | {f"rho[user:{every[j]},{every[i]}]": R[i, j] for i, j in pairs}


def made_slopes(case: Case, folder: Path) -> str:
    """Make a table of one factor with many slopes as Parquet; return the formula."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, tau, R = slopes_of(case)
    rng = np.random.default_rng(case.rows)
    root = np.linalg.cholesky(R) * tau[:, None]
    u = 0.1 + rng.normal(size=(case.users, len(tau))) @ root.T
    fields = {"y": pa.uint8(), "user": pa.int32()} | dict.fromkeys(names, pa.float32())
    with pq.ParquetWriter(folder / "t.parquet", pa.schema(list(fields.items()))) as writer:
        for low in range(0, case.rows, 1 << 20):
            m = min(1 << 20, case.rows - low)
            user, X = rng.integers(0, case.users, m), rng.normal(size=(m, case.slopes))
            X = X.astype(np.float32)
            eta = u[user, 0] + np.einsum("ik,ik->i", X, u[user, 1:])
            y = (rng.logistic(size=m) < eta).astype(np.uint8)
            columns = {"y": y, "user": user.astype(np.int32), **dict(zip(names, X.T, strict=True))}
            writer.write_table(pa.table(columns))
    terms = " + ".join(names)
    return f"y ~ {terms} + (1 + {terms} | user)"


def made(case: Case, folder: Path) -> dict[str, Any]:
    """Make the table as Parquet, and a store of it."""
    import streammc

    formula = made_slopes(case, folder) if case.slopes else made_crossed(case, folder)
    begun = time.perf_counter()
    report = streammc.ingest(folder / "t.parquet", folder / "t.zarr", formula=formula)
    return {"ingest_seconds": time.perf_counter() - begun, "store_gb": report["bytes"] / 1e9}


def made_crossed(case: Case, folder: Path) -> str:
    """Make a table of two factors that cross as Parquet; return the formula."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    family, rows, users, items, *_ = case
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
    return "y ~ x + (1 | user) + (1 | item)"


def sampled(case: Case, folder: Path) -> dict[str, Any]:
    """Sample the store; return seconds, memory, effective draws and distances."""
    import streammc
    from streammc.trace.run_directory import RunDirectory

    family, *_, draws, warmup, _ = case
    store = streammc.open_store(folder / "t.zarr")
    begun = time.perf_counter()
    streammc.sample(
        store, getattr(streammc.models, family)(), seed=1, chains=4, draws=draws, warmup=warmup,
        path=folder / "run.zarr",
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    summary = RunDirectory.open(folder / "run.zarr").attributes["summary"]
    table = summary["parameters"]
    truth = truth_of(case)
    away = {name: (row["mean"] - truth[name]) / row["sd"] for name, row in table.items()}
    sampling = summary["sampling"]
    return {
        "seconds": seconds,
        "sampling_seconds": sampling["seconds"] + sampling["warmup_seconds"],
        "ess": {name: round(row["ess_bulk"]) for name, row in table.items()},
        "rhat": max(row["r_hat"] for row in table.values()),
        "away": {name: round(each, 2) for name, each in away.items()},
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


class Case(NamedTuple):
    """A table, and the length of a chain."""

    family: str
    rows: int
    users: int
    items: int
    draws: int
    warmup: int
    slopes: int = 0


CASES = [
    Case("gaussian", 1_000_000, 20_000, 8_000, 300, 60),
    Case("gaussian", 10_000_000, 65_016, 23_618, 300, 60),
    Case("gaussian", 25_000_095, 162_541, 59_047, 300, 60),
    Case("logistic", 1_000_000, 20_000, 8_000, 250, 50),
    Case("logistic", 25_000_095, 162_541, 59_047, 450, 50),
    Case("logistic", 1_000_000, 10_000, 0, 400, 100, slopes=10),
    Case("logistic", 10_000_000, 100_000, 0, 300, 100, slopes=10),
]


def start(case: Case) -> str:
    """Return the first cells of the line of a case."""
    levels = (
        f"{case.users:,}, {case.slopes} slopes"
        if case.slopes
        else f"{case.users:,} x {case.items:,}"
    )
    return f"| `{case.family}`, {case.rows:,} | {levels}"


def row(case: Case, made: dict[str, Any], found: dict[str, Any]) -> str:
    """Return a line of the table."""
    least = min(found["ess"].values())
    distance = max(map(abs, found["away"].values()))
    sweep = found["sampling_seconds"] / (4 * (case.draws + case.warmup))
    cells = [
        start(case), short(made["ingest_seconds"]), short(found["seconds"]),
        f"{4 * case.draws:,}", str(least), short(1e3 * sweep), short(found["seconds"] / least),
        short(distance), short(found["peak_gb"]),
    ]  # fmt: skip
    return f"{' | '.join(cells)} |"


def main() -> None:
    """Run the cases, each step in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", choices=["make", "sample"])
    asked = parser.parse_args()
    if asked.step:
        case = CASES[asked.only[0]]
        found = made(case, asked.folder) if asked.step == "make" else sampled(case, asked.folder)
        print(json.dumps(found))
        return
    for number in asked.only:
        with tempfile.TemporaryDirectory(prefix="crossed-", dir=asked.folder) as folder:
            results = []
            for step in ("make", "sample"):
                command = [sys.executable, __file__, "--step", step, "--only", str(number)]
                command += ["--folder", folder]
                out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                results.append(json.loads(out.splitlines()[-1]))
        line = row(CASES[number], *results)
        print(line, results, flush=True)
        if asked.write:
            write(number, line)


def write(number: int, line: str) -> None:
    """Put the line of a case into the page, which keeps those of the other cases."""
    table = [each for each in published("crossed.md", "crossed") if each.startswith("| `")]
    lines = {tuple(each.split(" | ")[:2]): each for each in table}
    of_cases = [tuple(start(case).split(" | ")) for case in CASES]
    lines[of_cases[number]] = line
    head = (
        "| rows | levels | ingest, s | all of sampling, s | draws of 4 chains | least ess "
        "| ms an iteration of a chain, two at a time | s an effective draw | distance "
        "| peak, GB |"
    )
    ordered = [lines[key] for key in of_cases if key in lines]
    publish("crossed.md", "crossed", [f"{machine()}.", "", head, "|" + "---|" * 10, *ordered])


if __name__ == "__main__":
    main()
