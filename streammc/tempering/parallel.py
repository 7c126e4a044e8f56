"""``pt`` and ``spt``: one replica at every level, and swaps between neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.estimators.target import BASE_TYPE
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, jit, matrix
from streammc.samplers import tuning
from streammc.tempering.explorers import EXPLORER_TYPE, TRIAL_TYPE
from streammc.tempering.held import HELD_TYPE
from streammc.tempering.kernel import TemperedKernel
from streammc.tempering.ladder import EVALUATED, LADDER_TYPE, LOG_LIK, LOG_PRIOR, REPLICAS_TYPE
from streammc.tempering.problem import TemperedProblem

_draws: Any = types.Array(f8, 4, "C")


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, BASE_TYPE, HELD_TYPE, LADDER_TYPE, REPLICAS_TYPE,
        _draws, TRIAL_TYPE, matrix, f8, matrix, matrix,
    ),
    borrow=True,
)  # fmt: skip
def run(  # type: ignore[no-untyped-def]
    link, joint, explore, base, full, ladder, replicas, draws, trial, adapt, target, theta, stats,
):  # fmt: skip
    """Run the inner kernel of level 0 alone."""
    for t in range(theta.shape[0]):
        before = replicas.scalars[0, EVALUATED]
        rate = 0.0
        diverged = 0.0
        for i in range(draws.shape[2]):
            a = explore(link, joint, base, full, ladder, 0, replicas, 0, draws[t, 0, i], trial)
            if a != a:
                a = 0.0
                diverged = 1.0
            rate += a / draws.shape[2]
            if target > 0.0:
                tuning.update(adapt[0], a, target, 1e300)
                ladder.step[0] = np.exp(adapt[0, tuning.LOG_STEP])
        for j in range(theta.shape[1]):
            theta[t, j] = replicas.theta[0, j]
        lp = replicas.scalars[0, LOG_LIK] + replicas.scalars[0, LOG_PRIOR]
        row = stats[t]
        row[0] = lp
        row[1] = rate
        row[2] = diverged
        row[3] = -lp
        row[4] = ladder.step[0]
        row[5] = ladder.n_steps
        row[6] = 0.0
        row[7] = 1.0
        row[8] = replicas.scalars[0, EVALUATED] - before
        row[9] = replicas.scalars[0, LOG_LIK]
        row[10] = 0.0
        row[11] = 0.0


class ParallelKernel(TemperedKernel):
    """State of one chain of ``pt`` or ``spt``."""

    def __init__(
        self, problem: TemperedProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        options = problem.options
        super().__init__(
            problem, seed, chain, batch_iterations=batch_iterations,
            n_replicas=options.n_levels, transitions=options.inner_steps,
        )  # fmt: skip

    def initialise(self) -> None:
        """Draw a start of every replica."""
        for r in range(len(self.replicas.z)):
            self.start_replica(r, r)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        problem = self.problem
        if not warmup:
            self.settle()
        adapt = warmup and not self._tuned
        run(
            problem.link, problem.joint, problem.explore, problem.base, problem.full, self.ladder,
            self.replicas, self.draw(len(theta)), self.trial, self._tuning,
            problem.target_acceptance if adapt else 0.0, theta, statistics,
        )  # fmt: skip
        self.iteration += len(theta)
