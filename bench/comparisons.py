"""Average comparisons of a large table at every draw, beside one pass of the sampler.

Run as ``python bench/comparisons.py FOLDER [--rows N ...]``: logistic regression on 8 float32
columns and a factor of 20 levels in Parquet (3.7 GB at 1e8 rows, the default), three comparisons in
each level at 4,000 draws. Each command is a process of its own, with its imports; memory is
anonymous, as in ``memory.py``. Beside them a certifying pass of ``smh``, and pyarrow alone. Writes
the table ``comparisons`` into ``docs/how-to/answers.md``.

``--marginaleffects PYTHON``, the interpreter of one with marginaleffects, statsmodels and
pandas: the same comparisons of 1e5 rows there, of the maximum likelihood of a logit.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from memory import measure
from page import machine, publish, short
from scan import COLUMNS, PIECE, seconds_of_reading

LEVELS = 20
FORMULA = "y ~ " + " + ".join(f"x{j}" for j in range(COLUMNS)) + " + C(g)"


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


def fitted_run(n_rows: int, path: Path, folder: Path) -> Path:
    """Return a run on a table, sampled if it is not there."""
    run = folder / f"comparisons-{n_rows}"
    if not run.exists():
        measure(
            *("fit", str(path), "-o", str(run), "--formula", FORMULA, "--model", "logistic"),
            *("--sampler", "smh", "--draws", "1000", "--warmup", "500", "--seed", "1", "--quiet"),
        )
    return run


def variables(values: str = "1") -> list[str]:
    """Return the words of a command that compare three columns."""
    return [word for j in range(3) for word in ("--variables", f"x{j}={values}")]


def row(n_rows: int, path: Path, folder: Path) -> str:
    """Return the row of the table for a number of rows."""
    run = fitted_run(n_rows, path, folder)
    summary = json.loads(measure("diagnose", str(run), "--json").output)
    sampling = summary.get("summary", summary)["sampling"]
    words = ("--by", "g", "--json", "--quiet")
    usage = measure("comparisons", str(run), str(path), *variables(), *words)
    found = json.loads(usage.output)["comparisons"]
    worst = max(each["error"] for each in found)
    one_pass = sampling["pass_seconds"] / sampling["passes"]
    return (
        f"| {n_rows:,} | {len(found)} | {short(seconds_of_reading(path))} | {short(one_pass)} "
        f"| {short(usage.seconds)} | {usage.anonymous / 1e6:,.0f} | {short(worst)} |"
    )


BESIDE = 10**5
OTHER: Final = """
import json, sys
import pandas as pd
import statsmodels.formula.api as smf
from marginaleffects import avg_comparisons
table = pd.read_parquet(sys.argv[1]).astype({"g": str}).astype({"g": "category"})
fitted = smf.logit(sys.argv[2], table).fit(disp=False)
if len(sys.argv) > 3:
    found = avg_comparisons(fitted, variables={f"x{j}": [0, 1] for j in range(3)}, by="g")
    print(json.dumps(found.select("term", "g", "estimate", "std_error").to_dicts()))
"""


def beside(python: str, path: Path, folder: Path) -> list[str]:
    """Return the rows of a table of the same comparisons by marginaleffects and here."""
    run = fitted_run(BESIDE, path, folder)
    words = (*variables("[0,1]"), "--by", "g", "--json", "--quiet")  # a step is centred there
    ours = measure("comparisons", str(run), str(path), *words)
    alone = measure("-c", OTHER, str(path), FORMULA, command=python)
    theirs = measure("-c", OTHER, str(path), FORMULA, "compared", command=python)
    own = {(each["term"], str(each["g"])): each for each in json.loads(ours.output)["comparisons"]}
    apart, wider = [], []
    for each in json.loads(theirs.output):
        same = own[each["term"], each["g"]]
        apart.append(abs(each["estimate"] - same["estimate"]) / each["std_error"])
        wider.append(abs(same["std_error"] / each["std_error"] - 1.0))
    print(f"estimates {max(apart):.2g} standard errors apart, {max(wider):.2g}", file=sys.stderr)
    words = f"the fit alone {short(alone.seconds)} s"
    return [
        f"| streammc, 4,000 draws | {short(ours.seconds)} | {ours.anonymous / 1e6:,.0f} |",
        f"| marginaleffects, delta method ({words}) | {short(theirs.seconds)} "
        f"| {theirs.anonymous / 1e6:,.0f} |",
        "",
        f"The estimates are at most {max(apart):.2g} standard errors apart, and the standard "
        f"errors differ by at most {100.0 * max(wider):.2g} %.",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e8])
    parser.add_argument("--marginaleffects", metavar="PYTHON")
    options = parser.parse_args()

    def table_of(n_rows: int) -> Path:
        path: Path = options.folder / f"comparisons-{n_rows}.parquet"
        if not path.exists():
            write_table(path, n_rows)
        return path

    lines = []
    for n in map(int, options.rows):
        lines.append(row(n, table_of(n), options.folder))
        print(lines[-1], file=sys.stderr)
    if options.marginaleffects:
        found = beside(options.marginaleffects, table_of(BESIDE), options.folder)
        publish(
            "answers.md",
            "marginaleffects",
            [
                f"{machine()}, shared with other work: 60 comparisons of {BESIDE:,} rows of these "
                "columns, imports included.",
                "",
                "| | s | anonymous memory, MB |",
                "|---|---|---|",
                *found,
            ],
        )
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
