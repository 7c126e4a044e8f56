"""Time of a group's log-likelihood per row, random effects integrated out.

Run from the repository: ``.venv/bin/python -m bench.group_likelihood``. Prints nanoseconds a row
for value (0), gradient (1) and Hessian (2), by rows of a group and nodes per effect; the best of
some repetitions over about 100,000 rows in cache-sized pieces.
"""

from __future__ import annotations

import time

import numba
import numpy as np

from streammc.models.mixed import group_constants
from streammc.models.mixed.group_link import link
from streammc.numerics.jit import i8, matrix, vector

ROWS = 20_000
FEATURES = 5
CASES = [
    ("logistic", group_constants.LOGISTIC, 1, np.zeros(0)),
    ("poisson", group_constants.POISSON, 1, np.zeros(0)),
    ("gaussian", group_constants.GAUSSIAN, 1, np.zeros(0)),
    ("negative binomial", group_constants.NEGATIVE_BINOMIAL, 1, np.zeros(0)),
    ("logistic, slope", group_constants.LOGISTIC, 2, np.zeros(0)),
    ("poisson, slope", group_constants.POISSON, 2, np.zeros(0)),
]


@numba.njit(numba.void(matrix, matrix, vector, vector, i8, i8, matrix), error_model="numpy")
def all_groups(eta, table, y, constants, size, order, out):  # type: ignore[no-untyped-def]
    """Call the link for each group of ``size`` rows of ``table`` (n, q + 2)."""
    for start in range(0, y.shape[0] - size + 1, size):
        stop = start + size
        link(eta, table[start:stop].T, y[start:stop], constants, order, out)


def nanoseconds(kind: int, effects: int, size: int, nodes: int, order: int, repeats: int) -> float:
    """Return the least time of a row."""
    rng = np.random.default_rng(1)
    table = rng.standard_normal((max(ROWS, size), FEATURES + 2))
    table[:, 0] = 1.0
    table[:, -2:] = 0.0, 1.0
    scalars = int(kind in (group_constants.GAUSSIAN, group_constants.NEGATIVE_BINOMIAL))
    group = np.repeat(rng.standard_normal(len(table) // size + 1), size)[: len(table)]
    y = (rng.random(len(table)) < 1.0 / (1.0 + np.exp(-table[:, 1] - group))).astype(np.float64)
    slope = 1 if effects == 2 else -1
    constants = group_constants.group_constants(
        kind, FEATURES, scalars, effects == 2, slope, nodes, np.zeros(0)
    )
    theta = np.array([0.0, 1.0, *[0.0] * (FEATURES - 2), *[0.0] * scalars, 0.1, 0.1, 0.2])
    d = FEATURES + scalars + (3 if effects == 2 else 1)
    eta = np.ascontiguousarray(theta[:d, None])
    out = np.zeros((1 + d + d * (d + 1) // 2, 1))
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        all_groups(eta, table, y, constants, size, order, out)
        best = min(best, time.process_time() - start)
    return 1e9 * best / (len(y) // size * size)


def main() -> None:
    """Print a table for each likelihood."""
    for name, kind, effects, _ in CASES:
        for nodes in (5, 15, 21) if effects == 1 else (7, 9):
            for order in (0, 1, 2):
                figures = [
                    nanoseconds(kind, effects, size, nodes, order, 5)
                    for size in (1, 5, 20, 100, 1000)
                ]
                shown = "".join(f"{each:9.1f}" for each in figures)
                print(f"{name:18s} nodes {nodes:3d} order {order}{shown}", flush=True)


if __name__ == "__main__":
    main()
