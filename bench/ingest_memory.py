"""Peak memory and speed of ``ingest`` as the input grows.

Run as ``python bench/ingest_memory.py [folder]``. Writes tables of 10 normal columns and
a binary response to the folder, ingests each in a process of its own with the default
options, and prints a table. Memory is the largest resident set of the process, sampled
every 10 ms, divided into anonymous pages and pages of files (code and mapped input).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

COLUMNS = 10
PIECE = 250_000
CASES = (
    ("Parquet", 1_000_000),
    ("Parquet", 8_000_000),
    ("Parquet", 32_000_000),
    ("Parquet, one row group", 8_000_000),
    ("Arrow IPC, one batch", 8_000_000),
    ("CSV", 1_000_000),
    ("CSV", 8_000_000),
)
COMMAND = "import sys; from streammc import ingest; ingest(*sys.argv[1:], response='y')"


def table(start: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(start)
    columns = {f"x{j}": rng.normal(size=rows).round(6) for j in range(COLUMNS)}
    return pa.table(columns | {"y": rng.integers(0, 2, rows)})


def write(kind: str, rows: int, path: Path) -> None:
    schema = table(0, 1).schema
    if "one" in kind:
        whole = table(0, rows)
        if "Parquet" in kind:
            pq.write_table(whole, path, row_group_size=rows)
        else:
            with pa.ipc.new_file(path, schema) as sink:
                sink.write_batch(whole.to_batches()[0])
        return
    writer = pq.ParquetWriter if "Parquet" in kind else csv.CSVWriter
    with writer(path, schema) as sink:
        for start in range(0, rows, PIECE):
            sink.write_table(table(start, min(PIECE, rows - start)))


def measure(source: Path, store: Path, command: str = COMMAND) -> tuple[float, dict[str, int]]:
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", command, str(source), str(store)])
    peak = {"VmRSS": 0, "RssAnon": 0, "RssFile": 0}
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name in peak:
                peak[name] = max(peak[name], int(value.split()[0]) // 1024)
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.monotonic() - started, peak


def main() -> None:
    given = sys.argv[1] if len(sys.argv) > 1 else None
    folder = Path(tempfile.mkdtemp(dir=given))
    print("| input | rows | input, MB | seconds | peak RSS, MB | anonymous | files |")
    print("|---|---|---|---|---|---|---|")
    try:
        for kind, rows in CASES:
            source, store = folder / "source", folder / "store.zarr"
            write(kind, rows, source)
            seconds, peak = measure(source, store)
            size = source.stat().st_size / 1e6
            print(
                f"| {kind} | {rows:,} | {size:.0f} | {seconds:.1f} | {peak['VmRSS']} "
                f"| {peak['RssAnon']} | {peak['RssFile']} |",
                flush=True,
            )
            source.unlink()
            shutil.rmtree(store)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
