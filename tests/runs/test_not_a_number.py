"""A log-likelihood that is NaN somewhere: rejected and counted there, refused everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.errors import ModelError
from streammc.models import user
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.datatree import open_run

ROWS = 500


def data():
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(ROWS), rng.normal(size=ROWS)]
    return X, X @ [1.0, 2.0] + rng.normal(size=ROWS)


def broken_above(bound):
    """A Gaussian regression that is NaN where a predictor exceeds the bound."""
    return user(
        "broken",
        log_lik=lambda eta, y: np.where(eta[0] > bound, np.nan, -0.5 * (y - eta[0]) ** 2),
        gradient=lambda eta, y: (y - eta[0])[None],
        hessian=lambda eta, y: -np.ones((1, 1, len(y))),
    )


def sample(bound, sampler, path):
    options = {"draws": 200, "warmup": 200, "chains": 2, "seed": 1, "path": path}
    X, y = data()
    return run_job(RunRequest(from_arrays(X, y), broken_above(bound), sampler, **options))


@pytest.mark.trust(50)
def test_model_without_a_finite_log_likelihood_is_refused(tmp_path):
    with pytest.raises(ModelError, match="finite log"):
        sample(-1e9, hmc(), tmp_path / "run")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.trust(50)
@pytest.mark.parametrize("sampler", [hmc(), hmc_ecs(subsample_size=100)], ids=["hmc", "hmc-ecs"])
def test_proposals_with_nan_log_likelihood_are_rejected_and_counted(sampler, tmp_path):
    bound = data()[0] @ [0.95, 2.0]
    report = sample(bound.max() + 0.15, sampler, tmp_path / "run")
    assert report.summary["sampling"]["divergences"] > 4
    assert any("divergent" in line for line in report.warnings)
    beta = open_run(report.path)["posterior"]["beta"].values.reshape(-1, 2)
    assert np.isfinite(beta).all()
    if sampler.name == "hmc":
        assert (data()[0] @ beta.T).max() <= bound.max() + 0.15


def test_finite_log_likelihoods_count_no_divergence(tmp_path):
    report = sample(1e9, hmc(), tmp_path / "run")
    assert 0 == report.summary["sampling"]["divergences"]
