"""A tempered transition leaves level 0 invariant: every outcome of its random numbers added up.

The state is one of five, the inner kernel the random walk in production with steps of one
state to either side. A transition has four outcomes, two directions each accepted or
rejected, whose probabilities the kernel returns itself. The same move by matrices is off
where the paper's misprints are taken at their word.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from streammc.likelihood.contiguous_rows import _no_joint, _no_link, allocate_held, copy_held
from streammc.likelihood.target import Base
from streammc.numerics.jit import JOINT_SIGNATURE, LINK_SIGNATURE, jit
from streammc.priors import normal
from streammc.samplers.common.proposals import allocate_trial
from streammc.samplers.tempering.ladder import (
    LOG_LIK,
    LOG_PRIOR,
    STALE,
    Ensemble,
    Ladder,
    allocate_replicas,
    random_walk,
    refresh,
)
from streammc.samplers.tempering.transition_loop import (
    AWAY,
    DOWN,
    HOME,
    N_MOVES,
    NOT_VISITED,
    UP,
    choose,
    decide,
    n_keys,
    rise_and_fall,
)

STATES, ROWS = 5, 6
TABLE = 3.0 * np.random.default_rng(6).normal(size=(ROWS, STATES))
PRIOR = normal(1.5, location=1.0)
BETA = np.array([1.0, 0.5, 0.17])
REJECT, ACCEPT = 1.0, 1e-9
"""Uniforms: of the kernel, whose acceptance is either 1 or well inside (0, 1)."""


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        state = round(eta[0, i])
        inside = 0 <= state < STATES
        out[0, i] = constants[int(y[i]) * STATES + state] if inside else -math.inf


@jit(JOINT_SIGNATURE)
def joint(X, y, theta, constants, order, gradient):
    """A likelihood that is no product: the square of the sum over the rows."""
    state = round(theta[0])
    if not 0 <= state < STATES:
        return -math.inf
    total = 0.0
    for i in range(y.shape[0]):
        total += constants[int(y[i]) * STATES + state]
    return total - 0.1 * total * total


class Case:
    """A ladder of three levels over five states, in production."""

    def __init__(self, kind, *, subsets=None, prior_power=None):
        self.joint = kind == "joint"
        self.pointers = (_no_link, joint) if self.joint else (link, _no_joint)
        n, zeros = len(BETA), np.zeros(len(BETA), dtype=np.int64)
        own = subsets is not None
        sizes, shift = np.array([ROWS, 3, 1]), [0, 0, 3 if subsets == "independent" else 0]
        self.ladder = Ladder(
            beta=BETA,
            power=np.ones(n) if own else BETA,
            prior_power=np.ones(n) if prior_power is None else prior_power,
            lo=zeros + shift,
            hi=(sizes if own else zeros + ROWS) + shift,
            step=np.ones(n),
            n_steps=1,
            jitter=0.0,
            own=int(own),
        )  # fmt: skip
        d, nought = 1, np.zeros(1)
        self.base = Base(
            nought, 0.0, nought, np.zeros((d, d)), np.eye(d), PRIOR.table([""]), TABLE.ravel(),
            1, -1, 1, 0.0, 0.0,
        )  # fmt: skip
        self.full = allocate_held(ROWS, 1, joint=self.joint)
        self.full.design[:] = 1.0
        self.full.y[:] = np.arange(ROWS)
        self.full.weight[:] = 1.0
        self.own = allocate_held(int(self.ladder.hi[1:].max()) if own else 0, 1, joint=self.joint)
        self.replicas = allocate_replicas(2, 1)
        self.trial = allocate_trial(1, 1)
        self.moves = np.zeros((N_MOVES, n))

    @property
    def ensemble(self):
        tables = self.base, self.full, self.own
        return Ensemble(*tables, self.ladder, self.replicas, self.trial, np.zeros((0, 0)))

    def take(self, order):
        copy_held(self.full, np.asarray(order), 0, len(order), self.own, 0)

    def log_h(self):
        """(L, 5) log densities by the tables."""
        out = np.empty((len(BETA), STATES))
        prior = -0.5 * ((np.arange(STATES) - 1.0) / 1.5) ** 2
        for m, (lo, hi) in enumerate(zip(self.ladder.lo, self.ladder.hi, strict=True)):
            held = self.own if self.ladder.own and m > 0 else self.full
            total = TABLE[held.y[lo:hi].astype(int)].sum(axis=0)
            total = total - 0.1 * total**2 if self.joint else total
            out[m] = self.ladder.power[m] * total + self.ladder.prior_power[m] * prior
        return out

    def start(self, state):
        self.replicas.z[HOME] = state
        self.replicas.scalars[HOME, STALE] = 1.0
        refresh(
            *self.pointers, self.base, self.full, self.ladder, 0, self.replicas, HOME, 0,
            self.trial.scratch,
        )  # fmt: skip

    def move(self):
        """(5, 5) probabilities of the whole transition, from what production does."""
        out = np.zeros((STATES, STATES))
        outcomes = [(side, u, 1.0) for side in (-1.0, 1.0) for u in (ACCEPT, REJECT)]
        for i in range(STATES):
            for draws in itertools.product(outcomes, repeat=2 * (len(BETA) - 1)):
                self.start(i)
                draws = np.array(draws)
                ratio = rise_and_fall(
                    *self.pointers, random_walk, self.ensemble, draws, np.zeros(1), 0, self.moves
                )
                acceptance = np.r_[self.moves[UP, 1:], self.moves[DOWN, :0:-1]]
                acceptance[acceptance == NOT_VISITED] = 0.5
                # One that is accepted with certainty is accepted whatever the uniform.
                weight = 0.5 ** len(draws) * np.prod(
                    np.where(draws[:, 1] == ACCEPT, acceptance, 1.0 - acceptance)
                )
                if weight == 0.0:
                    continue
                accepted = math.exp(min(ratio, 0.0))
                out[i, i] += weight * (1.0 - accepted)
                if accepted > 0.0:
                    out[i, round(self.replicas.z[AWAY, 0])] += weight * accepted
        return out


def kernel(log_h):
    """(5, 5) Metropolis between neighbouring states."""
    out = np.zeros((STATES, STATES))
    for i in range(STATES):
        for j in (i - 1, i + 1):
            if 0 <= j < STATES:
                out[i, j] = 0.5 * min(1.0, math.exp(log_h[j] - log_h[i]))
        out[i, i] = 1.0 - out[i].sum()
    return out


def by_matrices(log_h, variant="neal"):
    """(5, 5) the transition of :func:`kernel`, or one that is not Neal's."""
    top = len(log_h) - 1
    kernels = [kernel(row) for row in log_h]
    lower = variant in {"printed", "mixed"}
    ways = [*range(1, top + 1), *(range(top - 1, -1, -1) if lower else range(top, 0, -1))]
    out = np.zeros((STATES, STATES))
    for path in itertools.product(range(STATES), repeat=2 * top + 1):
        weight = np.prod([kernels[m][a, b] for m, a, b in zip(ways, path, path[1:], strict=False)])
        if weight == 0.0:
            continue
        up, down = path[: top + 1], path[top:][::-1]
        terms = [log_h[m][up[m - 1]] - log_h[m - 1][up[m - 1]] for m in range(1, top + 1)]
        # The mix looks at the state before the kernel of level m - 1 has moved it.
        seen = down[1:] if variant == "mixed" else down[:-1]
        terms += [log_h[m - 1][seen[m - 1]] - log_h[m][seen[m - 1]] for m in range(1, top + 1)]
        ratio = np.exp(terms).sum() if variant == "added" else np.exp(np.sum(terms))
        accepted = min(1.0, ratio)
        out[path[0], up[0] if variant == "ascending" else down[0]] += weight * accepted
        out[path[0], path[0]] += weight * (1.0 - accepted)
    return out


