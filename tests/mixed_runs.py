"""Runs with given draws."""

from __future__ import annotations

import numpy as np

from streammc.likelihood.data_views import by_group
from streammc.runs import record
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout


def make_run(path, model, data, theta, sign=None, **more):
    """A run on a table, which may have groups, with these draws (chain, draw, d)."""
    bound = by_group(data, model)[1]
    rows = {"lp": np.zeros(theta.shape[:2])} | ({} if sign is None else {"sign": sign})
    described = bound.describe()
    identity = {"store": data.fingerprint, "model": described, "sampler": {"name": "hmc"}, **more}
    labels, dtypes = bound.labels(data.feature_names), dict.fromkeys(rows, "float64")
    plan = {
        "layout": make_layout(labels, data.feature_names, *theta.shape[:2], dtypes),
        "draws": theta.shape[1],
        "warmup": 0,
        "attributes": {"design": record.describe_design(data.attributes), "store": data.address},
    }
    with RunDirectory.hold(path, identity=identity, **plan) as run:
        run.append("draws", bound.constrain(theta), rows, ({}, {}))
    return path


def draws_near(center, sd, shape=(2, 10), seed=3):
    return np.array(center) + sd * np.random.default_rng(seed).normal(size=(*shape, len(center)))
