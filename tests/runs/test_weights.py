"""A weight is a power of the likelihood: a row of weight w counts as w rows.

Every comparison has a partner with the weights thrown away, which must be far off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from problem_of import problem_of

from streammc import registry
from streammc.control_variates import compute
from streammc.control_variates.full_pass.block_pass import ExpansionPass
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.errors import ModelError
from streammc.likelihood import blocks as held_rows
from streammc.likelihood.blocks import allocate_block
from streammc.likelihood.target import DENSITY, allocate_point, allocate_work, evaluate
from streammc.models import binomial, logistic, poisson
from streammc.models.responses import share_fault
from streammc.priors import normal
from streammc.runs.audit import log_weights
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs, mh_minibatch, pt, sgld
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.hamiltonian.problem import whiten_block
from streammc.stores import MemoryStore, from_arrays
from streammc.trace.datatree import open_run

OF_COLUMNS = {
    "gaussian-mean": 4,
    "gaussian-mixture": 2,
    "gaussian-mixture-free": 1,
    "gaussian-mixture-tied": 1,
}
"""Models of the columns themselves, and how many they see."""
OPTIONS = {
    "gaussian-mean": {"covariance": np.diag([1.0, 2.0, 0.5, 3.0])},
    "gaussian-mixture": {"covariance": [1.0, 1.0]},
    "network": {"hidden": [1], "prior": normal(0.3)},
}
MODELS = {
    name: registry.model(name)(**OPTIONS.get(name, {}))
    # Rows of a Gaussian process do not add up, and beta-binomial refuses weights.
    for name in sorted(set(registry.MODELS) - {"gaussian-process", "beta-binomial"})
}
POINTS = {
    "gaussian-mixture": [0.2, -0.1, 4.0, 0.1],
    "gaussian-mixture-free": [2.1, 1.3, 0.1, 0.1, -0.1],
    "gaussian-mixture-tied": [0.4, 3.6],
    "network": [*(-0.3, -0.85, 0.7, -0.55), -1.6, 0.6],
}
"""Near a mode: elsewhere these curve upwards."""
GLMS = ["logistic", "poisson"]
RTOL = 1e-12
COEFFICIENTS = [-0.4, 0.3, -0.2, 0.1]


def theta_star(model):
    """An expansion point: coefficients, then shared parameters."""
    if model.name in POINTS:
        return np.array(POINTS[model.name])
    return np.r_[COEFFICIENTS, np.full(model.dim(4) - 4, 0.2)]


def draws_of(model):
    point = theta_star(model)
    return point + 0.3 * np.random.default_rng(4).normal(size=(5, len(point)))


class Twins(NamedTuple):
    """The same data three times: weighted, repeated, and with the weights ignored."""

    weighted: MemoryStore
    repeated: MemoryStore
    ignored: MemoryStore


def twins(kind: str, n: int = 1500, high: int = 4) -> Twins:
    rng, model = np.random.default_rng(8), MODELS[kind]
    X = np.c_[np.ones(n), rng.normal(size=(n, 2)), rng.standard_t(3, size=n)]
    offset = 0.1 * rng.normal(size=n) * model.takes_offset
    if kind in OF_COLUMNS:
        X[:, 0] = rng.normal(size=n) + (4 * rng.integers(0, 2, n) if "mix" in kind else 0)
        X = X[:, : OF_COLUMNS[kind]]
        y, lean = None, X[:, 0] > 0
    else:
        linear = np.clip(X @ np.array([-0.5, 0.4, -0.3, 0.1]) + offset, -5, 3)
        shared = np.full((model.n_scalar, n), 0.1)
        if kind == "network":
            shared[:] = np.array([4.0, -2.0])[:, None]
        y = model.simulate(np.vstack([[linear] * model.n_linear, shared]), rng)
        lean = y > np.median(y)
    # The weights lean on the response: to ignore them moves the posterior.
    weight = rng.integers(0, high, n) + lean
    index = np.repeat(np.arange(n), weight)

    def take(rows, **options):
        own = offset[rows] if model.takes_offset else None
        return from_arrays(X[rows], None if y is None else y[rows], offset=own, **options)

    everything = np.arange(n)
    return Twins(take(everything, weight=weight), take(index), take(everything))


def sums(store, model):
    """Log-likelihood, gradient and Hessian of the full pass at ``theta_star``."""
    d = len(theta_star(model))
    task = ExpansionPass(model, theta_star(model), np.empty((0, d)), 2, 0, True)
    value, gradient, hessian = store.reduce(task).expansion(d)
    return np.r_[value, gradient, hessian.ravel()]


def rows_of(store):
    return np.arange(store.n_rows, dtype=np.int64)


def by_hmc(store, model, cv):
    """The log density as ``hmc`` sees it: every row certain."""
    problem = problem_of(store, model, cv, None, hmc())
    p = model.n_linear + model.n_scalar
    return density(model, problem, problem.base, allocate_block(0, store.n_features, p))


def by_subsample(store, model, cv):
    """The log density of ``hmc-ecs`` with every other row in the subsample, once."""
    chosen = plan(cv, store, model, PlanRequest(subsample_size=100))
    chosen = replace(chosen, certainty_rows=np.sort(cv.candidates[:40]))
    problem = problem_of(store, model, cv, chosen, hmc_ecs())
    rest = np.setdiff1d(rows_of(store), chosen.certainty_rows)
    sub = held_rows.load_block(store, model, rest, cv.theta_star, cv.order)
    if len(problem.base.whitening):
        whiten_block(problem.base.whitening, sub)
    base = problem.base._replace(estimate_factor=1.0, variance_factor=0.0, unit_rows=1)
    return density(model, problem, base, sub)


def density(model, problem, base, sub):
    """Log density and gradient at the draws."""
    found, d, m, p = [], len(theta_star(model)), len(sub.y), model.n_linear + model.n_scalar
    point, work = allocate_point(d, m, m, p), allocate_work(d, m, p, len(problem.certain.y))
    for theta in draws_of(model):
        point.z[:] = np.linalg.solve(base.factor, theta - base.theta_star)
        evaluate(problem.link, problem.sums, base, problem.certain, sub, point, work)
        found += [point.scalars[DENSITY], *np.linalg.solve(base.factor.T, point.gradient)]
    return np.array(found)


DENSITIES = [by_hmc, by_subsample]


def exact_weights(store, model, cv):
    """The audit's exact sums, as if the estimate had been the Taylor sums alone."""
    draws = draws_of(model)
    return log_weights(store, model, cv, draws, np.zeros(len(draws)), np.zeros(len(draws)))


