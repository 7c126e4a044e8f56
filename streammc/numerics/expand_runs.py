"""Compiled expansion of gathered rows whose factors are codes, see ``coded_matrix``.

A file of its own, so that stores can be made without numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from streammc.numerics.coded_matrix import CodedColumns
from streammc.numerics.jit import i8, index_vector, jit, matrix, record_type

codes_type: Any = types.Array(types.uint16, 2, "C", readonly=True)


@jit(
    i8(matrix, codes_type, index_vector, i8, i8, record_type(CodedColumns), matrix),
    borrow=True,
)
def expand_runs(dense, codes, starts, unit_rows, n_rows, columns, out):  # type: ignore[no-untyped-def]
    """Write runs of rows with all columns into ``out`` (m, q); return the number of wrong codes.

    ``dense`` (m, dense) are the gathered dense columns, ``codes`` (>= n_rows, K) those of all rows.
    Rows outside of the table become zeros.
    """
    wrong = 0
    on, off = columns.on, columns.off
    q = off.shape[0]
    for unit in range(starts.shape[0]):
        for step in range(unit_rows):
            row = starts[unit] + step
            to = unit * unit_rows + step
            if not 0 <= row < n_rows:
                for j in range(q):
                    out[to, j] = 0.0
                continue
            for j in range(q):  # all columns: a loop from 0 is vectorised
                out[to, j] = off[j]
            for j in range(columns.place.shape[0]):
                out[to, columns.place[j]] = dense[to, j]
            for k in range(columns.first.shape[0]):
                code = np.int64(codes[row, k])
                if code > columns.width[k]:
                    wrong += 1
                elif code > 0:
                    at = columns.first[k] + code - 1
                    out[to, at] = on[at]
    return wrong
