"""Compiled log-likelihood of one group, its random effects integrated out; the link of a table.

Of a table whose rows are groups (:func:`table_link`) a row of the design is ``(first row, number of
rows)`` of a group. The link copies these rows of the table into a buffer, and evaluates the group's
likelihood: all other code, from the full pass to the samplers, sees a likelihood of ``d`` shared
parameters and no coefficients.

Gradient and Hessian are by the identities of Fisher and Louis. With ``s_q`` the score of the
group's rows and effects at node q and ``p_q`` its share, ``grad l = sum_q p_q s_q`` and ``grad^2 l
= sum_q p_q (grad^2 at q + s_q s_q') - grad l grad l'`` (Louis 1982). Both are exact for the
integral, so that they differ from the derivatives of the quadrature by its error.

Arguments ``facts``, ``rows``, ``eta``, ``terms`` and ``nodes`` are those of ``group_rows``, and
``inner`` the constants of the inner link. ``groups`` is the number of group parameters: ``log tau``
of each effect and ``atanh rho``. ``turns`` (9, 2 or more) is what ``directions`` writes: the
derivatives of ``u`` in the group parameters at a node.
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
    CARRIER,
    CURVES,
    EXPONENTIAL,
    FACTOR,
    FACTS,
    FIRST,
    HIGHEST,
    INNER,
    LEAST_SHARE,
    NODE_ROWS,
    NODE_U1,
    NODE_U2,
    NODE_V1,
    NODE_V2,
    PATH,
    PLACE,
    RESPONSE,
    SHARE,
    SLOPES,
    TOTAL,
    TURNS,
    VALUE,
    WEIGHT,
    WORK1,
    WORK2,
    choose_path,
    collect,
    count_used,
    directions,
    gaussian_facts,
    gaussian_moments,
    gaussian_slopes,
    logistic_failures,
    pairs_gradient,
    poisson_facts,
    rows_at,
)
from streammc.numerics.addresses import place, read, read_f4, read_f8, read_i8, read_u2
from streammc.numerics.coded_matrix import CodedColumns
from streammc.numerics.effect_positions import from_precision, to_precision_derivatives
from streammc.numerics.jit import LINK_SIGNATURE, design_view, f8, i8, inline, jit, matrix, vector
from streammc.protocols import Vector


@jit(types.void(i8, vector, matrix, matrix, matrix, vector, matrix, matrix, vector), borrow=True)
def shared_gradient(groups, facts, rows, eta, terms, inner, nodes, turns, out):  # type: ignore[no-untyped-def]
    """Write the slopes of the rows; add the gradient in scalars and group parameters.

    ``out`` (s + groups,), zeros: the inner model's scalars, then the group parameters.
    """
    path, scalars = int(facts[PATH]), eta.shape[0] - 1
    if path == BY_PRODUCTS:
        _by_products(facts, rows, nodes, out)
        return
    rows[SLOPES, :] = 0.0
    mean1 = mean2 = rate = 0.0
    sums = nodes[WORK1]
    for m in range(nodes.shape[1]):
        share = nodes[SHARE, m]
        if not share > LEAST_SHARE:
            continue
        u1, u2 = nodes[NODE_U1, m], nodes[NODE_U2, m]
        pull1 = pull2 = 0.0
        if path == BY_COUNTS:
            relative = math.exp(facts[HIGHEST] + u1)
            rate += share * relative
            pull1 = facts[TOTAL] - math.exp(facts[FIRST + 1] + u1)
        elif path == BY_SQUARES:
            square = gaussian_moments(u1, u2, facts, sums)
            pull1, pull2 = sums[1], sums[2]
            mean1 += share * u1
            mean2 += share * u2
            out[0] += share * (square - facts[FIRST + 1])
        else:
            rows_at(u1, u2, facts, rows, eta, terms, inner, 1)
            for i in range(eta.shape[1]):
                slope = rows[WEIGHT, i] * terms[1, i]
                rows[SLOPES, i] += share * slope
                pull1 += slope
                pull2 += slope * rows[CARRIER, i]
            for k in range(scalars):
                for i in range(eta.shape[1]):
                    out[k] += share * rows[WEIGHT, i] * terms[2 + k, i]
        directions(nodes[NODE_V1, m], nodes[NODE_V2, m], facts, groups, turns)
        for a in range(groups):
            out[scalars + a] += share * (turns[a, 0] * pull1 + turns[a, 1] * pull2)
    if path == BY_COUNTS:
        for i in range(eta.shape[1]):
            expected = rows[EXPONENTIAL, i] * rate
            rows[SLOPES, i] = rows[WEIGHT, i] * (rows[RESPONSE, i] - expected)
    elif path == BY_SQUARES:
        gaussian_slopes(eta[1, 0] if eta.shape[1] else 0.0, mean1, mean2, rows)


@jit(types.void(vector, matrix, matrix, vector), borrow=True)
def _by_products(facts, rows, nodes, out):  # type: ignore[no-untyped-def]
    """Write the slopes of the rows and the derivative in log tau, from factors."""
    slopes, by_node = rows[SLOPES], nodes[WORK1]
    logistic_failures(rows[EXPONENTIAL], nodes[FACTOR], nodes[SHARE], slopes, by_node)
    n = rows.shape[1]
    for i in range(n):
        slopes[i] += rows[RESPONSE, i] - 1.0
    for m in range(nodes.shape[1]):
        if nodes[SHARE, m] > 0.0:
            pull = nodes[SHARE, m] * (facts[TOTAL] - n) + by_node[m]
            out[0] += nodes[NODE_U1, m] * pull


@jit(types.void(design_view, matrix, vector), borrow=True)
def times_design(X, rows, out):  # type: ignore[no-untyped-def]
    """Write ``X' slopes`` into ``out`` (q,)."""
    for j in range(out.shape[0]):
        out[j] = 0.0
    for i in range(rows.shape[1]):
        place, slope = int(rows[PLACE, i]), rows[SLOPES, i]
        for j in range(out.shape[0]):
            out[j] += X[j, place] * slope


