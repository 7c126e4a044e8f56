"""Draws from the prior table have the densities of the prior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from streammc import priors, rng
from streammc.models.base import dirichlet_rows
from streammc.numerics.prior import COLUMNS, N_STREAMS, draw_prior, improper, log_prior

N = 20_000
FAMILIES = {
    "normal": (priors.normal(2.0, location=-1.0), False),
    "student_t": (priors.student_t(3.0, 1.0, 0.5), False),
    "cauchy": (priors.student_t(1.0, 0.0, 2.0), False),
    "laplace": (priors.laplace(1.0, 0.7), False),
    "uniform": (priors.uniform(-2.0, 5.0), False),
    "half_normal": (priors.half_normal(3.0), True),
    "half_student_t": (priors.half_student_t(3.0, 10.0), True),
    "half_cauchy": (priors.half_cauchy(0.2), True),
    "gamma": (priors.gamma(2.0, 0.1), True),
    "gamma of a small shape": (priors.gamma(0.05, 1.0), True),
    "inverse_gamma": (priors.inverse_gamma(1.5, 4.0), True),
    "lognormal": (priors.lognormal(0.5, 1.0), True),
    "exponential": (priors.exponential(5.0), True),
    "positive uniform": (priors.uniform(0.5, 4.0), True),
    "positive uniform from 0": (priors.uniform(0.0, 4.0), True),
    "lkj": (priors.lkj(2.0), 2),
    "lkj below uniform": (priors.lkj(0.4), 2),
}


def table_of(name):
    if name == "log odds of weights":
        return dirichlet_rows([0.5, 2.0])
    prior, positive = FAMILIES[name]
    return prior.rows(["a"], [positive])


def streams(seed=3):
    return [rng.stream(seed, 0, rng.Role.PRIOR, part) for part in range(N_STREAMS)]


def density(table, theta):
    gradient = np.zeros(1)
    return np.exp([log_prior(np.array([t]), table, gradient) for t in theta])


def distance(table, draws):
    """Largest distance of the distribution function of draws from the integral of a density."""
    low, high = np.quantile(draws, [0.01, 0.99])  # the density of a Cauchy ends nowhere
    kept = np.sort(draws[(draws >= low) & (draws <= high)])
    grid = np.linspace(low, high, 2001)
    below = integrate.cumulative_simpson(density(table, grid), x=grid, initial=0.0)
    assert abs(below[-1] - 0.98) < 4.5 * np.sqrt(2 * 0.02 * 0.98 / N) + 1e-3
    found = np.searchsorted(kept, grid, side="right") / len(kept)
    return np.abs(found - below / below[-1]).max()


@pytest.mark.parametrize("name", [*FAMILIES, "log odds of weights"])
def test_draws_have_the_density_of_the_table(name):
    table = table_of(name)
    draws = draw_prior(table, N, streams())[:, 0]
    assert np.isfinite(draws).all()
    bound = stats.kstwobign.isf(2e-5) / np.sqrt(N) + 1e-3  # the grid is coarse by a draw or two
    assert distance(table, draws) < bound
    width = np.quantile(draws, 0.75) - np.quantile(draws, 0.25)
    moved = draws + 0.2 * width
    with pytest.raises(AssertionError):  # a broken partner
        assert distance(table, moved) < bound


def test_draws_at_once_are_the_draws_one_after_the_other():
    table = np.vstack([table_of(name) for name in FAMILIES])
    together, one = streams(), streams()
    expected = draw_prior(table, 30, together)
    found = np.vstack([draw_prior(table, n, one) for n in (1, 7, 22)])
    np.testing.assert_array_equal(expected, found)
    assert [g.bit_generator.state for g in one] == [g.bit_generator.state for g in together]


def test_flat_priors_are_improper_and_not_drawn():
    table = np.vstack([priors.flat().rows(["a", "b"], [False, True]), table_of("normal")])
    assert [True, True, False] == improper(table).tolist()
    assert [True, True, False] == np.isnan(draw_prior(table, 1, streams())[0]).tolist()
    assert COLUMNS == table.shape[1]
