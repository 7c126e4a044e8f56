"""A small table and a job on it, for the tests of jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

JOB = """
[source]
files = ["flights.parquet"]

[ingest]
formula = "late ~ distance + C(origin)"

[model]
name = "logistic"

[priors]
distance = "normal(0, 1)"

[sampler]
draws = 50
warmup = 60
chains = 2
seed = 1

[outputs]
store = "work/flights.zarr"
run = "work/run"
predictions = "work/predictions.zarr"
summary = "work/summary.json"
"""


def write_table(path: Path, rows: int = 2000, seed: int = 1) -> None:
    """Write flights: late, distance and origin."""
    rng = np.random.default_rng(seed)
    distance = rng.gamma(2.0, 400.0, rows).round(1)
    origin = rng.choice(["ATL", "ORD", "SEA"], rows)
    eta = -1.0 + 0.0004 * distance + np.where(origin == "ORD", 0.4, 0.0)
    late = (rng.random(rows) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int8)
    table = pa.table({"late": late, "distance": distance, "origin": origin})
    if path.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def write_job(folder: Path, more: str = "", **changes: str) -> Path:
    """Write the table and ``job.toml``, with texts of the job replaced and ``more`` at its end."""
    if not (folder / "flights.parquet").exists():
        write_table(folder / "flights.parquet")
    text = JOB
    for old, new in changes.items():
        text = text.replace(f"{old} = ", f"{old} = {new} #") if new else drop(text, old)
    path = folder / "job.toml"
    path.write_text(text + more)
    return path


def drop(text: str, key: str) -> str:
    """Return a TOML text without the lines of a key."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(f"{key} ="))


@contextmanager
def borrowed(folder: Path, keep: Path) -> Iterator[Path]:
    """Yield a folder that is afterwards as before, with its times; ``keep`` has a copy meanwhile.

    The outputs of a job know their inputs by path, so that tests cannot use the copy.
    """
    shutil.copytree(folder, keep)
    yield folder
    shutil.rmtree(folder)
    shutil.copytree(keep, folder)
    for path in folder.rglob("*"):
        shutil.copystat(keep / path.relative_to(folder), path)


def outcomes(found: Mapping[str, Any]) -> dict[str, str]:
    """Return by stage what a job did, from its summary."""
    return {each["stage"]: each["outcome"] for each in found["stages"]}
