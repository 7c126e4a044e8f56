"""Effects of a factor and their scale against the density that hmc-ecs leaves invariant."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from problems import batch_z

from streammc import from_arrays
from streammc.likelihood.blocks import expanded
from streammc.likelihood.data_views import gather
from streammc.likelihood.drawn_units import UnitDesign
from streammc.likelihood.target import Base, allocate_point, allocate_work, evaluate
from streammc.models import logistic
from streammc.models.base import FactorBlock
from streammc.numerics.summation import taylor
from streammc.priors import half_normal
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel, Problem

DRAWS = 200_000
LEVEL = np.array([0, 0, 0, 1, 1, 1])
STAR = np.array([0.4, -0.3, -0.5])
"""Two effects and log tau; away from the mode."""
SCALE = np.array([[0.9, 0.0, 0.0], [0.1, 0.8, 0.0], [0.05, 0.0, 0.7]])
EXPONENT = np.array([0.7, 0.2])
LEVELS = np.array([[0.0, 2.0, EXPONENT[0]], [1.0, 2.0, EXPONENT[1]]])
EDGE = 30.0
K = 2
PRIOR = 0.7
"""Scale of the half-normal prior of tau."""


def rows():
    """Six rows of two levels: an indicator of each level and a column of zeros."""
    X = np.zeros((len(LEVEL), 3))
    X[np.arange(len(LEVEL)), LEVEL] = 1.0
    return X, np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]), np.linspace(-0.6, 0.5, len(LEVEL))


def model():
    return replace(
        logistic(prior={"tau[g]": half_normal(PRIOR)}), factors=(FactorBlock("g", 0, 2),)
    )


def problem(order, **changed):
    X, y, offset = rows()
    names = ["u[g=a]", "u[g=b]", "tau[g]"]
    data = from_arrays(X, y, offset=offset, feature_names=names)
    given, n = model(), len(y)
    every = expanded(given, STAR, 2, gather(data, np.arange(n)))
    curved = -(X.T * every.expansion[2]) @ X
    base = Base(
        theta_star=STAR,
        log_lik=float(every.expansion[0].sum()),
        gradient=X.T @ every.expansion[1] * (order > 0),
        hessian=-curved * (order > 1),
        factor=SCALE,
        prior=given.prior_table(names),
        constants=given.constants,
        n_linear=1,
        order=order,
        unit_rows=1,
        estimate_factor=n / K,
        variance_factor=n**2 / (K * (K - 1)),
        edge=EDGE,
        levels=LEVELS,
    )._replace(**changed)
    none = np.zeros(0, dtype=np.int64)
    return Problem(
        link=given.link,
        sums=taylor,
        base=base,
        certain=expanded(given, STAR, order, gather(data, none)),
        certainty_rows=none,
        design=UnitDesign(n, 1, K, K),
        source=data.rows(),
        trajectory_length=1.5,
        jitter=0.2,
        target_acceptance=0.8,
        step_size=None,
        constrain=given.constrain,
    )


def log_posterior(theta):
    """Log density of (u, log tau) (..., 3), by its definition, and the rows (n, ...)."""
    _, y, offset = rows()
    u, t = theta[..., :2], theta[..., 2]
    eta = np.moveaxis(u[..., LEVEL] + offset, -1, 0)
    terms = (y * np.moveaxis(eta, 0, -1) - np.logaddexp(0.0, np.moveaxis(eta, 0, -1))).T
    prior = -0.5 * (u**2).sum(-1) * np.exp(-2.0 * t) - 2.0 * t
    return prior - 0.5 * np.exp(2.0 * t) / PRIOR**2 + t, terms


def grid():
    """Points theta (G, 3) and the log of their volumes, on a grid of (u / tau, log tau)."""
    v, t = np.linspace(-6.0, 6.0, 73), np.linspace(-7.0, 1.6, 101)
    a, b, t = (each.ravel() for each in np.meshgrid(v, v, t, indexing="ij"))
    return np.stack([a * np.exp(t), b * np.exp(t), t], axis=1), 2.0 * t


def whitened(theta):
    """Return z of theta (G, 3), the inverse of the stretched coordinates."""
    shift = theta[:, 2] - STAR[2]
    u = theta[:, :2] * np.exp(-EXPONENT * shift[:, None])
    return np.linalg.solve(SCALE, np.column_stack([u, theta[:, 2]]).T - STAR[:, None]).T


def exact(order, tilt=0.0):
    """Moments under the perturbed density, by quadrature; ``tilt`` is a power of tau too much."""
    theta, volume = grid()
    prior, terms = log_posterior(theta)
    _, at = log_posterior(STAR[None])
    shift = theta - STAR
    X, y, offset = rows()
    chance = 1.0 / (1.0 + np.exp(-(X @ STAR + offset)))
    along = X @ shift.T
    q = at + (y - chance)[:, None] * along * (order > 0)
    q = q - 0.5 * (chance * (1.0 - chance))[:, None] * along**2 * (order > 1)
    rest, n = terms - q, len(y)
    known = q.sum(0) + prior + volume + tilt * theta[:, 2]
    inside = (whitened(theta) ** 2).sum(1) <= EDGE
    log, variance = [], []
    for u in itertools.product(range(n), repeat=K):
        d = rest[list(u)]
        s2 = n**2 / (K * (K - 1)) * ((d - d.mean(0)) ** 2).sum(0)
        log.append(np.where(inside, known + n / K * d.sum(0) - 0.5 * s2, -np.inf))
        variance.append(s2)
    mass = np.exp(np.array(log) - np.max(log))
    values = (*theta.T, theta[:, 0] ** 2, np.exp(theta[:, 2]), np.array(variance))
    return [float((mass * each).sum() / mass.sum()) for each in values]


@pytest.fixture(scope="module")
def drawn():
    kernel = HamiltonianKernel(problem(1), seed=7, chain=0)
    kernel.initialise()
    kernel.advance(1000, True)
    found = kernel.advance(DRAWS, False)
    a, b, t = found["theta"].T
    return [a, b, t, a**2, np.exp(t), found["log_lik_variance"]]


def z_scores(drawn, truth):
    return np.abs([batch_z(each, mean) for each, mean in zip(drawn, truth, strict=True)])


def test_draws_match_the_perturbed_density_of_effects_and_their_scale(drawn):
    assert z_scores(drawn, exact(1)).max() < 4.5


@pytest.mark.parametrize("tilt", [2.0, -EXPONENT.sum()], ids=["normaliser", "Jacobian"])
def test_leaving_out_a_power_of_tau_is_caught(drawn, tilt):
    assert z_scores(drawn, exact(1, tilt)).max() > 4.5


def at(given, z):
    """Return density and gradient at whitened ``z`` with all units in the subsample."""
    point, work = allocate_point(3, 0, 0, 1), allocate_work(3, 0, 1)
    point.z[:] = z
    evaluate(given.link, given.sums, given.base, given.certain, given.certain, point, work)
    return point.scalars[3], point.gradient.copy()


def test_the_gradient_is_that_of_the_stretched_density():
    given, h = problem(2), 1e-5
    for z in np.random.default_rng(1).normal(size=(5, 3)) * 1.5:
        steps = h * np.eye(3)
        slopes = [(at(given, z + s)[0] - at(given, z - s)[0]) / (2 * h) for s in steps]
        assert at(given, z)[1] == pytest.approx(slopes, rel=1e-6, abs=1e-6)


def test_the_stretched_density_has_the_jacobian_of_its_coordinates():
    given = problem(2)
    centred = problem(2, levels=np.zeros((0, 3)))
    for z in np.random.default_rng(2).normal(size=(5, 3)):
        moved = STAR + SCALE @ z
        shift = moved[2] - STAR[2]
        theta = np.append(moved[:2] * np.exp(EXPONENT * shift), moved[2])
        same = np.linalg.solve(SCALE, theta - STAR)
        expected = at(centred, same)[0] + EXPONENT.sum() * shift
        assert at(given, z)[0] == pytest.approx(expected, rel=1e-12)