def assert_equal_unless_ignored(found, scale=None):
    """``found`` of weighted, repeated, ignored: equal to 1e-12 and far off."""
    weighted, repeated, ignored = map(np.asarray, found)
    scale = np.abs(repeated).max() if scale is None else scale
    assert (np.abs(weighted - repeated) <= RTOL * scale).all()
    assert np.abs(ignored - repeated).max() > 1e-3 * np.abs(repeated).max()


@pytest.mark.parametrize("kind", MODELS)
def test_sums_of_the_full_pass_equal_those_of_repeated_rows(kind):
    assert_equal_unless_ignored([sums(store, MODELS[kind]) for store in twins(kind)])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("density_of", DENSITIES)
def test_log_density_equals_that_of_repeated_rows(density_of, kind):
    model, stores = MODELS[kind], twins(kind)
    cvs = [compute(store, model, theta_star=theta_star(model), passes=1) for store in stores]
    found = [density_of(store, model, cv) for store, cv in zip(stores, cvs, strict=True)]
    assert_equal_unless_ignored(found)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_audit_equals_that_of_repeated_rows(kind, order):
    model, stores = MODELS[kind], twins(kind)
    point = theta_star(model)
    cvs = [compute(store, model, theta_star=point, passes=1, order=order) for store in stores]
    found = [exact_weights(store, model, cv) for store, cv in zip(stores, cvs, strict=True)]
    # A remainder is a difference of log-likelihoods, so it is as precise as the larger of the two.
    assert_equal_unless_ignored(found, scale=abs(cvs[1].log_lik) + np.abs(found[1]))


@pytest.mark.parametrize("kind", MODELS)
def test_the_mode_equals_that_of_repeated_rows(kind):
    model, stores = MODELS[kind], twins(kind)
    modes = [compute(store, model) for store in stores]
    sd = np.sqrt(np.diag(modes[1].factor @ modes[1].factor.T))
    moved = [(cv.theta_star + cv.newton_step - modes[1].theta_star) / sd for cv in modes]
    assert np.abs(moved[0] - moved[1]).max() < 1e-6
    assert np.abs(moved[2]).max() > 1.0


