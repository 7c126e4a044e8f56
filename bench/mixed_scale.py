"""Mixed models at scale: time and anonymous memory of every command, up to 1e8 rows.

    python bench/mixed_scale.py [FOLDER] [--groups 10000,100000,1000000] [--one-core]
        [--ingest ROWS] [--write]

For each number of groups, with 100 rows of 5 columns in the mean, a logistic regression with a
random intercept goes through ``simulate``, ``summarize``, ``sample`` (2 chains of 1000 draws) and
``effects`` on the command line; with ``--one-core`` once more bound to one core. ``--ingest`` adds
a Parquet file of so many rows in random order, ingested by group. Stores are deleted; a million
groups take 3 GB of disk. ``--write`` puts the table into ``docs/measurements/mixed-models.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from memory import Usage, measure
from page import machine, publish, short

ROWS, DIM, PIECE = 100, 5, 1_000_000
LIMIT = 1000
"""MB of anonymous memory that a command may take."""


class Stage(NamedTuple):
    """What one command took, and what it printed."""

    usage: Usage
    cpu: float
    found: dict[str, Any]


def run(*words: str) -> Stage:
    """Run a command of streammc with ``--json``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage = measure(*words, "--json", "--quiet")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Stage(usage, cpu, json.loads(usage.output))


def line(groups: int, rows: int, name: str, stage: Stage, remark: str = "") -> str:
    """Return a line of the table, and print it."""
    cells = [f"{groups:,}", f"{rows:,}", f"`{name}`", f"{stage.usage.seconds:.1f}"]
    cells += [f"{stage.cpu:.1f}", f"{stage.usage.anonymous / 1e6:.0f}", remark]
    text = f"| {' | '.join(cells)} |"
    print(text, flush=True)
    return text


def sampled(found: dict[str, Any]) -> str:
    """Return what was drawn, and the time of an effective draw of the worst parameter."""
    sampling = found["sampling"]
    worst = min(each["ess_bulk"] for each in found["parameters"].values())
    each = 1e3 * sampling["seconds"] / worst
    audit = "" if found["audit"] is None else ", with audit"
    return f"{sampling['sampler']}, {short(each)} ms an effective draw{audit}"


def case(folder: Path, groups: int, one_core: bool) -> list[str]:
    """Return the lines of one number of groups: with all cores, and then with one."""
    rows = groups * ROWS
    size = ["--rows", str(rows), "--dim", str(DIM), "--groups", str(groups), "--seed", "1"]
    stage = run("simulate", "logistic", str(folder / "s.zarr"), *size)
    lines = [line(groups, rows, "simulate", stage), *job(folder, groups, "")]
    if one_core:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        lines += job(folder, groups, ", one core")
        os.sched_setaffinity(0, cores)
    shutil.rmtree(folder / "s.zarr")
    return lines


def job(folder: Path, groups: int, cores: str) -> list[str]:
    """Return the lines of the commands after ``simulate``."""
    rows = groups * ROWS
    store, kept, made = (str(folder / name) for name in ("s.zarr", "cv.zarr", "run"))
    stage = run("summarize", store, "-o", kept, "--model", "logistic")
    passes = stage.found["certificate"]["passes"]
    spent = stage.found["certificate"]["pass_seconds"]
    lines = [line(groups, rows, "summarize", stage, f"{passes} passes, {spent:.1f} s{cores}")]
    words = ["sample", store, "-o", made, "--control-variates", kept, "--model", "logistic"]
    stage = run(*words, "--draws", "1000", "--chains", "2", "--seed", "1")
    lines.append(line(groups, rows, "sample", stage, sampled(stage.found) + cores))
    stage = run("effects", made, "-o", str(folder / "effects.zarr"))
    lines.append(line(groups, rows, "effects", stage, f"{stage.found['draws']} draws{cores}"))
    for name in ("cv.zarr", "run", "effects.zarr"):
        shutil.rmtree(folder / name)
    return lines


def ingest(folder: Path, rows: int) -> str:
    """Return the line of a Parquet file in random order, ingested by group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups, source = rows // ROWS, folder / "table.parquet"
    names = [f"x{j}" for j in range(1, DIM)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", "int8"), ("g", "int32")])
    with pq.ParquetWriter(source, schema) as sink:
        for start in range(0, rows, PIECE):
            rng, m = np.random.default_rng(start), min(PIECE, rows - start)
            columns = {name: rng.normal(size=m).astype(np.float32) for name in names}
            columns["y"] = rng.integers(0, 2, m).astype(np.int8)
            columns["g"] = rng.integers(0, groups, m).astype(np.int32)
            sink.write_table(pa.table(columns, schema=schema))
    formula = f"y ~ {' + '.join(names)} + (1 | g)"
    stage = run("ingest", str(source), str(folder / "s.zarr"), "--formula", formula, "--seed", "1")
    return line(groups, rows, "ingest", stage, f"Parquet, {source.stat().st_size / 1e6:.0f} MB")


def main() -> int:
    """Measure the cases asked for; return 1 if a command took too much memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--groups", default="10000,100000,1000000")
    parser.add_argument("--one-core", action="store_true")
    parser.add_argument("--ingest", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    head = ["groups", "rows", "command", "seconds", "CPU s", "anonymous, MB", ""]
    lines = [f"{machine()}:", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    print("\n".join(lines), flush=True)
    for groups in map(int, filter(None, options.groups.split(","))):
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            lines += case(Path(place), groups, options.one_core)
    if options.ingest:
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            lines.append(ingest(Path(place), options.ingest))
    if options.write:
        publish("mixed-models.md", "scale", lines)
    over = [each for each in lines[4:] if int(each.split("|")[6]) > LIMIT]
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
