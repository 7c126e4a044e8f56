"""hmc-ecs-signed against exact answers, with a tenth of the signs negative."""

from __future__ import annotations

import numpy as np
import pytest
from checks_of_trust import rounds
from problems import Small, batch_z, kernel_problem

from streammc.diagnostics.summary import signed_statistics
from streammc.likelihood.drawn_units import ProductDesign
from streammc.likelihood.target import DENSITY, ESTIMATE, SIGN
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.transition import (
    accept_factors,
    allocate_proposal,
    propose_factors,
)

DRAWS = rounds(100_000, 400_000)
GRID = np.linspace(-8.0, 8.0, 4001)


CASES = {
    "fixed bound": (2, 4, 0.2, 0.0, {}),
    "fixed bound, one block": (2, 4, 0.2, 0.0, {"n_blocks": 1}),
    "fixed bound, nuts": (2, 4, 0.2, 0.0, {"nuts": True}),
    "unequal probabilities": (2, 4, 0.2, 0.0, {"relative": (0.6, 1.3, 0.9, 1.5, 0.7, 1.0)}),
}
"""Order of the control variates, lambda, a, growth, and the rest."""
FALLING = (40, -40.0, 1, 0.05)
"""Lambda, a, units of a factor and growth: positive estimates where the posterior is."""


def make(order=2, relative=None, power=1.0):
    return Small(n=6, d=1, k=2, order=order, seed=0, relative=relative, power=power)


def exact(small, base, grid=GRID):
    """Posterior, the density that is sampled, and its mean sign: in closed form on a grid.

    ``E |L^| = exp(sum q + a + lambda E |A|)`` over Poisson many factors of one unit.
    """
    rows = np.array([small.remainder_rows(np.array([t])) for t in grid])
    full = np.array([small.log_lik_rows(np.array([t])).sum() for t in grid])
    prior = -0.5 * grid**2 / 100.0
    z = (grid - small.theta_star[0]) / base.factor[0, 0]
    nearest = (1 - 2 / 9 + 4.75 * np.sqrt(2 / 9)) ** 3
    beyond = np.maximum(z**2 - nearest, 0.0) ** 2
    growth = (1 + (base.bound_growth * np.abs(z) ** (small.order + 1)) ** 4) ** 0.25
    growth = beyond / (beyond + (nearest / 4) ** 2) * (growth - 1)
    bound = base.soft_bound - base.intensity * growth
    factor = (rows / small.omega - bound[:, None]) / base.intensity
    size = full - rows.sum(axis=1) + bound + base.intensity * (np.abs(factor) @ small.omega)
    posterior = np.exp(full + prior - (full + prior).max())
    sampled = np.exp(size + prior - (full + prior).max())
    return {
        "mean": (posterior * grid).sum() / posterior.sum(),
        "square": (posterior * grid**2).sum() / posterior.sum(),
        "unsigned": (sampled * grid).sum() / sampled.sum(),
        "unsigned_square": (sampled * grid**2).sum() / sampled.sum(),
        "sign": posterior.sum() / sampled.sum(),
    }


def ratio_z(values, sign, target, batches=200):
    """z of a signed mean, its error from the terms of the ratio."""
    return batch_z(sign * (values - target), 0.0, batches)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    order, intensity, bound, growth, settings = CASES[request.param]
    settings = dict(settings)
    small = make(order, settings.pop("relative", None))
    base = small.product_base(intensity, bound, 1, growth)
    kernel = HamiltonianKernel(kernel_problem(small, base=base, **settings), seed=7, chain=0)
    kernel.initialise()
    kernel.advance(1000, True)
    return exact(small, base), kernel.advance(DRAWS, False)


@pytest.mark.trust(7)
def test_between_5_and_20_percent_of_the_signs_are_negative(case, record_property):
    truth, draws = case
    negative = (draws["sign"] < 0).mean()
    record_property("figure", f"{negative:.0%} of the signs negative")
    assert 0.05 < negative < 0.20
    assert set(np.unique(draws["sign"])) == {-1.0, 1.0}
    assert abs(batch_z(draws["sign"], truth["sign"])) < 4.5


