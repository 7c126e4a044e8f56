"""A run of ``smh`` with many short reads.

As a program it kills itself: ``python pool_job.py KIND SOURCE RUN WHERE``, with KIND ``store`` or
``table``, which is read in order, and WHERE ``first read``, ``later read`` or ``commit``.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

import pytest

from streammc.models import logistic
from streammc.runs.job import run_job
from streammc.samplers import smh
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.factorised import kernel, pool
from streammc.stores import open_store
from streammc.stores.ingest import ingestion, streamed_table
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.trace.run_directory import RunDirectory

SETTINGS = {"draws": 12_000, "warmup": 300, "chains": 2, "seed": 3}
LATER = 4
"""The sheet from which on a read is a later one: draws are committed by then."""
FORMULA = "y ~ a + b"


def short_sheets(patched: pytest.MonkeyPatch, a_read: int = 1) -> None:
    """Make sheets short, and a read fill this number of each chain."""
    first_read = pool.first_read
    patched.setattr(pool, "_SHEET", 1)
    for module in (pool, kernel):
        patched.setattr(
            module, "first_read", lambda *those: replace(first_read(*those), last=a_read)
        )


def opened(kind: str, source: str, patched: pytest.MonkeyPatch) -> object:
    """Open a store, or a table that has no room in memory, in blocks of a few hundred rows."""
    if kind == "store":
        return open_store(source)
    patched.setattr(ingestion, "available_memory", lambda: 2000)
    patched.setattr(streamed_table, "_BLOCK_BYTES", 2**14)
    return ingestion.rows_of(source, IngestOptions(formula=FORMULA), None, overwrite=False)


def job(dataset: object, path: object, **options: object) -> RunDirectory:
    request = RunRequest(dataset, logistic(), smh(), path=path, **SETTINGS, **options)
    return RunDirectory.open(run_job(request).path)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill(where: str) -> None:
    """End this process in the middle of a read, or after the next commit of draws."""
    if where == "commit":
        append = RunDirectory.append

        def last(run: RunDirectory, phase: str, *those: object) -> None:
            append(run, phase, *those)
            if phase == "draws":
                die()

        RunDirectory.append = last
    else:
        read = pool.PoolTask.map

        def part(task: pool.PoolTask, block: object) -> object:
            if block.start > 0 and (task.first > LATER) == (where == "later read"):
                die()
            return read(task, block)

        pool.PoolTask.map = part


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as context:
        short_sheets(context)
        data = opened(sys.argv[1], sys.argv[2], context)
        kill(sys.argv[4])
        job(data, sys.argv[3], progress=lambda *_: None)  # commits every interval by itself
