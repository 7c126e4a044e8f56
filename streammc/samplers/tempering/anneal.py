"""First positions of a ladder that ends at the prior: one draw of it, brought down to level 0.

Every chain anneals a draw of its own, so that chains start as far apart as the prior says and
end up in whatever mode its draw leads to: R-hat sees modes between which nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from streammc.protocols import Matrix, Vector
from streammc.samplers.common import tuning
from streammc.samplers.common.explorers import Trial, refresh
from streammc.samplers.common.ladder import LOG_LIK, LOG_PRIOR, Ladder, allocate_replicas, geometric
from streammc.samplers.tempering.ensemble import Ensemble
from streammc.samplers.tempering.options import STEPS
from streammc.samplers.tempering.shared import TemperedProblem
from streammc.samplers.tempering.visits import explore_level, restart

TRANSITIONS: Final = 25
"""Transitions of the inner kernel at every level on the way down."""
LEAST_LEVELS: Final = 13
"""Every level is colder by a factor of at most 3, from 1e-6 on."""
TRIES: Final = 100


class Annealed(NamedTuple):
    """Positions and step sizes of a draw from the prior on its way down to level 0."""

    beta: Vector
    """(A,) falling from 1 to 0."""
    z: Matrix
    """(A, d) positions after the transitions at every level."""
    step: Vector
    """(A,) tuned step sizes; that of the prior is not used."""

    def nearest(self, beta: float) -> int:
        """Return the level whose inverse temperature is nearest to ``beta``."""
        if beta == 0.0:
            return len(self.beta) - 1
        return int(np.argmin(np.abs(np.log(self.beta[:-1] / beta))))


def powers(problem: TemperedProblem, beta: Vector, step: float) -> Ladder:
    """Return levels that all have all rows, and a power of the likelihood."""
    options, n = problem.options, len(problem.full.y)
    ones, zeros = np.ones(len(beta)), np.zeros(len(beta), dtype=np.int64)
    return Ladder(
        beta.copy(), beta.copy(), ones.copy(), zeros.copy(), zeros + n, ones * step,
        options.n_steps or STEPS, options.jitter, 0,
    )  # fmt: skip


def anneal(
    problem: TemperedProblem,
    trial: Trial,
    step: float,
    fresh: Callable[[int], Matrix],
    numbers: Callable[[int, int], np.ndarray[Any, Any]],
) -> Annealed | None:
    """Return the way of a draw from the prior down to level 0; ``None`` if it finds none.

    ``step`` is that of a first level 0, ``fresh(n)`` returns draws (n, d) from the prior and
    ``numbers(n, transitions)`` random numbers of the inner kernel.
    """
    options = problem.options
    beta = geometric(max(options.n_levels or 0, LEAST_LEVELS), 0.0)
    ladder = powers(problem, beta, step)
    replicas, nothing = allocate_replicas(1, problem.dim), np.zeros(problem.dim)
    z = np.zeros((len(beta), problem.dim))
    hot = len(beta) - 1
    shared = (problem.link, problem.joint, problem.base, problem.full, ladder)
    for _ in range(TRIES):
        restart(*shared, hot, replicas, 0, fresh(1)[0], trial.scratch)
        refresh(*shared, hot, replicas, 0, 1, trial.scratch)
        if _finite(replicas):
            break
    else:
        return None
    z[hot] = replicas.z[0]
    draws = numbers(hot, TRANSITIONS)
    wide = float(max(beta[-2], 1.0 / max(len(problem.full.y), 1)))
    first = step * wide**-0.5
    for m in range(hot - 1, -1, -1):
        adapt = np.array([tuning.start(first, reference=False)] * len(beta))
        ladder.step[m] = first if options.step_size is None else step * max(beta[m], wide) ** -0.5
        target = problem.target_acceptance if options.step_size is None else 0.0
        ensemble = Ensemble(
            problem.base, problem.full, problem.full, ladder, replicas, trial, adapt
        )
        explore_level(
            problem.link, problem.joint, problem.explore, ensemble, 0, m, draws[m], nothing, target
        )
        if target:
            ladder.step[m] = np.exp(adapt[m, tuning.LOG_AVERAGE])
        z[m] = replicas.z[0]
        if m:
            first = float(ladder.step[m] * np.sqrt(beta[m] / beta[m - 1]))
    refresh(*shared, 0, replicas, 0, 1, trial.scratch)
    return Annealed(beta, z, ladder.step.copy()) if _finite(replicas) else None


def _finite(replicas: Any) -> bool:
    """Whether the first replica has a finite density and gradient."""
    known = replicas.scalars[0, LOG_LIK] + replicas.scalars[0, LOG_PRIOR]
    return bool(np.isfinite(known) and np.isfinite(replicas.slope).all())
