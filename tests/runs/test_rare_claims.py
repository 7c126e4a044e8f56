"""The audit finds a bias that the recorded variance does not show.

The row that matters is usually not in the subsample: then neither the variance nor any
acceptance rate can tell, but the importance weights to the posterior can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from streammc.errors import RefusedError
from streammc.models import poisson
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.stores.memory import from_arrays

ROWS = 20_000
LABELS = ("beta[x0]", "beta[x1]")


@dataclass
class Truth:
    """Posterior moments by quadrature."""

    mean: np.ndarray
    sd: np.ndarray


def claims(seed):
    """About 200 claims, one heavy-tailed covariate."""
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0.0, 1.0, size=ROWS)
    x = (x - x.mean()) / x.std()
    y = rng.poisson(np.exp(-4.75 + 0.25 * x)).astype(float)
    return np.c_[np.ones(ROWS), x], y


def quadrature(X, y, prior_sd=10.0):
    beta = np.array([np.log(y.mean()), 0.0])
    for _ in range(50):
        mu = np.exp(X @ beta)
        minus_hessian = (X.T * mu) @ X + np.eye(2) / prior_sd**2
        step = np.linalg.solve(minus_hessian, X.T @ (y - mu) - beta / prior_sd**2)
        beta = beta + step / max(1.0, np.abs(step).max())
    scale = np.linalg.cholesky(np.linalg.inv(minus_hessian))
    grid = np.linspace(-7.0, 7.0, 43)
    z = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    theta = beta + z @ scale.T
    log = theta @ (X.T @ y) - 0.5 * (theta**2).sum(axis=1) / prior_sd**2
    log -= np.concatenate([np.exp(part @ X.T).sum(axis=1) for part in np.array_split(theta, 50)])
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ theta
    return Truth(mean, np.sqrt(weight @ (theta - mean) ** 2))


def draw(X, y, seed=2, **options):
    report = run_job(
        RunRequest(
            from_arrays(X, y),
            poisson(prior=normal(scale=10.0)),
            hmc_ecs(**options),
            draws=4000,
            warmup=1000,
            chains=4,
            seed=seed,
            audit=True,  # by default the clock decides
        )
    )
    return report.summary


@pytest.fixture(scope="module", params=[1, 2])
def rare(request):
    X, y = claims(request.param)
    return X, y, quadrature(X, y)


@pytest.fixture(scope="module")
def blind(rare):
    """Fifty rows and no certainty rows, as in the papers; the plan refuses them."""
    X, y, _ = rare
    with pytest.raises(RefusedError, match="leaves the posterior in"):
        draw(X, y, subsample_size=50, certainty=False)
    return draw(X, y, subsample_size=50, certainty=False, allow_high_variance=True)


def errors(summary, truth):
    """Per parameter: the error of the plain mean and its MCSE, in posterior sd."""
    shown = [summary["parameters"][label] for label in LABELS]
    mean = np.array([p["mean"] for p in shown])
    mcse = np.array([p["mcse_mean"] for p in shown])
    return (mean - truth.mean) / truth.sd, mcse / truth.sd


def test_there_are_about_200_claims(rare):
    X, y, _ = rare
    assert 170 < y.sum() < 230
    assert np.abs(X[:, 1]).max() > 15.0


def test_variance_and_acceptance_look_harmless(blind):
    sampling = blind["sampling"]
    assert sampling["log_lik_variance_mean"] < 0.05
    assert sampling["subsample_acceptance_rate"] > 0.99
    assert not any("log_lik_variance" in line for line in blind["warnings"])
    assert max(p["r_hat"] for p in blind["parameters"].values()) < 1.01


def test_means_are_biased_although_the_variance_is_small(rare, blind):
    error, mcse = errors(blind, rare[2])
    assert error[1] > 0.05
    assert error[1] / mcse[1] > 9.0


def test_audit_finds_the_bias(blind):
    found = blind["audit"]["parameters"][LABELS[1]]
    assert found["correction_sd"] < -0.05
    assert found["correction_sd"] / found["mcse_sd"] < -4.5
    assert blind["audit"]["largest_z"] > 4.5
    assert any("the audit corrects a mean" in line for line in blind["warnings"])


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_audit_finds_the_bias_or_says_that_it_cannot(rare, seed):
    """The 400 audited draws of seed 1 hold one weight far above all others."""
    X, y, _ = rare
    summary = draw(X, y, seed=seed, subsample_size=50, certainty=False, allow_high_variance=True)
    verdict = summary["audit"]
    assert verdict["parameters"][LABELS[1]]["correction_sd"] < -0.05
    assert any("the audit corrects" in line for line in summary["warnings"])
    distrusted = any("Pareto k" in line for line in summary["warnings"])
    assert distrusted == (verdict["pareto_k"] > 0.7)
    assert distrusted or verdict["largest_z"] > 4.5


def test_corrected_means_are_right(rare, blind):
    truth = rare[2]
    error, mcse = errors(blind, truth)
    for j, label in enumerate(LABELS):
        found = blind["audit"]["parameters"][label]
        correction = found["correction"] / truth.sd[j]
        noise = np.hypot(mcse[j], found["mcse"] / truth.sd[j])
        assert abs(error[j] + correction) < 4.5 * noise
        assert noise < 0.03
        # The weighted mean over the audit's 400 draws, noise of the draws included.
        assert abs(found["mean"] - truth.mean[j]) / truth.sd[j] < 4.5 * np.hypot(0.05, noise)


def test_certainty_rows_remove_the_bias(rare):
    X, y, truth = rare
    summary = draw(X, y)
    error, mcse = errors(summary, truth)
    assert np.all(np.abs(error) < 0.03 + 4.5 * mcse)
    assert summary["sampling"]["certainty_rows"] > 0
    assert summary["audit"]["largest_correction"] < 0.05
