"""Certainty rows: a take-all stratum, always evaluated and never sampled."""

from __future__ import annotations

import numpy as np

from streammc.numerics.jit import jit


@jit("void(int64[::1], int64, int64[::1], float64[::1])")
def leave_out(starts, unit_rows, certainty_rows, weight):  # type: ignore[no-untyped-def]
    """Set the weights of gathered rows that are in the sorted ``certainty_rows`` to 0."""
    n = certainty_rows.shape[0]
    if n == 0:
        return
    for u in range(starts.shape[0]):
        position = np.searchsorted(certainty_rows, starts[u])
        for i in range(unit_rows):
            row = starts[u] + i
            while position < n and certainty_rows[position] < row:
                position += 1
            if position < n and certainty_rows[position] == row:
                weight[u * unit_rows + i] = 0.0
