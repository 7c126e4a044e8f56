"""One small job of ``hmc-ecs`` whose draws must not depend on anything but the seed.

Several units per block, runs of rows with a short last one, certainty rows, an offset,
and a full pass of five blocks. Run as a program it is killed at many instants:
``python small_job.py FOLDER KILLS`` prints one JSON object a kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.job import RunReport, run_job
from streammc.samplers import hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import MemoryStore, Store, StoreWriter, from_arrays, memory, open_store, store
from streammc.trace.run_directory import RunDirectory

ROWS, CHUNK = 20_000, 4096
DRAWS = 400
FEATURES = ["Intercept", "x1", "x2", "heavy"]


@contextmanager
def small_blocks():
    """Make each chunk a block of the full pass; ordinary ones hold a million rows or more."""
    saved = memory.chunks_per_block, store.chunks_per_block
    memory.chunks_per_block = store.chunks_per_block = lambda *_: 1
    try:
        yield
    finally:
        memory.chunks_per_block, store.chunks_per_block = saved


class StopAfter:
    """Stop, seen by the chains in the middle of the interval after ``commits`` commits."""

    def __init__(self, commits):
        self.left = commits

    def progress(self, phase, done, total, facts):
        self.left -= phase in ("warmup", "draws")

    def __call__(self):
        return self.left <= 0


def arrays():
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(ROWS), rng.normal(size=(ROWS, 2)), rng.standard_t(2.5, size=ROWS)]
    X = X.astype(np.float32)
    offset = 0.1 * rng.normal(size=ROWS)
    eta = X @ np.array([-2.0, 0.5, -0.5, 0.4]) + offset
    return X, (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(np.uint8), offset


def in_memory() -> MemoryStore:
    X, y, offset = arrays()
    return from_arrays(X, y, offset=offset, feature_names=FEATURES, chunk_rows=CHUNK)


def mapped(path: Path) -> Store:
    X, y, offset = arrays()
    options = {"features": FEATURES, "y_dtype": "uint8", "offset": True, "chunk_rows": CHUNK}
    with StoreWriter(path, **options) as writer:
        writer.append(X, y, offset=offset)
        writer.commit({"response": "y", "intercept": True})
    return open_store(path)


def sampler(**options):
    fixed = {"subsample_size": 300, "n_blocks": 20, "unit_rows": 3, "order": 1}
    return hmc_ecs(**{**fixed, **options})


def sample(dataset, path, **options) -> RunReport:
    settings = {"draws": DRAWS, "warmup": DRAWS, "chains": 4, "seed": 1, "audit": False}
    settings |= {"sampler": sampler(), **options}
    return run_job(RunRequest(dataset, logistic(prior=normal(scale=10.0)), path=path, **settings))


def in_child(work, commits: int | None = None, pause: float = 0.0) -> bool:
    """Run ``work(progress)`` in a child, killed a pause after a commit; return whether it was."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(receiver)
            work(lambda phase, *_: phase in ("warmup", "draws") and os.write(sender, b"."))
            status = 0
        finally:
            os._exit(status)
    os.close(sender)
    with os.fdopen(receiver, "rb", buffering=0) as reports:
        if commits is not None and (not commits or len(reports.read(1)) == 1):
            for _ in range(commits - 1):
                reports.read(1)
            time.sleep(pause)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return status != 0


def main(folder: Path, kills: int) -> None:
    # A killed process loses nothing that it has written: only a power cut needs fsync.
    os.fsync = lambda descriptor: None
    dataset = open_store(folder / "store")
    for warm in range(2):
        whole = folder / f"whole-{warm}"
        started = time.monotonic()
        assert not in_child(lambda progress, path=whole: sample(dataset, path, progress=progress))
        seconds = time.monotonic() - started
    intervals = RunDirectory.open(whole).generation  # of which every second has a kill
    for kill in range(kills):
        path = folder / f"killed-{kill}"
        # Where in the interval: multiples of the golden ratio spread evenly. The first
        # kills fall between start and first commit.
        pause = seconds / intervals * (0.618 * kill % 1.0)
        commits = max(0, 2 * (kill - kills) + intervals + 1)
        if not commits:
            pause = seconds * (kill + 0.5) / (kills - intervals // 2) / 2
        work = lambda progress, path=path: sample(dataset, path, progress=progress)  # noqa: E731
        killed = in_child(work, commits, pause)
        left = [0, 0]
        if RunDirectory.exists(path):
            run = RunDirectory.open(path)
            left = [run.committed_warmup, run.committed_draws]
        assert not in_child(work)
        run = RunDirectory.open(path)
        assert "summary" in run.attributes
        line = {"killed": killed, "left": left, "digest": run.digest()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    with small_blocks():
        main(Path(sys.argv[1]), int(sys.argv[2]))
