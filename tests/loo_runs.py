"""Runs with given draws for the tests of leave-one-out scores."""

from __future__ import annotations

import numpy as np
from mixed_runs import make_run

from streammc import from_arrays, models
from streammc.trace.run_directory import RunDirectory

NAMES = ["Intercept", "a", "b"]
BETA = np.array([0.2, 0.5, -0.4])


def poisson_case(path, n=3000, draws=500, spread=1.0, columns=3, **more):
    """Return store, model and run of a Poisson regression with draws of its posterior, nearly."""
    rng = np.random.default_rng(11)
    X = np.c_[np.ones(n), rng.normal(size=(n, 2))]
    y = rng.poisson(np.exp(X @ BETA))
    X = X[:, :columns]
    table = from_arrays(X, y, feature_names=NAMES[:columns], **more)
    rate = np.exp(X @ BETA[:columns])
    root = np.linalg.cholesky(np.linalg.inv((X * rate[:, None]).T @ X))
    theta = BETA[:columns] + spread * rng.normal(size=(2, draws, columns)) @ root.T
    model = models.poisson()
    make_run(path, model, table, theta)
    return table, model, RunDirectory.open(path)
