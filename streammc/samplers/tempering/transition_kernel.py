"""``tt`` and ``stt``: transitions at level 0, each followed by a tempered transition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import percent
from streammc.samplers.tempering.facts import restart_warnings
from streammc.samplers.tempering.kernel import TemperedKernel, TemperedProblem, respaced, round_end
from streammc.samplers.tempering.transition_loop import (
    AWAY,
    DIVERGED,
    EXCHANGE,
    GOING_DOWN,
    GOING_UP,
    HOME,
    INCREMENT,
    N_MOVES,
    N_TALLIES,
    Batch,
    Transition,
    n_keys,
    run,
)

if TYPE_CHECKING:
    from streammc.samplers.tempering.options import TransitionOptions

LEAST_ACCEPTED: Final = 0.01
"""Acceptance rate below which a chain stays at one state for hundreds of transitions."""


class TransitionKernel(TemperedKernel):
    """State of one chain of ``tt`` or ``stt``.

    Subsets are drawn anew for every tempered transition and are no part of the state.
    """

    def __init__(
        self, problem: TemperedProblem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        options = cast("TransitionOptions", problem.options)
        assert options.n_levels is not None
        top = options.n_levels - 1
        self._home = options.base_steps * options.inner_steps
        self._away = 2 * top * options.inner_steps
        super().__init__(
            problem, seed, chain, batch_iterations=batch_iterations,
            n_replicas=2, transitions=self._home + self._away,
        )  # fmt: skip
        self._slopes = int(options.explorer == "hmc")
        self._moves = np.zeros((N_MOVES, top + 1))
        self._next_places = np.zeros(top + 1, dtype=np.int64)
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
        adapts = self.problem.options.ladder == "adapted"
        adapting = warmup and adapts and len(self._next_places) > 2
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
        rows = np.zeros(len(self.own.y), dtype=np.int64)
        batch = Batch(
            target=problem.target_acceptance if tune else 0.0,
            home=self.random_numbers(HOME, n, self._home),
            away=self.random_numbers(AWAY, n, self._away),
            fresh=self.fresh(n),
            uniforms=uniforms,
            keys=keys,
            theta=theta,
            statistics=statistics,
        )
        transition = Transition(self._slopes, self._next_places, rows, self._moves, self.tally)
        run(problem.link, problem.joint, problem.explore, self.ensemble, transition, batch)
        self.iteration += n

    def _adapt_ladder(self) -> None:
        """Space the levels by how often the exchanges that a transition is made of would fail."""
        rejected = 1.0 - self._means()[EXCHANGE, 1:]
        if np.isfinite(rejected).any():
            self.move_ladder(respaced(self.ladder.beta, rejected))
            self.own = self._allocate_own()
        self.tally[:] = 0.0

    def _means(self) -> NDArray[np.float64]:
        """Return (5, L) means of the tallies; NaN where nothing was counted."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tally[..., 0] / self.tally[..., 1])

    def _numbers(self) -> int:
        return super()._numbers() + n_keys(self.ladder, len(self.problem.full.y))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        kept = {k: v for k, v in super()._arrays().items() if not k.startswith("own_")}
        return {**kept, "tally": self.tally}

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``."""
        arrays, meta = super().get_state()
        return arrays, {**meta, "drawing": self._drawing}

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        super().set_state(arrays, meta)
        self._drawing = bool(meta["drawing"])
        self.own = self._allocate_own()

    def tallies(self) -> dict[str, NDArray[Any]]:
        """Return the counts since warm-up; see ``Chain.tallies``."""
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
        """Return the summary of all chains' tallies; see ``Chain.described``."""
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
                "or, with all data, more n_levels"
            ]
        return found
