"""Every sampler on a table of groups: the posterior of hmc over all groups."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import StopAfter

from streammc import from_arrays, models, registry, sample
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.trace.run_directory import RunDirectory

SIZE = 8
SOME = ("hmc-ecs", "hmc-ecs-signed", "laplace", "mh", "mh-austere", "pt", "tt", "sghmc")
"""A sampler for every way in which the rows of drawn groups are read."""
FEW = {"n_levels": 3, "n_steps": 4}
OPTIONS = {"pt": FEW, "tt": FEW}
"""Levels and leapfrog steps, of which the defaults have many; moves are the same."""
BIASED = {"sghmc"}
"""Samplers whose target differs from the posterior by more than the error of these draws."""


def groups_for(name):
    """Return a number of groups: hmc-ecs needs 30 of them, and at least as many more."""
    return 120 if name.startswith("hmc-ecs") else 20 if name in ("pt", "tt") else 60


def table(groups=120):
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(groups), SIZE)
    X = np.column_stack([np.ones(len(g)), rng.normal(size=len(g))])
    eta = X @ [0.3, 0.5] + 0.8 * rng.normal(size=groups)[g]
    y = (rng.random(len(g)) < 1 / (1 + np.exp(-eta))).astype(float)
    return from_arrays(X, y, feature_names=["Intercept", "x"], groups=g)


def draws_of(name, groups, draws=1500, chains=2):
    """Return draws (chains, draws, 3) of the coefficients and log tau."""
    sampler = registry.sampler(name)(**OPTIONS.get(name, {}))
    run = sample(
        table(groups),
        models.logistic(),
        sampler=sampler,
        draws=draws,
        warmup=1000,
        chains=chains,
        seed=1,
        audit=False,
    )
    posterior = run["posterior"]
    beta, tau = posterior["beta"].values, posterior["tau"].values
    return np.concatenate([beta, np.log(tau.reshape(*beta.shape[:2], 1))], axis=2)


def moments(draws, batches=15):
    """Return mean and mean square (6,), with their standard errors from batches."""
    values = np.concatenate([draws, draws**2], axis=2)
    n = draws.shape[1] // batches * batches
    means = values[:, :n].reshape(len(values) * batches, -1, values.shape[2]).mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))


@pytest.fixture(scope="module")
def reference():
    return {groups: moments(draws_of("hmc", groups, 4000)) for groups in (20, 60, 120)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SOME)
def test_sampler_draws_from_the_posterior_of_groups(name, reference):
    draws = draws_of(name, groups_for(name))
    assert np.isfinite(draws).all()
    if name in BIASED:
        return
    mean, error = moments(draws)
    exact, spread = reference[groups_for(name)]
    assert (np.abs(mean - exact) / np.hypot(error, spread)).max() < 4.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_draws_of_groups_do_not_depend_on_an_extension(tmp_path):
    given = {"warmup": 200, "chains": 2, "seed": 4, "audit": False}
    at_once = sample(table(), models.logistic(), draws=200, **given)
    for draws in (100, 200):
        longer = sample(table(), models.logistic(), draws=draws, path=tmp_path / "run", **given)
    for name in ("beta", "tau"):
        assert np.array_equal(longer["posterior"][name], at_once["posterior"][name])


def job(path, **options):
    settings = {"draws": 300, "warmup": 300, "chains": 2, "seed": 4, "audit": False}
    settings |= {"sampler": hmc_ecs(n_blocks=10), **options}
    return run_job(RunRequest(table(), models.logistic(), path=path, **settings))


@pytest.mark.filterwarnings("ignore")
def test_stopped_under_other_resources_a_run_of_groups_ends_with_the_same_bits(tmp_path):
    job(tmp_path / "whole", threads=1)
    for batch in (1, 7, 4096):
        stop = StopAfter(2)
        resources = {"batch_iterations": batch, "threads": 1 + batch % 2}
        job(tmp_path / "run", interrupted=stop, progress=stop.progress, **resources)
    assert job(tmp_path / "run").finished
    digests = {RunDirectory.open(tmp_path / name).digest() for name in ("whole", "run")}
    assert len(digests) == 1
