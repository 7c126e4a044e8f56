"""One chain of Metropolis-Hastings with an acceptance test, over the compiled loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError
from streammc.likelihood.blocks import TILE, Block, allocate_block, allocate_rows
from streammc.likelihood.drawn_units import KeyedUnits, leave_out
from streammc.likelihood.target import REST, Base, allocate_point, allocate_work
from streammc.likelihood.temperature import Schedule
from streammc.protocols import Index, Matrix, Rows, RowSource, Vector
from streammc.samplers.common import tuning
from streammc.samplers.common.chains import (
    BATCH_ROWS,
    BATCH_SECONDS,
    Chain,
    StoppedError,
    first_position,
)
from streammc.samplers.common.proposals import LANGEVIN, SGHMC
from streammc.samplers.common.statistics import METROPOLIS_STATISTICS
from streammc.samplers.common.tuning import StepShape
from streammc.samplers.metropolis.acceptance import Prepared
from streammc.samplers.metropolis.loop import (
    DONE,
    NEED_SWEEP,
    Batch,
    Gathered,
    Moves,
    Shared,
    Workspace,
    allocate_decision,
    look_at_start,
    run,
)

_TERMS, _GRADIENTS = range(2)
"""Lanes of :class:`KeyedUnits`: units of the acceptance test, and of the proposal's gradients."""
SCALING: Final = {0: (2.38, 0.5), LANGEVIN: (1.65, 1.0 / 6.0), SGHMC: (1.0, 0.25)}
"""(c, p) of a first step size ``c d^-p`` by kind of proposal, 0 the random walk; those of the
random walk and of Langevin steps are from Roberts and Rosenthal 2001."""


@dataclass(frozen=True)
class MetropolisProblem:
    """Model, acceptance test, data and settings that all chains share."""

    link: Any
    sums: Any
    """Compiled log-likelihood of rows, and of the model's Taylor sums: ``protocols.Model``."""
    decide: Any
    """The compiled acceptance test."""
    prepared: Prepared
    base: Base
    certain: Block
    certainty_rows: Index
    held: Block
    """All rows, certainty rows with weight 0; or none: then a decision on all rows reads them."""
    source: RowSource
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    moves: Moves
    step_size: float | None
    target_acceptance: float
    schedule: Schedule
    shape: str | None
    """``diagonal`` or ``full`` where warm-up learns the shape of the steps."""
    first: Vector
    """(d,) mean of the first positions, in the sampler's coordinates."""
    spread: float
    """Standard deviation of the first positions in these coordinates."""
    modes: Matrix | None = None
    """(M, d) other modes in these coordinates; chains start at the modes in turn."""
    check: Callable[[Matrix, Vector, Vector], None] | None = None
    """Raises an error if a response is outside the support; ``None``: a pass has checked all."""
    implied: float = 1.0
    """Temperature of the sampler itself, by which those of ``schedule`` are multiplied."""
    design: None = None
    """None of ``common.chains.SharedProblem``: each decision draws units by a key."""

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> MetropolisKernel:
        """Return the kernel of chain ``chain`` of the run with this seed."""
        return MetropolisKernel(self, seed, chain, batch_iterations=batch_iterations)


