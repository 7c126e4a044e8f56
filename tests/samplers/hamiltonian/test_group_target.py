"""Subsampled groups against the density that hmc-ecs leaves invariant, by quadrature."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from problems import batch_z

from streammc import from_arrays
from streammc.control_variates.coordinates import coordinates
from streammc.likelihood.blocks import expanded
from streammc.likelihood.data_views import by_group, gather
from streammc.likelihood.drawn_units import UnitDesign
from streammc.likelihood.target import DENSITY, Base, allocate_point, allocate_work, evaluate
from streammc.models import logistic
from streammc.numerics.summation import taylor
from streammc.priors import half_normal, normal
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel, Problem

DRAWS = 200_000
SIZES = (3, 1, 4, 2, 5, 1)
STAR = np.array([0.3, -0.4])
"""Intercept and log tau; away from the mode."""
BETA, LOG_TAU = np.meshgrid(np.linspace(-7, 7, 141), np.linspace(-9, 2.5, 151), indexing="ij")


def rows():
    rng = np.random.default_rng(5)
    n = sum(SIZES)
    return np.ones((n, 1)), rng.integers(0, 2, n).astype(float), rng.normal(size=n) * 0.3


def log_lik_groups(beta, log_tau):
    """(K, ...) logs of the integrals over the group's effect, by a dense grid in NumPy."""
    _, y, offset = rows()
    v = np.linspace(-8, 8, 321)
    weight = np.exp(-0.5 * v**2) / np.exp(-0.5 * v**2).sum()
    u = np.exp(log_tau)[..., None] * v
    out, start = [], 0
    for size in SIZES:
        log = 0.0
        for i in range(start, start + size):
            eta = beta[..., None] + offset[i] + u
            log = log + y[i] * eta - np.logaddexp(0, eta)
        out.append(np.log((np.exp(log) * weight).sum(-1)))
        start += size
    return np.array(out)


@cache
def log_lik_on_the_grid():
    return log_lik_groups(BETA, LOG_TAU)


def log_tau_of(end, noise):
    """Log tau of the last coordinate of an expansion: itself, or 1 / (tau^2 + noise)."""
    return 0.5 * np.log(np.maximum(1.0 / end - noise, 1e-300)) if noise else end


def expansion(order, noise=0.0, h=1e-4):
    """Return l_g - q_g on the grid and l_g, with q_g by central differences."""
    full = log_lik_on_the_grid()
    star = STAR.copy()
    end = LOG_TAU
    if noise:
        star[1] = 1.0 / (np.exp(2.0 * STAR[1]) + noise)
        end = 1.0 / (np.exp(2.0 * LOG_TAU) + noise)

    def at(x):
        return log_lik_groups(x[:1], np.array([log_tau_of(x[1], noise)]))[:, 0]

    steps, shifts = (BETA - star[0], end - star[1]), h * np.eye(2)
    q = at(star)[:, None, None] + np.zeros(BETA.shape)
    for a in range(2 if order else 0):
        slope = (at(star + shifts[a]) - at(star - shifts[a])) / (2 * h)
        q = q + slope[:, None, None] * steps[a]
    for a, b in itertools.product(range(2 if order == 2 else 0), repeat=2):
        ends = [s * at(star + s * shifts[a] + t * shifts[b]) * t
                for s in (1, -1) for t in (1, -1)]  # fmt: skip
        q = q + (sum(ends) / (8 * h * h))[:, None, None] * steps[a] * steps[b]
    return full - q, full


def exact(order, k, certain, noise=0.0):
    """Moments of (beta, log tau) and of the variance under the perturbed density."""
    rest, full = expansion(order, noise)
    known = full.sum(0) - rest.sum(0) + rest[list(certain)].sum(0)
    prior = -0.5 * (BETA / 2) ** 2 - 0.5 * np.exp(2 * LOG_TAU) + LOG_TAU
    rest = rest.copy()
    rest[list(certain)] = 0.0
    n, log, variance = len(SIZES), [], []
    for u in itertools.product(range(n), repeat=k):
        d = rest[list(u)]
        s2 = n**2 / (k * (k - 1)) * ((d - d.mean(0)) ** 2).sum(0)
        log.append(known + n / k * d.sum(0) - 0.5 * s2 + prior)
        variance.append(s2)
    mass = np.exp(np.array(log) - np.max(log))
    mass *= inside(order)
    functions = (BETA, LOG_TAU, BETA**2, np.exp(LOG_TAU), np.array(variance))
    return [float((mass * f).sum() / mass.sum()) for f in functions]


def scale():
    return np.array([[1.0, 0.0], [0.3, 0.8]])


def edge_of(order):
    """Largest |z|^2; expansions to order 2 of so few rows have mass far out."""
    return 5.0 if order == 2 else 30.0


def inside(order):
    """Which of the grid is inside the edge."""
    z = np.linalg.solve(scale(), np.stack([BETA - STAR[0], LOG_TAU - STAR[1]]).reshape(2, -1))
    return (z**2).sum(0).reshape(BETA.shape) <= edge_of(order)


