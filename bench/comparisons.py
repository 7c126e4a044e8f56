"""Average comparisons of a large table at every draw, beside one pass of the sampler.

Run as ``python bench/comparisons.py FOLDER [--rows N ...]``: logistic regression on 8 float32
columns and a factor of 20 levels in Parquet (3.7 GB at 1e8 rows, the default), three comparisons in
each level at 4,000 draws. Each command is a process of its own, with its imports; memory is
anonymous, as in ``memory.py``. Beside them a certifying pass of ``smh``, and pyarrow alone. Writes
the table ``comparisons`` into ``docs/how-to/answers.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from memory import measure
from page import machine, publish, short
from scan import COLUMNS, PIECE, seconds_of_reading

LEVELS = 20


def write_table(path: Path, n_rows: int) -> None:
    """Write normal columns, a factor, and a response of a third of ones."""
    rng = np.random.default_rng(1)
    slopes, effects = rng.normal(0.0, 0.3, COLUMNS), rng.normal(0.0, 0.3, LEVELS)
    names = [f"x{j}" for j in range(COLUMNS)]
    kinds = [*((name, pa.float32()) for name in names), ("g", pa.int8()), ("y", pa.uint8())]
    schema = pa.schema(kinds)
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, n_rows, PIECE):
            m = min(PIECE, n_rows - first)
            X = rng.standard_normal((COLUMNS, m), dtype=np.float32)
            g = rng.integers(0, LEVELS, m).astype(np.int8)
            y = (rng.logistic(size=m) < slopes @ X + effects[g] - 0.5).astype(np.uint8)
            columns = [*map(pa.array, X), pa.array(g), pa.array(y)]
            writer.write_table(pa.table(columns, schema=schema))


def row(n_rows: int, path: Path, folder: Path) -> str:
    """Return the row of the table for a number of rows."""
    run = folder / f"comparisons-{n_rows}"
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(COLUMNS)) + " + C(g)"
    if not run.exists():
        measure(
            *("fit", str(path), "-o", str(run), "--formula", formula, "--model", "logistic"),
            *("--sampler", "smh", "--draws", "1000", "--warmup", "500", "--seed", "1", "--quiet"),
        )
    summary = json.loads(measure("diagnose", str(run), "--json").output)
    sampling = summary.get("summary", summary)["sampling"]
    variables = [word for j in range(3) for word in ("--variables", f"x{j}=1")]
    words = ("--by", "g", "--json", "--quiet")
    usage = measure("comparisons", str(run), str(path), *variables, *words)
    found = json.loads(usage.output)["comparisons"]
    worst = max(each["error"] for each in found)
    one_pass = sampling["pass_seconds"] / sampling["passes"]
    return (
        f"| {n_rows:,} | {len(found)} | {short(seconds_of_reading(path))} | {short(one_pass)} "
        f"| {short(usage.seconds)} | {usage.anonymous / 1e6:,.0f} | {short(worst)} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e8])
    options = parser.parse_args()
    lines = []
    for n in map(int, options.rows):
        table = options.folder / f"comparisons-{n}.parquet"
        if not table.exists():
            write_table(table, n)
        lines.append(row(n, table, options.folder))
        print(lines[-1], file=sys.stderr)
    publish(
        "answers.md",
        "comparisons",
        [
            f"{machine()}, shared with other work; 28 columns, 4,000 draws.",
            "",
            "| rows | answers | s, pyarrow alone | s, a pass of the sampler | s, all comparisons "
            "| anonymous memory, MB | largest `error` |",
            "|" + "---|" * 7,
            *lines,
        ],
    )