@pytest.mark.trust(2)
@pytest.mark.trust(8)
@pytest.mark.trust(7)
def test_signed_mean_is_right_and_unsigned_mean_is_wrong(case, record_property):
    truth, draws = case
    theta, sign = draws["theta"][:, 0], draws["sign"]
    z = [ratio_z(theta, sign, truth["mean"]), ratio_z(theta**2, sign, truth["square"])]
    assert np.abs(z).max() < 4.5
    worst = max(abs(batch_z(theta, truth["mean"])), abs(batch_z(theta**2, truth["square"])))
    assert worst > 5.0
    record_property("figure", f"hmc-ecs-signed: z at most {np.abs(z).max():.1f} with the sign")
    record_property("caught", f"sign ignored (z {worst:.0f})")


def test_unsigned_draws_come_from_the_size_of_the_estimate(case):
    truth, draws = case
    theta = draws["theta"][:, 0]
    assert abs(batch_z(theta, truth["unsigned"])) < 4.5
    assert abs(batch_z(theta**2, truth["unsigned_square"])) < 4.5


def test_a_fixed_bound_makes_false_modes_and_a_falling_one_does_not():
    small = make(order=1)
    wide = np.linspace(-60.0, 60.0, 12_001)
    fixed = exact(small, small.product_base(*FALLING[:2]), wide)
    assert fixed["sign"] < 1e-6
    assert abs(fixed["unsigned"] - fixed["mean"]) > 5.0
    falling = exact(small, small.product_base(*FALLING), wide)
    assert falling["sign"] > 0.999
    assert abs(falling["unsigned"] - falling["mean"]) < 1e-3


@pytest.mark.trust(8)
@pytest.mark.parametrize(
    ("order", "product", "noise"),
    [(2, (3, -2.3), 0.1), (2, (2, -0.2), 1.0), (2, (8, -0.2, 4), 4.0), (1, FALLING, 0.1)],
)
def test_target_is_the_posterior_at_any_noise(order, product, noise, record_property):
    """The same posterior with a variance of log |L^| of about 0.1, 1 and 4."""
    small = make(order)
    base = small.product_base(*product)
    truth = exact(small, base)
    kernel = HamiltonianKernel(kernel_problem(small, base=base), seed=5, chain=0)
    kernel.initialise()
    kernel.advance(1000, True)
    draws = kernel.advance(DRAWS, False)
    found = draws["log_lik_variance"].mean()
    assert noise / 3 < found < noise * 3
    theta, sign = draws["theta"][:, 0], draws["sign"]
    z = [ratio_z(theta, sign, truth["mean"]), ratio_z(theta**2, sign, truth["square"])]
    assert np.abs(z).max() < 4.5
    record_property("figure", f"variance {found:.2g}: z at most {np.abs(z).max():.1f}")


@pytest.mark.trust(7)
def test_summary_of_the_draws_covers_the_posterior(case):
    truth, draws = case
    theta = draws["theta"].reshape(4, -1)
    found = signed_statistics(theta, draws["sign"].reshape(4, -1))
    assert abs(found["mean"] - truth["mean"]) < 4.5 * found["mcse_mean"]
    assert found["ess_bulk"] < 0.9 * draws["sign"].mean() ** 2 * theta.size
    variance = truth["square"] - truth["mean"] ** 2
    assert found["sd"] == pytest.approx(np.sqrt(variance), rel=0.05)


