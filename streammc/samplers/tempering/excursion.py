"""A tempered transition: up through the levels and down again, then one decision.

From ``u_0``, the state of level 0, the kernel of level m makes ``u_m`` of ``u_{m-1}`` for
m = 1, ..., M, and then ``v_{m-1}`` of ``v_m`` for m = M, ..., 1, with ``v_M = u_M``: that of
level M runs twice in a row, and none targets level 0. With reversible kernels ``v_0`` is
accepted with probability ``min(1, exp(r))``,

    r = sum_m log h_m(u_{m-1}) - log h_{m-1}(u_{m-1}) + log h_{m-1}(v_{m-1}) - log h_m(v_{m-1})

(Neal 1996, eq. 8; van de Meent et al. 2014, eq. 3). Level m appears in it as the exchange of
``u_{m-1}`` and ``v_{m-1}`` between the levels m - 1 and m would.
"""

from __future__ import annotations

import math
from typing import Final

from streammc.likelihood.density import log_likelihood
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, inline, jit, matrix, vector
from streammc.samplers.common.explorers import EXPLORER_TYPE, log_density, refresh
from streammc.samplers.common.ladder import (
    EVALUATED,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
    STALE,
    at_prior,
)
from streammc.samplers.tempering.ensemble import ENSEMBLE_TYPE, rows_of
from streammc.samplers.tempering.visits import restart

HOME, AWAY = range(2)
"""Replicas: the state of level 0, and the one that rises and falls."""

UP, DOWN, UP_STEP, DOWN_STEP = range(4)
"""Moves of a level: acceptance of the inner kernel on either way, and the two terms of ``r``."""
N_MOVES: Final = 4
NOT_VISITED: Final = -1.0


@inline
def _follow(replicas, source, target):  # type: ignore[no-untyped-def]
    """Copy a state with its densities and gradients; counts of evaluations stay as they are."""
    for j in range(replicas.z.shape[1]):
        replicas.z[target, j] = replicas.z[source, j]
        replicas.theta[target, j] = replicas.theta[source, j]
        replicas.slope[target, j] = replicas.slope[source, j]
        replicas.prior_slope[target, j] = replicas.prior_slope[source, j]
    for k in (LOG_LIK, LOG_PRIOR, STALE):
        replicas.scalars[target, k] = replicas.scalars[source, k]


@inline
def _change_rows(link, joint, ensemble, a, b, r, order):  # type: ignore[no-untyped-def]
    """Take replica ``r`` from the rows of level ``a`` to those of its neighbour ``b``.

    Where one subset holds the other, the rows between the two are enough.
    """
    base, own, ladder, replicas, trial = (
        ensemble.base, ensemble.own, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    scalars = replicas.scalars
    nested = min(a, b) > 0 and ladder.lo[a] == ladder.lo[b] and own.joint == 0
    lo, hi = min(ladder.hi[a], ladder.hi[b]), max(ladder.hi[a], ladder.hi[b])
    if nested and scalars[r, STALE] == 0.0 and hi - lo < ladder.hi[b]:
        rest = log_likelihood(
            link, joint, base, own, lo, hi, replicas.theta[r], order, trial.slope, trial.scratch
        )
        scalars[r, EVALUATED] += hi - lo
        sign = 1.0 if b < a else -1.0
        changed = scalars[r, LOG_LIK] + sign * rest
        if math.isfinite(changed):
            scalars[r, LOG_LIK] = changed
            if order >= 1:
                for j in range(replicas.z.shape[1]):
                    replicas.slope[r, j] += sign * trial.slope[j]
            return
    scalars[r, STALE] = 1.0
    held = rows_of(ensemble, b)
    refresh(link, joint, base, held, ladder, b, replicas, r, order, trial.scratch)


@inline
def _cross(link, joint, ensemble, a, b, r, order):  # type: ignore[no-untyped-def]
    """Return ``log h_b - log h_a`` at replica ``r``, which goes from level ``a`` to ``b``."""
    ladder, scalars = ensemble.ladder, ensemble.replicas.scalars
    before = log_density(ladder, a, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR])
    if ladder.own == 1:
        _change_rows(link, joint, ensemble, a, b, r, order)
    step = log_density(ladder, b, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR]) - before
    return step if step == step else -math.inf


@inline
def _explore(link, joint, explore, ensemble, m, draws, first, n):  # type: ignore[no-untyped-def]
    """Run the kernel of level ``m``; return its mean acceptance, NaN where it diverged."""
    base, ladder, replicas, trial = (
        ensemble.base, ensemble.ladder, ensemble.replicas, ensemble.trial,
    )  # fmt: skip
    held = rows_of(ensemble, m)
    rate = 0.0
    for i in range(first, first + n):
        rate += explore(link, joint, base, held, ladder, m, replicas, AWAY, draws[i], trial)
    return rate / n


@inline
def _not_visited(moves):  # type: ignore[no-untyped-def]
    """Forget the moves of the last transition."""
    for m in range(moves.shape[1]):
        moves[UP, m] = moves[DOWN, m] = NOT_VISITED
        moves[UP_STEP, m] = moves[DOWN_STEP, m] = math.nan


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, ENSEMBLE_TYPE, matrix, vector, i8, matrix
    ),
    borrow=True,
)  # fmt: skip
def rise_and_fall(link, joint, explore, ensemble, draws, fresh, order, moves):  # type: ignore[no-untyped-def]
    """Return ``r``, minus infinity where a density is 0; ``v_0`` is then in replica ``AWAY``.

    ``draws`` (2 M k, d + 2) are those of the ``k`` transitions of every visit of a level; where
    level M is the prior, its kernel is one independent draw, ``fresh`` (d,). ``order`` is 1
    where the kernel needs gradients. Acceptances and terms of ``r`` are written into ``moves``
    (4, L): an acceptance is NaN where a trajectory diverged; past a density of 0 it is
    ``NOT_VISITED``, and the terms of ``r`` are NaN.
    """
    ladder, replicas = ensemble.ladder, ensemble.replicas
    _follow(replicas, HOME, AWAY)
    _not_visited(moves)
    top = ladder.beta.shape[0] - 1
    k = draws.shape[0] // (2 * top)
    ratio = 0.0
    for m in range(1, top + 1):
        step = _cross(link, joint, ensemble, m - 1, m, AWAY, order)
        moves[UP_STEP, m] = step
        if step == -math.inf:
            return -math.inf
        ratio += step
        if at_prior(ladder, m):
            restart(
                link, joint, ensemble.base, rows_of(ensemble, m), ladder, m, replicas, AWAY, fresh,
                ensemble.trial.scratch,
            )  # fmt: skip
            moves[UP, m] = 1.0
            break
        moves[UP, m] = _explore(link, joint, explore, ensemble, m, draws, (m - 1) * k, k)
    for m in range(top, 0, -1):
        if not at_prior(ladder, m):  # a second independent draw would change nothing
            first = (2 * top - m) * k
            moves[DOWN, m] = _explore(link, joint, explore, ensemble, m, draws, first, k)
        step = _cross(link, joint, ensemble, m, m - 1, AWAY, order)
        moves[DOWN_STEP, m] = step
        if step == -math.inf:
            return -math.inf
        ratio += step
    return ratio


@jit(i8(REPLICAS_TYPE, f8, f8), borrow=True)
def decide(replicas, ratio, uniform):  # type: ignore[no-untyped-def]
    """Accept the descending state where ``log uniform <= ratio``, ``uniform`` in (0, 1]."""
    if not math.log(uniform) <= ratio:
        return 0
    _follow(replicas, AWAY, HOME)
    return 1
