"""Sorted rows cost efficiency, never correctness; the design effect says how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from problems import batch_z

from streammc.control_variates.certify import compute
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.likelihood.drawn_units import UnitDesign
from streammc.models import logistic, poisson
from streammc.priors import normal
from streammc.runs.audit import log_weights
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.problem import subsampled
from streammc.stores import open_store
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.memory import from_arrays

ROWS, UNITS = 4096, 60
MODEL = poisson(prior=normal(scale=10.0))


def response(rng):
    x = rng.uniform(0.5, 1.5, size=ROWS)
    return x, rng.poisson(np.exp(-0.5 + 0.6 * x)).astype(float)


@dataclass
class Case:
    """Simulated Poisson rows, a subsample of 60 units, and both targets by quadrature."""

    x: np.ndarray
    y: np.ndarray
    b: int
    theta_star: float
    grid: np.ndarray
    posterior: np.ndarray
    perturbed: np.ndarray
    variance: np.ndarray
    """Of the estimate, over subsamples drawn uniformly, at each point of the grid."""
    recorded: np.ndarray
    """Mean of s^2 given theta under the target, which prefers subsamples of small s^2."""

    def moments(self, density):
        mean = density @ self.grid
        return mean, density @ self.grid**2 - mean**2


def log_lik_rows(x, y, theta):
    return y * (x * theta - 0.5) - np.exp(x * theta - 0.5)


def unit_totals(x, y, b, theta_star, grid):
    """(grid, U) totals of the remainders of first-order expansions, in plain NumPy."""
    slope = x * (y - np.exp(x * theta_star - 0.5))
    centre = log_lik_rows(x, y, theta_star)
    rows = np.array([log_lik_rows(x, y, t) - centre - slope * (t - theta_star) for t in grid])
    return rows.reshape(len(grid), -1, b).sum(axis=2)


def log_perturbation(totals, k, power=1.0):
    """log E_u exp(l^ - power s^2 / 2) - l, exactly, for any k.

    With c = U^2 / (k (k - 1)), s^2 = c (sum D^2 - (sum D)^2 / k), and exp of the square
    is a Gaussian mixture of linear terms: exp(c t^2 / (2 k)) = E exp(z sqrt(c / k) t),
    z standard normal. So the expectation over k independent units is a k-th power.
    """
    n_units = totals.shape[1]
    c = power * n_units**2 / (k * (k - 1))
    centred = totals - totals.mean(axis=1, keepdims=True)
    z, step = np.linspace(-9.0, 9.0, 181, retstep=True)
    out = []
    for d in centred:
        exponent = (n_units / k + z[:, None] * np.sqrt(c / k)) * d - 0.5 * c * d * d
        inner = k * np.log(np.exp(exponent).mean(axis=1)) - 0.5 * z * z
        out.append(np.log(np.exp(inner).sum() * step / np.sqrt(2 * np.pi)))
    return np.array(out)


def normalised(log):
    density = np.exp(log - log.max())
    return density / density.sum()


@cache
def case(b, order):
    """Put theta_star where the variance of the estimate is about 1."""
    rng = np.random.default_rng(8)
    x, y = response(rng)
    if order == "sorted":
        first = np.argsort(x)
        x, y = x[first], y[first]
    wide = np.linspace(0.4, 0.8, 2001)
    log = np.array([log_lik_rows(x, y, t).sum() for t in wide]) - wide**2 / 200.0
    density = normalised(log)
    mode = density @ wide
    sd = np.sqrt(density @ wide**2 - mode**2)
    grid = mode + sd * np.linspace(-8.0, 8.0, 161)
    log = np.array([log_lik_rows(x, y, t).sum() for t in grid]) - grid**2 / 200.0
    posterior = normalised(log)
    for shift in np.arange(1.0, 30.0, 0.5):
        theta_star = mode + shift * sd
        totals = unit_totals(x, y, b, theta_star, grid)
        variance = totals.shape[1] ** 2 * totals.var(axis=1) / UNITS
        if posterior @ variance > 0.8:
            break
    perturbed = normalised(log + log_perturbation(totals, UNITS))
    step = 1e-4  # E[s^2 | theta] is -2 times the derivative in the power
    either_side = [log_perturbation(totals, UNITS, 1.0 + h) for h in (step, -step)]
    recorded = -(either_side[0] - either_side[1]) / step
    return Case(x, y, b, theta_star, grid, posterior, perturbed, variance, recorded)


class IndependentRows(UnitDesign):
    """The same runs of ``b`` rows, presented as if each row had been drawn on its own."""

    b = 1

    def draw(self, count, rng):
        starts = rng.integers(0, self.n_rows // self.b, size=count // self.b) * self.b
        return (starts[:, None] + np.arange(self.b)).ravel().astype(np.int64)


def as_if_independent(problem):
    design, base = problem.design, problem.base
    m, n = design.subsample_size, design.n_rows
    wrong = IndependentRows(n, 1, m, design.n_blocks)
    object.__setattr__(wrong, "b", design.unit_rows)
    wrong_base = base._replace(
        unit_rows=1, estimate_factor=n / m, variance_factor=n**2 / (m * (m - 1))
    )
    return replace(problem, design=wrong, base=wrong_base)


def sample(c, draws, broken=False):
    """Draw from the production kernel; four blocks, no certainty rows."""
    store = from_arrays(c.x[:, None], c.y, offset=np.full(ROWS, -0.5))
    cv = compute(store, MODEL, order=1, passes=1, theta_star=np.array([c.theta_star]))
    assert cv.theta_star[0] == c.theta_star
    design = plan(
        cv,
        store,
        MODEL,
        PlanRequest(subsample_size=UNITS * c.b, unit_rows=c.b, n_blocks=4, certainty=False),
    )
    assert (design.k, design.n_units, len(design.certainty_rows)) == (UNITS, ROWS // c.b, 0)
    problem = subsampled(store, MODEL, cv, design, hmc_ecs(order=1))
    kernel = HamiltonianKernel(as_if_independent(problem) if broken else problem, 5, 0)
    kernel.initialise()
    kernel.advance(500, True)
    out = kernel.advance(draws, False)
    return out, store, cv, design


def scores(theta, mean, variance, weight=1.0):
    """z of the mean and of the sd against quadrature."""
    spread = (theta - mean) ** 2
    return batch_z(weight * (theta - mean), 0.0), batch_z(weight * (spread - variance), 0.0)


CASES = [(b, order) for order in ("sorted", "shuffled") for b in (1, 8, 64)]
# A run of 64 rows costs 64 times a row: fewer draws, still a standard error of 0.03 sd.
DRAWS = {1: 40_000, 8: 20_000, 64: 6_000}


@pytest.mark.trust(50)
@pytest.mark.parametrize(("b", "order"), CASES)
def test_draws_match_quadrature_for_any_order_and_run_length(b, order):
    c = case(b, order)
    draws, store, cv, design = sample(c, DRAWS[b])
    theta = draws["theta"][:, 0]
    variance = draws["log_lik_variance"]
    assert 0.3 < c.posterior @ c.variance < 3.0
    assert 0.3 < variance.mean() < 3.0
    assert abs(batch_z(variance, c.perturbed @ c.recorded)) < 4.5
    for z in scores(theta, *c.moments(c.perturbed)):
        assert abs(z) < 4.5
    sd = np.sqrt(c.moments(c.posterior)[1])
    assert theta.reshape(100, -1).mean(axis=1).std() / 10 < 0.03 * sd
    # The perturbation itself is the audit's to remove: its weights lead to the posterior.
    kept = slice(None, None, 10)
    logw = log_weights(
        store,
        MODEL,
        cv,
        draws["theta"][kept],
        draws["log_lik_remainder"][kept],
        variance[kept],
    )
    weight = np.exp(logw - logw.max())
    z, _ = scores(theta[kept], *c.moments(c.posterior), weight / weight.mean())
    assert abs(z) < 4.5
    # The design effect of 64 neighbours is large exactly where the rows are sorted.
    assert (design.deff > 30.0) == (order == "sorted")
    assert any("ingest with --shuffle" in reason for reason in design.reasons) == (
        order == "sorted"
    )


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("b", [1, 8, 64])
def test_perturbed_target_is_near_the_posterior(b, order):
    c = case(b, order)
    mean, variance = c.moments(c.posterior)
    perturbed_mean, perturbed_variance = c.moments(c.perturbed)
    assert abs(perturbed_mean - mean) < 0.1 * np.sqrt(variance)
    assert 0.95 < perturbed_variance / variance < 1.10


@pytest.mark.parametrize("b", [8, 64])
def test_variance_as_if_rows_were_independent_is_caught(b):
    c = case(b, "sorted")
    draws = sample(c, DRAWS[b], broken=True)[0]
    theta = draws["theta"][:, 0]
    assert draws["log_lik_variance"].mean() < 0.3  # claims a precision that it has not
    for target in (c.perturbed, c.posterior):
        mean, spread = scores(theta, *c.moments(target))
        assert abs(mean) > 9.0
        assert abs(spread) > 4.5


def test_quadrature_agrees_with_enumeration_of_all_subsamples():
    rng = np.random.default_rng(1)
    totals = rng.normal(size=(2, 6)) * 0.2
    centred = totals - totals.mean(axis=1, keepdims=True)
    expected = []
    for d in centred:
        u = np.stack(np.meshgrid(d, d, d), axis=-1).reshape(-1, 3)
        s2 = 36 / 6 * ((u - u.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        expected.append(np.log(np.exp(2.0 * u.sum(axis=1) - 0.5 * s2).mean()))
    assert np.allclose(expected, log_perturbation(totals, 3), rtol=0, atol=1e-10)


# ---------------------------------------------------------------- a table ordered by time


@pytest.fixture(scope="module")
def flights(data_folder):
    """The table as it comes, ordered by time."""
    with np.load(data_folder / "flights200k" / "data.npz") as z:
        time = z["time"].astype(float)
        time = (time - time.mean()) / time.std()
        columns = {
            "late": (z["delay"] > 15).astype(np.uint8),
            "distance": z["distance"].astype(float),
            "time": time,
            "time2": time**2,
        }
    return pa.table(columns)


@pytest.mark.parametrize("shuffle", [False, True])
def test_flights_design_effect_tells_whether_rows_were_shuffled(flights, tmp_path, shuffle):
    ingest(flights, tmp_path / "store.zarr", response="late", shuffle=shuffle)
    store = open_store(tmp_path / "store.zarr")
    model = logistic(prior=normal(scale=10.0))
    report = run_job(
        RunRequest(store, model, draws=200, warmup=500, chains=2, seed=1, path=tmp_path / "run")
    )
    deff = report.summary["sampling"]["deff"]
    said = [line for line in report.warnings if "design effect" in line]
    reasons = report.summary["sampling"]["reason"]
    if shuffle:
        assert 0.8 <= deff <= 1.25
        assert not said
        assert "--shuffle" not in reasons
    else:
        assert deff > 2.0
        assert len(said) == 1
        assert f"design effect {deff:.1f}, above 2: the rows are ordered" in said[0]
        assert "ingest with --shuffle" in said[0]
        assert "rows are ordered" in reasons
