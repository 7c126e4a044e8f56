"""Gradient and Hessian of a group's log-likelihood: the identities of Fisher and Louis.

With ``s_q`` the score of the group's rows and effects at node q and ``p_q`` its share,
``grad l = sum_q p_q s_q`` and ``grad^2 l = sum_q p_q (grad^2 at q + s_q s_q') - grad l grad l'``
(Louis 1982). Both are exact for the integral, so that they differ from the derivatives of the
quadrature by its error.
"""

from __future__ import annotations

import math

from numba import types

from streammc.models.mixed.group_rows import (
    BY_COUNTS,
    BY_PRODUCTS,
    BY_SQUARES,
    CARRIER,
    CURVES,
    EXPONENTIAL,
    FACTOR,
    FIRST,
    HIGHEST,
    LEAST_SHARE,
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
    WEIGHT,
    WORK1,
    WORK2,
    directions,
    gaussian_moments,
    gaussian_slopes,
    logistic_failures,
    rows_at,
)
from streammc.numerics.jit import design_view, f8, i8, jit, matrix, vector


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
    """Add a node to the curves of the rows; return its derivatives in ``u``."""
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
