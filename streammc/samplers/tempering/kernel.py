"""Base class of the chains with a ladder: shared problem, levels, replicas, first positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError, OutOfMemoryError
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.contiguous_rows import Held, allocate_held, held_bytes, log_likelihood
from streammc.likelihood.target import Base
from streammc.numerics.prior import N_STREAMS, draw_prior
from streammc.protocols import Index, Matrix, RowSource, Vector
from streammc.samplers.common import tuning
from streammc.samplers.common.chains import BATCH_SECONDS, Chain
from streammc.samplers.common.proposals import Trial, allocate_trial
from streammc.samplers.common.statistics import TEMPERED_STATISTICS
from streammc.samplers.tempering.ladder import (
    LOG_LIK,
    LOG_PRIOR,
    N_UNIFORMS,
    STALE,
    Ensemble,
    Ladder,
    allocate_replicas,
    explore_level,
    geometric,
    refresh,
    restart,
)

if TYPE_CHECKING:
    from streammc.samplers.tempering.options import TemperedOptions

STEPS: Final = 10
"""Leapfrog steps of a transition, where they are not given."""
FIRST_STEP: Final = {"hmc": (0.5, 0.25), "random-walk": (2.38, 0.5)}
"""A first step size ``c d^-p`` at level 0."""


@dataclass(frozen=True)
class TemperedProblem:
    """Rows, log-likelihood and options that all chains share."""

    kernel_class: Callable[..., Chain]
    """Class of the chains: ``ParallelKernel`` or ``TransitionKernel``."""
    link: Any
    joint: Any
    """One of the two is never called: ``density.pointers``."""
    explore: Any
    """The inner kernel."""
    base: Base
    full: Held
    """Every row, shared by all chains."""
    source: RowSource
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    options: TemperedOptions
    target_acceptance: float
    first: Vector
    """(d,) mean of the first positions, in the sampler's coordinates."""
    spread: float
    """Standard deviation of the first positions there."""
    proper: bool = True
    """Whether the prior is a density, so that a ladder can end there."""
    log_constant: float | None = 0.0
    """Constant term of the log probability of the responses that the log-likelihood omits;
    ``None``: not known."""
    memory: Callable[[], int] | None = None
    """Bytes that rows of subsets may take, asked by every chain; ``None``: any number."""
    design: None = None
    """There is none: rows are held."""

    @property
    def dim(self) -> int:
        """Length of theta."""
        return int(self.base.theta_star.shape[0])

    @property
    def first_step(self) -> float:
        """Step size of level 0 before it is tuned."""
        c, power = FIRST_STEP[self.options.explorer]
        return self.options.step_size or float(c * self.dim**-power)

    @property
    def n_predictors(self) -> int:
        """Predictors of a row, p."""
        q, n_linear = len(self.full.design), int(self.base.n_linear)
        return n_linear + self.dim - n_linear * q

    @property
    def certain(self) -> Block:
        """Every row, not expanded: the rows that are held in memory."""
        return Block(self.full.design, self.full.y, self.full.weight, *_NO_EXPANSION)

    @property
    def certainty_rows(self) -> Index:
        """No row is left out of a subset."""
        return np.zeros(0, dtype=np.int64)

    def ladder(self, beta: Vector) -> Ladder:
        """Return the levels of a first ladder."""
        options, n = self.options, len(self.full.y)
        ones, zeros = np.ones(len(beta)), np.zeros(len(beta), dtype=np.int64)
        ladder = Ladder(
            beta=beta.copy(),
            power=ones.copy(),
            prior_power=ones.copy(),
            lo=zeros.copy(),
            hi=zeros + n,
            step=ones * self.first_step,
            n_steps=options.n_steps or STEPS,
            jitter=options.jitter,
            own=int(options.subsets_of_rows),
        )
        self.set_beta(ladder, beta)
        # At the prior a step in posterior standard deviations is as long as anything.
        ladder.step[:] *= np.maximum(beta, 1.0 / max(n, 1)) ** -0.5
        return ladder

    def set_beta(self, ladder: Ladder, beta: Vector) -> None:
        """Give the levels other inverse temperatures; the rows of subsets change as well."""
        options, n = self.options, len(self.full.y)
        ladder.beta[:] = beta
        if not options.subsets_of_rows:
            ladder.power[:] = beta
            if options.powers_of_prior:
                ladder.prior_power[:] = beta
            return
        ladder.lo[:], ladder.hi[:] = subset_bounds(options, beta, n)

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> Chain:
        """Return chain ``chain`` of the run with that seed."""
        return self.kernel_class(self, seed, chain, batch_iterations=batch_iterations)


