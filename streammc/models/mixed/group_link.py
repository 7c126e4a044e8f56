"""Compiled log-likelihood of one group, its random effects integrated out."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import types

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
from streammc.models.mixed.group_derivatives import louis, shared_gradient, times_design
from streammc.models.mixed.group_hessian import louis_of_one
from streammc.models.mixed.group_mode import A1, A2, B1, B2, MODE, V1, V2, find_mode
from streammc.models.mixed.group_nodes import integrate, padded, set_effects
from streammc.models.mixed.group_pairs import choose_path, pairs_gradient
from streammc.models.mixed.group_panels import mode_starts, panel_nodes
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
    collect,
    count_used,
)
from streammc.models.mixed.group_sums import gaussian_facts, poisson_facts
from streammc.numerics.jit import LINK_SIGNATURE, design_view, inline, jit, matrix, vector
from streammc.numerics.marginal_precision import from_precision, to_precision_derivatives

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
