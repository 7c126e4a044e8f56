"""Kill ``append`` at every call that changes the disk, and look at the store that is left.

A program of its own, because it forks. ``python append_kills.py FOLDER [two-renames] [crossed]``
prints one JSON object: kills, and how many of them left the old store, the new one, or none at its
path. With ``crossed`` the store has factors that cross, and the new rows have new levels.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from streammc.errors import MissingError
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import open_store, verify
from streammc.trace import disk

CALLS = ("write", "fsync", "rename", "mkdir", "link", "unlink", "rmdir", "symlink")


def die_at(n, two_renames):
    """Make the ``n``-th call that changes the disk the last; a write is torn in two."""
    count = itertools.count(1)

    def counted(name, call):
        def wrapper(*args, **kwargs):
            if next(count) == n:
                if name == "write":
                    call(args[0], bytes(args[1])[: len(bytes(args[1])) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))
    if two_renames:
        disk._exchange = lambda *_: False
    else:
        disk._exchange = counted("exchange", disk._exchange)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    levels = {name: rng.integers(0, 30 * seed, rows) for name in "ab"}
    return {"x": rng.normal(size=rows), "y": rng.integers(0, 2, rows)} | levels


def main(folder, two_renames, crossed):
    store, kept = folder / "s.zarr", folder / "kept.zarr"
    columns = {"response": "y", "features": ["x"]}
    if crossed:
        columns = {"formula": "y ~ x + (1 | a/b)"}
    ingest(table(5000, 1), kept, **columns, chunk_rows=4096)
    shutil.copytree(kept, store)
    before = open_store(store).fingerprint
    after = append(table(100, 2), store)["fingerprint"]
    left = {"old": 0, "new": 0, "none": 0}
    for n in itertools.count(1):
        for path in folder.iterdir():
            if path != kept:
                shutil.rmtree(path)
        shutil.copytree(kept, store)
        child = os.fork()
        if child == 0:
            die_at(n, two_renames)
            append(table(100, 2), store)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break
        try:
            found = open_store(store).fingerprint
        except MissingError:
            left["none"] += 1
            continue
        assert found in (before, after), found
        assert verify(store)["ok"]
        open_store(store).row_levels()
        left["old" if found == before else "new"] += 1
        if found == before:
            assert append(table(100, 2), store)["fingerprint"] == after
            assert {path.name for path in folder.iterdir()} == {"s.zarr", "kept.zarr"}
    print(json.dumps({"kills": n - 1, **left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "two-renames" in sys.argv, "crossed" in sys.argv)
