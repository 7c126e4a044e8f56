"""Peak memory and speed of ``ingest`` with a formula as the input grows.

Run as ``python bench/formula_memory.py [folder]``. The table has a binary response, three
columns of numbers and a factor of 50 levels as text; memory is measured as
``ingest_memory.py`` does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from ingest_memory import measure

from streammc.stores import open_store

PIECE = 250_000
FORMULAS = {
    "factor, splines": "y ~ distance + C(origin) + bs(time, df=10)",
    "interactions": "y ~ C(origin) * distance + cr(time, df=6) + poly(wind, 3)",
}
CASES = (("Parquet", 1_000_000), ("Parquet", 10_000_000), ("CSV", 1_000_000), ("CSV", 10_000_000))
COMMAND = (
    "import sys; from streammc.stores.ingest.ingestion import ingest;"
    "ingest(sys.argv[1], sys.argv[2], formula={formula!r})"
)


def table(start: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(start)
    origins = np.array([f"A{code:02d}" for code in range(50)])
    return pa.table(
        {
            "y": rng.integers(0, 2, rows),
            "distance": rng.gamma(2.0, 300.0, rows).round(3) + 1,
            "time": rng.uniform(0, 24, rows).round(4),
            "wind": rng.normal(10, 3, rows).round(4),
            "origin": origins[rng.integers(0, 50, rows)],
        }
    )


def write(kind: str, rows: int, path: Path) -> None:
    writer = pq.ParquetWriter if kind == "Parquet" else csv.CSVWriter
    with writer(path, table(0, 1).schema) as sink:
        for start in range(0, rows, PIECE):
            sink.write_table(table(start, min(PIECE, rows - start)))


def main() -> None:
    given = sys.argv[1] if len(sys.argv) > 1 else None
    folder = Path(tempfile.mkdtemp(dir=given))
    print("| input | rows | formula | columns | seconds | peak RSS, MB | anonymous |")
    print("|---|---|---|---|---|---|---|")
    try:
        for kind, rows in CASES:
            source, store = folder / "source", folder / "store.zarr"
            write(kind, rows, source)
            for name, formula in FORMULAS.items():
                seconds, peak = measure(source, store, COMMAND.format(formula=formula))
                columns = len(open_store(store).feature_names)
                print(
                    f"| {kind} | {rows:,} | {name} | {columns} | {seconds:.1f} "
                    f"| {peak['VmRSS']} | {peak['RssAnon']} |",
                    flush=True,
                )
                shutil.rmtree(store)
            source.unlink()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
