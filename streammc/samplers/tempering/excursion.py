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

from streammc.likelihood.contiguous_rows import HELD_TYPE
from streammc.likelihood.density import log_likelihood
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, inline, jit, matrix, vector
from streammc.samplers.common.explorers import EXPLORER_TYPE, TRIAL_TYPE, log_density, refresh
from streammc.samplers.common.ladder import (
    EVALUATED,
    LADDER_TYPE,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
    STALE,
    at_prior,
)
from streammc.samplers.tempering.visits import restart

HOME, AWAY = range(2)
"""Replicas: the state of level 0, and the one that rises and falls."""

UP, DOWN, UP_STEP, DOWN_STEP = range(4)
"""Of every level: acceptance of the inner kernel on either way, and the two terms of ``r``."""
N_MOVES: Final = 4
NOT_VISITED: Final = -1.0


@inline
def _follow(replicas, source, target):  # type: ignore[no-untyped-def]
    """Copy a state and what is known of it; evaluations stay with the replica they were for."""
    for j in range(replicas.z.shape[1]):
        replicas.z[target, j] = replicas.z[source, j]
        replicas.theta[target, j] = replicas.theta[source, j]
        replicas.slope[target, j] = replicas.slope[source, j]
        replicas.prior_slope[target, j] = replicas.prior_slope[source, j]
    for k in (LOG_LIK, LOG_PRIOR, STALE):
        replicas.scalars[target, k] = replicas.scalars[source, k]


@inline
def _change_rows(link, joint, base, full, own, ladder, a, b, replicas, r, order, trial):  # type: ignore[no-untyped-def]
    """Take replica ``r`` from the rows of level ``a`` to those of its neighbour ``b``.

    Where one subset holds the other, the rows between the two are enough.
    """
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
    if b > 0:
        refresh(link, joint, base, own, ladder, b, replicas, r, order, trial.scratch)
    else:
        refresh(link, joint, base, full, ladder, b, replicas, r, order, trial.scratch)


@inline
def _cross(link, joint, base, full, own, ladder, a, b, replicas, r, order, trial):  # type: ignore[no-untyped-def]
    """Return ``log h_b - log h_a`` at replica ``r``, which goes from level ``a`` to ``b``."""
    scalars = replicas.scalars
    before = log_density(ladder, a, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR])
    if ladder.own == 1:
        _change_rows(link, joint, base, full, own, ladder, a, b, replicas, r, order, trial)
    step = log_density(ladder, b, scalars[r, LOG_LIK], scalars[r, LOG_PRIOR]) - before
    return step if step == step else -math.inf


@inline
def _explore(link, joint, explore, base, full, own, ladder, m, replicas, draws, first, n, trial):  # type: ignore[no-untyped-def]
    """Run the kernel of level ``m``; return its mean acceptance, NaN where it diverged."""
    rate = 0.0
    for i in range(first, first + n):
        if ladder.own == 1:
            rate += explore(link, joint, base, own, ladder, m, replicas, AWAY, draws[i], trial)
        else:
            rate += explore(link, joint, base, full, ladder, m, replicas, AWAY, draws[i], trial)
    return rate / n


@jit(
    f8(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, LADDER_TYPE,
        REPLICAS_TYPE, matrix, vector, i8, TRIAL_TYPE, matrix,
    ),
    borrow=True,
)  # fmt: skip
def rise_and_fall(  # type: ignore[no-untyped-def]
    link, joint, explore, base, full, own, ladder, replicas, draws, fresh, order, trial, moves,
):  # fmt: skip
    """Return ``r``, minus infinity where a density is 0; ``v_0`` is then in replica ``AWAY``.

    ``draws`` (2 M k, d + 2) are those of the ``k`` transitions of every visit of a level; where
    level M is the prior, its kernel is one independent draw, ``fresh`` (d,). ``order`` is 1
    where the kernel needs gradients. What happened is written into ``moves`` (4, L): an
    acceptance is NaN where a trajectory diverged; past a density of 0 it is ``NOT_VISITED``, and
    the terms of ``r`` are NaN.
    """
    _follow(replicas, HOME, AWAY)
    top = ladder.beta.shape[0] - 1
    k = draws.shape[0] // (2 * top)
    for m in range(top + 1):
        moves[UP, m] = moves[DOWN, m] = NOT_VISITED
        moves[UP_STEP, m] = moves[DOWN_STEP, m] = math.nan
    ratio = 0.0
    for m in range(1, top + 1):
        step = _cross(link, joint, base, full, own, ladder, m - 1, m, replicas, AWAY, order, trial)
        moves[UP_STEP, m] = step
        if step == -math.inf:
            return -math.inf
        ratio += step
        if at_prior(ladder, m):
            held = own if ladder.own == 1 else full
            restart(link, joint, base, held, ladder, m, replicas, AWAY, fresh, trial.scratch)
            moves[UP, m] = 1.0
            break
        moves[UP, m] = _explore(
            link, joint, explore, base, full, own, ladder, m, replicas, draws, (m - 1) * k, k,
            trial,
        )  # fmt: skip
    for m in range(top, 0, -1):
        if not at_prior(ladder, m):  # a second independent draw would change nothing
            moves[DOWN, m] = _explore(
                link, joint, explore, base, full, own, ladder, m, replicas, draws,
                (2 * top - m) * k, k, trial,
            )  # fmt: skip
        step = _cross(link, joint, base, full, own, ladder, m, m - 1, replicas, AWAY, order, trial)
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