class MetropolisKernel(Chain):
    """State of one chain: position, momentum, and the memory of its acceptance test."""

    statistics = METROPOLIS_STATISTICS

    def __init__(
        self, problem: MetropolisProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.problem = problem
        self._chain = chain
        base, moves = problem.base, problem.moves
        d, p, q = len(base.theta_star), len(problem.certain.eta_star), problem.source.n_features
        b = base.unit_rows
        self._units = KeyedUnits(moves.population, b, seed, chain)
        k = moves.gradient_units
        chunk = max(TILE // b, 1) * b
        sub = allocate_block(max(chunk, k * b), q, p, base.order)
        rows = max(len(sub.y), len(problem.held.y))
        self._arrays = Shared(base, problem.certain, problem.held, moves, problem.prepared.table)
        self.space = Workspace(
            sub,
            now=allocate_point(d, k, k * b, p),
            new=allocate_point(d, k, k * b, p),
            work=allocate_work(d, k * b, p, len(problem.certain.y)),
            decision=allocate_decision(d, rows, learnt=problem.shape is not None),
        )
        c, power = SCALING[moves.kind]
        self._first_step = problem.step_size or c * d**-power
        self.space.decision.values["step"] = self._first_step
        self._tuning = tuning.start(self._first_step, reference=False)
        self._shape = StepShape(d, problem.shape)
        self._tuned = problem.step_size is not None
        self._drawn = -1, np.zeros(0, np.int64)
        """First iteration of the units drawn ahead last, and these units."""
        self._stop: Callable[[], bool] | None = None

    def initialise(self) -> None:
        """Draw a start, and a momentum, which only SGHMC uses.

        Raises
        ------
        ModelError
            If prior and Taylor sums are not finite at any of 100 starts.
        """
        problem, now, decision = self.problem, self.space.now, self.space.decision
        d = len(problem.base.theta_star)
        for attempt in range(100):
            start = self._chain, attempt, problem.spread, problem.modes
            now.z[:] = problem.first + first_position(self._kernel_rng, d, *start)
            decision.values["prior"] = look_at_start(
                problem.link, problem.sums, self._arrays, self.space
            )
            if math.isfinite(now.scalars[REST]):
                decision.momentum[:] = self._kernel_rng.standard_normal(d)
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            "100 tries; check the prior and the response, or rescale the features"
        )

    def _state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that make up the state, by name, not copied."""
        now, decision = self.space.now, self.space.decision
        return {
            "z": now.z,
            "gradient": now.gradient,
            "scalars": now.scalars,
            "values": decision.values.view(np.float64),
            "carried": decision.carried,
            "momentum": decision.momentum,
            "slope": decision.slope,
            "shape": decision.shape,
            "tuning": self._tuning,
            **self._shape.state(),
        }

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``."""
        meta = {
            "iteration": self.iteration,
            "rows_gathered": self.rows_gathered,
            "tuned": self._tuned,
            "kernel_rng": streams.get_state(self._kernel_rng),
        }
        return {name: array.copy() for name, array in self._state().items()}, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        for name, array in self._state().items():
            array[...] = arrays[name]
        self.iteration = int(meta["iteration"])
        self.rows_gathered = int(meta["rows_gathered"])
        self._tuned = bool(meta["tuned"])
        self._kernel_rng = streams.from_state(meta["kernel_rng"])

    def advance(
        self, n: int, warmup: bool, stop: Callable[[], bool] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Run ``n`` iterations; see ``common.chains``. ``stop`` may also end a long decision."""
        self._stop = stop
        return super().advance(n, warmup, stop)

    def _batch(self) -> int:
        """Return the number of iterations of a batch: about 0.1 s and at most BATCH_ROWS rows."""
        count = min(self.batch_iterations, 8)
        if self._seconds_per_iteration > 0.0:
            count = min(self.batch_iterations, int(BATCH_SECONDS / self._seconds_per_iteration))
        rows = self.problem.moves.decision_units * self.problem.base.unit_rows
        return max(min(count, BATCH_ROWS // max(rows, 1), self._shape.left(self.iteration)), 1)

    def _rows(self, units: Index) -> Rows:
        """Gather the rows of ``units``; certainty rows get weight 0."""
        problem, b = self.problem, self.problem.base.unit_rows
        rows = allocate_rows(len(units) * b, problem.source.n_features)
        starts = units * b
        problem.source.gather(starts, b, rows)
        if problem.check is not None:
            used = rows.weight > 0.0
            problem.check(rows.X[used], rows.y[used], rows.weight[used])
        leave_out(starts, b, problem.certainty_rows, rows.weight)
        self.rows_gathered += len(units) * b
        return rows

    def _ahead_of(self, iteration: int, n: int) -> Index:
        """Return the units drawn ahead for ``n`` iterations: of each, gradients' units first."""
        moves, replace = self.problem.moves, self.problem.prepared.replace
        first, drawn = self._drawn
        if first == iteration and n * moves.decision_units <= len(drawn):
            return drawn[: n * moves.decision_units]  # announced by the batch before
        k = moves.gradients * moves.gradient_units
        gradients = self._units.draw(iteration, n, 0, k, lane=_GRADIENTS, replace=True)
        terms = self._units.draw(iteration, n, 0, moves.first_units, lane=_TERMS, replace=replace)
        drawn = np.concatenate([gradients.reshape(n, k), terms.reshape(n, -1)], axis=1).ravel()
        self._drawn = iteration, drawn
        return drawn

    def _needed(self, code: int) -> Index:
        """Return units to gather where the loop has stopped with ``code``: wanted, or following."""
        counts, b = self.space.decision.counts[0], self.problem.base.unit_rows
        most = max(BATCH_ROWS // b, 1)
        if code == NEED_SWEEP:
            first = int(counts["swept"])
            return np.arange(first, min(first + most, self.problem.moves.population))
        iteration, drawn = self.iteration + int(counts["iteration"]), int(counts["drawn"])
        # A test that asks for a few at a time soon asks again: gather as many as it has drawn.
        count = min(max(int(counts["left"]), drawn), most)
        if not self.problem.prepared.replace:
            count = min(count, self.problem.moves.population - drawn)
        replace = self.problem.prepared.replace
        return self._units.draw(iteration, 1, drawn, count, lane=_TERMS, replace=replace)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows; announce the units of the next batch."""
        problem, n, decision = self.problem, len(theta), self.space.decision
        if not warmup and not self._tuned:
            decision.values["step"] = math.exp(self._tuning[tuning.LOG_AVERAGE])
            self._tuned = True
        ahead = self._rows(self._ahead_of(self.iteration, n))
        following = self._ahead_of(self.iteration + n, self._batch())
        if len(following):
            b = problem.base.unit_rows
            problem.source.will_need(following * b, b)
        final = problem.schedule.final
        adapt = warmup and not self._tuned
        batch = Batch(
            settings=problem.prepared.settings_of(warmup),
            tempering=problem.schedule.at(self.iteration, n) / final,
            final=final * problem.implied,
            target=problem.target_acceptance if adapt else 0.0,
            adapt=self._tuning,
            theta=theta,
            statistics=statistics,
        )
        self._iterate(ahead, batch)
        self.iteration += n
        if warmup and self._shape.learn(
            theta, problem.base.theta_star, problem.base.factor, self.iteration
        ):
            decision.shape[...] = self._shape.factor
            if adapt:
                self._tuning[:] = tuning.start(self._first_step, reference=False)
                decision.values["step"] = self._first_step

    def _iterate(self, ahead: Rows, batch: Batch) -> None:
        """Run the compiled loop over a batch, with the rows that it stops for."""
        problem = self.problem
        self.space.decision.counts["iteration"] = 0
        extra = allocate_rows(0, problem.source.n_features)
        while True:
            gathered = Gathered(ahead, extra, len(extra.y) // problem.base.unit_rows)
            code = run(
                problem.link, problem.sums, problem.decide, self._arrays, self.space, gathered,
                batch, self._kernel_rng,
            )  # fmt: skip
            if code == DONE:
                return
            if self._stop is not None and self._stop():
                raise StoppedError
            extra = self._rows(self._needed(code))