@pytest.mark.parametrize("kind", GLMS)
def test_draws_of_hmc_equal_those_of_repeated_rows(kind, tmp_path):
    model, draws = MODELS[kind], []
    for name, store in twins(kind)._asdict().items():
        cv = compute(store, model, theta_star=theta_star(model), passes=1)
        sampler = hmc(step_size=0.4, trajectory_length=1.2)
        options = {"control_variates": cv, "draws": 20, "warmup": 5, "chains": 2, "seed": 3}
        report = run_job(RunRequest(store, model, sampler, path=tmp_path / name, **options))
        draws.append(open_run(report.path)["posterior"]["beta"].values)
    assert np.abs(draws[0] - draws[1]).max() < 1e-9
    assert np.abs(draws[2] - draws[1]).max() > 0.05


@pytest.mark.slow
def test_hmc_ecs_with_weights_finds_the_posterior_of_repeated_rows(tmp_path):
    stores = twins("logistic", n=12_000)
    model, summaries = logistic(), []
    samplers = [hmc_ecs(subsample_size=300), hmc(), hmc_ecs(subsample_size=300)]
    for name, store, sampler in zip("abc", stores, samplers, strict=True):
        options = {"draws": 1500, "warmup": 500, "seed": 6, "audit": name == "a"}
        summaries.append(
            run_job(RunRequest(store, model, sampler, path=tmp_path / name, **options)).summary
        )
    found, exact, ignored = (summary["parameters"] for summary in summaries)
    z = {
        label: (found[label]["mean"] - exact[label]["mean"])
        / np.hypot(found[label]["mcse_mean"], exact[label]["mcse_mean"])
        for label in exact
    }
    assert max(map(abs, z.values())) < 4.5, z
    intercept = "beta[x0]"
    assert abs(ignored[intercept]["mean"] - exact[intercept]["mean"]) > 3 * exact[intercept]["sd"]
    audited = summaries[0]["audit"]["parameters"]
    assert max(abs(entry["correction"]) for entry in audited.values()) < 0.1


def test_rows_of_weight_zero_count_as_left_out():
    model, store = poisson(), twins("poisson").weighted
    X, y, offset, weight = (array.copy() for array in store.rows().arrays)
    out = np.flatnonzero(weight == 0)
    assert out.size > 100
    # Their log-likelihood and every derivative overflow at the expansion point.
    X[out, 1], y[out], offset[out] = 1e4, 1e6, 300.0
    kept = weight > 0
    spoiled = from_arrays(X, y, offset=offset, weight=weight)
    without = from_arrays(X[kept], y[kept], offset=offset[kept], weight=weight[kept])
    stores = spoiled, without
    found = [sums(store, model) for store in stores]
    np.testing.assert_allclose(found[0], found[1], rtol=RTOL)
    cvs = [compute(store, model) for store in stores]
    np.testing.assert_allclose(cvs[0].theta_star, cvs[1].theta_star, rtol=1e-10)
    for of in (by_hmc, by_subsample, exact_weights):
        one, other = (of(store, model, cv) for store, cv in zip(stores, cvs, strict=True))
        scale = max(np.abs(other).max(), abs(cvs[1].log_lik))
        assert np.abs(one - other).max() <= 1e-10 * scale, of


def test_fractional_weights_are_powers_of_the_likelihood():
    model, store = logistic(), twins("logistic").weighted
    X, y, offset, weight = (array.copy() for array in store.rows().arrays)
    weight = weight * 0.37 + 0.01
    fractional = from_arrays(X, y, offset=offset, weight=weight)
    eta = X @ COEFFICIENTS + offset
    expit = 1.0 / (1.0 + np.exp(-eta))
    exact = np.r_[
        weight @ (y * eta - np.logaddexp(0.0, eta)),
        X.T @ (weight * (y - expit)),
        (-(X.T * (weight * expit * (1.0 - expit))) @ X).ravel(),
    ]
    np.testing.assert_allclose(sums(fractional, model), exact, rtol=1e-11)
    # A power w of the likelihood of every row multiplies every sum by w.
    scaled = from_arrays(X, y, offset=offset, weight=2.5 * weight)
    np.testing.assert_allclose(sums(scaled, model), 2.5 * exact, rtol=1e-11)


