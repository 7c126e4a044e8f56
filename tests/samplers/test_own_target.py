"""hmc-ecs against the density it leaves invariant, by quadrature over theta and all u."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from checks_of_trust import rounds
from problems import Small, batch_z, kernel_problem

from streammc.likelihood.drawn_units import AliasTable
from streammc.priors import normal
from streammc.runs.audit import log_weights
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel

DRAWS = rounds(250_000, 1_000_000)
POWER = rounds(102, 101) / 100
"""Of the likelihood that is caught."""
GRID = np.linspace(-12.0, 12.0, 6001)
CUT = 1.0
"""Largest log weight that is compared: the variance of all weights is not finite here."""


CASES = {
    "order 0": {"k": 3, "order": 0, "seed": 1, "prior": 1.0},
    "order 1": {"k": 2, "order": 1, "seed": 0, "prior": 10.0},
    "unequal": {
        "k": 2,
        "order": 1,
        "seed": 0,
        "prior": 10.0,
        "relative": [0.25, 1.5, 0.75, 2.0, 0.5, 1.0],
    },
    "two blocks of three units": {"k": 3, "order": 0, "seed": 1, "prior": 1.0, "n_blocks": 2},
}
"""At order 0 little but the prior bounds theta where one row stands for all."""


def make(name, power=1.0):
    """Six rows, two or three of them drawn, an expansion of low order away from the mode."""
    case = CASES[name]
    options = {name: value for name, value in case.items() if name != "n_blocks"}
    small = Small(n=6, d=1, power=power, **{**options, "prior": normal(scale=case["prior"])})
    small.design = replace(small.design, n_blocks=case.get("n_blocks", small.k))
    small.prior_sd = case["prior"]
    return small


def inside(small):
    """Which of the grid is inside the edge and the walls."""
    z = (GRID - small.theta_star[0]) / small.base.factor[0, 0]
    kept = z**2 <= small.base.edge
    for a, h in small.base.walls:
        kept &= a * z <= h
    return kept


def exact(small):
    """Marginal moments of theta and the variance of the estimate, in plain NumPy."""
    rows = np.array([small.remainder_rows(np.array([t])) for t in GRID])  # (grid, n)
    full = np.array([small.log_lik_rows(np.array([t])).sum() for t in GRID])
    taylor = full - rows.sum(axis=1)
    prior = -0.5 * GRID**2 / small.prior_sd**2
    n, k = small.n, small.k
    log, variances = [], []
    for u in itertools.product(range(n), repeat=k):
        omega = small.omega[list(u)]
        d = rows[:, list(u)] / (n * omega)
        s2 = n**2 / (k * (k - 1)) * ((d - d.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        log.append(taylor + n / k * d.sum(axis=1) - 0.5 * s2 + prior + np.log(omega).sum())
        variances.append(s2)
    log = np.where(inside(small), np.array(log), -np.inf)
    joint = np.exp(log - log.max())
    mass = joint.sum()
    posterior = np.exp(full + prior - (full + prior).max()) * inside(small)
    chance = np.array([small.omega[list(u)].prod() for u in itertools.product(range(n), repeat=k)])
    light = chance[:, None] * posterior * (full + prior + np.log(chance)[:, None] - log <= CUT)
    return {
        "light_mean": (light * GRID).sum() / light.sum(),
        "light_square": (light * GRID**2).sum() / light.sum(),
        "mean": (joint * GRID).sum() / mass,
        "square": (joint * GRID**2).sum() / mass,
        "variance": (joint * np.array(variances)).sum() / mass,
        "posterior_mean": (posterior * GRID).sum() / posterior.sum(),
        "posterior_square": (posterior * GRID**2).sum() / posterior.sum(),
        "largest": np.array(variances)[joint > 1e-3 * joint.max()].max(),
    }


def run(small, base=None, draws=DRAWS, **settings):
    problem = kernel_problem(small, base=base, **settings)
    kernel = HamiltonianKernel(problem, seed=11, chain=0)
    kernel.initialise()
    kernel.advance(1000, True)
    return kernel.advance(draws, False)


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request):
    small = make(request.param)
    return small, exact(small), run(small)


def test_test_case_has_a_large_estimator_variance(case):
    _, truth, _ = case
    assert truth["largest"] > 3.0
    assert abs(truth["mean"] - truth["posterior_mean"]) > 0.02


@pytest.mark.trust(2)
def test_draws_match_the_perturbed_target(case, record_property):
    _, truth, draws = case
    theta = draws["theta"][:, 0]
    z = [
        batch_z(theta, truth["mean"]),
        batch_z(theta**2, truth["square"]),
        batch_z(draws["log_lik_variance"], truth["variance"]),
    ]
    assert np.abs(z).max() < 4.5
    record_property("figure", f"hmc-ecs: z at most {np.abs(z).max():.1f} in {len(theta):,} draws")


@pytest.mark.trust(2)
def test_a_sharpened_likelihood_is_caught(record_property):
    theta = run(make("unequal", POWER), draws=4 * DRAWS)["theta"][:, 0]
    truth = exact(make("unequal"))
    z = np.abs([batch_z(theta, truth["mean"]), batch_z(theta**2, truth["square"])]).max()
    assert z > 4.5
    record_property("caught", f"likelihood^{POWER} (hmc-ecs: z {z:.0f})")


def test_dropping_the_variance_from_the_acceptance_is_caught(case):
    small, truth, _ = case
    wrong = small.base._replace(variance_factor=0.0)
    theta = run(small, wrong, draws=4 * DRAWS)["theta"][:, 0]
    z = batch_z(theta, truth["mean"]), batch_z(theta**2, truth["square"])
    assert max(np.abs(z)) > 4.5  # the bound that the right one keeps


def test_omitting_the_weight_of_drawn_units_is_caught(monkeypatch):
    small = make("unequal")
    truth = exact(small)
    monkeypatch.setattr(AliasTable, "weights", lambda table, units: np.ones(len(units)))
    theta = run(small)["theta"][:, 0]
    assert abs(batch_z(theta, truth["mean"])) > 7


def test_audit_weights_lead_back_to_the_posterior(case):
    from streammc.stores.memory import from_arrays

    small, truth, draws = case
    store = from_arrays(small.X, small.y, offset=small.offset, weight=small.weight)

    class Expansion:
        theta_star = small.theta_star
        order = small.order
        noise = np.zeros(0)

    kept = slice(None, None, 10)
    theta = draws["theta"][kept]
    logw = log_weights(
        store,
        small.model,
        Expansion,
        theta,
        draws["log_lik_remainder"][kept],
        draws["log_lik_variance"][kept],
    )
    light = logw <= CUT
    assert 0.0 < 1.0 - light.mean() < 0.1
    w, x = np.exp(logw[light]), theta[light, 0]
    w /= w.mean()
    for value, wanted in ((x, truth["light_mean"]), (x**2, truth["light_square"])):
        assert abs(batch_z(w * (value - wanted), 0.0)) < 4.5
        assert abs(batch_z(value - wanted, 0.0)) > 5


def second_order(radius, wall):
    """Two equal units have no variance and a cubic remainder: nothing but an edge bounds theta."""
    small = Small(n=6, d=1, k=2, order=2, seed=0, prior=normal(scale=10.0))
    small.prior_sd = 10.0
    small.base = small.base._replace(edge=radius**2, walls=np.array([[1.0, wall]]))
    return small


def test_at_order_2_the_far_tails_hold_all_of_the_mass_and_an_edge_mends_it():
    assert exact(second_order(np.inf, np.inf))["mean"] < -11.0  # where the grid ends
    truth = exact(second_order(5.0, 4.0))
    assert abs(truth["mean"] - truth["posterior_mean"]) < 0.002


@pytest.mark.parametrize("nuts", [False, True])
def test_draws_at_order_2_match_the_target_inside_the_edge(nuts):
    small = second_order(2.0, 0.8)
    truth, kept = exact(small), inside(small)
    draws = run(small, draws=200_000, nuts=nuts)
    theta = draws["theta"][:, 0]
    low, high = GRID[kept][[0, -1]]
    assert low - 0.01 < theta.min() < theta.max() < high + 0.01
    assert draws["diverging"].sum() == 0
    assert 0.01 < draws["beyond_edge"].mean() < 0.9
    assert abs(batch_z(theta, truth["mean"])) < 4.5
    assert abs(batch_z(theta**2, truth["square"])) < 4.5


def test_omitting_a_wall_of_the_edge_is_caught():
    small = second_order(2.0, 0.8)
    truth = exact(small)
    open_base = small.base._replace(walls=np.zeros((0, 0)))
    theta = run(small, open_base, draws=200_000)["theta"][:, 0]
    assert abs(batch_z(theta, truth["mean"])) > 7
