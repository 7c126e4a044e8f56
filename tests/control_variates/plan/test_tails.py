"""Where the perturbed target is the posterior, by quadrature and brute force."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from passes import outliers
from scipy import stats

from streammc.control_variates import compute
from streammc.control_variates.plan import LARGEST_PERTURBATION
from streammc.control_variates.plan.certainty_choice import Bounds, same_for_all
from streammc.control_variates.plan.pilot import evaluate, remainders
from streammc.control_variates.plan.subsample_plan import Plan, PlanRequest, plan
from streammc.control_variates.plan.tails import (
    _log_perturbation,
    profile,
    region,
)
from streammc.likelihood.data_views import gather
from streammc.models import negative_binomial
from streammc.priors import half_student_t, normal
from streammc.stores import from_arrays


def counts(n, seed, phi=math.inf):
    rng = np.random.default_rng(seed)
    rate = np.full(n, 5.0) if phi == math.inf else rng.gamma(phi, 5.0 / phi, size=n)
    y = rng.poisson(rate).astype(float)
    prior = {"*": normal(scale=10.0), "phi": half_student_t(3.0, 10.0)}
    return from_arrays(np.ones((n, 1)), y), negative_binomial(prior=prior)


def tails(store, model, **options):
    cv = compute(store, model, **options)
    cost = np.ones(len(cv.candidates))
    pilot = evaluate(cv, store, model, 1)
    choice = same_for_all(cv, pilot, 1, Bounds(0.1, None, 1000, None), cost)
    return cv, choice, profile(cv, store, model, 1, choice)


@pytest.fixture(scope="module")
def poisson_counts():
    store, model = counts(2000, 1)
    return store, model, *tails(store, model)


def test_log_perturbation_is_that_of_normal_units():
    """E exp(l^ - s^2 / 2) with l^ normal and s^2 its sample variance, by simulation."""
    rng = np.random.default_rng(2)
    k, variance = 6, 3.0
    units = rng.normal(scale=math.sqrt(variance * k), size=(400_000, k))
    estimate = units.mean(axis=1)
    density = np.exp(estimate - 0.5 * units.var(axis=1, ddof=1) / k)
    error = density.std() / math.sqrt(len(density)) / density.mean()
    exact = float(_log_perturbation(variance, k))
    assert exact > 20.0 * error
    assert abs(math.log(density.mean()) - exact) < 4.5 * error


def test_line_of_the_edge_ends_at_the_tail_of_the_exact_posterior(poisson_counts):
    """Along ``log phi`` through the mode of ``beta``, whose direction is nearly orthogonal."""
    _, _, cv, _, found = poisson_counts
    line = found.names.index("phi")
    start = cv.theta_star + cv.factor @ found.origin[line]
    step = cv.factor @ found.direction[line]
    t = np.linspace(-6.0, 30.0, 4001)
    beta, log_phi = start[:, None] + step[:, None] * t
    values = np.random.default_rng(1).poisson(5.0, 2000).astype(float)
    phi = np.exp(log_phi)
    log = stats.nbinom(phi[:, None], (phi / (phi + np.exp(beta)))[:, None])
    total = sum(
        count * log.logpmf(value)[:, 0]
        for value, count in zip(*np.unique(values, return_counts=True), strict=True)
    )
    total += stats.t(3.0, scale=10.0).logpdf(phi) + log_phi - 0.005 * beta**2
    mass = np.exp(total - total.max())
    above = 1.0 - np.cumsum(mass) / mass.sum()
    t_high = t[np.flatnonzero(above < 1e-7)[0]]
    assert t_high > 9.0  # 5.2 in a Gaussian posterior
    assert found.high[line] > t_high - 0.5


def test_a_scale_with_a_long_tail_is_refused(poisson_counts):
    store, model, cv, choice, found = poisson_counts
    assert found.units(math.ceil(choice.needed), 1000) == math.inf
    near = plan(cv, store, model)
    assert near.refused is None  # draws around the mode do not show it
    far = plan(cv, store, model, PlanRequest(perturbed=True))
    assert "leaves the posterior" in far.refused.text
    assert "use --sampler hmc" in far.refused.text


def test_a_given_subsample_that_cannot_hold_is_refused_with_the_remedy(poisson_counts):
    store, model, cv, _, _ = poisson_counts
    found = plan(cv, store, model, PlanRequest(perturbed=True, subsample_size=200))
    assert "with 200 units" in found.refused.text
    assert "larger --subsample-size" in found.refused.text


def test_the_perturbation_is_that_of_subsamples_drawn_by_brute_force(poisson_counts):
    """Far out on the line of ``phi``: log E exp(l^ - s^2 / 2) - l from real units."""
    store, model, cv, choice, found = poisson_counts
    k = 300
    line = found.names.index("phi")
    far = np.where(found.third[line] < 0.0, found.second[line] / k, np.inf)
    at = int(np.argmin(np.abs(far - 4.0)))
    t = np.linspace(found.low[line], found.high[line], found.mass.shape[1])[at]
    shift = cv.factor @ (found.origin[line] + t * found.direction[line])
    everything = gather(store, np.arange(2000, dtype=np.int64))
    d = remainders(cv, model, everything, shift[None])[0]
    d[choice.certain] = 0.0
    rng = np.random.default_rng(5)
    drawn = 2000.0 * d[rng.integers(2000, size=(60_000, k))]
    estimate = drawn.mean(axis=1) - d.sum()
    spread = drawn.var(axis=1, ddof=1) / k
    variance = found.second[line, at] / k
    assert abs(estimate.var() - variance) < 4.5 * variance * math.sqrt(2.0 / len(drawn))
    density = np.exp(estimate - 0.5 * spread)
    error = density.std() / math.sqrt(len(density)) / density.mean()
    predicted = _log_perturbation(variance, k) - found.third[line, at] / (3.0 * k * k)
    assert predicted > 6.0 * error
    assert abs(math.log(density.mean()) - predicted) < 4.5 * error


@pytest.fixture(scope="module")
def usual():
    rows = outliers()
    return rows, compute(rows.store, rows.model)


def test_edge_of_an_ordinary_posterior_needs_no_additional_rows(usual):
    rows, cv = usual
    without, found = (
        plan(cv, rows.store, rows.model, PlanRequest(perturbed=p)) for p in (False, True)
    )
    assert without.edge is None
    assert found.refused is None
    assert found.k == without.k
    assert found.predicted["perturbation"] <= LARGEST_PERTURBATION


def test_the_edge_holds_all_but_a_millionth_of_a_gaussian_posterior(usual):
    rows, cv = usual
    found = plan(cv, rows.store, rows.model, PlanRequest(perturbed=True))
    assert found.edge.radius >= stats.chi2(cv.dim).ppf(1.0 - 1e-6) ** 0.5
    draws = np.random.default_rng(1).standard_normal((100_000, cv.dim))
    assert found.edge.inside(draws).mean() > 1.0 - 5e-5


def test_more_units_are_taken_where_they_hold_the_tails():
    store, model = counts(20_000, 3, phi=60.0)
    cv = compute(store, model)
    near, far = (plan(cv, store, model, PlanRequest(perturbed=p)) for p in (False, True))
    assert far.refused is None
    assert far.k > 5 * near.k
    assert far.predicted["perturbation"] <= LARGEST_PERTURBATION
    few = plan(cv, store, model, PlanRequest(perturbed=True, subsample_size=near.k))
    assert "in the tail of phi" in few.refused.text


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"unit_rows": 4}, {"probabilities": "scores"}])
def test_every_kind_of_subsample_has_an_edge(usual, order, options):
    rows, _ = usual
    cv = compute(rows.store, rows.model, order=order)
    found = plan(
        cv, rows.store, rows.model, PlanRequest(perturbed=True, subsample_size=1500, **options)
    )
    assert math.isfinite(found.edge.radius)
    assert math.isfinite(found.predicted["perturbation"])


def test_a_plan_with_an_edge_survives_json(usual):
    rows, cv = usual
    found = plan(cv, rows.store, rows.model, PlanRequest(perturbed=True))
    arrays = {name: v[1] if isinstance(v, tuple) else v for name, v in found.arrays().items()}
    again = Plan.from_description(json.loads(json.dumps(found.describe())), arrays.__getitem__)
    assert again.edge.radius == found.edge.radius
    assert again.edge.walls.tolist() == found.edge.walls.tolist()


def test_a_line_without_an_end_along_one_coordinate_leaves_no_ball() -> None:
    origin, direction = np.zeros((2, 2)), np.eye(2)
    ends = np.array([[-np.inf, -3.0], [3.0, 5.0]])
    radius, walls = region(origin, direction, ends)
    assert np.inf == radius
    np.testing.assert_array_equal([np.inf, 4.0, 4.0, 5.0], walls[:, 2])