def test_trials_have_the_likelihood_of_single_ones():
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(400), rng.normal(size=(400, 3))]
    trials = rng.integers(0, 9, 400)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-X @ COEFFICIENTS)))
    single = np.concatenate([np.arange(n) < c for c, n in zip(successes, trials, strict=True)])
    stores = (
        from_arrays(X, successes, trials=trials),
        from_arrays(np.repeat(X, trials, axis=0), single),
        from_arrays(X, successes, trials=trials + 4),
    )
    models = MODELS["binomial"], MODELS["logistic"], MODELS["binomial"]
    for of in (sums, *DENSITIES, exact_weights):
        found = []
        for store, model in zip(stores, models, strict=True):
            cv = compute(store, model, theta_star=theta_star(model), passes=1)
            found.append(of(store, model) if of is sums else of(store, model, cv))
        assert_equal_unless_ignored(found, scale=1500.0 if of is exact_weights else None)


@pytest.mark.parametrize(
    ("y", "trials", "share"),
    [
        (0.4, 1.0, False),
        (0.003, 1.0, False),
        (0.4, 5.0, True),
        (0.4, 4.0, False),
        (0.33, 3.0, True),  # rounded to two digits
        (0.003, 300.0, True),
        (0.003, 3.0, False),
        (0.5, 1.7, False),
        (0.42, 7.3, False),
        (0.4, 0.0, True),  # the row does not count
        (0.0, 0.3, True),
        (1.0, 1.0, True),
    ],
)
def test_a_share_is_a_number_of_successes_out_of_the_trials(y, trials, share):
    found = share_fault(np.array([0.0, y]), np.array([1.0, trials]))
    assert share == (found is None)
    assert share or found[0].tolist() == [1]


def shares(n=200, trials=10):
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(n), rng.normal(size=n)]
    return X, rng.binomial(trials, 1 / (1 + np.exp(-X @ [0.3, 0.6]))) / trials


@pytest.mark.parametrize("weights", ["none", "ones", "not trials"])
@pytest.mark.parametrize(
    "sampler", [hmc(), mh_minibatch(control_variate="none"), pt(), sgld(control_variate="none")]
)
def test_shares_without_trials_are_refused(sampler, weights):
    X, y = shares()
    weight = {"ones": np.ones(200), "not trials": np.linspace(1.0, 4.0, 200)}.get(weights)
    settings = {"draws": 50, "warmup": 50, "chains": 1, "seed": 1}
    with pytest.raises(ModelError, match=r"binomial: expected shares of known trials .*--trials"):
        run_job(RunRequest(from_arrays(X, y, weight=weight), binomial(), sampler, **settings))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_shares_with_their_trials_as_weights_are_taken_at_every_temperature(temperature):
    X, y = shares()
    stated = from_arrays(X, np.rint(10 * y), trials=np.full(200, 10))
    weighed = from_arrays(X, y, weight=np.full(200, 10.0))
    one, other = (
        compute(store, binomial(), temperature=temperature) for store in (stated, weighed)
    )
    np.testing.assert_allclose(one.theta_star, other.theta_star, rtol=1e-12)
    with pytest.raises(ModelError, match="found 0"):
        compute(from_arrays(X, y, weight=np.full(200, 1.0)), binomial(), temperature=temperature)


def test_stated_trials_may_be_weighted_down_to_one():
    X, y = shares()
    store = from_arrays(X, np.rint(10 * y), trials=np.full(200, 10), weight=np.full(200, 0.1))
    assert np.isfinite(compute(store, binomial()).theta_star).all()


def test_shares_without_trials_are_refused_in_groups():
    X, y = shares()
    groups = np.repeat(np.arange(20), 10)
    with pytest.raises(ModelError, match="expected shares of known trials"):
        compute(from_arrays(X, y, groups=groups), binomial())
    with_trials = from_arrays(X, np.rint(10 * y), trials=np.full(200, 10), groups=groups)
    weighed = from_arrays(X, y, weight=np.full(200, 10.0), groups=groups)
    one, other = (compute(store, binomial()) for store in (with_trials, weighed))
    np.testing.assert_allclose(one.theta_star, other.theta_star, rtol=1e-9)
