"""``pt`` and ``spt``: one replica at every level, and swaps between neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import percent
from streammc.likelihood.contiguous_rows import Held, copy_held
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Index
from streammc.samplers.common.proposals import allocate_trial
from streammc.samplers.common.statistics import TEMPERED_STATISTICS
from streammc.samplers.tempering import loop
from streammc.samplers.tempering.facts import LEAST_SWAPS, restart_warnings
from streammc.samplers.tempering.kernel import TemperedKernel, TemperedProblem, respaced, round_end
from streammc.samplers.tempering.ladder import STALE, Ladder
from streammc.samplers.tempering.loop import (
    ACCEPTANCE,
    COLDER,
    DIVERGED,
    EXCHANGES,
    ITERATIONS,
    OFFSETS,
    PROPOSED,
    REJECTION,
    SWAPPED,
    WARMER,
    Batch,
    Parallel,
    Subsets,
    allocate_candidates,
    evaluated,
    explore_levels,
    finish,
    run,
    start_tallies,
)

if TYPE_CHECKING:
    from streammc.samplers.tempering.options import ParallelOptions

# The inner kernels of one iteration on several threads, the same bits as one after the other.
#
# Compiled code is without the GIL, and every level touches its own replica, step size and
# rates. Swaps follow when all levels are done.


LEAST_SECONDS: Final = 0.005
"""Duration of an iteration below which threads are not tried. A call of compiled code with
pointers to functions takes 0.3 ms, and an iteration has one for every thread and one for swaps."""
WORTH_IT: Final = 0.9
"""Threads stay where they save a tenth of the time."""


def shares(cost: Index, threads: int) -> list[Index]:
    """Return the levels of every thread: the dearest first, to the thread with the least work."""
    taken: list[list[int]] = [[] for _ in range(threads)]
    load = np.zeros(threads)
    for level in np.argsort(-cost, kind="stable"):
        thread = int(np.argmin(load))
        taken[thread].append(int(level))
        load[thread] += cost[level]
    return [np.array(levels, dtype=np.int64) for levels in taken]


class Choice:
    """Whether threads pay, by the seconds that an iteration took with them and without."""

    def __init__(self) -> None:
        self._alone = 0.0
        self._decided: bool | None = None

    def __call__(self, seconds: float) -> bool:
        """Return whether to use threads next, ``seconds`` after the last batch; 0 before any."""
        if self._decided is not None:
            return self._decided
        if self._alone > 0.0:
            self._decided = seconds < WORTH_IT * self._alone
            return self._decided
        if seconds < LEAST_SECONDS:
            return False
        self._alone = seconds
        return True


LACKING: Final = "the sum of weight x log C(n, k), since weights or a temperature hide the trials"
"""Term missing in ``log_normalising_constant`` of a binomial model whose trials n are unknown."""


def rejections(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (M,) mean rejection probabilities of swaps; NaN where none was proposed."""
    with np.errstate(invalid="ignore"):
        return np.asarray(counts[1:, REJECTION] / counts[1:, PROPOSED])


