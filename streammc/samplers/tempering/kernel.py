"""Base class of the chains with a ladder: levels, replicas, their random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError, OutOfMemoryError
from streammc.likelihood.contiguous_rows import Held, allocate_held, held_bytes
from streammc.likelihood.density import log_likelihood
from streammc.numerics.prior_draws import N_STREAMS, draw_prior
from streammc.protocols import Matrix, Vector
from streammc.samplers.common import tuning
from streammc.samplers.common.chain import BATCH_SECONDS, Chain
from streammc.samplers.common.explorers import N_UNIFORMS, allocate_trial, refresh
from streammc.samplers.common.ladder import LOG_LIK, LOG_PRIOR, STALE, allocate_replicas, geometric
from streammc.samplers.tempering.anneal import Annealed, anneal
from streammc.samplers.tempering.ensemble import Ensemble
from streammc.samplers.tempering.options import HMC, TEMPERED_STATISTICS
from streammc.samplers.tempering.shared import TemperedProblem

_NORMALS, _UNIFORMS = range(2)
_DRAWN_AT_ONCE: Final = 2**20
"""Random numbers made for one batch."""


class TemperedKernel(Chain):
    """State of one chain with a ladder; ``transitions`` draws of the inner kernel per replica.

    Every replica has two streams, of normals and of uniforms, each of which is used in
    order: not one bit depends on how many iterations are handed over at once.
    """

    statistics = TEMPERED_STATISTICS

    def __init__(
        self,
        problem: TemperedProblem,
        seed: int,
        chain: int,
        *,
        batch_iterations: int,
        n_replicas: int,
        transitions: int,
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.problem = problem
        options, d = problem.options, problem.dim
        self.transitions = transitions
        self._streams = [
            [streams.stream(seed, chain, streams.Role.KERNEL, r, part) for part in range(2)]
            for r in range(n_replicas)
        ]
        self.swap_rng = streams.stream(seed, chain, streams.Role.SWAP)
        self.subset_rng = streams.stream(seed, chain, streams.Role.SUBSAMPLE)
        self._prior_rng = [
            streams.stream(seed, chain, streams.Role.PRIOR, part) for part in range(N_STREAMS)
        ]
        self.replicas = allocate_replicas(n_replicas, d)
        self.trial = allocate_trial(d, problem.n_predictors)
        assert options.n_levels is not None
        self.ladder = problem.ladder(geometric(options.n_levels, options.beta_min or 0.0))
        self.own = self._allocate_own()
        self._tuning = np.array([tuning.start(s, reference=False) for s in self.ladder.step])
        self._tuned = options.step_size is not None

    def move_ladder(self, beta: Vector) -> None:
        """Give the levels other inverse temperatures, and step sizes that belong to them.

        The tuned step sizes are interpolated at the new temperatures, and tuning goes on.
        """
        ladder, old = self.ladder, self.ladder.beta.copy()
        least = 0.1 * old[old > 0.0].min()
        known, wanted = np.log(np.maximum([old, beta], least))
        log_step = self._tuning[:, tuning.LOG_AVERAGE]
        if self.problem.options.step_size is None:
            tuned = old > 0.0  # the prior has no steps
            shift = np.interp(-wanted, -known[tuned], log_step[tuned]) - log_step
            self._tuning[:, [tuning.LOG_STEP, tuning.LOG_AVERAGE, tuning.SHRINK_TO]] += shift[
                :, None
            ]
        else:
            shift = 0.5 * (known - wanted)
        ladder.step[:] *= np.exp(shift)
        self.problem.set_beta(ladder, beta)

    def _allocate_own(self) -> Held:
        """Return room for the rows of the subsets."""
        ladder = self.ladder
        n = int(ladder.hi[1:].max(initial=0)) if ladder.own else 0
        return self._allocate_rows(n)

    def _allocate_rows(self, n: int) -> Held:
        """Return room for ``n`` rows.

        Raises
        ------
        OutOfMemoryError
            If there is none.
        """
        full, memory = self.problem.full, self.problem.memory
        needed = held_bytes(n, len(full.design))
        if n > 0 and memory is not None and needed > memory():
            raise OutOfMemoryError(
                f"expected subsets that fit into half of the available memory, found {n} rows of a "
                f"chain, {needed / 1e9:.1f} GB; use fewer chains, or a sampler without subsets: pt "
                "or tt"
            )
        return allocate_held(n, len(full.design), joint=bool(full.joint))

    @property
    def ensemble(self) -> Ensemble:
        """Return rows, levels, replicas and scratch, not copied."""
        problem = self.problem
        return Ensemble(
            problem.base, problem.full, self.own, self.ladder, self.replicas, self.trial,
            self._tuning,
        )  # fmt: skip

    def held(self, level: int) -> Held:
        """Return the table that holds the rows of a level."""
        return self.own if self.ladder.own and level > 0 else self.problem.full

    @property
    def ends_at_prior(self) -> bool:
        """Whether the last level is the prior."""
        return len(self.ladder.beta) > 1 and bool(self.ladder.beta[-1] == 0.0)

    def fresh(self, n: int) -> Matrix:
        """Return (n, d) independent draws from the prior; zeros where no level is the prior."""
        if not self.ends_at_prior:
            return np.zeros((n, self.problem.dim))
        return draw_prior(self.problem.base.prior, n, self._prior_rng)

    def anneal(self) -> Annealed | None:
        """Return a way from the prior down to level 0, where the last level is the prior."""
        options = self.problem.options
        if not self.ends_at_prior or options.start is not None:
            return None
        step = self.problem.first_step
        return anneal(
            self.problem, self.trial, step, self.fresh, lambda n, k: self.random_numbers(0, n, k)
        )

    def begin_with(self, annealed: Annealed, r: int, level: int) -> bool:
        """Put replica ``r`` where a draw from the prior came through ``level``, with its step.

        Returns whether the density of that level is finite there.
        """
        self.take_step(annealed, level)
        return self._place(annealed.z[annealed.nearest(self.ladder.beta[level])], r, level)

    def take_step(self, annealed: Annealed, level: int) -> None:
        """Begin to tune the step size of a level where annealing left it."""
        beta = self.ladder.beta[level]
        if self.problem.options.step_size is not None or beta == 0.0:
            return
        m = annealed.nearest(beta)
        step = float(annealed.step[m] * math.sqrt(annealed.beta[m] / beta))
        self._tuning[level] = tuning.start(step, reference=False)
        self.ladder.step[level] = step

    def start_replica(self, r: int, level: int) -> None:
        """Draw a first position of replica ``r``.

        Raises
        ------
        ModelError
            If the log density is not finite at any of 100 starts.
        """
        problem = self.problem
        for _ in range(100):
            normals = self._streams[r][_NORMALS].standard_normal(problem.dim)
            if self._place(problem.first + problem.spread * normals, r, level):
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            "100 tries; check the prior and the response, or rescale the features"
        )

    def _place(self, z: Vector, r: int, level: int) -> bool:
        """Put replica ``r`` at ``z`` (d,); return whether density and gradient are finite there."""
        problem, replicas = self.problem, self.replicas
        replicas.z[r] = z
        replicas.scalars[r, STALE] = 1.0
        refresh(
            problem.link, problem.joint, problem.base, self.held(level), self.ladder, level,
            replicas, r, int(problem.options.explorer == HMC), self.trial.scratch,
        )  # fmt: skip
        known = replicas.scalars[r, LOG_LIK] + replicas.scalars[r, LOG_PRIOR]
        return math.isfinite(known) and bool(np.isfinite(replicas.slope[r]).all())

    def draw(self, n: int) -> NDArray[np.float64]:
        """Return (n, R, transitions, d + 2) random numbers for ``n`` iterations."""
        return np.stack(
            [self.random_numbers(r, n, self.transitions) for r in range(len(self._streams))],
            axis=1,
        )

    def random_numbers(self, r: int, n: int, transitions: int) -> NDArray[np.float64]:
        """Return (n, transitions, d + 2) random numbers of replica ``r``."""
        d, (normals, uniforms) = self.problem.dim, self._streams[r]
        out = np.empty((n, transitions, d + N_UNIFORMS))
        out[:, :, :d] = normals.standard_normal((n, transitions, d))
        out[:, :, d:] = 1.0 - uniforms.random((n, transitions, N_UNIFORMS))  # never 0
        return out

    def log_lik(self, r: int, level: int) -> float:
        """Return the log-likelihood of replica ``r`` with the rows of a level."""
        problem, held = self.problem, self.held(level)
        lo, hi = int(self.ladder.lo[level]), int(self.ladder.hi[level])
        return float(
            log_likelihood(
                problem.link, problem.joint, problem.base, held, lo, hi, self.replicas.theta[r],
                0, self.trial.slope, self.trial.scratch,
            )
        )  # fmt: skip

    def settle(self) -> None:
        """Fix the step sizes at the averages of warm-up."""
        if not self._tuned:
            self.ladder.step[:] = np.exp(self._tuning[:, tuning.LOG_AVERAGE])
            self._tuned = True

    def _batch(self) -> int:
        """Return how many iterations to hand over at once: about 0.1 s, bounded memory."""
        count = min(self.batch_iterations, 8)
        if self._seconds_per_iteration > 0.0:
            count = min(self.batch_iterations, int(BATCH_SECONDS / self._seconds_per_iteration))
        return max(min(count, _DRAWN_AT_ONCE // max(self._numbers(), 1)), 1)

    def _numbers(self) -> int:
        """Return the random numbers that an iteration takes."""
        d = self.problem.dim
        return len(self._streams) * self.transitions * (d + N_UNIFORMS) + 6 * d

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that make up the state, by name, not copied."""
        ladder, own = self.ladder, self.own
        return {
            **{f"replica_{name}": array for name, array in self.replicas._asdict().items()},
            **{f"ladder_{name}": getattr(ladder, name) for name in _LADDER_ARRAYS},
            "tuning": self._tuning,
            **{f"own_{name}": getattr(own, name) for name in ("design", "y", "offset", "weight")},
        }

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chain``."""
        meta: dict[str, Any] = {
            "iteration": self.iteration,
            "tuned": self._tuned,
            "swap_rng": streams.get_state(self.swap_rng),
            "subset_rng": streams.get_state(self.subset_rng),
            "prior_rng": [streams.get_state(g) for g in self._prior_rng],
            "replica_rng": [[streams.get_state(g) for g in pair] for pair in self._streams],
        }
        return {name: array.copy() for name, array in self._arrays().items()}, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        for name, array in self._arrays().items():
            array[...] = arrays[name]
        self.iteration = int(meta["iteration"])
        self._tuned = bool(meta["tuned"])
        self.swap_rng = streams.from_state(meta["swap_rng"])
        self.subset_rng = streams.from_state(meta["subset_rng"])
        self._prior_rng = [streams.from_state(g) for g in meta["prior_rng"]]
        self._streams = [[streams.from_state(g) for g in pair] for pair in meta["replica_rng"]]


_LADDER_ARRAYS: Final = ("beta", "power", "prior_power", "lo", "hi", "step")
