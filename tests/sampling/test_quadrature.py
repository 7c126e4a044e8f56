"""Posteriors of an intercept and its scale parameters, against a sum over a grid."""

from __future__ import annotations

import numpy as np
import pytest

from streammc import registry
from streammc.models.check import evaluate
from streammc.numerics.prior import log_prior
from streammc.samplers import hmc
from streammc.sampling.job import run_job
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

TRUTH = {"sigma": 0.6, "nu": 4.0, "phi": 1.5}
ROWS = 60
POINTS = 61
"""Per dimension, over seven standard deviations either way."""


def data(model):
    rng = np.random.default_rng(7)
    eta = np.vstack([np.full(ROWS, 0.4), *[np.full(ROWS, np.log(TRUTH[s])) for s in model.scales]])
    return model.simulate(eta, rng)


def sampled(model, y, path):
    store = from_arrays(np.ones((ROWS, 1)), y, feature_names=["Intercept"])
    options = {"draws": 2500, "warmup": 500, "chains": 4, "seed": 2}
    run_job(store, model, hmc(), path=path, **options)
    return model.unconstrain(RunDirectory.open(path).draws_matrix())


def grid_moments(model, y, draws, power=1.0):
    """Mean and variance (d,) of theta under the exact posterior."""
    flat = draws.reshape(-1, draws.shape[-1])
    spread = np.linspace(-7.0, 7.0, POINTS)
    axes = [m + s * spread for m, s in zip(flat.mean(axis=0), flat.std(axis=0), strict=True)]
    theta = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)
    table = model.prior_table(model.labels(["Intercept"]))
    value = np.array([log_prior(column, table, np.zeros(len(axes))) for column in theta.T.copy()])
    for response in np.unique(y):
        out = evaluate(model, theta, np.full(theta.shape[1], response), 0)[0]
        value += power * np.count_nonzero(y == response) * out
    chance = np.exp(value - value.max())
    chance /= chance.sum()
    mean = theta @ chance
    return mean, (theta - mean[:, None]) ** 2 @ chance


def largest_z(draws, moments):
    """Of mean and variance over batches, against the exact ones."""
    batches = draws.reshape(-1, 50, draws.shape[-1])
    scores = []
    for values, exact in zip((batches, (batches - moments[0]) ** 2), moments, strict=True):
        means = values.mean(axis=1)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        scores.append(np.abs(means.mean(axis=0) - exact) / error)
    return np.max(scores)


@pytest.mark.parametrize("name", sorted(set(registry.MODELS) - {"gaussian-mean"}))
def test_hmc_finds_the_posterior_of_the_grid(name, tmp_path):
    model = registry.model(name)()
    y = data(model)
    draws = sampled(model, y, tmp_path / "run")
    assert largest_z(draws, grid_moments(model, y, draws)) < 4.5
    # A likelihood to the power 1.25 is another posterior, and seen.
    assert largest_z(draws, grid_moments(model, y, draws, power=1.25)) > 4.5