def problem(order, k, certain, noise=0.0, **changed):
    X, y, offset = rows()
    data = from_arrays(X, y, offset=offset, feature_names=["Intercept"])
    bounds = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int64)
    data.groups = SimpleNamespace(
        column="g", terms=("1",), correlated=False, offset=bounds, n_groups=len(SIZES)
    )
    prior = {"beta[Intercept]": normal(scale=2.0), "tau[g]": half_normal(1.0)}
    groups, model = by_group(data, logistic(prior=prior))
    where = coordinates(model, STAR, np.full(1, noise) if noise else np.zeros(0))
    every = expanded(where.model, where.centre, 2, gather(groups, np.arange(len(SIZES))))
    sums = every.expansion.sum(axis=1)
    n = len(SIZES)
    base = Base(
        theta_star=STAR,
        log_lik=float(sums[0]),
        gradient=sums[1:3] * (order > 0),
        hessian=sums[[3, 4, 4, 5]].reshape(2, 2) * (order == 2),
        factor=scale(),
        prior=model.prior_table(model.labels(data.feature_names)),
        constants=where.model.constants,
        n_linear=0,
        order=order,
        unit_rows=1,
        estimate_factor=n / k,
        variance_factor=n**2 / (k * (k - 1)),
        edge=edge_of(order),
        centre=where.centre,
        noise=where.noise,
    )._replace(**changed)
    certain = np.array(certain, dtype=np.int64)
    return Problem(
        link=model.link,
        sums=taylor,
        base=base,
        certain=expanded(where.model, where.centre, order, gather(groups, certain)),
        certainty_rows=certain,
        design=UnitDesign(n, 1, k, k),
        source=groups.rows(),
        trajectory_length=1.5,
        jitter=0.2,
        target_acceptance=0.8,
        step_size=None,
        constrain=model.constrain,
    ), model


UNIT = 0.6
SPREADS = np.array([[1.0, 0.9, 0.4, 0.2, 1.0, 0.0, 1.0, 0.0, 1.0]])
"""An intercept that is stretched with tau; after e stands w, with w . e = 1, then the power."""


def on_the_real_line(base, spreads=SPREADS[:0]):
    """Positions with tau = UNIT |sinh t|, t around 0, with the same target."""
    factor = np.array([[1.0, 0.0], [0.0, np.arcsinh(np.exp(STAR[1]) / UNIT)]])
    centre = base.centre if len(base.noise) else STAR
    return base._replace(
        theta_star=STAR * [1.0, 0.0], factor=factor, lines=np.array([[1.0, -1.0, UNIT]]),
        spreads=spreads, mode=STAR, mode_factor=scale(), centre=centre,
    )  # fmt: skip


def z_scores(order, k, certain, noise=0.0, known=None, wrong=None, line=None, **changed):
    given, model = problem(order, k, certain, noise, **changed)
    if line is not None:
        # Tuned steps are as short as they must be near tau = 0: 120 to a trajectory.
        given = replace(given, base=on_the_real_line(given.base, line), step_size=0.15)
        given = replace(given, trajectory_length=0.6)
    kernel = HamiltonianKernel(given, seed=7, chain=0)
    kernel.initialise()
    kernel.advance(1000, True)
    found = kernel.advance(DRAWS, False)
    assert model.n_linear == 0  # which also keeps the table of the link alive
    beta, log_tau = found["theta"].T
    values = [beta, log_tau, beta**2, np.exp(log_tau)]
    if not changed:  # without its factor the variance is 0
        values.append(found["log_lik_variance"])
    truth = exact(order, k, certain if known is None else known, noise if wrong is None else wrong)
    return np.abs([batch_z(each, mean) for each, mean in zip(values, truth, strict=False)])


@pytest.mark.parametrize(
    ("order", "k", "certain", "noise", "line"),
    [
        (1, 2, (4,), 0.0, None),
        (2, 2, (4,), 0.8, None),
        (2, 2, (4,), 0.8, SPREADS),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                (0, 3, (), 0.0, None),
                (1, 2, (), 0.0, SPREADS),
                (1, 3, (0, 2), 0.0, None),
                (1, 2, (), 0.8, None),
                (2, 3, (0, 2), 0.3, SPREADS[:0]),
            )
        ),
    ],
    ids=str,
)
def test_draws_match_the_perturbed_density_of_groups(order, k, certain, noise, line):
    assert z_scores(order, k, certain, noise, line=line).max() < 4.5


def test_direction_whose_jacobian_is_another_is_caught():
    wrong = SPREADS.copy()
    wrong[0, 6] = 0.5  # w . e is no longer 1
    assert z_scores(2, 2, (4,), 0.8, line=wrong).max() > 4.5


@pytest.mark.slow
def test_leaving_out_the_variance_is_caught():
    assert z_scores(0, 3, (), variance_factor=0.0).max() > 4.5


@pytest.mark.slow
def test_leaving_out_certainty_groups_is_caught():
    assert z_scores(1, 2, (), known=(4,)).max() > 4.5


@pytest.mark.slow
def test_expansion_in_another_coordinate_is_caught():
    assert z_scores(1, 2, (), 0.8, wrong=0.0).max() > 4.5


def test_the_gradient_is_that_of_the_density_in_the_marginal_precision():
    given, model = problem(2, 2, (4,), 0.8)
    drawn = problem(2, 2, (0, 2), 0.8)[0].certain  # two other groups as the subsample
    point, work = allocate_point(2, 2, 2, 2), allocate_work(2, 2, 2, 1)

    def density(z):
        point.z[:] = z
        evaluate(given.link, given.sums, given.base, given.certain, drawn, point, work)
        return point.scalars[DENSITY]

    assert model.n_linear == 0
    for z in np.random.default_rng(1).normal(size=(3, 2)):
        slopes = [(density(z + s) - density(z - s)) / 2e-5 for s in 1e-5 * np.eye(2)]
        density(z)
        assert slopes == pytest.approx(point.gradient, rel=1e-6, abs=1e-6)
