"""The acceptance rates that steps are tuned to are those of the fastest diffusion.

In many dimensions the logarithm of the ratio of a step of size s is normal with variance v and mean
-v / 2, where v grows with s**2 for a random walk and with s**6 for Langevin proposals. The speed of
the limiting diffusion is s**2 times the mean acceptance (Roberts and Rosenthal 2001, 1998).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr

from streammc.samplers.metropolis.options import ACCEPTANCE, LANGEVIN, RANDOM_WALK

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)
TESTS = {
    "metropolis": lambda variance: 2.0 * ndtr(-0.5 * np.sqrt(variance)),
    "barker": lambda variance: (
        WEIGHTS @ expit(np.sqrt(variance) * NODES - 0.5 * variance) / WEIGHTS.sum()
    ),
}
"""Mean acceptance by the variance of the logarithm of the ratio."""
POWERS = {RANDOM_WALK: 1.0, LANGEVIN: 1.0 / 3.0}
"""s**2 as a power of the variance."""


def best_acceptance(proposal: str, test: str) -> float:
    acceptance = TESTS[test]
    found = minimize_scalar(
        lambda log: -np.exp(POWERS[proposal] * log) * acceptance(np.exp(log)),
        bounds=(-3.0, 4.0),
        method="bounded",
    )
    return float(acceptance(np.exp(found.x)))


@pytest.mark.parametrize("proposal", [RANDOM_WALK, LANGEVIN])
@pytest.mark.parametrize(("index", "test"), list(enumerate(TESTS)))
def test_steps_are_tuned_to_the_fastest_diffusion(proposal: str, index: int, test: str) -> None:
    assert best_acceptance(proposal, test) == pytest.approx(ACCEPTANCE[proposal][index], abs=1.5e-3)
