"""Link of a mixed model whose rows are the groups of a table.

A row of the design is ``(first row, number of rows)`` of a group. The link copies these rows of
the table into a buffer, and evaluates the group's likelihood: all other code, from the full pass
to the samplers, sees a likelihood of ``d`` shared parameters and no coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.models.mixed.group_link import link as group_link
from streammc.numerics.addresses import place, read, read_f4, read_f8, read_i8, read_u2
from streammc.numerics.coded_matrix import CodedColumns
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.protocols import Vector

TABLE: Final = 17
"""Numbers about the table, before the constants of the group's likelihood."""
_SINGLE: Final = 1
"""Code of float32; see ``numerics.addresses``."""


def table_constants(
    n_features: int,
    arrays: Sequence[NDArray[Any]],
    codes: NDArray[np.uint16] | None = None,
    columns: CodedColumns | None = None,
) -> Vector:
    """Return the (TABLE,) constants of a table: its columns, and the places of its arrays.

    Parameters
    ----------
    arrays
        X (n, columns beside codes), y, offset and weight (n,), C-contiguous; empty if absent.
        They must live as long as the constants are used, and so must the others.
    codes, columns
        (n, K) codes of the other columns, and the columns of the design; ``None`` without.
    """
    found = np.zeros(TABLE)
    found[:9] = [n_features, *(number for array in arrays for number in place(array))]
    if codes is not None and columns is not None:
        found[9:11] = len(columns.place), len(columns.first)
        own = (codes, columns.place, columns.first, columns.width, columns.on, columns.off)
        found[11:17] = [place(array)[0] for array in own]
    return found


@inline
def read_group(first, constants, rows, responses):  # type: ignore[no-untyped-def]
    """Copy rows of the table from row ``first`` on, as many as there are ``responses`` (n,).

    ``rows`` (q + 2, n) gets features, offset and weight. A code that stands for no column makes the
    offset NaN, and with it the likelihood of the group.
    """
    q = int(constants[0])
    design, design_code = int(constants[1]), int(constants[2])
    response, response_code = int(constants[3]), int(constants[4])
    offset, offset_code = int(constants[5]), int(constants[6])
    weight, weight_code = int(constants[7]), int(constants[8])
    dense, factors = int(constants[9]), int(constants[10])
    codes, own, firsts = int(constants[11]), int(constants[12]), int(constants[13])
    widths, on, off = int(constants[14]), int(constants[15]), int(constants[16])
    if factors > 0:
        for j in range(q):
            value = read_f8(off, j)
            for i in range(responses.shape[0]):
                rows[j, i] = value
    for i in range(responses.shape[0]):
        row = first + i
        if factors > 0:
            for j in range(dense):
                at = row * dense + j
                value = read_f4(design, at) if design_code == _SINGLE else read_f8(design, at)
                rows[int(read_i8(own, j)), i] = value
        elif design_code == _SINGLE:
            for j in range(q):
                rows[j, i] = read_f4(design, row * q + j)
        else:
            for j in range(q):
                rows[j, i] = read_f8(design, row * q + j)
        rows[q, i] = read_f8(offset, row) if offset_code > 0 else 0.0
        rows[q + 1, i] = read_f8(weight, row) if weight_code > 0 else 1.0
        responses[i] = read(response, response_code, row) if response_code > 0 else 0.0
        for k in range(factors):
            code = int(read_u2(codes, row * factors + k))
            if code > int(read_i8(widths, k)):
                rows[q, i] = math.nan
            elif code > 0:
                at = int(read_i8(firsts, k)) + code - 1
                rows[at, i] = read_f8(on, at)


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log-likelihood of each group and its derivatives; see ``protocols.Model``.

    ``X`` (2, m) holds the first row and the number of rows of each group.
    """
    q = int(constants[0])
    own = constants[TABLE:]
    d, m = eta.shape
    most = 0
    for g in range(m):
        most = max(most, int(X[1, g]))
    buffer = np.empty((q + 2) * most)
    responses = np.empty(most)
    theta = np.empty((d, 1))
    found = np.empty((out.shape[0], 1))
    used = 1 if order == 0 else (1 + d if order == 1 else 1 + d + d * (d + 1) // 2)
    for g in range(m):
        first, n = int(X[0, g]), int(X[1, g])
        rows = buffer[: (q + 2) * n].reshape((q + 2, n))
        read_group(first, constants, rows, responses[:n])
        for a in range(d):
            theta[a, 0] = eta[a, g]
        group_link(theta, rows, responses[:n], own, order, found)
        for s in range(used):
            out[s, g] = found[s, 0]
