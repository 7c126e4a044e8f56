"""Check 9: a chain on subsamples has the posterior of a chain on all rows.

``hmc-ecs`` at automatic settings against ``hmc`` on the same rows: on ordinary columns, and on
columns with heavy tails. A bad centre of the control variates is in
``tests/runs/test_theta_star.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from arviz_stats.base import array_stats
from checks_of_trust import rounds

import streammc
from streammc.priors import normal

LIMIT, COLUMNS = 4.5, 4


def table(tails: str) -> streammc.stores.MemoryStore:
    rng = np.random.default_rng(6)
    n = rounds(20_000, 100_000)
    noise = rng.standard_t(3.0, (n, COLUMNS)) if tails == "heavy" else rng.normal(size=(n, COLUMNS))
    X = np.c_[np.ones(n), noise]
    eta = X @ np.array([-1.0, 0.5, -0.5, 0.25, 0.0])
    return streammc.from_arrays(X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float))


def moments(beta: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and mean squares around a centre, and their Monte Carlo errors."""
    columns = [*np.moveaxis(beta, 2, 0), *np.moveaxis((beta - centre) ** 2, 2, 0)]
    errors = [array_stats.mcse(values, method="mean") for values in columns]
    return np.array([values.mean() for values in columns]), np.array(errors)


@pytest.mark.trust(9)
@pytest.mark.slow
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_subsampled_chains_agree_with_chains_on_all_rows(
    tails: str, record_property: Callable[[str, object], None]
) -> None:
    store, model = table(tails), streammc.models.logistic(prior=normal(10.0))

    def beta(sampler: streammc.samplers.Sampler, draws: int) -> tuple[np.ndarray, float]:
        run = streammc.sample(
            store, model, sampler=sampler, draws=draws, warmup=400, seed=2, audit=False
        )
        sampling = streammc.facts(run)["summary"]["sampling"]
        return run["posterior"]["beta"].to_numpy(), sampling["rows_per_iteration"]

    whole, rows = beta(streammc.samplers.hmc(), 1500)
    part, fewer = beta(streammc.samplers.hmc_ecs(), rounds(4000, 20_000))
    assert fewer < 0.25 * rows
    centre = whole.mean(axis=(0, 1))
    (first, error), (second, other) = moments(whole, centre), moments(part, centre)
    z = np.abs(first - second) / np.hypot(error, other)
    assert z.max() < LIMIT
    record_property(
        "figure", f"{tails} tails: z at most {z.max():.1f}, {fewer / rows:.1%} of the rows"
    )
    sd = whole.std(axis=(0, 1))
    wrong, _ = moments(part + 0.15 * sd, centre)
    caught = (np.abs(first - wrong) / np.hypot(error, other)).max()
    assert caught > LIMIT
    record_property("caught", f"means 0.15 sd away (z {caught:.0f})")
