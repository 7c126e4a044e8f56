"""One chain of ``sgld`` or ``sghmc``, in batches of the compiled loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError, RefusedError
from streammc.likelihood.blocks import Block, ExpansionPoint, allocate_block, expand
from streammc.likelihood.drawn_units import UnitDesign
from streammc.likelihood.target import DENSITY, Base, allocate_point, allocate_work, evaluate
from streammc.protocols import Index, Matrix, RowSource, Vector
from streammc.samplers.common.chains import BATCH_ROWS, BATCH_SECONDS, Chain
from streammc.samplers.common.statistics import NOISE_STATISTICS, STATISTICS
from streammc.samplers.stochastic_gradient.loop import Buffers, Dynamics, Place, allocate_noise, run

MOST_STEPS: Final = 65_536


@dataclass(frozen=True)
class Schedule:
    """Step size and number of steps of every iteration."""

    step_size: float
    decay: float
    offset: float
    n_steps: int
    """Steps of an iteration; 0: ``trajectory_length`` divided by the step size."""
    trajectory_length: float

    def at(self, iteration: int, n: int) -> tuple[Vector, Index]:
        """Return (n,) step sizes and (n,) numbers of steps of the iterations from ``iteration`` on.

        The step size is ``step_size (1 + t / offset)^-decay``, with ``t`` the number of iterations
        made by the chain, warm-up included.
        """
        if self.decay == 0.0:
            sizes = np.full(n, self.step_size)
        else:
            sizes = np.array(
                [
                    self.step_size * math.pow(1.0 + t / self.offset, -self.decay)
                    for t in range(iteration, iteration + n)
                ]
            )
        if self.n_steps:
            return sizes, np.full(n, self.n_steps, dtype=np.int64)
        steps = np.ceil(self.trajectory_length / sizes - 1e-9)
        return sizes, np.clip(steps, 1, MOST_STEPS).astype(np.int64)


@dataclass(frozen=True)
class StochasticProblem:
    """Constants shared by all chains of ``sgld`` or ``sghmc``; see ``SharedProblem``."""

    link: Any
    sums: Any
    base: Base
    """Constants of the target, without a variance factor: the gradient has no penalty."""
    certain: Block
    certainty_rows: Index
    design: UnitDesign
    source: RowSource
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    schedule: Schedule
    dynamics: Dynamics
    spread: Matrix | None = None
    """(d, d) factor of the spread of starts in the sampler's coordinates; ``None``: identity."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the columns of the statistics."""
        return NOISE_STATISTICS if self.dynamics.estimate_noise else STATISTICS

    def kernel(
        self, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> StochasticGradientKernel:
        """Return the kernel of chain ``chain`` of the run with this seed."""
        return StochasticGradientKernel(self, seed, chain, batch_iterations=batch_iterations)


class StochasticGradientKernel(Chain):
    """Chain of ``sgld`` or ``sghmc``; every step draws new rows."""

    _ahead: Any

    def __init__(
        self, problem: StochasticProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.problem = problem
        self.chain = chain
        self.statistics = problem.statistics
        base, design = problem.base, problem.design
        k, m = design.subsample_units, design.subsample_size
        d, p, q = len(base.theta_star), len(problem.certain.eta_star), problem.source.n_features
        self._sub = allocate_block(m, q, p, base.order)
        self._point = allocate_point(d, k, m, p)
        self._work = allocate_work(d, m, p, len(problem.certain.y))
        used = problem.dynamics.estimate_noise == 1
        self._noise = allocate_noise(base.factor, k, m, used=used)

    def initialise(self) -> None:
        """Draw a start from the Laplace approximation, and evaluate its gradient.

        Raises
        ------
        ModelError
            If the log density is not finite at any of 100 starts.
        """
        problem, base, point = self.problem, self.problem.base, self._point
        rows = self._gather(self._ahead.take(problem.design.subsample_units))
        star = ExpansionPoint(base.theta_star, base.constants, base.n_linear, base.order)
        expand(problem.link, star, rows, 0, len(rows.y), self._sub, 0, self._work.scratch)
        for _ in range(100):
            z = self._kernel_rng.standard_normal(len(point.z))
            point.z[:] = z if problem.spread is None else problem.spread @ z
            evaluate(
                problem.link, problem.sums, base, problem.certain, self._sub, point, self._work
            )
            if math.isfinite(point.scalars[DENSITY]):
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            "100 tries; check the prior and the response, or rescale the features"
        )

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``."""
        arrays = {"z": self._point.z.copy(), "gradient": self._point.gradient.copy()}
        meta = {
            "iteration": self.iteration,
            "rows_gathered": self.rows_gathered,
            "kernel_rng": streams.get_state(self._kernel_rng),
            "subsample_rng": self._ahead.get_state(),
        }
        return arrays, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        self._point.z[:] = arrays["z"]
        self._point.gradient[:] = arrays["gradient"]
        self.iteration = int(meta["iteration"])
        self.rows_gathered = int(meta["rows_gathered"])
        self._kernel_rng = streams.from_state(meta["kernel_rng"])
        self._ahead.set_state(meta["subsample_rng"])

    def _batch(self) -> int:
        """Return the number of iterations of a batch: about 0.1 s."""
        if self._seconds_per_iteration == 0.0:
            return min(self.batch_iterations, 8)
        return max(min(self.batch_iterations, int(BATCH_SECONDS / self._seconds_per_iteration)), 1)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows, with a limit on the steps of a call."""
        problem, design = self.problem, self.problem.design
        k = design.subsample_units
        most = max(min(BATCH_ROWS // design.subsample_size, self.batch_iterations), 1)
        place = Place(np.zeros(3, dtype=np.int64), *problem.schedule.at(self.iteration, len(theta)))
        left = int(place.n_steps.sum())
        while left:
            count = min(left, most)
            ahead = self._gather(self._ahead.take(count * k))
            left -= count
            self._ahead.prefetch((min(left, most) or most) * k)
            failed = run(
                problem.link,
                problem.sums,
                problem.base,
                problem.certain,
                Buffers(self._sub, self._point, self._work, self._noise),
                place,
                ahead,
                problem.dynamics,
                self._kernel_rng,
                (theta, statistics),
            )
            if failed:
                at = int(place.where[0])
                raise RefusedError(
                    "expected finite positions and densities, found one that is not in iteration "
                    f"{self.iteration + at + 1} of chain {self.chain}, at step size "
                    f"{place.step_sizes[at]:.3g}; use a smaller --step-size, a prior without "
                    "bounds, or another sampler"
                )
        self.iteration += len(theta)
