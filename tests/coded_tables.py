"""Tables with factors of many levels, and the data sets made of them with and without codes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa

from streammc.stores.ingest.ingestion import from_table

FORMULA = "late ~ x + C(tail) + z + C(day) + x:C(hub)"
NEVER = 4096
"""``codes_above`` that leaves every factor as columns."""


def table(n: int = 3000, tails: int = 90, days: int = 70, seed: int = 1) -> pa.Table:
    """Return late, x, z, tail (text), day (integers) and hub (text, 3 levels)."""
    rng = np.random.default_rng(seed)
    tail = np.concatenate([np.arange(tails), rng.integers(0, tails, n - tails)])
    day = np.concatenate([np.arange(days), rng.integers(0, days, n - days)])
    rng.shuffle(tail)
    rng.shuffle(day)
    x = rng.normal(size=n)
    eta = 0.5 * x + rng.normal(size=tails)[tail] + 0.5 * rng.normal(size=days)[day] - 0.5
    return pa.table(
        {
            "late": (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int64),
            "x": x,
            "z": rng.gamma(2.0, 300.0, n),
            "tail": [f"N{k:03d}" for k in tail],
            "day": day,
            "hub": rng.choice(["ABE", "JFK", "ORD"], n),
            "w": rng.integers(0, 3, n),
        }
    )


def made(source: Any, formula: str = FORMULA, **options: Any) -> Any:
    """Return the data set of a table, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return from_table(source, formula=formula, **options)


def pair(formula: str = FORMULA, above: int = 64, n: int = 3000, **options: Any) -> tuple[Any, Any]:
    """Return the same table as a data set of dense columns, and as one with codes."""
    source = table(n)
    dense = made(source, formula, codes_above=NEVER, **options)
    return dense, made(source, formula, codes_above=above, **options)
