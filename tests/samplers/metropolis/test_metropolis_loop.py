"""The loop gives an acceptance test the right terms, moments and bounds."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from streammc.control_variates.bound import bind
from streammc.control_variates.certify import compute, without_pass
from streammc.control_variates.full_pass.row_norms import term_bound
from streammc.likelihood.blocks import TILE, allocate_block, load_block
from streammc.likelihood.drawn_units import KeyedUnits
from streammc.likelihood.temperature import Schedule
from streammc.models import logistic
from streammc.numerics.jit import jit
from streammc.priors import normal
from streammc.samplers import mh
from streammc.samplers.common.statistics import METROPOLIS_STATISTICS
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    BATCH,
    BOUND,
    COUNT,
    KNOWN,
    M2,
    MEAN,
    MORE,
    REJECT,
    SWEEP,
    SWEPT,
    SWEPT_LARGEST,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    USED,
    WANTED,
    Prepared,
)
from streammc.samplers.metropolis.loop import NEED_TERMS
from streammc.samplers.metropolis.options import metropolis
from streammc.stores import from_arrays

N, B = 103, 3
UNITS = 35
FIRST, SECOND = 4, 26
CERTAIN = np.array([5, 50, 99])


@jit(TEST_SIGNATURE)
def nosy(settings, facts, terms, draws, memory, carried, reply, table):
    """Ask for a few, for more, for all; carry off what was told, and accept."""
    if facts[COUNT] == 0.0:
        reply[WANTED] = FIRST
        return MORE
    if facts[COUNT] == FIRST:
        reply[WANTED] = SECOND
        return MORE
    if facts[SWEPT] == 0.0:
        return SWEEP
    for i, place in enumerate((KNOWN, MEAN, M2, BATCH, SWEPT_MEAN, SWEPT_LARGEST, COUNT)):
        carried[i] = facts[place]
    carried[7] = facts[BOUND] if settings[0] == 1.0 else terms[FIRST]
    reply[USED] = facts[COUNT]
    return ACCEPT


def arrays():
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(N), rng.normal(size=(N, 2))]
    y = (rng.random(N) < 0.4).astype(float)
    return X, y, rng.uniform(0.5, 2.0, size=N)


def log_lik(X, y, theta):
    eta = X @ theta
    return y * eta - np.logaddexp(0.0, eta)


class Case:
    def __init__(
        self, order, *, held, heat=1.0, replace_rows=True, certain=True, schedule=None, bound=False
    ):
        self.X, self.y, self.weight = arrays()
        data = from_arrays(self.X, self.y, weight=self.weight)
        model = logistic(prior=normal(scale=2.0))
        sampler = mh(control_variate=order, unit_rows=B, step_size=0.5)
        self.cv = without_pass(bind(data, model)) if order == "none" else compute(data, model)
        made = metropolis(data, model, self.cv, None, sampler, schedule or Schedule(heat))
        self.certain = CERTAIN if certain and order != "none" else CERTAIN[:0]
        self.order = -1 if order == "none" else order
        rows = load_block(data, model, self.certain, self.cv.theta_star, self.order)
        prepared = Prepared(np.array([float(bound)]), np.zeros((0, 0)), 10, replace_rows)
        block = made.held
        if not held:
            block = allocate_block(0, 3, 1)
        else:
            block.weight[self.certain] = 0.0
            block.expansion[:, self.certain] = 0.0
        moves = made.moves._replace(first_units=10, finite=int(not replace_rows))
        if bound:
            largest = term_bound(data, model, max(self.order, 0), B)
            moves = moves._replace(bound=largest)
        self.problem = replace(
            made, decide=nosy, prepared=prepared, certain=rows, certainty_rows=self.certain,
            held=block, moves=moves,
        )  # fmt: skip

    def run(self, iterations=3):
        kernel = self.problem.kernel(1, 0, batch_iterations=1)
        kernel.initialise()
        out = []
        for _ in range(iterations):
            star, factor = self.cv.theta_star, self.problem.base.factor
            if not factor.size:  # no shape: the identity
                factor = np.eye(len(star))
            before = star + factor @ kernel.get_state()[0]["z"]
            found = kernel.advance(1, False)
            assert set(found) == {"theta", *METROPOLIS_STATISTICS}
            state = kernel.get_state()[0]
            out.append((before, found, state["carried"]))
        return out

    def remainders(self, theta):
        """Remainders of all rows, certainty rows counting 0 times, by unit (U,)."""
        d = theta - self.cv.theta_star
        value = self.weight * (log_lik(self.X, self.y, theta) - self.expansion(d))
        value[self.certain] = 0.0
        return np.append(value, np.zeros(UNITS * B - N)).reshape(UNITS, B).sum(axis=1)

    def expansion(self, d):
        star = self.cv.theta_star
        if self.order < 0:
            return np.zeros(N)
        p = 1.0 / (1.0 + np.exp(-self.X @ star))
        step = self.X @ d
        value = log_lik(self.X, self.y, star)
        if self.order >= 1:
            value = value + (self.y - p) * step
        return value - (0.5 * p * (1.0 - p) * step**2 if self.order == 2 else 0.0)

    def log_posterior(self, theta, heat):
        return self.weight @ log_lik(self.X, self.y, theta) / heat - theta @ theta / 8.0


@pytest.mark.parametrize("order", [2, 1, 0, "none"])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("without", [True, False])
def test_terms_and_moments_are_those_of_the_units_drawn(order, held, without):
    case = Case(order, held=held, replace_rows=not without)
    units = KeyedUnits(UNITS, B, 1, 0)
    constants = []
    for iteration, (before, found, carried) in enumerate(case.run()):
        after = found["theta"][0]
        drawn = units.draw(iteration, 1, 0, FIRST + SECOND, lane=0, replace=not without)
        x = UNITS * (case.remainders(after) - case.remainders(before))
        known, mean, m2, batch, swept, largest, count, term = carried
        scale = np.abs(x).max()
        np.testing.assert_allclose(mean, x[drawn].mean(), atol=1e-12 * scale)
        np.testing.assert_allclose(m2, x[drawn].var() * len(drawn), rtol=1e-10)
        np.testing.assert_allclose(batch, x[drawn[FIRST:]].mean(), atol=1e-12 * scale)
        np.testing.assert_allclose(swept, x.mean(), atol=1e-12 * scale)
        np.testing.assert_allclose(largest, scale, rtol=1e-12)
        np.testing.assert_allclose(term, x[drawn[FIRST]], atol=1e-12 * scale)
        ratio = case.log_posterior(after, 1.0) - case.log_posterior(before, 1.0)
        np.testing.assert_allclose(known + swept, ratio, atol=1e-10)
        lp = case.log_posterior(after, 1.0) - case.log_posterior(0 * after, 1.0)
        assert found["test_rows"][0] == (FIRST + SECOND) * B == count * B
        evaluated = 2 * UNITS * B + 2 * (FIRST + SECOND) * B + len(case.certain)
        assert found["n_rows"][0] == evaluated
        constants.append(found["lp"][0] - lp)
    np.testing.assert_allclose(constants, constants[0], atol=1e-9)


def test_a_schedule_heats_the_likelihood_alone():
    schedule = Schedule.parse("9:sqrt")
    case = Case(2, held=True, schedule=schedule)
    for iteration, (before, found, carried) in enumerate(case.run(4)):
        heat = schedule.at(iteration, 1)[0]
        assert found["temperature"][0] == heat
        after = found["theta"][0]
        ratio = case.log_posterior(after, heat) - case.log_posterior(before, heat)
        np.testing.assert_allclose(carried[0] + carried[4], ratio, atol=1e-10)
        other = case.log_posterior(after, 1.0) - case.log_posterior(before, 1.0)
        assert abs(ratio - other) > 1e-3


@pytest.mark.parametrize("order", [2, 1, 0, "none"])
def test_no_term_exceeds_the_bound_of_the_model(order):
    heat = Schedule.parse("4:sqrt")
    case = Case(order, held=True, bound=True, schedule=heat)
    ratios = []
    for iteration, (before, found, carried) in enumerate(case.run(30)):
        x = UNITS * (case.remainders(found["theta"][0]) - case.remainders(before))
        np.testing.assert_allclose(carried[5], np.abs(x).max() / heat.at(iteration, 1)[0])
        ratios.append(carried[5] / carried[7])
        step, ends = found["theta"][0] - before, (before, found["theta"][0])
        away = max(np.linalg.norm(end - case.cv.theta_star) for end in ends)
        stated = case.problem.moves.bound * np.linalg.norm(step) * away ** max(case.order, 0)
        np.testing.assert_allclose(carried[7], stated / heat.at(iteration, 1)[0])
    assert max(ratios) <= 1.0
    assert max(ratios) > 1e-3


@jit(TEST_SIGNATURE)
def greedy(settings, facts, terms, draws, memory, carried, reply, table):
    """Ask for more than there are."""
    if facts[COUNT] == 0.0:
        reply[WANTED] = 1000
        return MORE
    carried[0], carried[1] = facts[COUNT], facts[MEAN]
    return ACCEPT


def test_test_without_replacement_sees_every_unit_at_most_once():
    case = Case(1, held=False, replace_rows=False)
    case.problem = replace(case.problem, decide=greedy)
    for before, found, carried in case.run():
        x = UNITS * (case.remainders(found["theta"][0]) - case.remainders(before))
        assert carried[0] == UNITS
        np.testing.assert_allclose(carried[1], x.mean(), atol=1e-12 * np.abs(x).max())


@pytest.mark.parametrize("held", [True, False])
def test_decisions_on_more_rows_than_a_tile_sweep_all_of_them(monkeypatch, held):
    rows = 2 * TILE + 77
    monkeypatch.setattr(sys.modules[__name__], "N", rows)
    monkeypatch.setattr(sys.modules[__name__], "UNITS", -(-rows // B))
    case = Case(1, held=held)
    for before, found, carried in case.run():
        after = found["theta"][0]
        x = UNITS * (case.remainders(after) - case.remainders(before))
        scale = np.abs(x).max()
        np.testing.assert_allclose(carried[4], x.mean(), atol=1e-12 * scale)
        np.testing.assert_allclose(carried[5], scale, rtol=1e-12)
        ratio = case.log_posterior(after, 1.0) - case.log_posterior(before, 1.0)
        np.testing.assert_allclose(carried[0] + carried[4], ratio, atol=1e-9)
        first = x[: TILE // B].sum() / UNITS
        assert abs(first - x.mean()) > 1e-6 * scale  # the first tile alone would be wrong


@jit(TEST_SIGNATURE)
def in_turns(settings, facts, terms, draws, memory, carried, reply, table):
    """Look at all terms; accept the first proposal, reject the second."""
    if facts[SWEPT] == 0.0:
        return SWEEP
    carried[0] = 1.0 - carried[0]
    return ACCEPT if carried[0] == 1.0 else REJECT


@pytest.mark.parametrize("order", [2, "none"])
def test_a_rejected_proposal_leaves_the_log_density_where_it_was(order):
    case = Case(order, held=True)
    case.problem = replace(case.problem, decide=in_turns)
    (_, accepted, _), (before, rejected, _) = case.run(2)
    np.testing.assert_allclose(accepted["theta"][0], before, rtol=1e-12)
    np.testing.assert_allclose(accepted["theta"], rejected["theta"], rtol=1e-12)
    np.testing.assert_allclose(accepted["lp"], rejected["lp"], rtol=1e-13)


@pytest.mark.parametrize("without", [True, False])
def test_no_more_units_are_gathered_than_are_left_to_draw_without_replacement(without):
    case = Case(2, held=False, replace_rows=not without)
    kernel = case.problem.kernel(1, 0, batch_iterations=1)
    kernel.initialise()
    counts = kernel.space.decision.counts[0]
    counts["iteration"], counts["drawn"], counts["left"] = 0, UNITS - 3, 2
    asked = []
    # Units beyond the last are not drawn here: without replacement there are none.
    kernel._units = SimpleNamespace(draw=lambda *words, **options: asked.append((words, options)))
    kernel._needed(NEED_TERMS)
    [((iteration, n, first, count), options)] = asked
    # As many as the test has taken, so that it asks less often, where there are so many.
    assert (0, 1, UNITS - 3) == (iteration, n, first)
    assert (3 if without else UNITS - 3) == count
    assert options["replace"] is not without
