"""Commit a run, stores and appended rows, and say so after each; given again, go on.

``python power_writer.py TABLES FOLDER DRAWS [no-fsync]`` writes to FOLDER and prints a line
``run GENERATION`` or ``store NAME FINGERPRINT`` for each commit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trace"))
import example_job as job

from streammc.stores import open_store
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest

EVERY = 10
"""Commits of the run between two of stores."""


def stores(tables: Path, folder: Path, number: int) -> None:
    """Make a store, and append rows to it."""
    path = folder / f"store-{number}"
    if not path.exists():
        ingest(str(tables / "t.csv"), path, response="y", seed=number, chunk_rows=4096)
    elif open_store(path).n_rows > 500:
        return
    print("store", path.name, open_store(path).fingerprint, flush=True)
    append(str(tables / "more.csv"), path, seed=1)
    print("store", path.name, open_store(path).fingerprint, flush=True)


def main(tables: Path, folder: Path, draws: int) -> None:
    def said(run: job.RunDirectory) -> None:
        print("run", run.generation, flush=True)
        if run.generation % EVERY == 0:
            stores(tables, folder, run.generation // EVERY)

    job.sample(folder / "run", draws, said)
    for number in range(1, (draws // job.INTERVAL + 2) // EVERY + 1):
        stores(tables, folder, number)


if __name__ == "__main__":
    if "no-fsync" in sys.argv:
        os.fsync = lambda descriptor: None
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
