"""SGLD and SGHMC against the exact moments of the discretised chain.

The posterior is that of a linear regression with known noise: every gradient, of any
subsample, is affine in z. The first two moments then follow an exact recursion, with the
noise terms summed over all units, and its fixed point is what the chain must have. The
posterior's own covariance is the partner that must be rejected.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import Small, batch_z, kernel_problem
from quick import diagonal

from streammc.errors import ConfigError, RefusedError
from streammc.likelihood.blocks import allocate_rows, expanded
from streammc.likelihood.drawn_units import AliasTable, UnitDesign
from streammc.likelihood.target import Base
from streammc.models.base import LinearModel
from streammc.numerics.jit import LINK_SIGNATURE, jit
from streammc.numerics.summation import taylor
from streammc.priors import normal
from streammc.samplers import sghmc, sgld
from streammc.samplers.stochastic_gradient.kernel import Schedule, StochasticProblem
from streammc.samplers.stochastic_gradient.loop import Dynamics
from streammc.stores.memory import from_arrays

ORDERS = {"2": 2, "1": 1, "0": 0, "none": -1}
SGLD = Dynamics(0, 0.0, 0.0, 0)
DYNAMICS = {
    "sgld": (SGLD, 0.6, 1),
    "sghmc, no friction": (Dynamics(1, 0.0, 0.0, 0), 0.3, 4),
    "sghmc, friction": (Dynamics(1, 1.5, 0.0, 0), 0.3, 4),
    "sghmc, friction, noise estimated": (Dynamics(1, 5.0, 0.0, 1), 0.15, 3),
}
"""Dynamics, step size, steps. The friction of the last is above every noise estimate."""
DRAWS = 200_000


@jit(LINK_SIGNATURE)
def known_noise(eta, X, y, constants, order, out):
    for i in range(y.shape[0]):
        residual = y[i] - eta[0, i]
        out[0, i] = -0.5 * residual * residual
        if order >= 1:
            out[1, i] = residual
        if order >= 2:
            out[2, i] = -1.0


class KnownNoise(LinearModel):
    name = "known-noise"
    link_kernel = known_noise

    def response_fault(self, y):
        return None

    def simulate(self, eta, rng):
        return eta[0]


class Regression:
    """A dozen rows, everything about which is known."""

    def __init__(self, order=2, n=12, k=4, unit_rows=1, certain=(), whitened=True, shares=None):
        rng = np.random.default_rng(4)
        self.X = np.c_[np.ones(n), rng.normal(size=n)]
        self.y = self.X @ [0.5, -1.0] + rng.normal(size=n)
        self.offset, self.weight = 0.1 * rng.normal(size=n), rng.uniform(0.5, 1.5, size=n)
        self.n, self.k, self.b, self.order = n, k, unit_rows, order
        self.n_units = -(-n // unit_rows)
        self.certain = np.array(certain, dtype=np.int64)
        self.table = None if shares is None else AliasTable(np.array(shares))
        self.theta_star = np.array([0.4, -0.7])
        self.precision = (self.X.T * self.weight) @ self.X + np.eye(2)
        self.factor = np.eye(2) * 0.3
        if whitened:
            self.factor = np.linalg.cholesky(np.linalg.inv(self.precision))
        self.model = KnownNoise(normal(scale=1.0))

    def row_gradient(self, i):
        """Of the log-likelihood of a row: constant and matrix in theta."""
        x, w = self.X[i], self.weight[i]
        return w * x * (self.y[i] - self.offset[i]), -w * np.outer(x, x)

    def mode(self):
        pull = sum(self.row_gradient(i)[0] for i in range(self.n))
        return np.linalg.solve(self.precision, pull)

    def unit_gradients(self):
        """(U, d, 1 + d): what a subsample sees of each unit, affine in (1, z)."""
        units = np.zeros((self.n_units, 2, 3))
        for i in set(range(self.n)) - set(self.certain):
            constant, matrix = self.row_gradient(i)
            at_star = constant + matrix @ self.theta_star
            constant, matrix = at_star, matrix @ self.factor
            if self.order >= 1:
                constant = np.zeros(2)
            if self.order == 2:
                matrix = np.zeros((2, 2))
            units[i // self.b] += self.factor.T @ np.c_[constant, matrix]
        return units

    def gradient(self):
        """(d, 1 + d): of the log posterior, affine in (1, z)."""
        at_star = self.precision @ (self.mode() - self.theta_star)
        return self.factor.T @ np.c_[at_star, -self.precision @ self.factor]

    def moments(self, dynamics, step, n_steps):
        """E (1, z, q)(1, z, q)' at the end of an iteration, at the fixed point."""
        units = self.unit_gradients()
        noisy = np.zeros((self.n_units, 2, 5))
        noisy[:, :, :3] = units
        mean = noisy.mean(axis=0)
        weight = np.ones(self.n_units)
        if self.table is not None:
            weight = self.table.weights(np.arange(self.n_units))
        drift = np.zeros((2, 5))
        drift[:, :3] = self.gradient()

        def noise(m):
            square = np.einsum("u,uij,jk,ulk->il", weight, noisy, m, noisy) / self.n_units
            return self.n_units**2 / self.k * (square - mean @ m @ mean.T)

        m = np.zeros((5, 5))
        m[0, 0] = 1.0
        z, q = slice(1, 3), slice(3, 5)
        for _ in range(2000):
            if not dynamics.momentum:
                move = np.eye(5)
                move[z] += 0.5 * step * drift
                more = 0.25 * step**2 * noise(m) + step * np.eye(2)
                m = move @ m @ move.T
                m[z, z] += more
                continue
            m[q], m[:, q] = 0.0, 0.0
            m[q, q] = np.eye(2)
            for _ in range(n_steps):
                move = np.eye(5)
                move[z, q] += step * np.eye(2)
                m = move @ m @ move.T
                added = 2.0 * step * dynamics.friction * np.ones(2)
                spread = noise(m)
                if dynamics.estimate_noise:
                    added -= step**2 * np.diag(spread)
                    assert added.min() > 0.0
                kick = np.eye(5)
                kick[q] += step * drift
                kick[q, q] -= step * dynamics.friction * np.eye(2)
                m = kick @ m @ kick.T
                m[q, q] += step**2 * spread + np.diag(added)
        return m[0, z], m[z, z]

    def posterior(self):
        """The same of the posterior itself."""
        inverse = np.linalg.inv(self.factor)
        mean = inverse @ (self.mode() - self.theta_star)
        return mean, inverse @ np.linalg.inv(self.precision) @ inverse.T + np.outer(mean, mean)

    def problem(self, dynamics=SGLD, step=0.6, n_steps=1, decay=0.0, offset=1000.0):
        every = allocate_rows(self.n, 2)
        every.X[:], every.y[:] = self.X, self.y
        every.offset[:], every.weight[:] = self.offset, self.weight
        star, order = self.theta_star, self.order
        whole = expanded(self.model, star, order, every)
        gradient = self.X.T @ whole.expansion[1]
        hessian = (self.X.T * whole.expansion[2]) @ self.X
        base = Base(
            star,
            float(whole.expansion[0].sum()),
            gradient,
            hessian,
            np.ascontiguousarray(self.factor),
            self.model.prior_table(self.model.labels(["a", "b"])),
            self.model.constants,
            1,
            order,
            self.b,
            self.n_units / self.k,
            0.0,
        )
        rows = type(every)(*(np.ascontiguousarray(part[self.certain]) for part in every))
        data = from_arrays(self.X, self.y, offset=self.offset, weight=self.weight)
        factor = self.n_units**2 / (self.k * (self.k - 1))
        return StochasticProblem(
            link=self.model.link,
            sums=taylor,
            base=base,
            certain=expanded(self.model, star, order, rows),
            certainty_rows=self.certain,
            design=UnitDesign(self.n, self.b, self.k, 1, probabilities=self.table),
            source=data.rows(),
            constrain=self.model.constrain,
            schedule=Schedule(step, decay, offset, n_steps, 0.0),
            dynamics=dynamics._replace(variance_factor=factor),
        )

    def draw(self, *settings, draws=DRAWS, seed=1):
        kernel = self.problem(*settings).kernel(seed, 0)
        kernel.initialise()
        kernel.advance(500, True)
        found = kernel.advance(draws, False)
        whitened = np.linalg.solve(self.factor, (found["theta"] - self.theta_star).T).T
        return whitened, found


