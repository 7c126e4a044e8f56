"""From a Parquet file to exact draws, without a store, beside the way through a store.

Run as ``python bench/scan.py FOLDER [--rows N ...]``: logistic regression on 8 float32 columns, by
default 1e7 and 1e8 rows, 3.6 GB of Parquet at 1e8 and 4.5 GB for the store, 45 GB at 1e9. 1e9 rows
are ten files of int8 columns by dictionaries, 8 GB: normal numbers times 24, rounded. Each command
is a process of its own, with its imports; memory is anonymous, as in ``memory.py``. Beside them the
time in which pyarrow alone reads the columns, and, where ``PEERS`` is the Python of an environment
with glum, scikit-learn and pyarrow, their maximum of the likelihood of a table in memory. Writes
the table ``scan`` into ``docs/explanation/exact-from-sequential-reads.md``, in which rows of other
sizes and ways stay: ``--only`` and ``--rows`` measure a part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from memory import measure
from numpy.typing import NDArray
from page import DOCS, machine, publish, short

PAGE = "exact-from-sequential-reads.md"
COLUMNS = 8
LARGE = 10**9
PIECE = 10**6
WAYS = ["smh", "auto", "glum", "scikit-learn"]
PEER = """
import sys
import numpy, pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[2])
y = table.column("y").to_numpy()
X = numpy.empty((len(y), table.num_columns - 1), numpy.float32, order="F")
for j in range(X.shape[1]):
    X[:, j] = table.column(j).to_numpy()
del table
if sys.argv[1] == "glum":
    from glum import GeneralizedLinearRegressor
    fitted = GeneralizedLinearRegressor(family="binomial", alpha=0).fit(X, y)
else:
    from sklearn.linear_model import LogisticRegression
    fitted = LogisticRegression(C=numpy.inf, solver="newton-cholesky").fit(X, y)
print(fitted.coef_)
"""
"""The coefficients that a peer finds: a mode, no draws."""
DRAWS = ("--draws", "3000", "--warmup", "500", "--seed", "1", "--quiet", "--json")


def write_table(path: Path, n_rows: int) -> None:
    """Write independent standard normal columns and a response of a third of ones.

    A large table is a folder of ten files.
    """
    slopes = np.random.default_rng(1).normal(0.0, 0.3, COLUMNS)
    if n_rows < LARGE:
        write_file(path, n_rows, slopes, 1, np.float32)
        return
    path.mkdir()
    for number in range(10):
        write_file(path / f"{number}.parquet", n_rows // 10, slopes, 2 + number, np.int8)


def write_file(path: Path, n_rows: int, slopes: NDArray[Any], seed: int, dtype: Any) -> None:
    """Write a file of a table; small integers are the numbers times 24."""
    rng = np.random.default_rng(seed)
    names = [f"x{j}" for j in range(COLUMNS)]
    kind = pa.from_numpy_dtype(dtype)
    schema = pa.schema([*((name, kind) for name in names), ("y", pa.uint8())])
    few = dtype is np.int8  # Parquet has no integers of a byte, but indices of a dictionary
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=few) as writer:
        for first in range(0, n_rows, PIECE):
            m = min(PIECE, n_rows - first)
            X = rng.standard_normal((COLUMNS, m), dtype=np.float32)
            if few:
                X = np.rint(24.0 * X).clip(-127.0, 127.0)
            size = 24.0 if few else 1.0
            y = (rng.logistic(size=m) < slopes @ X / size - 0.5).astype(np.uint8)
            columns = [pa.array(each.astype(dtype)) for each in X]
            writer.write_table(pa.table([*columns, pa.array(y)], schema=schema))


def seconds_of_reading(path: Path) -> float:
    """Return the time in which pyarrow reads all columns, batch by batch."""
    began = time.perf_counter()
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        for _ in pq.ParquetFile(file).iter_batches(batch_size=2**17):
            pass
    return time.perf_counter() - began


def peer_row(name: str, n_rows: int, path: Path) -> str:
    """Return the row of a package that fits a table in memory."""
    usage = measure("-c", PEER, name, str(path), command=os.environ["PEERS"])
    print(usage.output, file=sys.stderr)
    return (
        f"| {n_rows:,} | memory, {name}: a mode | {short(seconds_of_reading(path))} "
        f"| {short(usage.seconds)} | | | {usage.anonymous / 1e6:,.0f} | 0.0 |"
    )


def row(name: str, n_rows: int, path: Path, folder: Path) -> str:
    """Return the row of a table of the page: one way to the draws of a file."""
    run, store = folder / f"{name}-{n_rows}", folder / f"{n_rows}.zarr"
    shutil.rmtree(run, ignore_errors=True)
    formula = ("--formula", "y ~ " + " + ".join(f"x{j}" for j in range(COLUMNS)))
    words = ["fit", str(path), "-o", str(run), *formula, "--model", "logistic", *DRAWS]
    words += ["--sampler", "smh"] if name == "smh" else ["--store", str(store), "--no-audit"]
    usage = measure(*words)
    summary = json.loads(usage.output)
    least = min(each["ess_bulk"] for each in summary["parameters"].values())
    rows = summary["sampling"].get("rows_per_iteration")
    written = store.exists() and sum(f.stat().st_size for f in store.rglob("*") if f.is_file())
    return (
        f"| {n_rows:,} | {'file, `smh`' if name == 'smh' else 'store, `auto`'} "
        f"| {short(seconds_of_reading(path))} | {short(usage.seconds)} | {short(least)} "
        f"| {'' if rows is None else short(rows)} | {usage.anonymous / 1e6:,.0f} "
        f"| {written / 1e9 if name != 'smh' else 0:.1f} |"
    )


def with_others(lines: list[str]) -> list[str]:
    """Return rows of the table by size, with those of other sizes and ways that the page has."""
    _, _, rest = (DOCS / "explanation" / PAGE).read_text().partition("<!-- scan -->")
    before = re.findall(r"^\| [\d,]+ \| .*", rest.partition("<!-- /scan -->")[0], re.M)
    rows = {tuple(line.split(" | ")[:2]): line for line in [*before, *lines]}
    return [rows[key] for key in sorted(rows, key=lambda key: int(re.sub(r"\D", "", key[0])))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e7, 1e8])
    parser.add_argument("--only", nargs="+", default=["smh", "auto"], choices=WAYS)
    options = parser.parse_args()
    lines = []
    for n in map(int, options.rows):
        table = options.folder / f"scan-{n}.parquet"
        if not table.exists():
            write_table(table, n)
        for way in options.only:
            peer = way not in ("smh", "auto")
            lines.append(peer_row(way, n, table) if peer else row(way, n, table, options.folder))
            print(lines[-1], file=sys.stderr)
            shutil.rmtree(options.folder / f"{n}.zarr", ignore_errors=True)
    publish(
        PAGE,
        "scan",
        [
            f"{machine()} at the last call, shared with other work; 4 chains of 3,000 draws; the "
            "seconds include imports, formula, reads and draws.",
            "",
            "| rows | way | s, pyarrow alone | s | least effective draws | rows an iteration "
            "| anonymous memory, MB | written, GB |",
            "|" + "---|" * 8,
            *with_others(lines),
        ],
    )
