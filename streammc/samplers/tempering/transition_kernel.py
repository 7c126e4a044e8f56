"""``tt`` and ``stt``: transitions at level 0, each followed by a tempered transition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.diagnostics.text import percent
from streammc.likelihood.contiguous_rows import HELD_TYPE, copy_held
from streammc.likelihood.target import BASE_TYPE
from streammc.numerics.jit import JOINT_TYPE, LINK_TYPE, f8, i8, index_vector, inline, jit, matrix
from streammc.samplers.common import tuning
from streammc.samplers.common.explorers import EXPLORER_TYPE, TRIAL_TYPE
from streammc.samplers.common.ladder import (
    EVALUATED,
    LADDER_TYPE,
    LOG_LIK,
    LOG_PRIOR,
    REPLICAS_TYPE,
    at_prior,
)
from streammc.samplers.tempering.barrier import respaced, round_end
from streammc.samplers.tempering.excursion import (
    AWAY,
    DOWN,
    DOWN_STEP,
    HOME,
    N_MOVES,
    NOT_VISITED,
    UP,
    UP_STEP,
    decide,
    rise_and_fall,
)
from streammc.samplers.tempering.kernel import TemperedKernel
from streammc.samplers.tempering.options import ADAPTED, HMC
from streammc.samplers.tempering.restarts import restart_warnings
from streammc.samplers.tempering.shared import TemperedProblem
from streammc.samplers.tempering.subsets import choose, n_keys
from streammc.samplers.tempering.tempered_transitions import TransitionOptions

GOING_UP, GOING_DOWN, INCREMENT, EXCHANGE, DIVERGED = range(5)
"""Tallies of a level: acceptance of its kernel on the way up (of level 0 before it) and down;
the mean of its two terms of the log ratio, and the probability of the exchange that they are;
whether a trajectory diverged. The third and the fourth of level 0 are the log ratio and the
acceptance of the whole transition."""
N_TALLIES: Final = 5
LEAST_ACCEPTED: Final = 0.01
"""Where fewer transitions are accepted, a chain stays where it is for hundreds of them."""
_DRAWS: Any = types.Array(f8, 3, "C")


@inline
def _count(tally, which, m, value):  # type: ignore[no-untyped-def]
    """Add a finite value to a sum and to its number of terms."""
    if math.isfinite(value):
        tally[which, m, 0] += value
        tally[which, m, 1] += 1.0


@inline
def _learn(ladder, adapt, m, acceptance, target):  # type: ignore[no-untyped-def]
    """Let the step size of a level follow the acceptance of its kernel, in warm-up."""
    if target > 0.0:
        tuning.update(adapt[m], acceptance, target, 1e300)
        ladder.step[m] = math.exp(adapt[m, tuning.LOG_STEP])


@inline
def _record(ladder, moves, adapt, target, tally):  # type: ignore[no-untyped-def]
    """Count and learn what one tempered transition shows."""
    for m in range(1, ladder.beta.shape[0]):
        both = moves[UP_STEP, m] + moves[DOWN_STEP, m]
        _count(tally, INCREMENT, m, both)
        _count(tally, EXCHANGE, m, math.exp(min(both, 0.0)) if both == both else both)
        for way in (UP, DOWN):
            acceptance = moves[way, m]
            if acceptance == NOT_VISITED:
                continue
            _count(tally, DIVERGED, m, 1.0 if acceptance != acceptance else 0.0)
            acceptance = acceptance if acceptance == acceptance else 0.0
            _count(tally, GOING_UP if way == UP else GOING_DOWN, m, acceptance)
            if not at_prior(ladder, m):
                _learn(ladder, adapt, m, acceptance, target)


@jit(
    types.void(
        LINK_TYPE, JOINT_TYPE, EXPLORER_TYPE, BASE_TYPE, HELD_TYPE, HELD_TYPE, LADDER_TYPE,
        REPLICAS_TYPE, _DRAWS, _DRAWS, matrix, matrix, matrix, index_vector, index_vector, i8,
        TRIAL_TYPE, matrix, matrix, f8, _DRAWS, matrix, matrix,
    ),
    borrow=True,
)  # fmt: skip
def run(  # type: ignore[no-untyped-def]
    link, joint, explore, base, full, own, ladder, replicas, home, away, fresh, uniforms, keys, at,
    order, slopes, trial, moves, adapt, target, tally, theta, stats,
):  # fmt: skip
    """Run as many iterations as ``theta`` has rows; ``target`` above 0 tunes the step sizes."""
    scalars = replicas.scalars
    steps = home.shape[1]
    for t in range(theta.shape[0]):
        before = scalars[HOME, EVALUATED] + scalars[AWAY, EVALUATED]
        rate = any_diverged = accepted = 0.0
        for i in range(steps):
            a = explore(link, joint, base, full, ladder, 0, replicas, HOME, home[t, i], trial)
            diverged = 1.0 if a != a else 0.0
            a = a if a == a else 0.0
            any_diverged = max(any_diverged, diverged)
            rate += a / steps
            _count(tally, GOING_UP, 0, a)
            _count(tally, DIVERGED, 0, diverged)
            _learn(ladder, adapt, 0, a, target)
        if ladder.beta.shape[0] > 1:
            if ladder.own == 1:
                choose(ladder, keys[t], at, order)
                copy_held(full, order, 0, order.shape[0], own, 0)
            ratio = rise_and_fall(
                link, joint, explore, base, full, own, ladder, replicas, away[t], fresh[t],
                slopes, trial, moves,
            )  # fmt: skip
            accepted = float(decide(replicas, ratio, uniforms[t, 0]))
            probability = math.exp(min(ratio, 0.0))
            if steps == 0:
                rate = probability
            _count(tally, EXCHANGE, 0, probability)
            _count(tally, INCREMENT, 0, ratio)
            _record(ladder, moves, adapt, target, tally)
        for j in range(theta.shape[1]):
            theta[t, j] = replicas.theta[HOME, j]
        lp = scalars[HOME, LOG_LIK] + scalars[HOME, LOG_PRIOR]
        row = stats[t]
        row[0] = lp
        row[1] = rate
        row[2] = any_diverged
        row[3] = -lp
        row[4] = ladder.step[0]
        row[5] = ladder.n_steps
        row[6] = 0.0
        row[7] = 1.0
        row[8] = scalars[HOME, EVALUATED] + scalars[AWAY, EVALUATED] - before
        row[9] = scalars[HOME, LOG_LIK]
        row[10] = accepted
        row[11] = 0.0


class TransitionKernel(TemperedKernel):
    """State of one chain of ``tt`` or ``stt``.

    Subsets are drawn anew for every tempered transition and are no part of the state.
    """

    def __init__(
        self, problem: TemperedProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        options = problem.options
        assert isinstance(options, TransitionOptions)
        assert options.n_levels is not None
        top = options.n_levels - 1
        self._home = options.base_steps * options.inner_steps
        self._away = 2 * top * options.inner_steps
        super().__init__(
            problem, seed, chain, batch_iterations=batch_iterations,
            n_replicas=2, transitions=self._home + self._away,
        )  # fmt: skip
        self._slopes = int(options.explorer == HMC)
        self._moves = np.zeros((N_MOVES, top + 1))
        self._at = np.zeros(top + 1, dtype=np.int64)
        self.tally = np.zeros((N_TALLIES, top + 1, 2))
        self._drawing = False

    def initialise(self) -> None:
        """Draw a start."""
        annealed = self.anneal()
        if annealed is None or not self.begin_with(annealed, HOME, 0):
            self.start_replica(HOME, 0)
        else:
            for m in range(1, len(self.ladder.beta)):
                self.take_step(annealed, m)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        if not warmup and not self._drawing:
            self.settle()
            self.tally[:] = 0.0
            self._drawing = True
        adapting = warmup and self.problem.options.ladder == ADAPTED and len(self._at) > 2
        done = 0
        while done < len(theta):
            end = len(theta)
            if adapting:
                end = min(end, done + round_end(self.iteration) - self.iteration)
            self._run(theta[done:end], statistics[done:end], warmup and not self._tuned)
            if adapting and round_end(self.iteration - 1) == self.iteration:
                self._adapt_ladder()
            done = end

    def _run(self, theta: NDArray[np.float64], statistics: NDArray[np.float64], tune: bool) -> None:
        problem, n = self.problem, len(theta)
        uniforms = 1.0 - self.swap_rng.random((n, 1))  # never 0
        keys = self.subset_rng.random((n, n_keys(self.ladder, len(problem.full.y))))
        run(
            problem.link, problem.joint, problem.explore, problem.base, problem.full, self.own,
            self.ladder, self.replicas, self.numbers(HOME, n, self._home),
            self.numbers(AWAY, n, self._away), self.fresh(n), uniforms, keys, self._at,
            np.zeros(len(self.own.y), dtype=np.int64), self._slopes, self.trial, self._moves,
            self._tuning, problem.target_acceptance if tune else 0.0, self.tally, theta, statistics,
        )  # fmt: skip
        self.iteration += n

    def _adapt_ladder(self) -> None:
        """Space the levels by how often the exchanges that a transition is made of would fail."""
        rejected = 1.0 - self._means()[EXCHANGE, 1:]
        if np.isfinite(rejected).any():
            self.move_ladder(respaced(self.ladder.beta, rejected))
            self.own = self._allocate_own()
        self.tally[:] = 0.0

    def _means(self) -> NDArray[np.float64]:
        """Return (5, L) what was counted, as means; NaN where nothing was."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tally[..., 0] / self.tally[..., 1])

    def _numbers(self) -> int:
        return super()._numbers() + n_keys(self.ladder, len(self.problem.full.y))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        kept = {k: v for k, v in super()._arrays().items() if not k.startswith("own_")}
        return {**kept, "tally": self.tally}

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chain``."""
        arrays, meta = super().get_state()
        return arrays, {**meta, "drawing": self._drawing}

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        super().set_state(arrays, meta)
        self._drawing = bool(meta["drawing"])
        self.own = self._allocate_own()

    def tallies(self) -> dict[str, NDArray[Any]]:
        """Return what was counted since warm-up; see ``Chain.tallies``."""
        ladder, mean = self.ladder, self._means()
        step, restarts = ladder.step.copy(), {}
        if self.ends_at_prior:
            step[-1] = np.nan  # independent draws have no steps
            # An accepted transition has been at the prior; its expectation, not the luck.
            restarts = {"restarts": np.asarray(self.tally[EXCHANGE, 0, 0])}
        return {
            "beta": ladder.beta.copy(),
            "rows": (ladder.hi - ladder.lo).copy(),
            "step_size": step,
            "acceptance_up": mean[GOING_UP],
            "acceptance_down": mean[GOING_DOWN],
            "divergences": mean[DIVERGED],
            "log_ratio_increment": mean[INCREMENT, 1:],
            "exchange_probability": mean[EXCHANGE, 1:],
            "transition_acceptance": mean[EXCHANGE, 0],
            "prior_is_proper": np.asarray(int(self.problem.proper)),
            **restarts,
        }

    @staticmethod
    def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
        """Return what the tallies of all chains say; see ``Chain.described``."""
        mean = {name: np.mean([tally[name] for tally in tallies], axis=0) for name in tallies[0]}
        accepted = float(mean.pop("transition_acceptance"))
        mean.pop("prior_is_proper")
        restarts = float(mean.pop("restarts", 0.0)) * len(tallies)
        levels = {
            name: [None if math.isnan(value) else float(value) for value in values]
            for name, values in mean.items()
        }
        found: dict[str, Any] = {"levels": levels}
        if len(mean["beta"]) == 1:
            return found
        found["transition_acceptance"] = accepted
        if mean["beta"][-1] == 0.0:
            found["restarts"] = round(restarts)
        found["warnings"] = restart_warnings(tallies)
        if accepted < LEAST_ACCEPTED:
            found["warnings"] += [
                f"{percent(accepted)} of the tempered transitions were accepted, expected "
                f"{percent(LEAST_ACCEPTED)} or more; ask for a larger beta_min, more inner_steps "
                "or, with all rows, more n_levels"
            ]
        return found