def condense(statistics: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the statistics ``out`` (n, s) of draws of k iterations each, ``statistics`` (n, k, s).

    Those of the state are those of the last iteration; acceptance and swaps are means, rows are
    summed, and a draw diverges if an iteration does.
    """
    out[:] = statistics[:, -1]
    for name, over in (
        ("acceptance_rate", np.mean),
        ("swap_accepted", np.mean),
        ("diverging", np.max),
        ("n_rows", np.sum),
    ):
        column = TEMPERED_STATISTICS.index(name)
        out[:, column] = over(statistics[:, :, column], axis=1)


def recorded(
    counts: NDArray[np.float64],
    ladder: Ladder,
    round_trips: NDArray[np.int64],
    proper: bool = True,
    log_constant: float | None = 0.0,
) -> dict[str, NDArray[Any]]:
    """Return the tallies of one chain by name; see ``Chain.tallies``.

    ``swap_rate`` is the mean probability of exchanging a level with the next, ``barrier`` the sum
    of 1 - ``swap_rate``. ``log_ratio_warmer`` and ``log_ratio_colder`` estimate
    ``log Z_{m-1} / Z_m`` of powers of the likelihood by stepping stones (Xie et al. 2011), from
    the states of level m and of level m - 1; ``log_constant`` is what the likelihood leaves out,
    NaN where that is not known. Where the last level is the prior, ``round_trips`` are
    ``restarts``.
    """
    with np.errstate(invalid="ignore"):
        per_level = counts[:, [ACCEPTANCE, DIVERGED]] / counts[:, [ITERATIONS]]
    found: dict[str, NDArray[Any]] = {
        "beta": ladder.beta.copy(),
        "rows": ladder.hi - ladder.lo,
        "step_size": ladder.step.copy(),
        "acceptance_rate": per_level[:, 0],
        "divergences": per_level[:, 1],
    }
    if len(counts) == 1:
        return found
    restarts = bool(ladder.beta[-1] == 0.0)
    if restarts:
        found["step_size"][-1] = np.nan  # independent draws have no steps
    rejected = rejections(counts)
    found |= {
        "swaps_proposed": counts[1:, PROPOSED].astype(np.int64),
        "swaps_accepted": counts[1:, SWAPPED].astype(np.int64),
        "swap_rate": 1.0 - rejected,
        "barrier": np.asarray(rejected.sum()),
        "restarts" if restarts else "round_trips": np.asarray(round_trips.sum()),
        "prior_is_proper": np.asarray(int(proper)),
    }
    if counts[:, EXCHANGES].any():
        with np.errstate(invalid="ignore"):  # the prior has no rows to exchange
            found["exchanges_accepted"] = counts[1:, EXCHANGES + 1] / counts[1:, EXCHANGES]
    if not ladder.own:
        with np.errstate(divide="ignore", invalid="ignore"):  # before the first draw
            steps = np.log(counts[1:, ITERATIONS])
            found["log_ratio_warmer"] = counts[1:, WARMER] - steps
            found["log_ratio_colder"] = steps - counts[1:, COLDER]
        if restarts:
            found["log_constant"] = np.asarray(np.nan if log_constant is None else log_constant)
    return found


def _over_chains(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and its standard error where there are several."""
    mean = float(np.mean(values))
    if len(values) < 2 or not math.isfinite(mean):
        return mean, None
    return mean, float(np.std(values, ddof=1) / math.sqrt(len(values)))


def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
    """Return the summary of all chains' tallies, as JSON; see ``Chain.described``."""
    mean = {name: np.mean([tally[name] for tally in tallies], axis=0) for name in tallies[0]}
    shown = ("beta", "rows", "step_size", "acceptance_rate", "swap_rate")
    found: dict[str, Any] = {
        "levels": {
            name: [float(v) if math.isfinite(v) else None for v in mean[name]]
            for name in shown
            if name in mean
        }
    }
    if "swap_rate" not in mean:
        return found
    barrier, error = _over_chains([float(tally["barrier"]) for tally in tallies])
    kind = "restarts" if "restarts" in mean else "round_trips"
    trips = int(sum(int(tally[kind]) for tally in tallies))
    found |= {"barrier": _or_none(barrier), "barrier_error": error, kind: trips}
    if "log_ratio_warmer" in mean:
        totals = [float(tally["log_ratio_warmer"].sum()) for tally in tallies]
        value, error = _over_chains(totals)
        prior = float(mean["beta"][-1]) == 0.0
        name = "log_normalising_constant" if prior else "log_normalising_ratio"
        constant = float(mean["log_constant"]) if prior else 0.0
        if math.isnan(constant):
            found[f"{name}_lacks"] = LACKING
        else:
            value += constant
        found |= {name: _or_none(value), f"{name}_error": error}
    found["warnings"] = [*_warnings(mean, barrier, trips), *restart_warnings(tallies)]
    return found


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _warnings(mean: Mapping[str, NDArray[Any]], barrier: float, trips: int) -> list[str]:
    """Return warnings of the ladder, each with its remedy."""
    found = []
    rates = mean["swap_rate"]
    levels = len(rates) + 1
    lowest = int(np.nanargmin(rates)) if np.isfinite(rates).any() else 0
    wanted = max(math.ceil(2.0 * barrier + 1.0), levels + 1) if math.isfinite(barrier) else levels
    if rates[lowest] < LEAST_SWAPS and "exchanges_accepted" in mean:
        found.append(
            f"levels {lowest} and {lowest + 1} of the ladder exchanged states in "
            f"{percent(rates[lowest])} of the proposals, expected {percent(LEAST_SWAPS)} or "
            "more: subsets that are resampled come to hold the units that are likely anyway; "
            "leave out resample"
        )
    elif rates[lowest] < LEAST_SWAPS:
        found.append(
            f"levels {lowest} and {lowest + 1} of the ladder exchanged states in "
            f"{percent(rates[lowest])} of the proposals, expected {percent(LEAST_SWAPS)} or "
            f"more; ask for n_levels={wanted} or more, for more warm-up, or for a larger beta_min"
        )
    if trips == 0 and "round_trips" in mean:
        found.append(
            "no state went from level 0 to the last level and back: a mode that is far away may "
            "have been missed; ask for more draws, or for other n_levels or beta_min"
        )
    return found


class ParallelKernel(TemperedKernel):
    """State of one chain of ``pt`` or ``spt``."""

    def __init__(
        self, problem: TemperedProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        options = cast("ParallelOptions", problem.options)
        assert options.n_levels is not None
        super().__init__(
            problem, seed, chain, batch_iterations=batch_iterations,
            n_replicas=options.n_levels, transitions=options.inner_steps,
        )  # fmt: skip
        levels = options.n_levels
        self._every = options.iterations_per_draw or 1
        self._schedule = loop.SCHEDULES[options.swaps]
        self._places = loop.allocate_places(levels)
        self._tallies = start_tallies(levels)
        self._rates = np.zeros((levels, 2))  # rates and known: see ``loop.Parallel``
        self._known = np.zeros(2)
        self._proposals = options.exchanges  # of rows, per level and iteration
        self._candidates = allocate_candidates(self._proposals, len(problem.full.design))
        self._choice = Choice()
        self._drawing = False
        self._order = self._deal()
        self._take_rows()

    def _allocate_own(self) -> Held:
        """Return room for the rows of the subsets; of nested ones, for all rows in their order."""
        full, ladder = self.problem.full, self.ladder
        self._kind = loop.SAME_ROWS
        n = 0
        if ladder.own and len(ladder.beta) > 1:
            n = int(ladder.hi[1:].max())
            self._kind = loop.SEPARATE
            if self.problem.options.nested and not full.joint:
                n = len(full.y)
                self._kind = loop.PREFIXES
        return self._allocate_rows(n)

    def _deal(self) -> NDArray[np.int64]:
        """Return orders of the rows: one (1, N), or one for every level above 0, (M, N).

        A subset is the first part of an order: of the one order where subsets are nested.
        """
        n, levels = len(self.problem.full.y), len(self.ladder.beta)
        if not self.ladder.own:
            return np.zeros((0, n), dtype=np.int64)
        orders = min(levels - 1, 1) if self.problem.options.nested else levels - 1
        dealt = np.empty((orders, n), dtype=np.int64)
        for order in dealt:
            order[:] = self.subset_rng.permutation(n)
        return dealt

    def _take_rows(self) -> None:
        """Copy the rows of the subsets, which are the first of their orders."""
        full, ladder = self.problem.full, self.ladder
        self.own = self._allocate_own()
        if self._kind == loop.SAME_ROWS:
            return
        if self.problem.options.nested:
            copy_held(full, self._order[0], 0, len(self.own.y), self.own, 0)
            return
        for m, order in enumerate(self._order, start=1):
            lo, hi = int(ladder.lo[m]), int(ladder.hi[m])
            copy_held(full, order, 0, hi - lo, self.own, lo)

    def subsets(self) -> Subsets:
        """Return which rows the levels above 0 have, not copied."""
        return Subsets(self._kind, int(self.problem.options.nested), self._order, self._candidates)

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
        adapting = warmup and self.problem.options.ladder == "adapted" and len(self._tallies) > 2
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
        """Return how many random numbers a draw takes: k iterations, swaps and exchanges."""
        pairs = len(self.ladder.beta) - 1
        return self._every * (super()._numbers() + pairs * (1 + OFFSETS + self._proposals))

    def _forget(self) -> None:
        """Begin to count anew."""
        self._tallies[:] = start_tallies(len(self._tallies))

    def _adapt_ladder(self) -> None:
        """Space the levels by the rejection rates of this round; their rows follow."""
        self.move_ladder(respaced(self.ladder.beta, rejections(self._tallies)))
        self._forget()
        if self._kind != loop.SAME_ROWS:
            if self._kind == loop.SEPARATE:  # prefixes of another length are there already
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
        """Return arrays and JSON; see ``common.chains``."""
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