def z_scores(z, moments):
    mean, square = moments
    pairs = [(0, 0), (0, 1), (1, 1)]
    first = [batch_z(z[:, j], mean[j]) for j in range(2)]
    return np.array(first + [batch_z(z[:, i] * z[:, j], square[i, j]) for i, j in pairs])


@pytest.mark.parametrize(("kind", "order"), diagonal([*DYNAMICS], [*ORDERS]))
def test_moments_are_those_of_the_discretised_chain_and_not_the_posteriors(order, kind):
    case = Regression(ORDERS[order])
    z, found = case.draw(*DYNAMICS[kind])
    assert np.abs(z_scores(z, case.moments(*DYNAMICS[kind]))).max() < 4.5
    assert np.abs(z_scores(z, case.posterior())).max() > 10
    assert not found.get("noise_clipped", np.zeros(1)).any()


@pytest.mark.parametrize("kind", ["sgld", "sghmc, friction, noise estimated"])
@pytest.mark.parametrize(
    "options",
    [
        {"certain": (1, 5, 6)},
        {"unit_rows": 2, "n": 11, "k": 3},
        {"whitened": False},
        {"shares": [1.0, 2.0, 0.5, 1.5] * 3},
    ],
    ids=["certainty rows", "units of two rows", "identity", "unequal probabilities"],
)
def test_moments_with_certainty_rows_units_of_rows_and_no_preconditioner(options, kind):
    case = Regression(1, **options)
    z, _ = case.draw(*DYNAMICS[kind])
    assert np.abs(z_scores(z, case.moments(*DYNAMICS[kind]))).max() < 4.5


