"""How many files a reader enters who follows one call, and how often the call changes file.

Run as ``python bench/walk.py [--list]``. Four calls are followed: ``sample`` in memory and with a
path, ``ingest`` of one Parquet file, a full pass, and ``streammc sample --help``. Each is made once
before, so that what is compiled or imported at a first use does not count. A file is entered when
one of its functions is called; a change of file is a call from one file of streammc into another.
``numerics/dispatchers.py`` is left out: a compiled function is called through it, and the call is
that of the function. ``--list`` prints the files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PLACES = tuple(f"{ROOT / name}{os.sep}" for name in ("streammc", "stores", "cli"))
COMPILED = str(ROOT / "streammc" / "numerics" / "dispatchers.py")


def followed(call: Callable[[], Any]) -> tuple[list[str], int]:
    """Return the files that a call enters, in this order, and its changes of file."""
    files: dict[str, None] = {}
    changes, here = 0, [""]

    def follow(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes
        if event != "call":
            return
        name = os.path.realpath(frame.f_code.co_filename)
        if not name.startswith(PLACES) or name == COMPILED or frame.f_code.co_name == "<module>":
            return
        files.setdefault(name.removeprefix(f"{ROOT}{os.sep}"))
        changes += name != here[0]
        here[0] = name

    call()
    sys.setprofile(follow)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(files), changes


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the calls by name."""
    import pandas as pd

    import streammc
    from streammc.cli.app import run as command
    from streammc.control_variates import compute

    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 3))
    y = (rng.random(20_000) < 1.0 / (1.0 + np.exp(-x[:, 0]))).astype(float)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}).to_parquet(folder / "t.pq")
    store = streammc.from_arrays(x, y)
    model = streammc.models.logistic()
    return {
        "sample(store, model)": lambda: streammc.sample(store, model, seed=1),
        "sample(..., path=)": lambda: streammc.sample(
            store, model, seed=1, path=folder / "run", overwrite=True
        ),
        "ingest of a Parquet file": lambda: streammc.ingest(
            folder / "t.pq", folder / "t.zarr", response="y", overwrite=True
        ),
        "a full pass": lambda: compute(store, model),
        "streammc sample --help": lambda: command(["sample", "--help"]),
    }


def main() -> None:
    """Print a table of the calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    listed = parser.parse_args().list
    warnings.simplefilter("ignore")
    print("| call | files entered | changes of file |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)).items():
            files, changes = followed(call)
            print(f"| `{name}` | {len(files)} | {changes:,} |", flush=True)
            if listed:
                print("\n".join(files))


if __name__ == "__main__":
    main()