@jit(
    types.void(design_view, vector, matrix, matrix, matrix, vector, matrix, matrix, matrix),
    borrow=True,
)
def louis(X, facts, rows, eta, terms, inner, nodes, turns, hessian):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian into ``hessian`` (d + 2, d).

    Its last rows become the score of a node and the gradient.
    """
    d = hessian.shape[1]
    scalars, p, n = eta.shape[0] - 1, eta.shape[0], eta.shape[1]
    groups = rows.shape[0] - CURVES - 1 - scalars
    q = d - scalars - groups
    score, gradient = hessian[d], hessian[d + 1]
    hessian[:, :] = 0.0
    rows[CURVES:, :] = 0.0
    for m in range(nodes.shape[1]):
        share = nodes[SHARE, m]
        if not share > LEAST_SHARE:
            continue
        rows_at(nodes[NODE_U1, m], nodes[NODE_U2, m], facts, rows, eta, terms, inner, 2)
        directions(nodes[NODE_V1, m], nodes[NODE_V2, m], facts, groups, turns)
        pull1, pull2 = _add_curves(share, rows, terms, p, groups, turns)
        for i in range(n):
            rows[SLOPES, i] = rows[WEIGHT, i] * terms[1, i]
        times_design(X, rows, score[:q])
        for k in range(scalars):
            score[q + k] = 0.0
            for i in range(n):
                score[q + k] += rows[WEIGHT, i] * terms[2 + k, i]
        for a in range(groups):
            score[q + scalars + a] = turns[a, 0] * pull1 + turns[a, 1] * pull2
        _shared_block(share, q, p, rows, terms, turns, hessian)
        at = 3
        for a in range(3):
            for b in range(a, 3):
                if b < groups:
                    bend = turns[at, 0] * pull1 + turns[at, 1] * pull2
                    hessian[q + scalars + a, q + scalars + b] += share * bend
                at += 1
        for a in range(d):
            gradient[a] += share * score[a]
            for b in range(a, d):
                hessian[a, b] += share * score[a] * score[b]
    for a in range(d):
        for b in range(a, d):
            hessian[a, b] -= gradient[a] * gradient[b]
    add_wide_blocks(X, rows, hessian, q)


@jit(types.UniTuple(f8, 2)(f8, matrix, matrix, i8, i8, matrix), borrow=True)
def _add_curves(share, rows, terms, p, groups, turns):  # type: ignore[no-untyped-def]
    """Add a node to the curves of the rows; return the derivatives of its ``log f`` in ``u``."""
    pull1 = pull2 = 0.0
    for i in range(rows.shape[1]):
        w, x = rows[WEIGHT, i], rows[CARRIER, i]
        pull1 += w * terms[1, i]
        pull2 += w * terms[1, i] * x
        curve = share * w * terms[1 + p, i]
        rows[CURVES, i] += curve
        for k in range(1, p):
            rows[CURVES + k, i] += share * w * terms[1 + p + k, i]
        for a in range(groups):
            rows[CURVES + p + a, i] += curve * (turns[a, 0] + turns[a, 1] * x)
    return pull1, pull2


@jit(types.void(f8, i8, i8, matrix, matrix, matrix, matrix), borrow=True)
def _shared_block(share, q, p, rows, terms, turns, hessian):  # type: ignore[no-untyped-def]
    """Add a node's second derivatives in scalars and group parameters, linear in ``u``."""
    d, n = hessian.shape[1], rows.shape[1]
    scalars = p - 1
    groups = d - q - scalars
    w11 = w12 = w22 = 0.0
    for i in range(n):
        w, x = rows[WEIGHT, i] * terms[1 + p, i], rows[CARRIER, i]
        w11 += w
        w12 += w * x
        w22 += w * x * x
    for a in range(groups):
        left = turns[a, 0] * w11 + turns[a, 1] * w12
        right = turns[a, 0] * w12 + turns[a, 1] * w22
        for b in range(a, groups):
            add = left * turns[b, 0] + right * turns[b, 1]
            hessian[q + scalars + a, q + scalars + b] += share * add
    at = 1 + 2 * p
    for k in range(scalars):
        k1 = k2 = 0.0
        for i in range(n):
            k1 += rows[WEIGHT, i] * terms[2 + p + k, i]
            k2 += rows[WEIGHT, i] * terms[2 + p + k, i] * rows[CARRIER, i]
        for a in range(groups):
            hessian[q + k, q + scalars + a] += share * (turns[a, 0] * k1 + turns[a, 1] * k2)
        for b in range(k, scalars):
            total = 0.0
            for i in range(n):
                total += rows[WEIGHT, i] * terms[at, i]
            hessian[q + k, q + b] += share * total
            at += 1


