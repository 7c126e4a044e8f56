"""Rows of one group in scratch memory, and the inner likelihood's link on them.

Scratch memory: ``rows`` (7 + c, n) with the rows named below, ``eta`` (p, n) and ``terms``
(1 + p + p (p + 1) / 2, n) for the inner link, ``facts`` (32,) with numbers of the whole group.
"""

from __future__ import annotations

from typing import Final

from numba import types

from streammc.models.glm import (
    bernoulli_logit,
    bernoulli_probit,
    binomial_logit,
    gamma_log,
    gaussian_identity,
    negative_binomial_log,
    poisson_log,
    student_t_identity,
)
from streammc.models.mixed.group_constants import (
    BINOMIAL,
    FEATURES,
    GAMMA,
    GAUSSIAN,
    KIND,
    LOGISTIC,
    NEGATIVE_BINOMIAL,
    POISSON,
    PROBIT,
    SLOPE,
    STUDENT_T,
    STUDENT_T_FIXED,
)
from streammc.numerics.jit import design_view, f8, i8, jit, matrix, vector
from streammc.numerics.special import exp

PREDICTOR: Final = 0
"""``x_i . beta + offset_i``."""
WEIGHT: Final = 1
RESPONSE: Final = 2
CARRIER: Final = 3
"""Column of the slope; zeros without one."""
PLACE: Final = 4
"""Column of the row in the design: rows of weight 0 are left out."""
EXPONENTIAL: Final = 5
"""``exp`` of the predictor, less its maximum for counts; logistic and Poisson."""
SLOPES: Final = 6
"""``w_i E[d log f_i / d eta_i]``: its product with the design is the gradient in beta."""
CURVES: Final = 7
"""From here on, as ``SLOPES``, those of the columns of the Hessian."""

# facts: of the rows ...
HIGHEST: Final = 0
"""Largest predictor."""
LOWEST: Final = 1
ONES: Final = 2
"""1 where all weights are 1."""
TOTAL: Final = 3
"""``sum w y``."""
FIRST: Final = 4
"""First of up to eight sums over the rows, see ``group_sums``."""
PATH: Final = 12
"""How the group is evaluated: one of the following."""
INNER: Final = 13
"""Inner likelihood, as ``group_constants.KIND``."""
# ... and of the group effects.
TAU1: Final = 14
TAU2: Final = 15
RHO: Final = 16
KAPPA: Final = 17
"""``sqrt(1 - rho^2)``."""
FARTHEST: Final = 18
"""Largest absolute value of the slope's column."""
VALUE: Final = 19
"""Log of the integral over the effects."""
FACTS: Final = 20

BY_ROWS: Final = 0
"""By the inner model's link."""
BY_PRODUCTS: Final = 1
"""Logistic, an intercept, no weights: from ``exp`` of the predictors."""
BY_COUNTS: Final = 2
"""Poisson, an intercept: from sums over the rows."""
BY_SQUARES: Final = 3
"""Gaussian: from sums over the rows."""
BY_PAIRS: Final = 4
"""Logistic and Poisson with intercept and slope: ``exp`` of predictor and slope."""

# nodes (NODE_ROWS, count, padded): a column per node.
NODE_V1: Final = 0
NODE_V2: Final = 1
NODE_U1: Final = 2
NODE_U2: Final = 3
LOG_TERM: Final = 4
"""Log of the node's term of the sum, ``-inf`` for padding."""
SHARE: Final = 5
"""Its share of the sum: the posterior weight of the node."""
FACTOR: Final = 6
"""``exp(u)``; 0 for padding."""
WORK1: Final = 7
WORK2: Final = 8
TURNS: Final = 9
"""From here on scratch memory of :func:`directions`."""
NODE_ROWS: Final = 18
LEAST_SHARE: Final = 1e-25
"""Nodes below it are left out of derivatives."""


@jit(types.void(i8, matrix, design_view, vector, vector, i8, matrix), borrow=True)
def inner_link(kind, eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Call the link of the inner likelihood ``kind``; see ``protocols.Model.link``."""
    if kind == LOGISTIC:
        bernoulli_logit.link(eta, X, y, constants, order, out)
    elif kind == POISSON:
        poisson_log.link(eta, X, y, constants, order, out)
    elif kind == NEGATIVE_BINOMIAL:
        negative_binomial_log.link(eta, X, y, constants, order, out)
    elif kind == BINOMIAL:
        binomial_logit.link(eta, X, y, constants, order, out)
    elif kind == PROBIT:
        bernoulli_probit.link(eta, X, y, constants, order, out)
    elif kind == GAMMA:
        gamma_log.link(eta, X, y, constants, order, out)
    elif kind == STUDENT_T:
        student_t_identity.link_sampled(eta, X, y, constants, order, out)
    elif kind == STUDENT_T_FIXED:
        student_t_identity.link_fixed(eta, X, y, constants, order, out)
    elif kind == GAUSSIAN:
        gaussian_identity.link(eta, X, y, constants, order, out)


@jit(i8(design_view, i8), borrow=True)
def count_used(X, row):  # type: ignore[no-untyped-def]
    """Return how many entries of a row of ``X`` are not 0; NaN counts."""
    n = 0
    for i in range(X.shape[1]):
        if X[row, i] != 0.0:
            n += 1
    return n


@jit(types.void(vector, design_view, vector, vector, matrix, vector), borrow=True)
def collect(theta, X, y, constants, rows, facts):  # type: ignore[no-untyped-def]
    """Write the rows of nonzero weight into ``rows``, and their extremes into ``facts``."""
    q = int(constants[FEATURES])
    slope = int(constants[SLOPE])
    highest = -1e308
    lowest = 1e308
    ones = 1.0
    total = 0.0
    n = 0
    for i in range(X.shape[1]):
        weight = X[q + 1, i]
        if weight == 0.0:
            continue
        predictor = X[q, i]
        for j in range(q):
            predictor += X[j, i] * theta[j]
        rows[PREDICTOR, n] = predictor
        rows[WEIGHT, n] = weight
        rows[RESPONSE, n] = y[i]
        rows[CARRIER, n] = X[slope, i] if slope >= 0 else 0.0
        rows[PLACE, n] = i
        # Both comparisons are false for NaN, which the sums below keep.
        highest = predictor if predictor > highest else highest
        lowest = predictor if predictor < lowest else lowest
        if weight != 1.0:
            ones = 0.0
        total += weight * y[i]
        n += 1
    facts[HIGHEST] = highest
    facts[LOWEST] = lowest
    facts[ONES] = ones
    facts[TOTAL] = total
    if constants[KIND] in (LOGISTIC, POISSON):
        shift = highest if constants[KIND] == POISSON else 0.0
        for i in range(n):
            rows[EXPONENTIAL, i] = exp(rows[PREDICTOR, i] - shift)


@jit(f8(f8, f8, vector, matrix, matrix, matrix, vector, i8), borrow=True)
def rows_at(u1, u2, facts, rows, eta, terms, inner, order):  # type: ignore[no-untyped-def]
    """Evaluate the rows at group effects ``u``; return their log-likelihood.

    ``terms`` holds the terms of each row and their derivatives, without weights; ``inner``
    are the constants of the inner link.
    """
    for i in range(eta.shape[1]):
        eta[0, i] = rows[PREDICTOR, i] + u1 + u2 * rows[CARRIER, i]
    inner_link(int(facts[INNER]), eta, rows, rows[RESPONSE], inner, order, terms)
    value = 0.0
    for i in range(eta.shape[1]):
        value += rows[WEIGHT, i] * terms[0, i]
    return value