def test_moments_of_equal_probabilities_are_rejected_where_they_are_not():
    z, _ = Regression(1, shares=[1.0, 2.0, 0.5, 1.5] * 3).draw(*DYNAMICS["sgld"])
    assert np.abs(z_scores(z, Regression(1).moments(*DYNAMICS["sgld"]))).max() > 4.5


def test_without_its_noise_terms_the_recursion_is_rejected():
    case = Regression(0)
    z, _ = case.draw(*DYNAMICS["sgld"])
    assert np.abs(z_scores(z, Regression(2).moments(*DYNAMICS["sgld"]))).max() > 10


def test_chains_start_with_the_spread_of_the_posterior_where_positions_have_another_scale():
    spread = np.array([[2.0, 0.0], [-1.0, 0.1]])
    shared = replace(Regression(whitened=False).problem(), spread=spread)
    starts = []
    for chain in range(200):
        kernel = shared.kernel(1, chain)
        kernel.initialise()
        starts.append(kernel.get_state()[0]["z"])
    # Whitened they are standard normal: the sum of squares has mean 400 and sd sqrt(2 x 400).
    square = (np.linalg.solve(spread, np.transpose(starts)) ** 2).sum()
    assert abs(square - 400.0) < 4.5 * np.sqrt(800.0)
    assert np.square(starts).sum() > 1.5 * square


def test_recorded_estimates_are_unbiased_at_the_draw():
    case = Regression(0)
    _, found = case.draw(*DYNAMICS["sghmc, friction"])
    theta = found["theta"]
    residual = case.y - case.offset - theta @ case.X.T
    rows = -0.5 * case.weight * residual**2
    prior = -0.5 * (theta**2).sum(axis=1) - np.log(2 * np.pi)
    assert abs(batch_z(found["lp"] - rows.sum(axis=1) - prior, 0.0)) < 4.5
    star = case.y - case.offset - case.X @ case.theta_star
    remainder = rows + 0.5 * case.weight * star**2
    exact = case.n**2 / case.k * remainder.var(axis=1)
    assert abs(batch_z(found["log_lik_variance"] - exact, 0.0)) < 4.5
    assert abs(batch_z(found["log_lik_variance"] - 1.05 * exact, 0.0)) > 4.5
    assert abs(batch_z(found["log_lik_remainder"] - remainder.sum(axis=1), 0.0)) < 4.5
    assert {4} == set(found["n_steps"])
    assert {4 * 2 * case.k} == set(found["n_rows"])


def test_decreasing_steps_leave_standard_normal_residuals():
    case = Regression(2)
    z, found = case.draw(SGLD, 0.6, 1, 0.55, 50.0, draws=100_000)
    t = 500 + np.arange(len(z))
    h = 0.6 * (1.0 + t / 50.0) ** -0.55
    np.testing.assert_allclose(found["step_size"], h, rtol=1e-12)
    constant, matrix = np.split(case.gradient(), [1], axis=1)

    def residuals(h):
        before, after, h = z[:-1], z[1:], h[1:, None]
        return (after - before - 0.5 * h * (constant.T + before @ matrix.T)) / np.sqrt(h)

    for part in (slice(0, 2000), slice(-2000, None)):
        left = residuals(h)[part]
        assert abs(batch_z(left.ravel(), 0.0)) < 4.5
        assert abs(batch_z(left.ravel() ** 2, 1.0)) < 4.5
        assert abs(batch_z(residuals(np.full(len(z), 0.6))[part].ravel() ** 2, 1.0)) > 10


def test_a_trajectory_keeps_its_length_while_steps_decrease():
    sizes, steps = Schedule(0.2, 1.0, 100.0, 0, 1.2).at(95, 10)
    np.testing.assert_allclose(sizes, 0.2 / (1 + np.arange(95, 105) / 100), rtol=1e-12)
    assert list(np.ceil(1.2 / sizes)) == list(steps)
    assert {6} == set(Schedule(0.2, 0.0, 100.0, 0, 1.2).at(7, 5)[1])
    assert {3} == set(Schedule(0.2, 1.0, 100.0, 3, 1.2).at(7, 5)[1])


