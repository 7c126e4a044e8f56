"""Check 2: every sampler that claims the posterior, or a stated density beside it, keeps it.

A long chain of the production kernel on a few rows, against quadrature. Prior and rows contradict
each other, so that a likelihood to the power 1.01 moves the mean by a fifth of its standard
deviation. The same chain on rows of weight 1.01 is the partner that must be caught.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from checks_of_trust import marked, rounds
from problem_of import problem_of
from problems import batch_z

import streammc
from streammc import from_arrays, registry
from streammc.models import poisson
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers.common.chains import Chain
from streammc.samplers.common.sampler import EXACT, PERTURBED, SIGNED, WEIGHTED, RunRequest

LIMIT = 4.5
ROWS, SCALE, POWER = 12, 0.05, 1.01
LADDER = {"n_levels": 3, "beta_min": 0.3}
OPTIONS = {
    "hmc": {},
    "mh": {"proposal": "langevin"},
    "pt": LADDER,
    "spt": LADDER,
    "tt": LADDER,
    "stt": LADDER,
}
"""Samplers whose kernel is run here, with their options."""
ELSEWHERE = {
    "hmc-ecs": "samplers/test_own_target.py::test_draws_match_the_perturbed_target",
    "hmc-ecs-signed": "samplers/hamiltonian/test_signed.py"
    "::test_signed_mean_is_right_and_unsigned_mean_is_wrong",
    "smh": "samplers/factorised/test_smh.py::test_draws_are_those_of_the_grid",
    "gibbs": "samplers/crossed/test_sweep.py::test_two_factors_are_those_of_the_dense_likelihood",
    "laplace": "trust/test_invariant_targets.py::test_weighted_draws_are_those_of_the_posterior",
}
"""Samplers whose density is not that of a chain on all rows, and the test of it."""
Record = Callable[[str, object], None]


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.uniform(0.5, 1.5, (ROWS, 1))
    return X, rng.poisson(np.exp(3.0 * X[:, 0])).astype(float)


def truth() -> tuple[float, float]:
    """Mean and variance of the posterior of the coefficient, by quadrature."""
    X, y = rows()
    theta = np.linspace(-1.0, 4.0, 100_001)
    log = -0.5 * (theta / SCALE) ** 2
    for x, count in zip(X[:, 0], y, strict=True):
        log += count * x * theta - np.exp(x * theta)
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mean = mass @ theta
    return float(mean), float(mass @ (theta - mean) ** 2)


def problem_data(power: float) -> tuple[streammc.stores.MemoryStore, object]:
    X, y = rows()
    data = from_arrays(X, y, weight=np.full(ROWS, power), feature_names=["x"])
    return data, poisson(prior=normal(SCALE))


def chain(name: str, power: float) -> Chain:
    """Return a chain of the production kernel after its warm-up."""
    data, model = problem_data(power)
    sampler = registry.sampler(name)(**OPTIONS[name])
    setup = decide(RunRequest(data, model, sampler, None))
    kernel = problem_of(data, model, setup.cv, setup.plan, setup.sampler, warmup=500).kernel(3, 0)
    kernel.initialise()
    kernel.advance(500, True)
    return kernel


@pytest.mark.trust(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_what_warmup_tunes_is_frozen_after_it(name: str) -> None:
    """A kernel that goes on learning from its draws has no density that it leaves invariant."""
    kernel = chain(name, 1.0)
    before = kernel.get_state()[0]["tuning"].copy()
    steps = kernel.advance(300, False)["step_size"]
    assert before.tobytes() == kernel.get_state()[0]["tuning"].tobytes()
    jittered = 300 if name == "hmc" else 1
    assert jittered == len(np.unique(steps))


def largest_z(theta: np.ndarray) -> float:
    """z of mean and variance against quadrature: the larger one."""
    mean, variance = truth()
    return max(abs(batch_z(theta, mean)), abs(batch_z((theta - mean) ** 2, variance)))


@pytest.mark.trust(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_sampler_of_the_posterior_leaves_it_invariant(
    name: str, record_property: Record
) -> None:
    n = rounds(30_000, 400_000)
    z = largest_z(chain(name, 1.0).advance(n, False)["theta"][:, 0])
    assert z < LIMIT
    caught = largest_z(chain(name, POWER).advance(n, False)["theta"][:, 0])
    assert caught > LIMIT
    record_property("figure", f"{name}: z at most {z:.1f} in {n:,} draws")
    record_property("caught", f"likelihood^{POWER} ({name}: z {caught:.0f})")


@pytest.mark.trust(2)
def test_weighted_draws_are_those_of_the_posterior(record_property: Record) -> None:
    n = rounds(20_000, 100_000)
    found = []
    for power in (1.0, POWER):
        data, model = problem_data(power)
        sampler = streammc.samplers.laplace(proposals=n)
        run = streammc.sample(data, model, sampler=sampler, draws=n // 4, chains=4, seed=5)
        theta = run["posterior"]["beta"].to_numpy().reshape(-1)
        mean, variance = truth()
        found.append(abs(theta.mean() - mean) / np.sqrt(2.0 * variance / n))
    assert found[0] < LIMIT < found[1]
    record_property("figure", f"laplace: z {found[0]:.1f} in {n:,} draws")
    record_property("caught", f"likelihood^{POWER} (laplace: z {found[1]:.0f})")


@pytest.mark.trust(2)
def test_every_registered_sampler_that_claims_a_density_has_its_check() -> None:
    claims = {EXACT, PERTURBED, SIGNED, WEIGHTED}
    claiming = {name for name in registry.SAMPLERS if registry.sampler(name)().target in claims}
    assert claiming == set(OPTIONS) | set(ELSEWHERE)
    assert set(ELSEWHERE.values()) <= set(marked()[2])
