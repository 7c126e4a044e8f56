"""Compiled log-likelihood of one group, its random effects integrated out; the link of a table.

Of a table whose rows are groups (:func:`table_link`) a row of the design is ``(first row, number of
rows)`` of a group. The link copies these rows of the table into a buffer, and evaluates the group's
likelihood: all other code, from the full pass to the samplers, sees a likelihood of ``d`` shared
parameters and no coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.models.mixed.group_constants import (
    CORRELATED,
    EFFECTS,
    FEATURES,
    FIRST_NODE,
    GAUSSIAN,
    KIND,
    LOGISTIC,
    NODES,
    NOISE,
    PANELS,
    POISSON,
    SCALARS,
)
from streammc.models.mixed.group_derivatives import (
    louis,
    louis_of_one,
    shared_gradient,
    times_design,
)
from streammc.models.mixed.group_quadrature import (
    A1,
    A2,
    B1,
    B2,
    MODE,
    V1,
    V2,
    find_mode,
    integrate,
    mode_starts,
    padded,
    panel_nodes,
    set_effects,
)
from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    BY_PAIRS,
    BY_PRODUCTS,
    BY_ROWS,
    BY_SQUARES,
    CURVES,
    FACTS,
    INNER,
    NODE_ROWS,
    PATH,
    TURNS,
    VALUE,
    choose_path,
    collect,
    count_used,
    gaussian_facts,
    pairs_gradient,
    poisson_facts,
)
from streammc.numerics.addresses import place, read, read_f4, read_f8, read_i8, read_u2
from streammc.numerics.coded_matrix import CodedColumns
from streammc.numerics.effect_positions import from_precision, to_precision_derivatives
from streammc.numerics.jit import LINK_SIGNATURE, design_view, inline, jit, matrix, vector
from streammc.protocols import Vector

SMALL: Final = FACTS + MODE + 16
"""Length of the scratch memory of :func:`group_nodes`."""


@inline
def _path(kind, effects):  # type: ignore[no-untyped-def]
    """Return how a group of this likelihood is evaluated."""
    if kind == GAUSSIAN:
        return BY_SQUARES
    if kind != LOGISTIC and kind != POISSON:
        return BY_ROWS
    if effects == 2:
        return BY_PAIRS
    return BY_COUNTS if kind == POISSON else BY_PRODUCTS


@jit(types.void(vector, design_view, vector, vector, matrix, matrix, vector), borrow=True)
def _collect(theta, X, y, constants, rows, predictors, facts):  # type: ignore[no-untyped-def]
    """Write the rows of a group, and what is known of all of them, at ``theta`` (d,)."""
    q, effects = int(constants[FEATURES]), int(constants[EFFECTS])
    for k in range(int(constants[SCALARS])):
        predictors[1 + k, :] = theta[q + k]
    facts[INNER] = constants[KIND]
    facts[PATH] = _path(constants[KIND], effects)
    collect(theta, X, y, constants, rows, facts)
    choose_path(rows, facts)
    if facts[PATH] == BY_SQUARES:
        gaussian_facts(theta[q], rows, facts)
    elif facts[PATH] == BY_COUNTS:
        poisson_facts(rows, facts)
    set_effects(theta, constants, facts)


@jit(matrix(vector, design_view, vector, vector, matrix, matrix, matrix, vector))
def group_nodes(theta, X, y, constants, rows, predictors, terms, small):  # type: ignore[no-untyped-def]
    """Return the nodes of a group at ``theta`` (d,), with their shares; see ``group_rows``.

    ``small`` (SMALL,) is scratch memory that begins with ``facts``, among them the log of the
    integral, ``VALUE``; the others are scratch memory too.
    """
    facts, mode = small[:FACTS], small[FACTS : FACTS + MODE]
    local = small[FACTS + MODE :]
    per_effect = int(constants[NODES])
    inner = constants[FIRST_NODE + 2 * max(per_effect, 0) :]
    _collect(theta, X, y, constants, rows, predictors, facts)
    if per_effect <= PANELS:
        cells = 1 if per_effect < PANELS else 0
        return panel_nodes(cells, facts, rows, predictors, terms, inner, local, mode)
    count = per_effect * per_effect if int(constants[EFFECTS]) == 2 else per_effect
    nodes = np.empty((NODE_ROWS, padded(count)))
    find_mode(0.0, facts, rows, predictors, terms, inner, local, mode)
    facts[VALUE] = integrate(constants, mode, facts, rows, predictors, terms, inner, nodes)
    return nodes


@jit(types.float64(vector, design_view, vector, vector))
def sum_of_modes(theta, X, y, constants):  # type: ignore[no-untyped-def]
    """Return the log of the sum of the integrals around every mode of a group of two effects.

    Arguments are those of :func:`group_nodes`. Modes are those that the search finds from 0 and
    from intercepts at which single rows of a Student t would be best.
    """
    q, p = int(constants[FEATURES]), 1 + int(constants[SCALARS])
    per_effect = int(constants[NODES])
    n = count_used(X, q + 1)
    scratch = np.empty((CURVES + p + 1 + p + p * (p + 1) // 2, n))
    rows, predictors = scratch[:CURVES], scratch[CURVES : CURVES + p]
    terms = scratch[CURVES + p :]
    small, nodes = np.empty(SMALL), np.empty((NODE_ROWS, padded(per_effect * per_effect)))
    facts, mode, local = small[:FACTS], small[FACTS : FACTS + MODE], small[FACTS + MODE :]
    inner = constants[FIRST_NODE + 2 * per_effect :]
    _collect(theta, X, y, constants, rows, predictors, facts)
    starts = mode_starts(facts, rows, predictors)
    found = np.empty((3, len(starts)))
    count = 0
    for start in starts:
        find_mode(start, facts, rows, predictors, terms, inner, local, mode)
        value = integrate(constants, mode, facts, rows, predictors, terms, inner, nodes)
        known = not math.isfinite(value)
        for k in range(count):
            x, z = found[0, k] - mode[V1], found[1, k] - mode[V2]
            turn = mode[A1] * mode[B2] - mode[A2] * mode[B1]
            first = (mode[B2] * x - mode[B1] * z) / turn  # in standard deviations at the mode
            second = (mode[A1] * z - mode[A2] * x) / turn
            known = known or first * first + second * second < 1.0
        if not known:
            found[0, count], found[1, count], found[2, count] = mode[V1], mode[V2], value
            count += 1
    if count == 0:
        return math.nan
    highest = found[2, :count].max()
    return highest + math.log(np.exp(found[2, :count] - highest).sum())


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write a group's log-likelihood ``l_g(theta)`` and its derivatives in theta.

    ``eta`` (d, 1) is theta: coefficients, the inner model's scalars, ``log tau`` per effect and
    ``atanh rho``, or with noise the marginal precision in place of these. ``X`` (q + 2, n) holds
    features, offset and weight of the group's rows. ``out`` (1 + d + d (d + 1) / 2, 1). The nodes
    are placed anew at every theta. Where the integral is not finite its derivatives are NaN.
    """
    d = eta.shape[0]
    q, scalars, effects = int(constants[FEATURES]), int(constants[SCALARS]), int(constants[EFFECTS])
    groups = effects + int(constants[CORRELATED])
    noise = constants[NOISE + 1 : NOISE + 1 + int(constants[NOISE])]
    p = 1 + scalars
    n = count_used(X, q + 1)
    small = np.empty(SMALL + 2 * d + scalars + groups)
    facts = small[:FACTS]
    theta, gradient = small[SMALL : SMALL + d], small[SMALL + d : SMALL + 2 * d]
    shared = small[SMALL + 2 * d :]
    kept = CURVES if order < 2 else CURVES + p + groups
    scratch = np.empty((kept + p + 1 + p + p * (p + 1) // 2, n))  # one allocation, not three
    rows, predictors, terms = scratch[:kept], scratch[kept : kept + p], scratch[kept + p :]
    for j in range(d):
        theta[j] = eta[j, 0]
    from_precision(theta, noise)
    per_effect = int(constants[NODES])
    inner = constants[FIRST_NODE + 2 * max(per_effect, 0) :]
    nodes = group_nodes(theta, X, y, constants, rows, predictors, terms, small[:SMALL])
    turns = nodes[TURNS:]
    out[0, 0] = facts[VALUE]
    if order == 0:
        return
    if not math.isfinite(out[0, 0]):
        out[1:, 0] = math.nan
        return
    if order == 1:
        shared[:] = 0.0
        if facts[PATH] == BY_PAIRS:
            pairs_gradient(groups, per_effect, facts, rows, nodes, turns, shared)
        else:
            shared_gradient(groups, facts, rows, predictors, terms, inner, nodes, turns, shared)
        times_design(X, rows, gradient[:q])
        gradient[q:] = shared
        if noise.shape[0] > 0:
            to_precision_derivatives(theta, noise, gradient, np.empty((0, 0)))
        for j in range(d):
            out[1 + j, 0] = gradient[j]
        return
    hessian = np.empty((d + 2, d))
    if facts[PATH] == BY_PRODUCTS or facts[PATH] == BY_COUNTS:
        scores = np.empty((d + 1, nodes.shape[1]))
        louis_of_one(X, facts, rows, nodes, scores, hessian)
    else:
        louis(X, facts, rows, predictors, terms, inner, nodes, turns, hessian)
    if noise.shape[0] > 0:
        for a in range(d):
            for b in range(a):
                hessian[a, b] = hessian[b, a]
        to_precision_derivatives(theta, noise, hessian[d + 1], hessian[:d])
    at = 1 + d
    for a in range(d):
        out[1 + a, 0] = hessian[d + 1, a]
        for b in range(a, d):
            out[at, 0] = hessian[a, b]
            at += 1


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
def table_link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
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
        link(theta, rows, responses[:n], own, order, found)
        for s in range(used):
            out[s, g] = found[s, 0]