@pytest.mark.parametrize("factor_units", [1, 2])
def test_a_proposal_changes_the_estimate_by_what_it_says(factor_units):
    """Propose and accept over many random states against a fresh evaluation."""
    small = Small(n=7, d=2, order=1, unit_rows=2, certain=(2,), seed=3)
    base = small.product_base(6.0, -2.0, factor_units)
    rng = np.random.default_rng(0)
    theta = np.array([0.4, -0.3])
    room = 40
    for _ in range(30):
        owner = rng.integers(0, 3, size=rng.integers(0, 9))
        start = rng.integers(0, small.n_units, size=len(owner) * factor_units)
        new = rng.integers(0, small.n_units, size=rng.integers(0, 4) * factor_units)
        padded = np.append(start, np.zeros(room - len(start), dtype=np.int64))
        point, sub, work = small.point_at(theta, padded, base)
        point.used[:] = len(start), 2 * len(start)
        fresh = small.point_at(theta, start, base)[0]
        for name in ("scalars", "gradient"):
            getattr(point, name)[:] = getattr(fresh, name)
        units = padded.copy()
        bounds = np.array([0, 2, 4, 6], dtype=np.int64)
        proposal = allocate_proposal(2, 1, 2, bounds, units, largest=8)
        proposal.owner[: len(owner)] = owner
        work.delta[:] = theta - base.theta_star
        ahead = small.unit_rows_of(new)
        log_ratio = propose_factors(
            small.model.link, base, ahead, 0, len(new), 1, point, proposal, work
        )
        accept_factors(base, sub, new, 0, len(new), 1, point, proposal, work)
        kept = np.repeat(owner != 1, factor_units)
        expected = np.append(start[kept], new)
        found = units[: point.used[0]]
        assert sorted(found) == sorted(expected)
        again = small.point_at(theta, expected, base)[0]
        assert point.scalars[SIGN] == again.scalars[SIGN]
        np.testing.assert_allclose(point.scalars[DENSITY], again.scalars[DENSITY], rtol=1e-11)
        np.testing.assert_allclose(point.gradient, again.gradient, rtol=1e-9, atol=1e-11)
        change = again.scalars[ESTIMATE] - fresh.scalars[ESTIMATE]
        assert log_ratio == pytest.approx(change, rel=1e-9, abs=1e-11)
        owners = proposal.owner[: len(found) // factor_units]
        assert (owners == 1).sum() == len(new) // factor_units


def test_proposal_that_exceeds_its_room_is_rejected_and_counted():
    small = make()
    base = small.product_base(4.0, -3.0)
    point, _, work = small.point_at(np.array([0.1]), np.array([0, 1]), base)
    proposal = allocate_proposal(1, 1, 1, np.array([0, 4]), np.array([0, 1]), largest=4)
    proposal.owner[:] = 1
    work.delta[:] = 0.0
    rows = small.unit_rows_of([2])
    assert -np.inf == propose_factors(small.model.link, base, rows, 0, 1, 0, point, proposal, work)
    assert proposal.crowded[0] == 1


@pytest.mark.parametrize("batch", [1, 7, 4096])
def test_bits_do_not_depend_on_the_batch_or_on_a_checkpoint(batch):
    small = Small(n=12, d=2, order=1, seed=6)
    problem = kernel_problem(small, base=small.product_base(8.0, -9.0, 2, 0.3), n_blocks=4)
    whole = HamiltonianKernel(problem, seed=9, chain=1)
    whole.initialise()
    expected = whole.advance(60, True)["theta"], whole.advance(40, False)
    kernel = HamiltonianKernel(problem, seed=9, chain=1, batch_iterations=batch)
    kernel.initialise()
    np.testing.assert_array_equal(kernel.advance(60, True)["theta"], expected[0])
    arrays, meta = kernel.get_state()
    other = HamiltonianKernel(problem, seed=9, chain=1, batch_iterations=batch)
    other.set_state(arrays, meta)
    for name, values in other.advance(40, False).items():
        np.testing.assert_array_equal(values, expected[1][name], err_msg=name)


def test_counts_depend_on_seed_chain_and_iteration_alone():
    design = ProductDesign(100, 1, 2 * 250, 100, 2, seed=1, chain=2)
    whole = design.proposal_counts(-100, 5000)
    parts = [design.proposal_counts(i, 7) for i in range(-100, 4900, 7)]
    np.testing.assert_array_equal(whole, np.concatenate(parts)[:5000])
    assert (whole % 2 == 0).all()
    assert abs(batch_z(whole / 2, 2.5)) < 4.5
    for other in (design.for_chain(1, 3), design.for_chain(2, 2)):
        assert (other.proposal_counts(0, 1000) != design.proposal_counts(0, 1000)).mean() > 0.5