@jit(types.void(design_view, matrix, matrix, i8), borrow=True)
def add_wide_blocks(X, rows, hessian, q):  # type: ignore[no-untyped-def]
    """Add the second derivatives in beta and in everything."""
    for i in range(rows.shape[1]):
        place, curve = int(rows[PLACE, i]), rows[CURVES, i]
        for a in range(q):
            x = X[a, place]
            for b in range(a, q):
                hessian[a, b] += curve * x * X[b, place]
            for k in range(1, rows.shape[0] - CURVES):
                hessian[a, q + k - 1] += x * rows[CURVES + k, i]


@jit(types.void(design_view, vector, matrix, matrix, matrix, matrix), borrow=True, reassociate=True)
def louis_of_one(X, facts, rows, nodes, scores, hessian):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian into ``hessian`` (d + 2, d), as ``louis``.

    ``scores`` (d + 1, nodes) is scratch memory: the score of every node, and ``d^2 l / d u^2``.
    """
    d, size = hessian.shape[1], nodes.shape[1]
    share, u = nodes[SHARE], nodes[NODE_U1]
    hessian[:, :] = 0.0
    scores[:, :] = 0.0
    if facts[PATH] == BY_COUNTS:
        _counts(X, facts, rows, nodes, scores)
    else:
        _products(X, rows, nodes, scores)
    pull, bend = scores[d - 1], scores[d]
    gradient = hessian[d + 1]
    for m in range(size):
        if share[m] > 0.0:
            hessian[d - 1, d - 1] += share[m] * u[m] * (u[m] * bend[m] + pull[m])
            pull[m] *= u[m]
        else:
            for a in range(d):
                scores[a, m] = 0.0
    for a in range(d):
        total = 0.0
        for m in range(size):
            total += share[m] * scores[a, m]
        gradient[a] = total
    for a in range(d):
        for m in range(size):  # centred: nothing cancels in their covariance
            scores[a, m] -= gradient[a]
    for a in range(d):
        for b in range(a, d):
            total = 0.0
            for m in range(size):
                total += share[m] * scores[a, m] * scores[b, m]
            hessian[a, b] += total
    add_wide_blocks(X, rows, hessian, d - 1)


@jit(types.void(design_view, matrix, matrix, matrix), borrow=True, reassociate=True)
def _products(X, rows, nodes, scores):  # type: ignore[no-untyped-def]
    """Write the curves of logistic rows and the derivatives of each node."""
    d, size = scores.shape[0] - 1, nodes.shape[1]
    share, u, c = nodes[SHARE], nodes[NODE_U1], nodes[FACTOR]
    slopes, curves = nodes[WORK1], nodes[WORK2]
    pull, bend = scores[d - 1], scores[d]
    for m in range(size):
        if not share[m] > 0.0:
            u[m] = 0.0  # of padding: never NaN
    for i in range(rows.shape[1]):
        e, y = rows[EXPONENTIAL, i], rows[RESPONSE, i]
        curve = cross = 0.0
        for m in range(size):
            failure = 1.0 / (1.0 + e * c[m])
            slopes[m] = y - 1.0 + failure
            curves[m] = failure * failure - failure
            pull[m] += slopes[m]
            bend[m] += curves[m]
            curve += share[m] * curves[m]
            cross += share[m] * u[m] * curves[m]
        rows[CURVES, i] = curve
        rows[CURVES + 1, i] = cross
        place = int(rows[PLACE, i])
        for j in range(d - 1):
            x = X[j, place]
            score = scores[j]
            for m in range(size):
                score[m] += x * slopes[m]


@jit(types.void(design_view, vector, matrix, matrix, matrix), borrow=True)
def _counts(X, facts, rows, nodes, scores):  # type: ignore[no-untyped-def]
    """Write the curves of Poisson rows and the derivatives of each node."""
    d, size = scores.shape[0] - 1, nodes.shape[1]
    share, u, c = nodes[SHARE], nodes[NODE_U1], nodes[FACTOR]
    total = cross = 0.0
    for m in range(size):
        if not share[m] > 0.0:
            c[m] = u[m] = 0.0
            continue
        c[m] = math.exp(facts[HIGHEST] + u[m])
        total += share[m] * c[m]
        cross += share[m] * c[m] * u[m]
        rate = math.exp(facts[FIRST + 1] + u[m])
        scores[d - 1, m] = facts[TOTAL] - rate
        scores[d, m] = -rate
    for i in range(rows.shape[1]):
        rate = rows[WEIGHT, i] * rows[EXPONENTIAL, i]
        rows[CURVES, i] = -rate * total
        rows[CURVES + 1, i] = -rate * cross
        place = int(rows[PLACE, i])
        count = rows[WEIGHT, i] * rows[RESPONSE, i]
        for j in range(d - 1):
            scores[j, 0] += X[j, place] * count
            scores[j, 1] += X[j, place] * rate
    for j in range(d - 1):
        counted, expected = scores[j, 0], scores[j, 1]
        for m in range(size):
            scores[j, m] = counted - c[m] * expected


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
"""Numbers about the table, before the constants of the group's likelihood: 0 number of features;
address and code of the dtype of 1 X, 3 y, 5 offset and 7 weight; numbers of 9 dense columns and 10
factors; addresses of 11 the codes and of the arrays 12 ``place``, 13 ``first``, 14 ``width``, 15
``on`` and 16 ``off`` of ``CodedColumns``."""
_SINGLE: Final = 1
"""Code of float32; see ``numerics.addresses``."""


def table_constants(
    n_features: int,
    arrays: Sequence[NDArray[Any]],
    codes: NDArray[np.uint16] | None = None,
    columns: CodedColumns | None = None,
) -> Vector:
    """Return the (TABLE,) constants of a table, in the order of :data:`TABLE`.

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

    ``constants`` begin with those of :data:`TABLE`. ``rows`` (q + 2, n) gets features, offset and
    weight. A code that stands for no column makes the offset NaN, and with it the likelihood of the
    group.
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
