"""Factors that cross in tables that are hard on them: what a run says, and what it costs.

    python bench/crossed_hostile.py [--write] [--only N ...]

Each table is made, ingested and sampled by a process of its own. ``--write`` puts the table into
docs/measurements/crossed.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crossed import TRUTH, sizes
from page import machine, publish, short


class Case(NamedTuple):
    """A table of users and items, and how long it is sampled."""

    what: str
    levels: Callable[[np.random.Generator], tuple[Any, Any]]
    """Returns the user and the item of each row."""
    family: str = "gaussian"
    draws: int = 150
    warmup: int = 60


def half(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return levels of 2,000,000 rows, half of them of one user."""
    user, item = sizes(20_000, 2_000_000, 0.8, rng), sizes(8_000, 2_000_000, 1.1, rng)
    user[rng.random(2_000_000) < 0.5] = 0
    return user, item


def of_one_row(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return levels of 12,000,000 rows: 10,000,000 users, of whom 8,000,000 have one row."""
    user = np.append(np.arange(10_000_000), rng.integers(0, 2_000_000, 2_000_000))
    return user, rng.integers(0, 1_000, len(user))


def in_parts(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return levels of 20,000 rows in two parts that share no level."""
    user = rng.integers(0, 400, 20_000)
    return user, rng.integers(0, 40, 20_000) + 40 * (user % 2)


def copies(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return levels of 20,000 rows, where each user has an item and each item a user."""
    user = rng.integers(0, 400, 20_000)
    return user, 1_000 + user


def one_level(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return levels of 20,000 rows, all of one item."""
    return rng.integers(0, 400, 20_000), np.zeros(20_000, np.int64)


def near_zero(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return levels of 20,000 rows: of 5 items, so that little is known of their scale."""
    return rng.integers(0, 400, 20_000), rng.integers(0, 5, 20_000)


CASES = [
    Case("half of 2,000,000 rows are of one user", half, "logistic"),
    Case("half of 2,000,000 rows are of one user", half),
    Case("10,000,000 users in 12,000,000 rows, 1,000 items", of_one_row, draws=300),
    Case("two parts that share no level", in_parts, draws=1_000),
    Case("each user has an item of its own", copies),
    Case("one item", one_level),
    Case("five items", near_zero, draws=2_000),
]


def tried(case: Case, folder: Path) -> dict[str, Any]:
    """Make, ingest and sample a table; return what was said, and what it cost."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import streammc

    rng = np.random.default_rng(5)
    user, item = case.levels(rng)
    a = TRUTH["tau[user]"] * rng.normal(size=int(user.max()) + 1)
    b = TRUTH["tau[item]"] * rng.normal(size=int(item.max()) + 1)
    x = rng.normal(size=len(user))
    eta = TRUTH["beta[x]"] * x + a[user] + b[item]
    if case.family == "gaussian":
        y = TRUTH["beta[Intercept]"] + eta + TRUTH["sigma"] * rng.normal(size=len(user))
    else:
        y = (rng.logistic(size=len(user)) < eta).astype(np.uint8)
    pq.write_table(pa.table({"y": y, "x": x, "user": user, "item": item}), folder / "t.parquet")
    del user, item, eta, x, y
    begun = time.perf_counter()
    try:
        streammc.ingest(
            folder / "t.parquet", folder / "t.zarr", formula="y ~ x + (1 | user) + (1 | item)",
            group_as={"user": "crossed", "item": "crossed"},
        )  # fmt: skip
        ingested = time.perf_counter()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tree = streammc.sample(
                streammc.open_store(folder / "t.zarr"), getattr(streammc.models, case.family)(),
                seed=1, chains=4, draws=case.draws, warmup=case.warmup, path=folder / "run.zarr",
            )  # fmt: skip
    except streammc.errors.StreammcError as error:
        return {"said": str(error)}
    from streammc.trace.run_directory import RunDirectory

    table = RunDirectory.open(folder / "run.zarr").attributes["summary"]["parameters"]
    truth = TRUTH if case.family == "gaussian" else TRUTH | {"beta[Intercept]": 0.0}
    away = [(row["mean"] - truth[name]) / row["sd"] for name, row in table.items()]
    del tree
    return {
        "said": "; ".join(dict.fromkeys(str(each.message) for each in said)),
        "ingest": ingested - begun,
        "seconds": time.perf_counter() - ingested,
        "least": min(row["ess_bulk"] for row in table.values()),
        "away": max(map(abs, away)),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def row(case: Case, found: dict[str, Any]) -> str:
    """Return a line of the table."""
    cells = [f"{case.what}, `{case.family}`"]
    if "seconds" in found:
        cells += [short(found[each]) for each in ("ingest", "seconds")]
        cells += [f"{4 * case.draws:,}", short(found["least"]), short(found["away"])]
        cells += [short(found["peak_gb"])]
    else:
        cells += [""] * 6
    return f"| {' | '.join([*cells, found['said'].replace('|', '&#124;')])} |"


def main() -> None:
    """Run the cases, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("--here", type=Path, help="run one case in this folder")
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(tried(CASES[asked.only[0]], asked.here)))
        return
    lines = []
    for number in asked.only:
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            command = [sys.executable, __file__, "--here", folder, "--only", str(number)]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        lines.append(row(CASES[number], json.loads(out.splitlines()[-1])))
        print(lines[-1], flush=True)
    if asked.write:
        head = (
            "| table | ingest, s | all of sampling, s | draws | least ess | distance | peak, GB "
            "| what is said |"
        )
        publish("crossed.md", "hostile", [f"{machine()}.", "", head, "|" + "---|" * 8, *lines])


if __name__ == "__main__":
    main()
