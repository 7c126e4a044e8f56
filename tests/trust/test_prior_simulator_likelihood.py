"""Check 3: prior, simulator and likelihood of every family agree (Geweke 2004).

Rows are drawn given theta by the model's simulator, theta is moved given the rows by the
production transition, again and again. Whatever the model is, theta then has its prior. The
partner is a simulator of another model: that of rows whose likelihood counts 1.5 times.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from checks_of_trust import rounds
from problems import BUILDERS, Small, batch_z, kernel_problem
from quick import quick

from streammc.priors import lognormal, normal
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel

LIMIT, ROWS, STEPS = 4.5, 6, 3
POWER = rounds(20, 15) / 10
"""Of the likelihood that is caught."""
LOGARITHMS = {"sigma": (0.2, 0.3), "phi": (0.5, 0.4), "nu": (1.5, 0.4)}
"""Mean and standard deviation of the logarithm of a positive parameter."""
SLOPE = 0.4
"""Prior standard deviation of a coefficient: the transition mixes in a few sweeps."""


def successive(name: str, power: float, sweeps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return theta after each sweep (sweeps, d), and its prior means and standard deviations."""
    names = [each for each in LOGARITHMS if each in Small(model=name).labels]
    prior = {"*": normal(SLOPE)} | {each: lognormal(*LOGARITHMS[each]) for each in names}
    small = Small(
        model=name, n=ROWS, d=2, certain=range(ROWS), order=-1, prior=prior if names else prior["*"]
    )
    mean = np.array([0.0, 0.0, *(LOGARITHMS[each][0] for each in names)])
    sd = np.array([SLOPE, SLOPE, *(LOGARITHMS[each][1] for each in names)])
    base = small.base._replace(theta_star=mean, factor=np.diag(sd))
    small.theta_star = mean
    small.certain = small.expanded(small.rows(small.certain_rows), -1)
    problem = kernel_problem(small, base=base, step_size=0.25, length=1.0)
    problem.certain.weight[:] = power
    kernel = HamiltonianKernel(problem, seed=3, chain=0)
    kernel.initialise()
    rng = np.random.default_rng(9)
    theta = mean + sd * rng.standard_normal(len(mean))
    kernel._point.z[:] = (theta - mean) / sd
    out = np.empty((sweeps, len(mean)))
    for sweep in range(sweeps):
        shared = np.repeat(theta[2:, None], ROWS, axis=1)
        eta = np.vstack([small.X @ theta[:2] + small.offset, shared])
        problem.certain.y[:] = small.model.simulate(eta, rng)
        kernel._evaluate()
        out[sweep] = theta = kernel.advance(STEPS, False)["theta"][-1]
    return out, mean, sd


def largest_z(name: str, power: float, sweeps: int) -> float:
    """z of means, squares and products of theta against the prior: the largest."""
    theta, mean, sd = successive(name, power, sweeps)
    unit = (theta - mean) / sd
    d = unit.shape[1]
    found = [batch_z(unit[:, j], 0.0, 50) for j in range(d)]
    found += [
        batch_z(unit[:, i] * unit[:, j], float(i == j), 50) for i in range(d) for j in range(i, d)
    ]
    return float(np.abs(found).max())


@pytest.mark.trust(3)
@pytest.mark.parametrize("name", quick(BUILDERS, "logistic"))
def test_theta_keeps_its_prior_while_rows_and_theta_are_drawn_in_turn(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    sweeps = rounds(6_000, 40_000)
    z = largest_z(name, 1.0, sweeps)
    assert z < LIMIT
    caught = largest_z(name, POWER, sweeps)
    assert caught > LIMIT
    record_property("figure", f"{name}: z at most {z:.1f} in {sweeps:,} sweeps")
    record_property("caught", f"likelihood^{POWER} ({name}: z {caught:.0f})")
