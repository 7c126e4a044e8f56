"""Cost of 1 % more rows: append, update the control variates, sample again.

Run as ``python bench/append.py [--rows 10000000] [--write]``; ``--larger`` adds a table of ten
times the rows, and one of 50 numbers. The first job ingests a Parquet file of a response, eight
numbers and a factor of twelve levels, and samples (logistic, hmc-ecs). The second appends 1 % of
new rows and samples again from the posterior of the first, by two commands and, on a copy of the
store, by one ``streammc run`` of a job whose table grows. Every step is a command of ``streammc``;
both jobs also run on 20,000 rows, first to compile and then to see what does not grow with the
table. Seconds are those of processors, of all threads. The reference is a run on a store of all
rows made anew, on the scale of the first (``--like``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from page import machine, publish, short

COMMAND = str(Path(sys.executable).with_name("streammc"))
MODEL = ["--model", "logistic", "--prior-scale", "10"]
SAMPLE = [*MODEL, "--sampler", "hmc-ecs", "--draws", "1000", "--seed", "1", "--no-audit"]
BATCH = 500_000
NUMBERS = 8
WIDE = 50
SMALL = 20_000
JOB = """
[source]
store = "copy.zarr"
append = ["new-*.parquet"]
[model]
name = "logistic"
prior_scale = 10
[sampler]
name = "hmc-ecs"
draws = 1000
warmup = 300
seed = 1
audit = false
[outputs]
control_variates = "copy.cv.zarr"
run = "run-{generation}"
"""
GOAL = 0.05

Steps = dict[str, tuple[float, float]]
"""Wall and processor seconds by the name of a step."""


def formula(numbers: int) -> str:
    """Return the formula of a table with so many numbers."""
    return "y ~ " + " + ".join(f"x{j}" for j in range(numbers)) + " + C(g)"


def write_table(path: Path, rows: int, seed: int, numbers: int = NUMBERS) -> None:
    """Write a Parquet file of simulated rows."""
    rng = np.random.default_rng(seed)
    beta = np.zeros(numbers)
    beta[:NUMBERS] = 0.5, -0.4, 0.3, -0.2, 0.2, 0.1, -0.1, 0.05
    writer = None
    for first in range(0, rows, BATCH):
        m = min(BATCH, rows - first)
        x = rng.normal(size=(m, numbers))
        level = rng.integers(0, 12, m)
        y = rng.uniform(size=m) < 1 / (1 + np.exp(1.0 - x @ beta - 0.1 * level))
        columns = {"y": y.astype(np.int8), **{f"x{j}": x[:, j] for j in range(numbers)}}
        part = pa.table(columns | {"g": pa.array([f"level {k}" for k in range(12)]).take(level)})
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def run(steps: Steps, name: str, *words: object) -> dict[str, Any]:
    """Run a command, add its seconds under ``name``, and return its JSON."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [COMMAND, *map(str, words), "--json", "--quiet"],
        stdout=subprocess.PIPE,
        check=True,
        # Installed packages have their bytecode.
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    steps[name] = wall, processor
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def both_jobs(
    folder: Path, rows: int, numbers: int = NUMBERS
) -> tuple[Steps, Steps, Steps, dict[str, Any]]:
    """Return the seconds of the first job, of the second by two commands and by one, its summary.

    The summary is that of the two commands.
    """
    first: Steps = {}
    second: Steps = {}
    more = max(rows // 100, 100)
    write_table(folder / "a.parquet", rows, 1, numbers)
    write_table(folder / "b.parquet", more, 2, numbers)
    store = folder / "s.zarr"
    run(first, "ingest", "ingest", folder / "a.parquet", store, "--formula", formula(numbers))
    run(first, "sample", "sample", store, "-o", folder / "first", *SAMPLE, "--warmup", 1000)
    shutil.copytree(store, folder / "copy.zarr", copy_function=os.link)
    run(second, "append", "ingest", "--append", folder / "b.parquet", store)
    start = ["--start-from", folder / "first", "--warmup", 300]
    summary = run(second, "sample", "sample", store, "-o", folder / "second", *SAMPLE, *start)
    (folder / "job.toml").write_text(JOB)
    once: Steps = {}
    run({}, "before", "run", folder / "job.toml")
    os.link(folder / "b.parquet", folder / "new-1.parquet")
    found = run(once, "run job.toml", "run", folder / "job.toml")["run"]
    if found["parameters"] != summary["parameters"]:
        raise SystemExit("one command and two do not have the same draws")
    return first, second, once, summary


def largest_z(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return the largest difference of means and of standard deviations in standard errors."""
    zs = []
    for label, found in ours.items():
        other = theirs[label]
        error = np.hypot(found["mcse_mean"], other["mcse_mean"])
        zs.append(abs(found["mean"] - other["mean"]) / error)
        spread = [each["sd"] / np.sqrt(2 * each["ess_bulk"]) for each in (found, other)]
        zs.append(abs(found["sd"] - other["sd"]) / np.hypot(*spread))
    return float(max(zs))


def processor_seconds(steps: Steps) -> float:
    """Return the processor seconds of all steps."""
    return sum(cpu for _, cpu in steps.values())


def larger_lines(folder: Path, rows: int, already: tuple[Steps, Steps, Steps]) -> list[str]:
    """Return the table of both jobs by the size of the table."""
    lines = [
        "",
        "| rows | numbers | first, processor s | second in one, processor s | share |",
        "|---|---|---|---|---|",
    ]
    sizes = ((rows, NUMBERS), (rows, WIDE), (10 * rows, NUMBERS))
    for k, (n, numbers) in enumerate(sizes):
        part = folder / f"larger-{k}"
        if k:
            part.mkdir()
        jobs = both_jobs(part, n, numbers)[:3] if k else already
        first, once = processor_seconds(jobs[0]), processor_seconds(jobs[2])
        share = f"{100 * once / first:.2g} %"
        lines.append(f"| {n:,} | {numbers} | {short(first)} | {short(once)} | {share} |")
        shutil.rmtree(part, ignore_errors=True)
    return lines


def main() -> None:
    """Measure, print and, if asked, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--larger", action="store_true", help="also ten times the rows, 50 numbers")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        for part in ("compiles", "small", "large"):
            (folder / part).mkdir()
        both_jobs(folder / "compiles", SMALL)
        small = both_jobs(folder / "small", SMALL)
        *large, summary = both_jobs(folder / "large", asked.rows)
        z = z_of_reference(folder / "large", summary)
        shutil.rmtree(folder / "large")
        more = larger_lines(folder, asked.rows, (*large,)) if asked.larger else []
    lines = [f"| step | wall, s | processor, s | of {SMALL:,} rows |", "|---|---|---|---|"]
    totals, fixed = [], []
    jobs = ("first", "second", "second in one")
    for job, steps, before in zip(jobs, large, small[:3], strict=True):
        totals.append(processor_seconds(steps))
        fixed.append(processor_seconds(before))
        for step, (wall, cpu) in steps.items():
            least = short(before[step][1])
            lines.append(f"| {job}: {step} | {short(wall)} | {short(cpu)} | {least} |")
    share, both = totals[2] / totals[0], totals[1] / totals[0]
    growing = (totals[2] - fixed[2]) / (totals[0] - fixed[0])
    verdict = "met" if share < GOAL else "missed"
    lines += more
    lines += [
        "",
        f"{asked.rows:,} rows, then {asked.rows // 100:,} more: the second job in one takes "
        f"{100 * share:.2g} % of the processor time of the first (goal {100 * GOAL:g} %: "
        f"{verdict}), by two commands {100 * both:.2g} %; of what each takes above {SMALL:,} rows, "
        f"{100 * growing:.2g} %. Largest z "
        f"against a run on all rows {short(z)} (limit 4.5). {machine()}.",
    ]
    print("\n".join(lines))
    if z >= 4.5:
        raise SystemExit("the posterior is not that of all rows")
    if asked.write:
        publish("appended-rows.md", "append", lines)


def z_of_reference(folder: Path, summary: dict[str, Any]) -> float:
    """Return the largest z of a summary against a run on a store of all rows made anew."""
    whole: Steps = {}
    tables = folder / "a.parquet", folder / "b.parquet"
    like = ["--like", folder / "s.zarr", "--shuffle"]
    run(whole, "ingest", "ingest", *tables, folder / "w.zarr", *like)
    words = ["sample", folder / "w.zarr", "-o", folder / "w", *SAMPLE, "--warmup", 1000]
    reference = run(whole, "sample", *words)
    return largest_z(summary["parameters"], reference["parameters"])


if __name__ == "__main__":
    main()
