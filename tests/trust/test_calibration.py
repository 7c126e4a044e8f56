"""Check 4: simulation-based calibration of whole runs (Talts et al. 2018).

theta from the prior, rows from the model's simulator, a run of ``streammc.sample`` on them, and
the rank of the first theta among thinned draws: over many such runs every rank is as likely as
any other. The distribution function of the ranks has to stay in a band that covers all of it at
once, found by simulation (Säilynoja, Bürkner and Vehtari 2022). The partner gives every row the
weight 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from checks_of_trust import rounds

import streammc
from streammc import registry
from streammc.errors import RefusedError
from streammc.models.check import evaluate
from streammc.priors import half_normal, lkj, lognormal, normal

ALARM, RANKS, ROWS, SLOPE = 1e-3, 99, 25, 0.7
"""False alarms of a family, all quantities together; a rank is a number from 0 to RANKS."""
LOGARITHMS = {"sigma": (0.0, 0.3), "nu": (1.5, 0.3), "gap[1]": (0.3, 0.5)}
"""Mean and standard deviation of the logarithm of a positive parameter."""
POSITIVE = {"gaussian": ["sigma"], "student-t": ["sigma", "nu"], "ordinal": ["gap[1]"]}
FAMILIES = ("logistic", "poisson", "gaussian", "student-t", "ordinal")
GROUPS = 150
REFUSED: list[int] = []
"""Seeds of the tables that hmc-ecs has refused."""
Record = Callable[[str, object], None]


def counted(draws: list[np.ndarray], truth: list[float]) -> np.ndarray:
    """Ranks of the truth among the draws: of every quantity, and of the product of the first two.

    A quantity has ``k RANKS`` draws, of which every k-th is taken.
    """
    draws, truth = [*draws, draws[0] * draws[1]], [*truth, truth[0] * truth[1]]
    kept = [values[:: len(values) // RANKS][:RANKS] for values in draws]
    return np.array([(values < one).sum() for values, one in zip(kept, truth, strict=True)])


def regression(name: str, power: float, seed: int) -> np.ndarray:
    """Ranks of one table of a regression, sampled by hmc: also of the log-likelihood."""
    rng = np.random.default_rng([seed, 77])
    names = POSITIVE.get(name, [])
    X = np.c_[np.ones(ROWS), rng.normal(size=ROWS)]
    prior = {"*": normal(SLOPE)} | {each: lognormal(*LOGARITHMS[each]) for each in names}
    levels = 3 if name == "ordinal" else 0
    model = registry.model(name)(prior=prior, **({"levels": levels} if levels else {}))
    y = np.empty(0)
    while len(np.unique(y)) < levels or not len(y):  # ranks given a property of y are uniform, too
        beta = SLOPE * rng.standard_normal(2)
        chosen = (LOGARITHMS[each] for each in names)
        logs = [mean + sd * rng.standard_normal() for mean, sd in chosen]
        eta = np.vstack([X @ beta, *(np.full((1, ROWS), each) for each in logs)])
        y = model.simulate(eta, rng)
    store = streammc.from_arrays(X, y, weight=np.full(ROWS, power))
    options: dict[str, Any] = {"seed": seed, "chains": 1, "warmup": 200, "draws": 8 * RANKS}
    run = streammc.sample(store, model, sampler=streammc.samplers.hmc(), **options)
    posterior = run["posterior"]
    draws = [posterior["beta"].to_numpy()[0, :, j] for j in range(2)]
    draws += [posterior[each.partition("[")[0]].to_numpy()[0].ravel() for each in names]
    truth = [*beta, *np.exp(logs)]

    def log_lik(theta: np.ndarray) -> np.ndarray:
        shared = np.repeat(np.log(theta[:, 2:]).T, ROWS, axis=1)
        eta = np.vstack([(theta[:, :2] @ X.T).ravel(), shared])
        return evaluate(model, eta, np.tile(y, len(theta)), 0)[0].reshape(-1, ROWS).sum(axis=1)

    draws.append(log_lik(np.stack(draws, axis=1)))
    return counted(draws, [*truth, log_lik(np.array([truth]))[0]])


def mixed(name: str, power: float, seed: int) -> np.ndarray:
    """Ranks of one table of a logistic model with group effects, sampled by hmc-ecs.

    A table that hmc-ecs refuses is sampled by hmc: left out, it would be missing among the ranks.
    """
    rng = np.random.default_rng([seed, 78])
    beta, tau = SLOPE * rng.standard_normal(2), abs(rng.standard_normal())
    group = np.repeat(np.arange(GROUPS), rng.integers(1, 20, GROUPS))
    X = np.column_stack([np.ones(len(group)), rng.normal(size=len(group))])
    eta = X @ beta + (tau * rng.normal(size=GROUPS))[group]
    y = (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    names = {"beta[Intercept]": normal(SLOPE), "beta[x]": normal(SLOPE)}
    model = streammc.models.logistic(prior=names | {"tau[group]": half_normal(1.0)})
    # The partner: every group comes twice or more often.
    n = int(power)
    group = np.concatenate([group + GROUPS * i for i in range(n)])
    X, y = np.tile(X, (n, 1)), np.tile(y, n)
    data = streammc.from_arrays(X, y, groups=group, feature_names=["Intercept", "x"])
    options: dict[str, Any] = {"seed": seed, "chains": 1, "warmup": 300, "draws": 10 * RANKS}
    try:
        sampler = streammc.samplers.hmc_ecs()
        run = streammc.sample(data, model, sampler=sampler, audit=False, **options)
    except RefusedError:  # the message advises hmc
        REFUSED.append(seed)
        run = streammc.sample(data, model, sampler=streammc.samplers.hmc(), **options)
    posterior = run["posterior"]
    draws = [posterior["beta"].to_numpy()[0, :, j] for j in range(2)]
    return counted([*draws, posterior["tau"].to_numpy()[0].ravel()], [*beta, tau])


def crossed(name: str, power: float, seed: int) -> np.ndarray:
    """Ranks of one table of two factors that cross, one with slopes.

    Some levels have one row, and some none.
    """
    rng = np.random.default_rng([seed, 79])
    n, levels = 60, {"user": 12, "item": 6}
    beta, tau = SLOPE * rng.standard_normal(2), np.abs(rng.standard_normal(3))
    rho = 2.0 * rng.beta(2.0, 2.0) - 1.0  # lkj(2)
    table = {key: rng.integers(0, size, n) for key, size in levels.items()}
    table |= {"x": rng.normal(size=n), "w": np.full(n, power)}
    v = rng.normal(size=(2, levels["user"]))
    u = tau[:2, None] * [v[0], rho * v[0] + np.sqrt(1.0 - rho**2) * v[1]]
    eta = beta[0] + beta[1] * table["x"] + (tau[2] * rng.normal(size=levels["item"]))[table["item"]]
    eta = eta + u[0][table["user"]] + u[1][table["user"]] * table["x"]
    prior: Any = {"beta*": normal(SLOPE), "tau*": half_normal(1.0), "rho*": lkj(2.0)}
    sigma = [float(np.exp(0.3 * rng.standard_normal()))] * (name == "gaussian")
    prior |= {"sigma": lognormal(*LOGARITHMS["sigma"])} if sigma else {}
    model = registry.model(name)(prior=prior)
    table["y"] = model.simulate(
        np.vstack([eta, *(np.full((1, n), np.log(each)) for each in sigma)]), rng
    )
    data = streammc.from_table(
        table, formula="y ~ x + (1 + x | user) + (1 | item)", weight="w", standardize=False,
        group_as=dict.fromkeys(levels, "crossed"),
    )  # fmt: skip
    options: dict[str, Any] = {"seed": seed, "chains": 1, "warmup": 200, "draws": 8 * RANKS}
    posterior = streammc.sample(data, model, **options)["posterior"]
    names = ("beta", "tau", "rho", "sigma")[: 3 + len(sigma)]
    draws = np.concatenate(
        [posterior[key].to_numpy()[0].reshape(8 * RANKS, -1) for key in names], 1
    )
    return counted([*draws.T], [*beta, *tau, rho, *sigma])


@cache
def limit(tables: int, quantities: int) -> float:
    """Largest distance, in standard deviations, of uniform ranks: at this level, by simulation."""
    counts = np.random.default_rng(1).multinomial(
        tables, np.full(RANKS + 1, 1 / (RANKS + 1)), 20_000
    )
    return float(np.quantile(distance(counts), 1.0 - ALARM / quantities))


def distance(counts: np.ndarray) -> np.ndarray:
    """Largest distance of the distribution function of ranks from that of uniform ones."""
    n = counts.sum(axis=-1)[..., None]
    expected = np.arange(1, RANKS + 1) / (RANKS + 1)
    found = counts.cumsum(axis=-1)[..., :-1] / n
    return (np.abs(found - expected) / np.sqrt(expected * (1.0 - expected) / n)).max(axis=-1)


def furthest(case: Callable[[str, float, int], np.ndarray], name: str, power: float, n: int):
    """Return the largest distance of a quantity, and the limit on it."""
    ranks = np.array([case(name, power, seed) for seed in range(n)])
    counts = np.array([np.bincount(column, minlength=RANKS + 1) for column in ranks.T])
    return float(distance(counts).max()), limit(n, len(counts))


@pytest.mark.trust(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_ranks_of_the_truth_are_uniform(name: str, record_property: Record) -> None:
    tables = rounds(50, 1000)
    found, allowed = furthest(regression, name, 1.0, tables)
    assert found < allowed
    power = 1.5 if tables >= 1000 else 6.0
    caught, most = furthest(regression, name, power, rounds(30, 1000))
    assert caught > most
    said = f"{name}: {found:.1f} of {allowed:.1f} allowed sd, {tables:,} tables"
    record_property("figure", said)
    record_property("caught", f"likelihood^{power} ({name}: {caught:.0f} sd)")


@pytest.mark.trust(4)
@pytest.mark.slow
def test_ranks_of_a_mixed_model_sampled_by_hmc_ecs_are_uniform(record_property: Record) -> None:
    tables = rounds(20, 1000)
    REFUSED.clear()
    found, most = furthest(mixed, "logistic", 1.0, tables)
    assert found < most
    refused = len(REFUSED)
    assert refused <= 0.1 * tables
    power = rounds(6, 3)
    caught, most = furthest(mixed, "logistic", float(power), rounds(20, 40))
    assert caught > most
    said = f"mixed model, hmc-ecs: {found:.1f} of {most:.1f}, {tables} tables, {refused} refused"
    record_property("figure", said)
    record_property("caught", f"groups counted {power} times ({caught:.0f} sd)")


@pytest.mark.trust(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "logistic"])
def test_ranks_of_factors_that_cross_are_uniform(name: str, record_property: Record) -> None:
    tables = rounds(12, 500)
    found, most = furthest(crossed, name, 1.0, tables)
    assert found < most
    power = 1.5 if tables >= 500 else 6.0
    caught, _ = furthest(crossed, name, power, tables)
    assert caught > most
    record_property("figure", f"{name}, factors cross: {found:.1f} of {most:.1f}, {tables} tables")
    record_property("caught", f"likelihood^{power} ({name}, factors cross: {caught:.0f} sd)")
