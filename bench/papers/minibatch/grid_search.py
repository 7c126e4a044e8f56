"""The grid search of ``mh-austere`` beside the pairs that the paper says its own found."""

from __future__ import annotations

from typing import Any

from streammc.samplers.metropolis.mh_austere import conservative_pair

SEARCHES = (
    ("mixture, 1,000,000 rows", 1_000_000, 0.005, "–"),
    ("MNIST-13k", 13_007, 0.1, "450, 0.01"),
    ("MNIST-100k", 100_000, 0.2, "300, 0.01"),
)
"""Data, rows, the bound on the error, and the paper's m and epsilon (table 5)."""


def lines() -> list[dict[str, Any]]:
    """Return what is chosen in the worst case, ``mu_std = 0``."""
    found = []
    for data, rows, bound, paper in SEARCHES:
        m, epsilon = conservative_pair(rows, None, None, bound)
        found.append(
            {"data": data, "bound": bound, "chosen": f"{m:g}, {epsilon:g}", "paper": paper}
        )
    return found
