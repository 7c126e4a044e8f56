"""Effective sample sizes against ArviZ, on sequences as short as they come."""

from __future__ import annotations

import numpy as np
import pytest
from arviz_base import rcParams
from arviz_stats.base import array_stats

from streammc.diagnostics import convergence


def sequences(chains: int, draws: int, kind: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(chains, draws))
    for t in range(1, draws):
        values[:, t] += {"slow": 0.9, "alternating": -0.9, "ties": 0.5}[kind] * values[:, t - 1]
    return np.round(values) if kind == "ties" else values


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("kind", ["slow", "alternating", "ties"])
def test_short_sequences_have_the_numbers_of_arviz(chains: int, kind: str) -> None:
    compared = 0
    for draws in [*range(4, 16), 51, 300]:
        for seed in range(3):
            x = sequences(chains, draws, kind, seed)
            if x.min() == x.max():
                continue
            expected = (
                array_stats.ess(x, method="mean"),
                array_stats.ess(x, method="bulk"),
                array_stats.ess(x, method="tail", prob=convergence.TAIL),
                array_stats.mcse(x, method="mean"),
                array_stats.ess(x, method="sd"),
            )
            found = (
                convergence.ess_mean(x),
                convergence.ess_bulk(x),
                convergence.ess_tail(x),
                convergence.mcse_mean(x),
                convergence.ess_sd(x),
            )
            np.testing.assert_allclose(found, expected, rtol=1e-10)
            compared += 1
    assert compared > 30


def test_the_tail_is_that_of_arviz() -> None:
    assert rcParams["stats.ci_prob"] == convergence.TAIL
