"""One chain of ``mintee``: its levels, their rows and their rings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.contiguous_rows import Held, allocate_held, gather
from streammc.likelihood.target import Base
from streammc.protocols import Index, RowSource, Vector
from streammc.samplers.common import tuning
from streammc.samplers.common.chains import BATCH_SECONDS, Chain
from streammc.samplers.common.proposals import allocate_trial
from streammc.samplers.common.statistics import EQUI_ENERGY_STATISTICS
from streammc.samplers.equi_energy.facts import jumps_described
from streammc.samplers.equi_energy.loop import (
    JUMP_ACCEPTANCE,
    JUMPS,
    KINDS,
    STARTED,
    STEP_ACCEPTANCE,
    STEPS,
    Batch,
    Counts,
    Ensemble,
    Levels,
    Scratch,
    allocate_rings,
    allocate_states,
    energy_levels,
    pack,
    refresh,
    run,
    starts,
    unpack,
)

if TYPE_CHECKING:
    from streammc.samplers.equi_energy.options import EquiEnergy

FIRST_STEP: Final = {"langevin": (1.65, 1.0 / 6.0), "random-walk": (2.38, 0.5)}
"""A first step size ``c d^-p`` of level 0."""


@dataclass(frozen=True)
class EquiEnergyProblem:
    """Rows, log-likelihood, reference and options that all chains share."""

    link: Any
    joint: Any
    base: Base
    full: Held
    """Every row, shared by all chains."""
    source: RowSource
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    options: EquiEnergy
    first: Vector
    """(d,) mean of the first positions, in the sampler's coordinates."""
    spread: float
    """Standard deviation of the first positions there."""
    at_reference: Vector
    """(n,) terms at the reference, from whose energy energies are counted; where the likelihood
    is no product, the first is that of all rows."""
    reference: Vector
    """(d,) in theta."""
    log_likelihood: Callable[[Held, int, Vector], float]
    """``log_likelihood(table, n, theta)``: of the first ``n`` rows of a table."""
    warmup: int
    """Iterations of warm-up, in which the levels start one after the other."""
    design: None = None
    """There is none: rows are held."""

    @property
    def certain(self) -> Block:
        """Every row, not expanded: the rows that are held in memory."""
        none = allocate_block(0, 0, 0)
        full = self.full
        return Block(full.design, full.y, full.weight, none.eta_star, none.expansion)

    @property
    def certainty_rows(self) -> Index:
        """No row is left out of a subset."""
        return np.zeros(0, dtype=np.int64)

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> Chain:
        """Return chain ``chain`` of the run with that seed."""
        return EquiEnergyKernel(self, seed, chain, batch_iterations=batch_iterations)


