"""``pt`` and ``spt``: one replica at every level, and swaps between neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.likelihood.contiguous_rows import Held, copy_held
from streammc.numerics.blas import single_threaded
from streammc.samplers.common.explorers import allocate_trial
from streammc.samplers.common.ladder import STALE
from streammc.samplers.tempering import swaps
from streammc.samplers.tempering.barrier import respaced, round_end
from streammc.samplers.tempering.kernel import TemperedKernel
from streammc.samplers.tempering.loop import (
    Batch,
    Parallel,
    evaluated,
    explore_levels,
    finish,
    run,
    start_tallies,
)
from streammc.samplers.tempering.options import ADAPTED, NESTED
from streammc.samplers.tempering.recorders import condense, described, recorded, rejections
from streammc.samplers.tempering.resample import OFFSETS, Subsets, allocate_candidates
from streammc.samplers.tempering.shared import TemperedProblem
from streammc.samplers.tempering.side_by_side import Choice, shares


class ParallelKernel(TemperedKernel):
    """State of one chain of ``pt`` or ``spt``."""

    def __init__(
        self, problem: TemperedProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        options = problem.options
        assert options.n_levels is not None
        super().__init__(
            problem, seed, chain, batch_iterations=batch_iterations,
            n_replicas=options.n_levels, transitions=options.inner_steps,
        )  # fmt: skip
        levels = options.n_levels
        self._every = int(getattr(options, "iterations_per_draw", None) or 1)
        self._schedule = swaps.SCHEDULES[getattr(options, "swaps")]  # noqa: B009
        self._places = swaps.allocate_places(levels)
        self._tallies = start_tallies(levels)
        self._rates = np.zeros((levels, 2))
        self._known = np.zeros(2)
        self._proposals = int(getattr(options, "resample", 0))
        self._candidates = allocate_candidates(self._proposals, len(problem.full.design))
        self._choice = Choice()
        self._drawing = False
        self._order = self._deal()
        self._take_rows()

    def _nested(self) -> bool:
        return getattr(self.problem.options, "subsets", None) == NESTED

    def _allocate_own(self) -> Held:
        """Return room for the rows of the subsets; of nested ones, for all rows in their order."""
        full, ladder = self.problem.full, self.ladder
        self._kind = swaps.SAME_ROWS
        n = 0
        if ladder.own and len(ladder.beta) > 1:
            n = int(ladder.hi[1:].max())
            self._kind = swaps.SEPARATE
            if self._nested() and not full.joint:
                n = len(full.y)
                self._kind = swaps.PREFIXES
        return self._allocate_rows(n)

    def _deal(self) -> NDArray[np.int64]:
        """Return orders of the rows: one (1, N), or one for every level above 0, (M, N)."""
        n, levels = len(self.problem.full.y), len(self.ladder.beta)
        if not self.ladder.own:
            return np.zeros((0, n), dtype=np.int64)
        orders = min(levels - 1, 1) if self._nested() else levels - 1
        dealt = np.empty((orders, n), dtype=np.int64)
        for order in dealt:
            order[:] = self.subset_rng.permutation(n)
        return dealt

    def _take_rows(self) -> None:
        """Copy the rows of the subsets, which are the first of their orders."""
        full, ladder = self.problem.full, self.ladder
        self.own = self._allocate_own()
        if self._kind == swaps.SAME_ROWS:
            return
        if self._nested():
            copy_held(full, self._order[0], 0, len(self.own.y), self.own, 0)
            return
        for m, order in enumerate(self._order, start=1):
            lo, hi = int(ladder.lo[m]), int(ladder.hi[m])
            copy_held(full, order, 0, hi - lo, self.own, lo)

    def subsets(self) -> Subsets:
        """Return which rows the levels above 0 have, not copied."""
        return Subsets(self._kind, int(self._nested()), self._order, self._candidates)

    def parallel(self) -> Parallel:
        """Return state, scratch and tallies, not copied."""
        return Parallel(
            self.ensemble, self._places, self.subsets(), self._rates, self._tallies, self._known
        )

    def initialise(self) -> None:
        """Draw a start of every replica."""
        annealed = self.anneal()
        for r in range(len(self.replicas.z)):
            if annealed is None or not self.begin_with(annealed, r, r):
                self.start_replica(r, r)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        if not warmup and not self._drawing:
            self.settle()
            self._forget()
            self._places.round_trips[:] = 0
            self._drawing = True
        adapting = warmup and self.problem.options.ladder == ADAPTED and len(self._tallies) > 2
        done, every = 0, 1 if warmup else self._every
        total = every * len(theta)
        all_theta, all_statistics = theta, statistics
        if every > 1:
            all_theta = np.empty((total, theta.shape[1]))
            all_statistics = np.empty((total, statistics.shape[1]))
        while done < total:
            end = total
            if adapting:
                end = min(end, done + round_end(self.iteration) - self.iteration)
            part = slice(done, end)
            self._run(all_theta[part], all_statistics[part], warmup and not self._tuned)
            if adapting and round_end(self.iteration - 1) == self.iteration:
                self._adapt_ladder()
            done = end
        if every > 1:
            theta[:] = all_theta[every - 1 :: every]
            condense(all_statistics.reshape(len(theta), every, -1), statistics)

    def _run(self, theta: NDArray[np.float64], statistics: NDArray[np.float64], tune: bool) -> None:
        problem, n = self.problem, len(theta)
        pairs = len(self.ladder.beta) - 1
        batch = Batch(
            iteration=self.iteration,
            schedule=self._schedule,
            target=problem.target_acceptance if tune else 0.0,
            draws=self.draw(n),
            fresh=self.fresh(n),
            uniforms=1.0 - self.swap_rng.random((n, pairs)),  # never 0
            exchanges=self.subset_rng.random((n, pairs, OFFSETS + self._proposals)),
            theta=theta,
            statistics=statistics,
        )
        # One BLAS thread or several sum in another order.
        with single_threaded():
            if self._threads_pay(self._seconds_per_iteration / (1 if tune else self._every)):
                self._run_side_by_side(batch)
            else:
                run(problem.link, problem.joint, problem.explore, self.parallel(), batch)
        self.iteration += n

    def _threads_pay(self, seconds: float) -> bool:
        levels = len(self.ladder.beta)
        return min(self.threads, levels) > 1 and self._choice(seconds)

    def _run_side_by_side(self, batch: Batch) -> None:
        """Run the iterations of ``loop.run``, the levels of each on several threads."""
        problem, ladder, chain = self.problem, self.ladder, self.parallel()
        parts = shares(ladder.hi - ladder.lo, min(self.threads, len(ladder.beta)))
        trials = [allocate_trial(problem.dim, problem.n_predictors) for _ in parts[1:]]
        chains = [chain] + [
            chain._replace(ensemble=chain.ensemble._replace(trial=trial)) for trial in trials
        ]

        def explore(thread: int, t: int) -> None:
            explore_levels(
                problem.link, problem.joint, problem.explore, chains[thread], batch,
                parts[thread], t,
            )  # fmt: skip

        with ThreadPoolExecutor(len(parts) - 1) as pool:
            for t in range(len(batch.theta)):
                before = evaluated(self.replicas)
                others = [pool.submit(explore, thread, t) for thread in range(1, len(parts))]
                explore(0, t)
                for other in others:
                    other.result()
                finish(problem.link, problem.joint, chain, batch, t, before)

    def _numbers(self) -> int:
        pairs = len(self.ladder.beta) - 1
        return self._every * (super()._numbers() + pairs * (1 + OFFSETS + self._proposals))

    def _forget(self) -> None:
        """Begin to count anew."""
        self._tallies[:] = start_tallies(len(self._tallies))

    def _adapt_ladder(self) -> None:
        """Space the levels by the rejection rates of this round; their rows follow."""
        self.move_ladder(respaced(self.ladder.beta, rejections(self._tallies)))
        self._forget()
        if self._kind != swaps.SAME_ROWS:
            if self._kind == swaps.SEPARATE:  # prefixes of another length are there already
                self._take_rows()
            self.replicas.scalars[self._places.replica_at[1:], STALE] = 1.0

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that make up the state; rows are gathered again."""
        arrays = {k: v for k, v in super()._arrays().items() if not k.startswith("own_")}
        places = {f"places_{name}": array for name, array in self._places._asdict().items()}
        # What was dealt at the start is dealt again when the run is resumed.
        order = {"order": self._order} if self._proposals else {}
        return {**arrays, **places, **order, "tallies": self._tallies}

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chain``."""
        arrays, meta = super().get_state()
        return arrays, {**meta, "drawing": self._drawing}

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        super().set_state(arrays, meta)
        self._drawing = bool(meta["drawing"])
        self._take_rows()

    def tallies(self) -> dict[str, NDArray[Any]]:
        """Return the counts since warm-up; see ``Chain.tallies``."""
        problem = self.problem
        return recorded(
            self._tallies, self.ladder, self._places.round_trips, problem.proper,
            problem.log_constant,
        )  # fmt: skip

    @staticmethod
    def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
        """Return the summary of all chains' tallies; see ``Chain.described``."""
        return described(tallies)
