"""Coordinates of the expansions of groups: the choice, the sums, and the way through a run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from streammc import from_arrays
from streammc.control_variates import compute
from streammc.control_variates.coordinates import best_coordinates, coordinates
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.block_pass import ExpansionPass, expansion_of
from streammc.control_variates.plan.pilot import pilot_shifts, remainders
from streammc.control_variates.plan.subsample_plan import plan
from streammc.likelihood.data_views import by_group, gather
from streammc.models import logistic
from streammc.priors import half_normal, normal

GROUPS, SIZE = 300, 40


def table(tau, slope=False, seed=2):
    rng = np.random.default_rng(seed)
    n = GROUPS * SIZE
    group = np.repeat(np.arange(GROUPS), SIZE)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    eta = X @ [-0.5, 0.4] + (tau * rng.normal(size=GROUPS))[group]
    if slope:
        eta += X[:, 1] * (tau * rng.normal(size=GROUPS))[group]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    more = {"terms": ["1", "x"], "correlated": True} if slope else {}
    return from_arrays(X, y, groups=group, feature_names=["Intercept", "x"], **more)


@cache
def small(slope=False):
    """A table with little variation of its groups, and its control variates."""
    data = table(0.1, slope)
    scales = ["group:Intercept", "group:x"] if slope else ["group"]
    prior = {f"beta[{each}]": normal(scale=2.5) for each in ("Intercept", "x")} | {
        f"tau[{each}]": half_normal(1.0) for each in scales
    }
    model = logistic(prior=prior)
    return *by_group(data, model), compute(data, model)


@pytest.mark.parametrize("slope", [False, True])
def test_sums_in_the_precision_are_those_in_theta(slope):
    groups, model, cv = small(slope)
    assert len(cv.noise) == (3 if slope else 1)
    d = cv.dim
    here, straight = (
        coordinates(model, cv.theta_star, cv.noise),
        coordinates(model, cv.theta_star, np.zeros(0)),
    )
    totals = [
        groups.reduce(ExpansionPass(each.model, each.centre, np.zeros((0, d)), 2, 0, False)).totals
        for each in (here, straight)
    ]
    found = here.to_theta(totals[0])
    upper = np.triu(found.sum(axis=0)[1 + d :].reshape(d, d))
    wanted = totals[1].sum(axis=0)
    np.testing.assert_allclose(found.sum(axis=0)[: 1 + d], wanted[: 1 + d], rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(upper, np.triu(wanted[1 + d :].reshape(d, d)), rtol=1e-8, atol=1e-6)
    np.testing.assert_allclose(cv.gradient, wanted[1 : 1 + d], rtol=1e-9, atol=1e-8)
    gradient, hessian = here.from_theta(cv.gradient, cv.hessian)
    _, there, curve = expansion_of(totals[0], d)
    np.testing.assert_allclose(gradient, there, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(hessian, curve, rtol=1e-7, atol=1e-6 * np.abs(curve).max())


@pytest.mark.parametrize("slope", [False, True])
def test_precision_is_chosen_where_it_leaves_less_and_needs_far_fewer_groups(slope):
    groups, model, cv = small(slope)
    everything = gather(groups, np.arange(GROUPS))
    shifts = pilot_shifts(cv)
    plain = replace(cv, noise=np.zeros(0))
    V = [
        float(np.quantile(np.var(remainders(each, model, everything, shifts), axis=1), 0.9))
        for each in (cv, plain)
    ]
    assert V[0] < 0.01 * V[1]
    chosen, by_logs = (plan(each, groups, model) for each in (cv, plain))
    work, more = (each.k + len(each.certainty_rows) for each in (chosen, by_logs))
    assert work < 0.5 * more


def test_log_tau_is_kept_where_it_leaves_less():
    groups, model = by_group(table(1.0), logistic())
    everything = gather(groups, np.arange(GROUPS))
    theta = np.array([-0.5, 0.4, 0.0])
    model = replace(model, prior=normal(scale=2.5))
    shifts = np.zeros((4, 3))
    found = best_coordinates(model, everything, theta, shifts, 2)
    assert not len(found.noise)  # no remainder at all: the first of two equals


def test_noise_is_kept_with_the_control_variates(tmp_path):
    groups, model, cv = small()
    cv.save(tmp_path / "cv")
    again = ControlVariates.open(tmp_path / "cv", groups, model)
    np.testing.assert_array_equal(again.noise, cv.noise)
    assert again.digest() == cv.digest() != replace(cv, noise=np.zeros(0)).digest()
    arrays, meta = cv.to_arrays()
    del meta["noise"]  # as saved before there was any
    assert not len(ControlVariates.from_arrays(arrays, meta).noise)


def test_rows_have_no_noise():
    rng = np.random.default_rng(1)
    data = from_arrays(rng.normal(size=(500, 2)), rng.integers(0, 2, 500).astype(float))
    cv = compute(data, logistic())
    assert not len(cv.noise)
    where = coordinates(logistic(), cv.theta_star, cv.noise)
    assert where.centre is cv.theta_star
    assert where.shifts(cv.score_draws) is cv.score_draws
