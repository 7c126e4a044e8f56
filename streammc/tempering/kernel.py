"""What the kernels of all samplers with a ladder share: levels, replicas, their random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError, OutOfMemoryError
from streammc.protocols import Vector
from streammc.samplers import tuning
from streammc.samplers.chain import BATCH_SECONDS, Chain
from streammc.samplers.tempered_options import HMC, TEMPERED_STATISTICS
from streammc.tempering.density import log_likelihood
from streammc.tempering.explorers import N_UNIFORMS, allocate_trial, refresh
from streammc.tempering.held import Held, allocate_held, held_bytes
from streammc.tempering.ladder import (
    LOG_LIK,
    LOG_PRIOR,
    STALE,
    Ladder,
    allocate_replicas,
    geometric,
)
from streammc.tempering.problem import TemperedProblem

FIRST_STEP: Final = {HMC: (0.5, 0.25), "random-walk": (2.38, 0.5)}
"""A first step size ``c d^-p`` at level 0."""
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
        self.replicas = allocate_replicas(n_replicas, d)
        self.trial = allocate_trial(d, problem.n_predictors)
        self.ladder = self._ladder(geometric(options.n_levels, options.beta_min))
        self.own = self._allocate_own()
        self._tuning = np.array([tuning.start(s, reference=False) for s in self.ladder.step])
        self._tuned = options.step_size is not None

    def _ladder(self, beta: Vector) -> Ladder:
        """Return the levels of a first ladder."""
        options, n = self.problem.options, len(self.problem.full.y)
        c, power = FIRST_STEP[options.explorer]
        first = options.step_size or c * self.problem.dim**-power
        ones, zeros = np.ones(len(beta)), np.zeros(len(beta), dtype=np.int64)
        ladder = Ladder(
            beta=beta.copy(),
            power=ones.copy(),
            prior_power=ones.copy(),
            lo=zeros.copy(),
            hi=zeros + n,
            step=ones * first,
            n_steps=options.n_steps,
            jitter=options.jitter,
            own=int(options.subsets_of_rows),
        )
        self.set_beta(ladder, beta)
        # At the prior a step in posterior standard deviations is as long as anything.
        ladder.step[:] *= np.maximum(beta, 1.0 / max(n, 1)) ** -0.5
        return ladder

    def set_beta(self, ladder: Ladder, beta: Vector) -> None:
        """Give the levels other inverse temperatures; the rows of subsets change as well."""
        options, n = self.problem.options, len(self.problem.full.y)
        ladder.beta[:] = beta
        if not options.subsets_of_rows:
            ladder.power[:] = beta
            if getattr(options, "path", None) == "posterior":
                ladder.prior_power[:] = beta
            return
        sizes = np.maximum(np.rint(beta * n), 1).astype(np.int64)
        sizes[0] = n
        nested = getattr(options, "subsets", None) == "nested"
        ladder.lo[1:] = 0 if nested else np.concatenate([[0], np.cumsum(sizes[1:])[:-1]])
        ladder.lo[0] = 0
        ladder.hi[:] = ladder.lo + sizes

    def move_ladder(self, beta: Vector) -> None:
        """Give the levels other inverse temperatures, and step sizes that belong to them.

        What tuning knows of a level is read off at its new place, and tuning goes on.
        """
        ladder, old = self.ladder, self.ladder.beta.copy()
        least = 0.1 * old[old > 0.0].min()
        known, wanted = np.log(np.maximum([old, beta], least))
        log_step = self._tuning[:, tuning.LOG_AVERAGE]
        if self.problem.options.step_size is None:
            shift = np.interp(-wanted, -known, log_step) - log_step
            self._tuning[:, [tuning.LOG_STEP, tuning.LOG_AVERAGE, tuning.SHRINK_TO]] += shift[
                :, None
            ]
        else:
            shift = 0.5 * (known - wanted)
        ladder.step[:] *= np.exp(shift)
        self.set_beta(ladder, beta)

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
                f"{n} rows of the subsets of a chain need {needed / 1e9:.1f} GB, more than half "
                "of what is available; use fewer chains, or a sampler without subsets: pt or tt"
            )
        return allocate_held(n, len(full.design), joint=bool(full.joint))

    def held(self, level: int) -> Held:
        """Return the rows that a level has some of."""
        return self.own if self.ladder.own and level > 0 else self.problem.full

    def start_replica(self, r: int, level: int) -> None:
        """Draw a first position of replica ``r``.

        Raises
        ------
        ModelError
            If the log density is not finite at any of 100 starts.
        """
        problem, replicas = self.problem, self.replicas
        order = int(problem.options.explorer == HMC)
        for _ in range(100):
            normals = self._streams[r][_NORMALS].standard_normal(problem.dim)
            replicas.z[r] = problem.first + problem.spread * normals
            replicas.scalars[r, STALE] = 1.0
            refresh(
                problem.link, problem.joint, problem.base, self.held(level), self.ladder, level,
                replicas, r, order, self.trial.scratch,
            )  # fmt: skip
            known = replicas.scalars[r, LOG_LIK] + replicas.scalars[r, LOG_PRIOR]
            if math.isfinite(known) and np.isfinite(replicas.slope[r]).all():
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            "100 tries; check the prior and the response, or rescale the features"
        )

    def draw(self, n: int) -> NDArray[np.float64]:
        """Return (n, R, transitions, d + 2) random numbers for ``n`` iterations."""
        return np.stack(
            [self.numbers(r, n, self.transitions) for r in range(len(self._streams))], axis=1
        )

    def numbers(self, r: int, n: int, transitions: int) -> NDArray[np.float64]:
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
        """Fix the step sizes at what warm-up found."""
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
        return len(self._streams) * self.transitions * (self.problem.dim + N_UNIFORMS)

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
        """Return arrays and JSON; see ``protocols.Kernel``."""
        meta: dict[str, Any] = {
            "iteration": self.iteration,
            "tuned": self._tuned,
            "swap_rng": streams.get_state(self.swap_rng),
            "subset_rng": streams.get_state(self.subset_rng),
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
        self._streams = [[streams.from_state(g) for g in pair] for pair in meta["replica_rng"]]


_LADDER_ARRAYS: Final = ("beta", "power", "prior_power", "lo", "hi", "step")
