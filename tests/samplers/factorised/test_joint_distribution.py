"""``smh`` keeps the joint distribution of parameters and rows, for every family that it takes.

Theta from the prior, y from the simulator, then iterations of the production chain given y, on rows
that a production read drew. Before and after, (theta, y) has one distribution; the expansion is at
the prior mean, so that the remainders are large and the region is the same for every y.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from checks_of_trust import rounds
from quick import quick

from streammc import registry
from streammc.control_variates.mode.newton import in_memory
from streammc.errors import ConfigError
from streammc.models.base import ColumnsModel, LinearModel
from streammc.numerics.summation import taylor
from streammc.priors import lognormal, normal
from streammc.protocols import RowBlock, Rows
from streammc.samplers import smh
from streammc.samplers.common.sampler import RunRequest, Setup
from streammc.samplers.factorised import kernel, pool

Z = 4.5
PAIRS = rounds(1_500, 10_000)
STEPS, ROWS, RADIUS = 4, 6, 3.0
SCALES = {"poisson": 0.9, "exponential": 0.9, "logistic": 2.0}
"""Prior standard deviation of a coefficient; 1.5 elsewhere."""
LOG_SIGMA = (0.0, 0.4)
"""Mean and standard deviation of its prior."""


def taken():
    """Names of the regressions of the registry that ``smh`` takes."""
    names = []
    for name in registry.MODELS:
        try:
            model = registry.model(name)()
            smh().check_model(model)
        except (ConfigError, TypeError):  # refused, or options without defaults
            continue
        if isinstance(model, LinearModel) and not isinstance(model, ColumnsModel):
            names.append(name)
    return names


def differences(name):
    """Functions of (theta, y) after the iterations minus those before (PAIRS, functions)."""
    rng = np.random.default_rng(7)
    scale, sampler = SCALES.get(name, 1.5), smh()
    has_sigma = name == "gaussian"
    prior = {"*": normal(scale), "sigma": lognormal(*LOG_SIGMA)} if has_sigma else normal(scale)
    model = registry.model(name)(prior=prior)
    X = np.c_[np.ones(ROWS), np.linspace(-1.0, 1.2, ROWS)]
    weight = 1.0 + np.arange(ROWS) % 3 if model.takes_trials else np.ones(ROWS)
    sd = np.array([scale, scale, LOG_SIGMA[1]][: 2 + has_sigma])
    star, factor, d = np.zeros(len(sd)), np.diag(sd), len(sd)
    # The certifying pass draws its rows in coordinates that are nearly those of the chains.
    of_reads = factor @ (np.eye(d) + 0.1 * np.tril(np.ones((d, d)), -1))
    found = []
    for pair in range(PAIRS):
        eps = rng.standard_normal(d)
        while eps @ eps > RADIUS**2:
            eps = rng.standard_normal(d)
        theta = sd * eps
        eta = np.vstack([X @ theta[:2], *np.repeat(theta[2:, None], ROWS, axis=1)])
        if model.takes_trials:
            y = model.simulate_trials(eta, weight, rng)
        else:
            y = model.simulate(eta, rng)
        rows = Rows(X, y, np.zeros(ROWS), weight)
        value, gradient, hessian = in_memory(model, rows, 1.0)(star)
        cv = SimpleNamespace(
            theta_star=star, factor=factor, log_lik=value, gradient=gradient, hessian=hessian,
            newton_step=np.linalg.solve(np.diag(sd**-2) - hessian, gradient), dim=d,
            labels=model.labels(["a", "b"]),
        )  # fmt: skip
        request = RunRequest(
            in_one_block(rows), model, sampler, seed=pair, draws=STEPS, warmup=0, chains=1
        )
        arrays = {"pool_plan": np.array(plan(model, of_reads, rows)), "pool_factor": of_reads}
        setup = Setup(sampler, cv, None, "", arrays)
        chain = kernel.problem(sampler, request, setup).kernel(pair, 0)
        chain._state.tuning[0] = 1.2
        chain.set_state(
            {"u": eps - chain.problem.target.offset, "tuning": chain._state.tuning.copy()},
            chain.get_state()[1],
        )
        after = chain.advance(STEPS, False)["theta"][-1] / sd
        data_side = X.T @ np.arcsinh(weight * y)
        found.append(functions(after, data_side) - functions(eps, data_side))
    return np.array(found)


def in_one_block(rows):
    """Return the part of a data set that the read asks for: ``from_arrays`` takes 5 ms."""
    source = SimpleNamespace(n_rows=ROWS, n_features=rows.X.shape[1])
    return SimpleNamespace(
        n_rows=ROWS,
        n_features=rows.X.shape[1],
        sequential=False,
        rows=lambda: source,
        reduce=lambda task, **_: task.map(RowBlock(0, 0, *rows)),
    )


def functions(unit, data_side):
    """Coordinates, their products, and their products with a function of y."""
    pairs = np.outer(unit, unit)[np.triu_indices(len(unit))]
    return np.concatenate([unit, pairs, np.outer(unit, data_side).ravel()])


def plan(model, of_reads, rows):
    """Rows with the largest bound always evaluated, the others drawn; chains within RADIUS."""
    if model.exact_sums is not None:
        return pool.PoolPlan(np.inf, 0.0, 0.0, 0.0, 0.0, 0.0)
    d = len(of_reads)
    radius = RADIUS * pool.Change.between(of_reads, np.diag(np.diag(of_reads))).stretch
    bound = pool.bounds(pool.Whitening(model, np.zeros(d), of_reads), radius, rows).bound
    threshold = bound.max()
    total = bound[bound < threshold].sum()
    sheet = 2.0 * pool.most_rows(total, radius)
    return pool.PoolPlan(radius, threshold, sheet / total, sheet, 1.0, 1.0)


def largest_z(found):
    return float(
        np.abs(found.mean(axis=0) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))).max()
    )


def halved(model, rows):
    made = expanded(model, rows)
    return made._replace(weight=0.5 * made.weight, expansion=0.5 * made.expansion)


def without_weights(model, rows):
    return expanded(model, rows._replace(weight=np.ones_like(rows.weight)))


expanded = pool.expanded
BROKEN = {
    halved: "remainders halved",
    without_weights: "remainders without weights",
    taylor: "second-order sums for sufficient ones",
}


@pytest.mark.trust(2)
@pytest.mark.parametrize("name", quick(taken(), "logistic"))
def test_theta_and_rows_keep_their_joint_distribution(name, monkeypatch, record_property):
    z = largest_z(differences(name))
    assert z < Z
    record_property("figure", f"smh, {name}: z at most {z:.1f} in {PAIRS:,} pairs")
    if name == "gaussian":  # no row is drawn
        broken = taylor
        monkeypatch.setattr(type(registry.model(name)()), "exact_sums", staticmethod(taylor))
    else:
        broken = without_weights if name == "binomial" else halved
        monkeypatch.setattr(pool, "expanded", broken)
    caught = largest_z(differences(name))
    assert caught > Z
    record_property("caught", f"{BROKEN[broken]} (smh, {name}: z {caught:.0f})")
