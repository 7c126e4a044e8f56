"""Iterations of ``smh`` on a few rows: densities, positions, rows within their bounds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import streammc
from streammc.likelihood.contiguous_rows import hold
from streammc.models import logistic, negative_binomial
from streammc.numerics.prior import log_prior
from streammc.numerics.summation import taylor
from streammc.priors import normal
from streammc.protocols import Rows
from streammc.samplers import smh
from streammc.samplers.factorised.kernel import FactorisedProblem
from streammc.samplers.factorised.loop import (
    ANGLE,
    BEYOND_BOUND,
    CURRENT_ANGLE,
    DISTANCE,
    DONE,
    LOG_POSTERIOR,
    LP,
    N_ROWS,
    NEEDS_ROWS,
    NORM,
    VALUE,
    Target,
    allocate_state,
    place,
    run,
)
from streammc.samplers.factorised.pool import (
    Whitening,
    bounds,
    expanded,
    most_rows,
    needed_radius,
    offset_of,
    some,
)
from streammc.stores import from_arrays

N = 40


class Case:
    """A logistic regression whose expansion is away from the mode."""

    def __init__(self):
        rng = np.random.default_rng(5)
        X = np.c_[np.ones(N), rng.normal(size=N)]
        y = (rng.random(N) < 1 / (1 + np.exp(-X @ [-0.6, 0.9]))).astype(float)
        self.data = from_arrays(X, y, weight=1.0 + np.arange(N) % 3)
        self.model = logistic(prior=normal(scale=2.0))
        cv = streammc.control_variates(self.data, self.model)
        away = cv.theta_star + 0.5 * cv.posterior_sd()
        self.cv = streammc.control_variates(self.data, self.model, theta_star=away)
        self.full = hold(self.data)
        self.offset = offset_of(self.cv)
        at = Whitening(self.model, self.cv.theta_star, np.ascontiguousarray(self.cv.factor))
        held = (np.ascontiguousarray(self.full.design.T), *self.full[1:4])
        self.radius = needed_radius(self.offset)
        self.rows = expanded(self.model, bounds(at, self.radius, Rows(*held)))

    def target(self, total=0.0):
        cv = self.cv
        return Target(
            cv.theta_star, cv.log_lik, cv.gradient, np.ascontiguousarray(cv.hessian),
            np.ascontiguousarray(cv.factor), self.offset, self.model.prior_table(cv.labels),
            self.model.constants, self.radius, total, most_rows(total, self.radius),
        )  # fmt: skip

    def log_posterior(self, theta):
        eta = theta @ self.full.design + self.full.offset
        log_lik = self.full.weight @ (self.full.y * eta - np.logaddexp(0.0, eta))
        return log_lik + log_prior(theta, self.model.prior_table(self.cv.labels), np.zeros(2))

    def started(self, certain):
        state = allocate_state(2, 0.6)
        place(self.model.link, taylor, self.target(), certain, state)
        return state

    def run(self, state, certain, pool, *, total=0.0, warmup=0, iterations=20):
        draws = np.zeros((iterations, 2)), np.zeros((iterations, 5))
        code, count = run(
            self.model.link, taylor, self.target(total), certain, pool, state, warmup,
            np.random.default_rng(2), draws,
        )  # fmt: skip
        return code, count, *draws


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture
def nothing(case):
    return some(case.rows, slice(0, 0))


def test_with_all_rows_in_memory_a_position_has_its_log_posterior(case):
    state = case.started(case.rows)
    for u in np.random.default_rng(1).normal(size=(4, 2)):
        state.u[:] = u
        place(case.model.link, taylor, case.target(), case.rows, state)
        eps = case.offset + u
        expected = case.log_posterior(case.cv.theta_star + case.cv.factor @ eps)
        assert expected == pytest.approx(state.scalars[LOG_POSTERIOR], rel=1e-12)
        assert 0.5 * u @ u == pytest.approx(state.scalars[VALUE] - state.scalars[LOG_POSTERIOR])
        assert np.linalg.norm(eps) == pytest.approx(state.scalars[NORM])


@pytest.mark.parametrize("warmup", [0, 1])
def test_draws_are_the_positions_and_only_warmup_changes_the_angle(case, nothing, warmup):
    state = case.started(case.rows)
    first = state.tuning[CURRENT_ANGLE]
    code, count, theta, found = case.run(state, case.rows, nothing, warmup=warmup)
    assert (DONE, 20) == (code, count)
    eps = np.linalg.solve(case.cv.factor, (theta - case.cv.theta_star).T).T
    np.testing.assert_allclose(eps[-1], state.eps[0], rtol=1e-9)
    np.testing.assert_allclose(state.eps[0] - case.offset, state.u, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(eps, axis=1) / case.radius, found[:, DISTANCE])
    np.testing.assert_allclose([case.log_posterior(each) for each in theta], found[:, LP])
    assert {float(N)} == set(found[:, N_ROWS])
    assert (warmup == 0) == (len(set(found[:, ANGLE])) == 1)
    assert first == found[0, ANGLE]


def test_rows_that_are_drawn_are_within_their_bounds_and_a_shorter_bound_is_noticed(case, nothing):
    total = float(case.rows.bound.sum())
    places = np.random.default_rng(3).choice(N, 4000, p=case.rows.bound / total)
    pool = some(case.rows, places)
    made = {"total": total, "iterations": 200}
    code, count, _, found = case.run(case.started(nothing), nothing, pool, **made)
    assert (DONE, 200) == (code, count)
    assert found[:, N_ROWS].sum() > 100
    shorter = pool._replace(bound=1e-3 * pool.bound)
    assert BEYOND_BOUND == case.run(case.started(nothing), nothing, shorter, **made)[0]
    few = some(pool, slice(0, 3))
    assert (NEEDS_ROWS, 0) == case.run(case.started(nothing), nothing, few, **made)[:2]


def drawn_ahead(case, nothing):
    """Return what chains share where a sheet has all rows, each in an order of its own."""
    pool = SimpleNamespace(
        sheet=lambda chain, number: some(case.rows, np.random.default_rng(number).permutation(N)),
        sheets_of_a_read=2,
        n_rows=N,
        chains=4,
    )
    shared = FactorisedProblem(
        case.model.link, taylor, case.target(), None, nothing, 0.6, smh().statistics,
        base=None, source=case.data.rows(), certain=None, certainty_rows=np.zeros(0, np.int64),
        constrain=case.model.constrain,
    )  # fmt: skip
    return replace(shared, pool=pool)


def test_a_chain_counts_its_share_of_every_read_but_the_first(case, nothing):
    chain = drawn_ahead(case, nothing).kernel(1, 0)
    counted = []
    for _ in range(6):
        chain._take()
        counted.append(chain.rows_gathered)
    assert [0, 0, 10, 10, 20, 20] == counted


def test_a_resumed_chain_has_the_rows_that_were_left(case, nothing):
    shared = drawn_ahead(case, nothing)
    chain, other = shared.kernel(1, 0), shared.kernel(1, 0)
    for _ in range(3):
        chain._take()
    chain._state.at[0] = N + 5  # of the second sheet and the third
    other.set_state(*chain.get_state())
    for each in (chain, other):
        each._take()  # puts what is left before the fourth
    assert 3 * N - 5 == len(chain._rows.y)
    np.testing.assert_array_equal(chain._rows.z, other._rows.z)


def test_the_summary_has_the_largest_distance_and_means():
    drawn = {
        "n_rows": np.array([[2.0, 4.0]]),
        "angle": np.array([[1.0, 0.5]]),
        "distance": np.array([[0.2, 0.7]]),
    }
    found = smh().facts(SimpleNamespace(statistics=lambda *_: drawn), None)
    assert {"rows_per_iteration": 3.0, "angle": 0.75, "largest_distance": 0.7} == found


def test_no_rows_are_predicted_where_the_model_has_no_bound(case):
    assert None is smh().predicted_rows(case.data, negative_binomial(), case.cv)
    assert 0.0 < smh().predicted_rows(case.data, case.model, case.cv)