def target(log_h):
    p = np.exp(log_h[0] - log_h[0].max())
    return p / p.sum()


def off(log_h, transition):
    """Total variation between the target and what one transition makes of it."""
    p = target(log_h)
    return 0.5 * np.abs(p @ transition - p).sum()


CASES = {
    "likelihood": {"kind": "link"},
    "posterior": {"kind": "link", "prior_power": BETA},
    "nested rows": {"kind": "link", "subsets": "nested"},
    "independent rows": {"kind": "link", "subsets": "independent"},
    "nested rows, no product": {"kind": "joint", "subsets": "nested"},
    "independent rows, no product": {"kind": "joint", "subsets": "independent"},
}
ORDERS = {"nested": [4, 5, 2], "independent": [2, 1, 5, 4]}


@pytest.mark.parametrize("name", CASES)
def test_tempered_transition_leaves_level_0_invariant(name):
    case = Case(**CASES[name])
    if case.ladder.own:
        case.take(ORDERS[CASES[name]["subsets"]])
    log_h, move = case.log_h(), case.move()
    assert off(log_h, move) < 1e-12
    np.testing.assert_allclose(move.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(by_matrices(log_h), move, atol=1e-12)
    assert target(log_h) @ (1.0 - np.diag(move)) > 0.02


def test_a_last_level_at_the_prior_may_leave_the_support():
    case = Case("link")
    case.ladder = case.ladder._replace(power=np.array([1.0, 0.4, 0.0]))
    log_h, move = case.log_h(), case.move()
    assert off(log_h, move) < 1e-12
    np.testing.assert_allclose(move.sum(axis=1), 1.0, atol=1e-12)


def test_an_accepted_move_is_to_the_descending_state():
    case = Case("link")
    case.start(2)
    draws = np.array(
        [[1.0, ACCEPT, 1.0], [1.0, REJECT, 1.0], [1.0, REJECT, 1.0], [1.0, REJECT, 1.0]]
    )
    rise_and_fall(*case.pointers, random_walk, case.ensemble, draws, np.zeros(1), 0, case.moves)
    assert [2.0, 3.0] == list(case.replicas.z[:, 0])
    assert decide(case.replicas, -1.0, 0.5) == 0
    assert case.replicas.z[HOME, 0] == 2.0
    assert decide(case.replicas, -1.0, 0.3) == 1
    assert case.replicas.z[HOME, 0] == 3.0
    known = case.replicas.scalars[HOME, [LOG_LIK, LOG_PRIOR]].copy()
    case.start(3)
    np.testing.assert_allclose(known, case.replicas.scalars[HOME, [LOG_LIK, LOG_PRIOR]], rtol=1e-12)


@pytest.mark.parametrize(
    ("variant", "least"), [("printed", 1e-2), ("mixed", 3e-3), ("added", 1e-2)]
)
def test_misprinted_acceptance_rules_do_not_leave_level_0_invariant(variant, least):
    log_h = Case("link").log_h()
    assert off(log_h, by_matrices(log_h)) < 1e-12
    assert off(log_h, by_matrices(log_h, variant)) > least


def test_returning_the_ascending_state_never_moves():
    log_h = Case("link").log_h()
    np.testing.assert_allclose(by_matrices(log_h, "ascending"), np.eye(STATES), atol=1e-15)


def test_rows_are_dealt_by_keys_as_many_as_the_subsets_take():
    nested, independent = (Case("link", subsets=kind).ladder for kind in ("nested", "independent"))
    assert [ROWS, 2 * ROWS] == [n_keys(each, ROWS) for each in (nested, independent)]
    at, order = np.zeros(3, dtype=np.int64), np.full(4, -1)
    for key, rows in ((0.0, [0, 1, 2, 0]), (0.999, [ROWS - 3, ROWS - 2, ROWS - 1, ROWS - 1])):
        choose(independent, np.full(2 * ROWS, key), at, order)
        assert rows == order.tolist()


@pytest.mark.parametrize("kind", ["nested", "independent"])
def test_every_choice_of_rows_is_equally_likely(kind):
    ladder = Case("link", subsets=kind).ladder
    rng = np.random.default_rng(3)
    order = np.zeros(int(ladder.hi[1:].max()), dtype=np.int64)
    at, tries, seen = np.zeros(3, dtype=np.int64), 60_000, {}
    for _ in range(tries):
        choose(ladder, rng.random(n_keys(ladder, ROWS)), at, order)
        found = tuple(frozenset(order[ladder.lo[m] : ladder.hi[m]]) for m in (1, 2))
        assert [3, 1] == [len(rows) for rows in found]
        assert kind == "independent" or found[1] <= found[0]
        seen[found] = seen.get(found, 0) + 1
    cells = math.comb(ROWS, 3) * (3 if kind == "nested" else ROWS)
    assert len(seen) == cells
    z = (np.array([*seen.values()]) - tries / cells) / math.sqrt(tries / cells * (1 - 1 / cells))
    assert np.abs(z).max() < 4.5