def test_a_noise_estimate_above_the_friction_is_cut_and_counted():
    case = Regression(-1)
    for friction, fewest, most in ((0.05, 0.6, 1.0), (0.5, 0.02, 0.6), (5.0, 0.0, 0.0)):
        _, found = case.draw(Dynamics(1, friction, 0.0, 1), 0.15, 4, draws=2000)
        assert fewest <= found["noise_clipped"].mean() <= most
        assert np.isfinite(found["theta"]).all()


@pytest.mark.parametrize("model", ["logistic", "gaussian", "student-t"])
def test_the_noise_estimate_is_the_scatter_of_whitened_unit_gradients(model):
    small = Small(model=model, n=13, d=3, k=5, order=1, unit_rows=2, certain=(3, 4), near_mode=True)
    shared = kernel_problem(small)
    kernel = StochasticProblem(
        **{name: getattr(shared, name) for name in ("link", "sums", "certain", "certainty_rows")},
        base=small.base._replace(variance_factor=0.0),
        design=UnitDesign(13, 2, 5, 1),
        source=shared.source,
        constrain=shared.constrain,
        schedule=Schedule(0.01, 0.0, 1.0, 3, 0.0),
        dynamics=Dynamics(1, 1.0, small.base.variance_factor, 1),
    ).kernel(2, 0)
    kernel.initialise()
    kernel.advance(2, False)
    slope = kernel._point.slope  # of the linear predictor, then of the shared parameters
    gradients = np.hstack([kernel._sub.design.T * slope[:1].T, slope[1:].T])
    units = (gradients @ small.base.factor).reshape(5, 2, -1).sum(axis=1)
    expected = 7**2 / 5 * units.var(axis=0, ddof=1)
    np.testing.assert_allclose(expected, kernel._noise.variance, rtol=1e-9)
    assert (expected > 0.0).all()


@pytest.mark.parametrize("kind", DYNAMICS)
def test_draws_do_not_depend_on_batches_or_on_a_resume(kind):
    dynamics, step, n_steps = DYNAMICS[kind]
    problem = Regression(1).problem(dynamics, step, n_steps, 0.3, 20.0)

    def run(batch, pieces):
        kernel, out = problem.kernel(9, 0, batch_iterations=batch), []
        kernel.initialise()
        for n, warmup in pieces:
            out.append(kernel.advance(n, warmup))
            arrays, meta = kernel.get_state()
            kernel = problem.kernel(1, 0, batch_iterations=batch)
            kernel.set_state(arrays, meta)
        return {name: np.concatenate([part[name] for part in out]) for name in out[0]}, meta

    whole, meta = run(4096, [(60, True), (60, False)])
    for batch, pieces in ((1, [(60, True), (60, False)]), (7, [(13, True), (1, False), (106, 0)])):
        found, at_end = run(batch, pieces)
        assert meta == at_end
        for name, values in whole.items():
            assert np.array_equal(values, found[name]), name


def test_a_chain_that_runs_away_is_stopped():
    problem = Regression(2).problem(SGLD, 0.6, 1)
    kernel = replace(problem, schedule=replace(problem.schedule, step_size=8.5)).kernel(1, 3)
    kernel.initialise()
    with pytest.raises(RefusedError, match=r"iteration .* of chain 3.*step-size"):
        kernel.advance(10_000, False)


@pytest.mark.parametrize("build", [sgld, sghmc])
@pytest.mark.parametrize(
    "options",
    [
        {"control_variate": 3},
        {"control_variate": True},
        {"control_variate": "two"},
        {"subsample_size": 0},
        {"subsample_size": 2.5},
        {"unit_rows": -1},
        {"certainty": "yes"},
        {"preconditioner": "diagonal"},
        {"probabilities": "rows"},
        {"step_size": 0.0},
        {"step_size": float("nan")},
        {"step_size": "large"},
        {"decay": -0.1},
        {"decay": 1.5},
        {"offset": 0},
        {"n_blocks": 3},
    ],
)
def test_options_out_of_range_are_refused(build, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        build(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"friction": -1.0},
        {"noise_estimate": "exact"},
        {"n_steps": 0},
        {"trajectory_length": -1.2},
        {"step_size": 0.1, "n_steps": 12, "trajectory_length": 1.2},
    ],
)
def test_options_of_sghmc_out_of_range_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        sghmc(**options)
    with pytest.raises(ConfigError, match="unknown option"):
        sgld(n_steps=3)


@pytest.mark.parametrize("option", ["control_variate", "preconditioner"])
def test_none_and_the_word_none_are_the_same_option(option):
    assert sgld(**{option: None}) == sgld(**{option: "none"})
    assert sghmc(noise_estimate=None) == sghmc()
