"""Seconds and bytes of the draws on the scale of the table, beside those of the sampler.

A run of 2,000 standardised columns, 4 chains and 1,000 draws is appended in 8 intervals, as it is
committed by ``streammc.sample``: with the draws of the sampler alone, with both scales, and with
every coefficient of the table's scale as a variable of its own, as bambi names them. Run
``python bench/table_scale.py [FOLDER]``; it prints a table.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streammc.models.table_scale import COEFFICIENT, ScaleBlock, describe_blocks
from streammc.trace.lock import run_lock
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import Layout, Variable, make_layout

COLUMNS, CHAINS, DRAWS, INTERVAL, STATISTICS = 2000, 4, 1000, 125, 12


def layouts() -> dict[str, Layout]:
    """Return the layouts that are compared, by name."""
    names = ["Intercept", *(f"x{j}" for j in range(1, COLUMNS))]
    labels = [f"beta[{name}]" for name in names]
    rng = np.random.default_rng(0)
    mean = [0.0, *rng.normal(size=COLUMNS - 1)]
    scale = [1.0, *rng.uniform(0.5, 9.0, COLUMNS - 1)]
    attributes: dict[str, Any] = {
        "table_scale": describe_blocks([ScaleBlock(COEFFICIENT, tuple(labels))]),
        "design": {"features": names, "standardization": {"mean": mean, "scale": scale}},
    }
    stats = {f"s{k}": "float64" for k in range(STATISTICS)}
    plain = make_layout(labels, names, CHAINS, INTERVAL, stats)
    both = make_layout(labels, names, CHAINS, INTERVAL, stats, attributes)
    assert both.table is not None
    single = tuple(Variable(name, (j,), None, ()) for j, name in enumerate(names))
    terms = replace(both, table=replace(both.table, variables=single))
    return {"sampler's alone": plain, "both": both, "one variable a term": terms}


def measured(folder: Path, layout: Layout) -> tuple[float, int, int]:
    """Return the seconds to append a run, its bytes and its files."""
    theta = np.random.default_rng(1).normal(size=(CHAINS, INTERVAL, COLUMNS))
    stats = dict.fromkeys(layout.stats, theta[:, :, 0])
    run = RunDirectory.create(folder, identity={}, layout=layout, draws=DRAWS, warmup=0)
    # RunDirectory.lock would read the layout again, and find none of single terms.
    with run_lock(folder), run._watched():
        began = time.perf_counter()
        while not run.finished():
            run.append("draws", theta, stats, ({"x": theta[:, -1]}, {}))
        spent = time.perf_counter() - began
    files = [path for path in folder.rglob("*") if path.is_file()]
    return spent, sum(path.stat().st_size for path in files), len(files)


def main() -> None:
    """Print the table."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("draws                 append s    MB   files")
    for name, layout in layouts().items():
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            spent, size, files = measured(Path(folder) / "run", layout)
        print(f"{name:<20} {spent:9.2f} {size / 1e6:6.0f} {files:7}")


if __name__ == "__main__":
    main()