def subset_bounds(options: TemperedOptions, beta: Vector, n: int) -> tuple[Index, Index]:
    """Return (M + 1,) first and last rows of the levels in their table; level 0 has all ``n``."""
    # The prior has no rows, any other level has one at least.
    sizes = np.maximum(np.rint(beta * n), beta > 0.0).astype(np.int64)
    sizes[0] = n
    lo = np.zeros(len(beta), dtype=np.int64)
    if not options.nested:
        lo[2:] = np.cumsum(sizes[1:])[:-1]
    return lo, lo + sizes


_EMPTY = allocate_block(0, 0, 0)
_NO_EXPANSION = (_EMPTY.eta_star, _EMPTY.expansion)


# The global barrier of a ladder from its swap rates, and levels at equal steps of it.
#
# With r_m the probability that the pair ``(m - 1, m)`` rejects, ``Lambda = sum_m r_m`` is the
# global barrier, which depends on the ends of the ladder and hardly on the levels between, and
# ``Lambda(beta)`` is its part from 1 down to beta. Round trips are most frequent where all pairs
# reject equally often: levels at equal steps of ``Lambda(beta)`` (Syed et al. 2021, section 5).


LEAST_REJECTION: Final = 0.01
"""A pair that never rejected counts as that much: the barrier must rise."""
FIRST_ROUND: Final = 25
"""Iterations; every further round of warm-up is twice as long."""


def cumulative(rejection: Vector) -> Vector:
    """Return (L,) ``Lambda(beta_m)`` from the (M,) rejection rates of neighbours."""
    return np.concatenate([[0.0], np.cumsum(rejection)])


def respaced(beta: Vector, rejection: Vector) -> Vector:
    """Return as many levels between the same ends, at equal steps of the barrier.

    ``Lambda`` is interpolated by a monotone cubic. The scale of beta is logarithmic, where
    powers of a peaked likelihood have a constant local barrier; down to a last level of 0
    it is that of ``log(1 + beta / beta_{M-1})``, since the prior ends the growth.

    Parameters
    ----------
    beta
        (L,) falling; its first and its last value are kept.
    rejection
        (M,) rates of the pairs ``(m - 1, m)``, in [0, 1]; not a number: never proposed.
    """
    if len(beta) < 3:
        return beta.copy()
    from scipy.interpolate import PchipInterpolator

    known = np.where(np.isfinite(rejection), rejection, np.nanmean(rejection))
    barrier = cumulative(np.maximum(known, LEAST_REJECTION))
    scale = beta[-2] if beta[-1] == 0.0 else 0.0
    place = np.log1p(beta / scale) if scale else np.log(beta)
    wanted = np.linspace(0.0, barrier[-1], len(beta))
    found = PchipInterpolator(barrier, place)(wanted)
    moved = np.asarray(scale * np.expm1(found) if scale else np.exp(found))
    moved[0], moved[-1] = beta[0], beta[-1]
    return moved


def round_end(iteration: int) -> int:
    """Return after how many iterations of warm-up the round under way there ends."""
    end, length = FIRST_ROUND, FIRST_ROUND
    while end <= iteration:
        length *= 2
        end += length
    return end


# First positions of a ladder that ends at the prior: one draw of it, brought down to level 0.
#
# Every chain anneals a draw of its own, so that chains start as far apart as the prior says and
# end up in whatever mode its draw leads to: R-hat sees modes between which nothing moves.


