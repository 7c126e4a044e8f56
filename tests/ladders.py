"""Parallel tempering in production over a few states, whose likelihood is a table."""

from __future__ import annotations

import itertools
import math

import numpy as np

from streammc.likelihood.contiguous_rows import _no_joint, _no_link, hold
from streammc.likelihood.target import Base
from streammc.numerics.jit import JOINT_SIGNATURE, LINK_SIGNATURE, jit
from streammc.priors import flat, normal
from streammc.samplers import pt, spt
from streammc.samplers.common.statistics import TEMPERED_STATISTICS
from streammc.samplers.tempering.kernel import TemperedProblem
from streammc.samplers.tempering.ladder import EXPLORERS, LOG_LIK, STALE, refresh
from streammc.samplers.tempering.loop import PROPOSED, REJECTION, Batch, finish, start_tallies
from streammc.samplers.tempering.parallel_kernel import ParallelKernel
from streammc.stores import from_arrays

STATES, ROWS = 3, 4
TABLE = 1.2 * np.random.default_rng(6).normal(size=(ROWS, STATES))
LOCATION, SCALE = 1.0, 1.5
ACCEPT, REJECT = 1e-300, 1.0
"""Uniforms; one rejects unless acceptance is certain."""


@jit(LINK_SIGNATURE)
def by_row(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        state = round(eta[0, i])
        inside = 0 <= state < STATES
        out[0, i] = constants[int(y[i]) * STATES + state] if inside else -math.inf


@jit(JOINT_SIGNATURE)
def as_a_whole(X, y, theta, constants, order, gradient):
    state = round(theta[0])
    if not 0 <= state < STATES:
        return -math.inf
    total = 0.0
    for i in range(y.shape[0]):
        total += constants[int(y[i]) * STATES + state]
    return total - 0.3 * total * total


@jit(LINK_SIGNATURE)
def gaussian_rows(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        residual = y[i] - eta[0, i]
        out[0, i] = -0.5 * residual * residual - 0.5 * math.log(2.0 * math.pi)
        if order >= 1:
            out[1, i] = residual


def problem(options, X, y, *, link=gaussian_rows, joint=None, prior=None, constants=()):
    """Return the problem of a ladder over rows, with steps in units of theta."""
    d = X.shape[1]
    base = Base(
        np.zeros(d), 0.0, np.zeros(d), np.zeros((d, d)), np.eye(d),
        (prior or flat()).table([f"x{j}" for j in range(d)]), np.array(constants, dtype=float),
        1, -1, 1, 0.0, 0.0,
    )  # fmt: skip
    data = from_arrays(X, y)
    return TemperedProblem(
        kernel_class=ParallelKernel,
        link=_no_link if joint is not None else link,
        joint=joint if joint is not None else _no_joint,
        explore=EXPLORERS[options.explorer],
        base=base,
        full=hold(data, joint=joint is not None),
        source=data.rows(),
        constrain=lambda theta: theta,
        options=options,
        target_acceptance=0.8 if options.explorer == "hmc" else 0.44,
        first=np.zeros(d),
        spread=0.5,
    )


CASES = {
    "powers": (pt, {}, False),
    "posterior": (pt, {"path": "posterior"}, False),
    "powers of a whole": (pt, {}, True),
    "nested": (spt, {}, False),
    "independent": (spt, {"subsets": "independent"}, False),
    "nested, whole": (spt, {}, True),
    "independent, whole": (spt, {"subsets": "independent"}, True),
}
SUBSETS = [name for name, case in CASES.items() if case[0] is spt]


class Tabulated:
    """Three levels over three states: the production chain, and its target by the table."""

    def __init__(self, name, **options):
        build, settings, self.whole = CASES[name]
        fixed = {"n_levels": 3, "beta_min": 0.25, "ladder": "geometric"}
        sampler = build(explorer="random-walk", step_size=1.0, **fixed, **settings, **options)
        self.sampler = sampler
        self.problem = problem(
            sampler, np.ones((ROWS, 1)), np.arange(ROWS, dtype=float), link=by_row,
            joint=as_a_whole if self.whole else None, prior=normal(SCALE, location=LOCATION),
            constants=TABLE.ravel(),
        )  # fmt: skip
        self.kernel = ParallelKernel(self.problem, 1, 0)
        self.configurations = list(itertools.product(range(STATES), repeat=3))

    @property
    def levels(self):
        return len(self.kernel.ladder.beta)

    def log_lik(self, m, state):
        """The log-likelihood of the rows of level m, in NumPy."""
        ladder, order = self.kernel.ladder, self.kernel._order
        if not ladder.own or m == 0:
            rows = np.arange(ROWS)
        else:
            rows = order[0 if len(order) == 1 else m - 1][: ladder.hi[m] - ladder.lo[m]]
        total = TABLE[rows, state].sum()
        return total - 0.3 * total**2 if self.whole else total

    def log_h(self, m, state):
        ladder = self.kernel.ladder
        prior = -0.5 * ((state - LOCATION) / SCALE) ** 2
        return ladder.power[m] * self.log_lik(m, state) + ladder.prior_power[m] * prior

    def target(self):
        """(27,) probabilities of the configurations, not normalised."""
        return np.exp([sum(self.log_h(m, s) for m, s in enumerate(c)) for c in self.configurations])

    def place(self, configuration):
        """Put a replica at every level, the number of the level its own."""
        kernel = self.kernel
        kernel._places.replica_at[:] = kernel._places.level_of[:] = np.arange(self.levels)
        kernel.replicas.scalars[:, STALE] = 1.0
        for m, state in enumerate(configuration):
            kernel.replicas.z[m] = state
            refresh(
                self.problem.link, self.problem.joint, self.problem.base, kernel.held(m),
                kernel.ladder, m, kernel.replicas, m, 0, kernel.trial.scratch,
            )  # fmt: skip

    def configuration(self):
        places, replicas = self.kernel._places, self.kernel.replicas
        return tuple(int(replicas.theta[r, 0]) for r in places.replica_at)

    def known(self):
        """Whether every replica knows the log-likelihood of its level."""
        places, replicas = self.kernel._places, self.kernel.replicas
        wanted = [self.log_lik(m, s) for m, s in enumerate(self.configuration())]
        return np.allclose(wanted, replicas.scalars[places.replica_at, LOG_LIK], atol=1e-12)

    def swaps(self, iteration=0):
        """(27, 27) probabilities of all swaps of an iteration, by every outcome in production."""
        kernel, pairs = self.kernel, self.levels - 1
        index = {c: i for i, c in enumerate(self.configurations)}
        out = np.zeros((len(index), len(index)))
        for before, i in index.items():
            for uniforms in itertools.product((ACCEPT, REJECT), repeat=pairs):
                self.place(before)
                kernel._tallies[:] = start_tallies(self.levels)
                batch = Batch(
                    iteration, kernel._schedule, 0.0, np.zeros((1, self.levels, 1, 3)),
                    np.zeros((1, 1)), np.array([uniforms]), np.zeros((1, pairs, 2)),
                    np.zeros((1, 1)), np.zeros((1, len(TEMPERED_STATISTICS))),
                )  # fmt: skip
                finish(self.problem.link, self.problem.joint, kernel.parallel(), batch, 0, 0.0)
                assert self.known()
                proposed, rejected = kernel._tallies[1:, [PROPOSED, REJECTION]].T
                chance = np.where(np.array(uniforms) == ACCEPT, 1.0 - rejected, rejected)
                # A pair whose turn it is not: one outcome, counted once.
                chance[proposed == 0.0] = np.array(uniforms)[proposed == 0.0] == ACCEPT
                out[i, index[self.configuration()]] += np.prod(chance)
        return out


def ratio(case, m, a, b, *, swapped=False):
    """The log ratio of exchanging a at level m - 1 and b at level m, by the table."""
    total = case.log_h(m - 1, b) + case.log_h(m, a) - case.log_h(m - 1, a) - case.log_h(m, b)
    return -total if swapped else total


def by_hand(case, *, pair=0, swapped=False):
    """A sweep by matrices; ``pair`` 1 exchanges (m, m + 1), as the paper's algorithm prints."""
    index = {c: i for i, c in enumerate(case.configurations)}
    whole = np.eye(len(index))
    for m in range(case.levels - 1, 0, -1):
        move = np.zeros_like(whole)
        for before, i in index.items():
            chance = float(
                np.exp(min(ratio(case, m, before[m - 1], before[m], swapped=swapped), 0))
            )
            after = list(before)
            low, high = m - 1 + pair, m + pair
            if high < case.levels:
                after[low], after[high] = after[high], after[low]
            move[i, index[tuple(after)]] += chance
            move[i, i] += 1.0 - chance
        whole = whole @ move
    return whole