class EquiEnergyKernel(Chain):
    """State of one chain."""

    statistics = EQUI_ENERGY_STATISTICS

    def __init__(
        self, problem: EquiEnergyProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.problem, self.chain = problem, chain
        options, full = problem.options, problem.full
        n, d = len(full.y), len(problem.reference)
        p = problem.base.n_linear + d - problem.base.n_linear * len(full.design)
        order = streams.stream(seed, chain, streams.Role.SUBSAMPLE).permutation(n)
        sizes = np.array(options.sizes(n), dtype=np.int64)
        most = int(sizes[1:].max(initial=0))
        if options.energy == "subset":
            own = gather(full, order[:most])
        elif options.energy == "full":
            own = allocate_held(0, len(full.design), joint=bool(full.joint))
        else:
            own = allocate_held(most, len(full.design))
        self.levels, K = self._levels(sizes, order, own), len(sizes)
        self.states = allocate_states(K, d)
        self.rings = allocate_rings(K, options.ring_capacity if K > 1 else 1, d)
        self._counts = Counts(np.zeros((K, 4)), np.zeros((K, K)))
        chosen = np.zeros(most, dtype=np.int64)
        scratch = Scratch(allocate_trial(d, p), np.zeros((2, d)), np.zeros(d), np.zeros(1), chosen)
        self.ensemble = Ensemble(
            problem.base, full, own, problem.at_reference, self.levels, self.states, self.rings,
            self._counts, scratch,
        )  # fmt: skip
        self._tuning = np.array([tuning.start(s, reference=False) for s in self.levels.step])
        self._tuned = options.step_size is not None
        self._path: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []

    def _levels(self, sizes: Index, order: Index, own: Held) -> Levels:
        """Return the levels, with the sums over their rows, ``own``, at the reference."""
        problem, options = self.problem, self.problem.options
        n, K = len(problem.full.y), len(sizes)
        heat = np.array(options.temperatures(n))
        rows = np.full(K, n) if options.energy == "full" else sizes
        total = float(problem.at_reference.sum())
        reference = np.full(K, total)
        if options.energy == "subset":
            for k in range(1, K):
                if problem.full.joint:
                    reference[k] = problem.log_likelihood(own, int(sizes[k]), problem.reference)
                else:
                    reference[k] = problem.at_reference[order[: sizes[k]]].sum()
        lowest = 0.0 if options.lowest_energy is None else options.lowest_energy + total
        bounds = energy_levels(lowest, options.ring_width, heat)
        floor = bounds[:-1].copy()
        floor[0] = -math.inf
        begin, opened = starts(rows, problem.warmup)
        c, power = FIRST_STEP[options.explorer]
        first = options.step_size or c * len(problem.reference) ** -power
        return Levels(
            kind=KINDS[str(options.energy)],
            rows=rows.astype(np.int64),
            scale=n / rows,
            temperature=heat,
            floor=floor,
            bounds=bounds,
            reference=reference,
            step=first * np.sqrt(heat),
            begin=begin,
            opened=opened,
            jump_probability=float(options.jump_probability),
            langevin=int(options.explorer == "langevin"),
            inner_steps=options.inner_steps,
        )

    def initialise(self) -> None:
        """Draw a start of the hottest level, which the others follow.

        Raises
        ------
        ModelError
            If the log density is not finite at any of 100 starts.
        """
        problem = self.problem
        for _ in range(100):
            self.states.z[:] = problem.first + problem.spread * self._kernel_rng.standard_normal(
                problem.first.shape
            )
            for k in (0, len(self.states.z) - 1):
                refresh(problem.link, problem.joint, self.ensemble, k, self._kernel_rng)
            if np.isfinite(self.states.scalars).all() and np.isfinite(self.states.slope).all():
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            "100 tries; check the prior and the response, or rescale the features"
        )

    def _state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that make up the state, by name, not copied."""
        return {
            **self.states._asdict(),
            "step": self.levels.step,
            "tuning": self._tuning,
            "moves": self._counts.moves,
            "visits": self._counts.rings,
        }

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``."""
        arrays = {name: array.copy() for name, array in self._state().items()}
        meta = {
            "iteration": self.iteration,
            "tuned": self._tuned,
            "kernel_rng": streams.get_state(self._kernel_rng),
        }
        return {**arrays, **pack(self.rings)}, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        for name, array in self._state().items():
            array[...] = arrays[name]
        unpack(self.rings, arrays)
        self.iteration = int(meta["iteration"])
        self._tuned = bool(meta["tuned"])
        self._kernel_rng = streams.from_state(meta["kernel_rng"])

    def _batch(self) -> int:
        """Return how many iterations to hand over at once: about 0.1 s."""
        count = min(self.batch_iterations, 8)
        if self._seconds_per_iteration > 0.0:
            count = min(self.batch_iterations, int(BATCH_SECONDS / self._seconds_per_iteration))
        return max(count, 1)

    def advance(
        self, n: int, warmup: bool, stop: Callable[[], bool] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Run ``n`` iterations; see ``common.chains``. Where asked, keep every state."""
        self._path = []
        begun = self.iteration
        out = super().advance(n, warmup, stop)
        folder = self.problem.options.keep_rings
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            # Named by its place: an interval that is made again is written again, alike.
            file = Path(folder) / f"chain-{self.chain}-{begun:09d}.npz"
            theta, energy = (np.concatenate(parts) for parts in zip(*self._path, strict=True))
            np.savez(
                file, theta=theta, energy=energy, bounds=self.levels.bounds,
                began=begun, opened=self.levels.opened,
            )  # fmt: skip
        return out

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows."""
        if not warmup and not self._tuned:
            begun = self.states.scalars[:, STARTED] == 1.0
            self.levels.step[begun] = np.exp(self._tuning[begun, tuning.LOG_AVERAGE])
            self._tuned = True
        adapt = warmup and not self._tuned
        (n, d), K = theta.shape, len(self.states.z)
        kept = n if self.problem.options.keep_rings is not None else 0
        path, energies = np.full((kept, K, d), np.nan), np.full((kept, K), np.nan)
        batch = Batch(
            iteration=self.iteration,
            target=self.problem.options.target_acceptance if adapt else 0.0,
            counting=int(not warmup),
            adapt=self._tuning,
            theta=theta,
            statistics=statistics,
            path=path,
            energies=energies,
        )
        run(self.problem.link, self.problem.joint, self.ensemble, batch, self._kernel_rng)
        if kept:
            self._path.append((path, energies))
        self.iteration += n

    def tallies(self) -> dict[str, NDArray[Any]]:
        """Return the ladder, and the counts since warm-up; see ``Chain.tallies``."""
        levels, moves = self.levels, self._counts.moves
        return {
            "beta": 1.0 / levels.temperature,
            "temperature": levels.temperature,
            "rows": levels.rows.astype(np.float64),
            "energy_level": levels.bounds[:-1],
            "step_size": levels.step.copy(),
            "steps": moves[:, STEPS].copy(),
            "acceptance_rate": moves[:, STEP_ACCEPTANCE] / np.maximum(moves[:, STEPS], 1.0),
            "jumps": moves[:-1, JUMPS].copy(),
            "jump_rate": moves[:-1, JUMP_ACCEPTANCE] / np.maximum(moves[:-1, JUMPS], 1.0),
            "ring_percent": 100.0
            * self._counts.rings
            / np.maximum(self._counts.rings.sum(axis=1, keepdims=True), 1.0),
            "ring_states": self.rings.held.astype(np.float64),
        }

    @staticmethod
    def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
        """Return the summary of all chains' tallies; see ``Chain.described``."""
        return jumps_described(tallies)