TRANSITIONS: Final = 25
"""Transitions of the inner kernel at every level on the way down."""
LEAST_LEVELS: Final = 13
"""Every level is colder by a factor of at most 3, from 1e-6 on."""
TRIES: Final = 100


class Annealed(NamedTuple):
    """Positions and step sizes of a draw from the prior on its way down to level 0."""

    beta: Vector
    """(A,) falling from 1 to 0."""
    z: Matrix
    """(A, d) positions after the transitions at every level."""
    step: Vector
    """(A,) tuned step sizes; that of the prior is not used."""

    def nearest(self, beta: float) -> int:
        """Return the level whose inverse temperature is nearest to ``beta``."""
        if beta == 0.0:
            return len(self.beta) - 1
        return int(np.argmin(np.abs(np.log(self.beta[:-1] / beta))))


def powers(problem: TemperedProblem, beta: Vector, step: float) -> Ladder:
    """Return levels that all have all rows, and a power of the likelihood."""
    options, n = problem.options, len(problem.full.y)
    ones, zeros = np.ones(len(beta)), np.zeros(len(beta), dtype=np.int64)
    return Ladder(
        beta.copy(), beta.copy(), ones.copy(), zeros.copy(), zeros + n, ones * step,
        options.n_steps or STEPS, options.jitter, 0,
    )  # fmt: skip


def anneal(
    problem: TemperedProblem,
    trial: Trial,
    step: float,
    fresh: Callable[[int], Matrix],
    numbers: Callable[[int, int], np.ndarray[Any, Any]],
) -> Annealed | None:
    """Return the way of a draw from the prior down to level 0; ``None`` if it finds none.

    ``step`` is that of a first level 0, ``fresh(n)`` returns draws (n, d) from the prior and
    ``numbers(n, transitions)`` random numbers of the inner kernel.
    """
    options = problem.options
    beta = geometric(max(options.n_levels or 0, LEAST_LEVELS), 0.0)
    ladder = powers(problem, beta, step)
    replicas, nothing = allocate_replicas(1, problem.dim), np.zeros(problem.dim)
    z = np.zeros((len(beta), problem.dim))
    hot = len(beta) - 1
    shared = (problem.link, problem.joint, problem.base, problem.full, ladder)
    for _ in range(TRIES):
        restart(*shared, hot, replicas, 0, fresh(1)[0], trial.scratch)
        refresh(*shared, hot, replicas, 0, 1, trial.scratch)
        if _finite(replicas):
            break
    else:
        return None
    z[hot] = replicas.z[0]
    draws = numbers(hot, TRANSITIONS)
    wide = float(max(beta[-2], 1.0 / max(len(problem.full.y), 1)))
    first = step * wide**-0.5
    for m in range(hot - 1, -1, -1):
        adapt = np.array([tuning.start(first, reference=False)] * len(beta))
        ladder.step[m] = first if options.step_size is None else step * max(beta[m], wide) ** -0.5
        target = problem.target_acceptance if options.step_size is None else 0.0
        ensemble = Ensemble(
            problem.base, problem.full, problem.full, ladder, replicas, trial, adapt
        )
        explore_level(
            problem.link, problem.joint, problem.explore, ensemble, 0, m, draws[m], nothing, target
        )
        if target:
            ladder.step[m] = np.exp(adapt[m, tuning.LOG_AVERAGE])
        z[m] = replicas.z[0]
        if m:
            first = float(ladder.step[m] * np.sqrt(beta[m] / beta[m - 1]))
    refresh(*shared, 0, replicas, 0, 1, trial.scratch)
    return Annealed(beta, z, ladder.step.copy()) if _finite(replicas) else None


def _finite(replicas: Any) -> bool:
    """Whether the first replica has a finite density and gradient."""
    known = replicas.scalars[0, LOG_LIK] + replicas.scalars[0, LOG_PRIOR]
    return bool(np.isfinite(known) and np.isfinite(replicas.slope).all())


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
            replicas, r, int(problem.options.explorer == "hmc"), self.trial.scratch,
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
        """Return arrays and JSON; see ``common.chains``."""
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
