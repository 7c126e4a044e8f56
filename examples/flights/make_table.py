"""Simulate flights and write them to ``flights.parquet`` in a folder, by default this one.

``python make_table.py [FOLDER] [--rows N]``
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ORIGINS = ("ATL", "JFK", "ORD", "SEA", "SFO")
EFFECTS = {"ORD": 0.4, "SFO": 0.2}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--rows", type=int, default=20_000)
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    distance = rng.gamma(2.0, 400.0, asked.rows).round(1)
    hour = rng.uniform(5.0, 23.0, asked.rows).round(2)
    origin = rng.choice(ORIGINS, asked.rows)
    effect = np.array([EFFECTS.get(name, 0.0) for name in ORIGINS])
    eta = -1.2 + 3e-4 * distance + 0.05 * (hour - 14.0) + effect[np.searchsorted(ORIGINS, origin)]
    late = (rng.random(asked.rows) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int8)
    table = pa.table({"late": late, "distance": distance, "hour": hour, "origin": origin})
    pq.write_table(table, asked.folder / "flights.parquet")


if __name__ == "__main__":
    main()
