"""Posteriors under kinks, walls and heavy tails against quadrature in one dimension."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc.models import logistic
from streammc.priors import laplace, normal, student_t, uniform
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.stores.memory import from_arrays

ROWS = 1000
PRIORS = {
    "student_t": (student_t(2.0, 0.6, 0.02), stats.t(2.0, 0.6, 0.02)),
    "laplace": (laplace(0.2, 0.01), stats.laplace(0.2, 0.01)),
    "uniform": (uniform(-1.0, 0.22), stats.uniform(-1.0, 1.22)),
}
SAMPLERS = {"hmc": hmc(), "hmc-ecs": hmc_ecs(subsample_size=100)}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    x = rng.normal(size=ROWS)
    return x[:, None], (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-0.3 * x))).astype(float)


def moments(rows, density):
    """Return mean and sd of the posterior by quadrature."""
    theta = np.linspace(-0.4, 1.1, 20_001)
    eta = np.outer(theta, rows[0][:, 0])
    log = np.concatenate(
        [part @ rows[1] - np.logaddexp(0.0, part).sum(axis=1) for part in np.array_split(eta, 100)]
    )
    log += density.logpdf(theta)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight @ (theta - mean) ** 2)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", PRIORS)
def test_posterior_equals_quadrature(rows, name, sampler):
    prior, density = PRIORS[name]
    summary = run_job(
        RunRequest(
            from_arrays(*rows, feature_names=["x"]),
            logistic({"x": prior}),
            SAMPLERS[sampler],
            draws=6000,
            warmup=500,
            chains=2,
            seed=1,
            audit=False,
        )
    ).summary
    found = summary["parameters"]["beta[x]"]
    mean, sd = moments(rows, density)
    assert found["r_hat"] < 1.02
    assert found["mcse_mean"] < 0.04 * sd
    assert abs(found["mean"] - mean) < 4.5 * found["mcse_mean"]
    assert found["sd"] == pytest.approx(sd, rel=0.1)
    # Without the prior the answer is another one, so that the test can fail.
    plain, _ = moments(rows, stats.norm(0.0, 10.0))
    assert abs(found["mean"] - plain) > 20.0 * found["mcse_mean"]
    # A wall rejects, but it is no divergence, and no reason for smaller steps.
    assert 0 == summary["sampling"]["divergences"]
    assert summary["sampling"]["step_size"] > 0.5


def test_the_centre_is_certified_under_every_prior(rows):
    from streammc.control_variates.certify import compute

    for prior, _ in PRIORS.values():
        cv = compute(from_arrays(*rows), logistic(prior))
        assert cv.certificate["converged"]
        assert cv.certificate["passes"] <= 3
    assert compute(from_arrays(*rows), logistic(normal())).certificate["converged"]
