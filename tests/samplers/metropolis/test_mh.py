"""The test on all terms: the exact acceptance functions."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance_decisions import decisions

from streammc.samplers import mh
from streammc.samplers.metropolis.mh import decide

N = 200_000


@pytest.mark.parametrize("delta", [-0.9, -0.4, 0.0, 0.7, 2.0])
@pytest.mark.parametrize("kind", ["metropolis", "barker"])
def test_accepts_with_the_exact_probability(kind: str, delta: float) -> None:
    population = np.random.default_rng(1).standard_normal(7)
    settings = mh(acceptance=kind).acceptance_test(7, None).settings
    found = decisions(decide, settings, population, n=N, seed=2, delta=delta, replace=False)
    chance = min(1.0, np.exp(delta)) if kind == "metropolis" else 1.0 / (1.0 + np.exp(-delta))
    mcse = np.sqrt(chance * (1.0 - chance) / N)
    assert abs(found.accepted - chance) <= 4.5 * mcse
    other = 1.0 / (1.0 + np.exp(-delta)) if kind == "metropolis" else min(1.0, np.exp(delta))
    assert abs(found.accepted - other) > 10.0 * mcse
    assert (found.used == 7).all()
    assert not found.forced.any()
    assert (found.error == 0.0).all()
