"""The softmax link where chances are near 0 and 1, its simulator, start, priors and posterior."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from families import FAMILIES
from scipy import optimize, special, stats

import streammc
from streammc import samplers
from streammc.control_variates.bound import _SUBSET_BYTES, with_data
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.data_views import draw_subset
from streammc.models import logistic, multinomial
from streammc.models.check import evaluate
from streammc.priors import flat
from streammc.priors.scaled import with_defaults
from streammc.protocols import Matrix, Rows, Vector

LOG_LIK = FAMILIES["multinomial"].log_lik
SIZES = (0.0, 1e-9, 0.3, 5.0, 37.0, 345.0, 700.0)


def grid(count: int) -> Matrix:
    """Return some predictors (3, count) of a grid with extremes."""
    signed = [*SIZES, *(-size for size in SIZES[1:])]
    every = np.array([*itertools.product(signed, signed, signed)])
    return np.random.default_rng(0).choice(every, count, replace=False).T


def textbook(eta: Vector, y: int) -> list[mpmath.mpf]:
    """Return log probability, gradient and upper Hessian at ``eta`` (p,)."""
    at = [mpmath.mpf(float(each)) for each in eta]
    chance = [mpmath.exp(LOG_LIK(mpmath.mpf(k), *at)) for k in range(len(at) + 1)]

    def missing(k: int) -> mpmath.mpf:
        return sum(each for j, each in enumerate(chance) if j != k)

    gradient = [missing(a) if y == a else -chance[a] for a in range(1, len(chance))]
    pairs = itertools.combinations_with_replacement(range(1, len(chance)), 2)
    hessian = [-chance[a] * missing(a) if a == b else chance[a] * chance[b] for a, b in pairs]
    return [LOG_LIK(mpmath.mpf(y), *at), *gradient, *hessian]


def largest_error(factor: float = 1.0) -> float:
    """Return the largest relative error of value and derivatives, times ``factor``."""
    eta, worst = grid(120), 0.0
    with mpmath.workdps(700):
        for y in range(4):
            out = factor * evaluate(multinomial(levels=4), eta, np.full(120, float(y)))
            for i in range(120):
                for found, exact in zip(out[:, i], textbook(eta[:, i], y), strict=True):
                    error = max(abs(found - exact) - mpmath.mpf("4e-308"), 0)
                    worst = max(worst, float(error / abs(exact)))
    return worst


def test_value_and_derivatives_keep_their_digits() -> None:
    # A difference of two predictors up to 700 is rounded, and its exponential with it.
    assert largest_error() < 6e-14
    assert largest_error(1.0 + 1e-13) > 6e-14


def test_predictors_far_out_give_the_limits() -> None:
    eta = np.array([[1e4, -1e4, 1e5, np.inf, -np.inf], [-1e4, -1e4, 1e5, 0.0, -np.inf]])
    out = evaluate(multinomial(levels=3), eta, np.array([0.0, 0.0, 1.0, 2.0, 0.0]))
    np.testing.assert_allclose([-1e4, 0.0, -math.log(2.0), -np.inf, 0.0], out[0], atol=1e-300)
    np.testing.assert_allclose([-1.0, 0.0, 0.5, -1.0, 0.0], out[1], atol=1e-300)
    np.testing.assert_allclose([0.0, 0.0, -0.5, 1.0, 0.0], out[2], atol=1e-300)


def test_a_category_that_is_none_has_no_likelihood() -> None:
    y = np.array([5.0, -1.0, 1.5, np.nan, np.inf, 1e300, 2.0])
    out = evaluate(multinomial(levels=5), np.zeros((4, 7)), y)
    assert ([True] * 6 + [False] == np.isnan(out)).all()
    eta = np.zeros((4, 4))
    eta[range(4), range(4)] = np.nan
    assert np.isnan(evaluate(multinomial(levels=5), eta, np.zeros(4))).all()


def test_two_levels_are_logistic_regression() -> None:
    eta = np.random.default_rng(1).normal(0.0, 9.0, (1, 200))
    y = (np.arange(200) % 2).astype(np.float64)
    found, expected = evaluate(multinomial(levels=2), eta, y), evaluate(logistic(), eta, y)
    np.testing.assert_allclose(expected, found, rtol=1e-14)
    rows = Rows(np.c_[np.ones(200), eta[0]], y, np.zeros(200), np.ones(200))
    names = ["Intercept", "x"]
    both = [with_defaults(each, rows, names) for each in (multinomial(levels=2), logistic())]
    tables = [each.prior_table(each.labels(names)) for each in both]
    np.testing.assert_array_equal(tables[0], tables[1])


def p_value(eta: Vector, simulated_at: Vector) -> float:
    """Return the chi-square probability of simulated categories under the density at ``eta``."""
    n, levels = 40_000, len(eta) + 1
    model = multinomial(levels=levels)
    y = model.simulate(np.tile(simulated_at[:, None], n), np.random.default_rng(5))
    count = np.bincount(y.astype(np.int64), minlength=levels)
    every = np.arange(float(levels))
    chance = np.exp(evaluate(model, np.tile(eta[:, None], levels), every, 0)[0])
    np.testing.assert_allclose(special.softmax([0.0, *eta]), chance, rtol=1e-14)
    return float(stats.chisquare(count, n * chance).pvalue)


def test_simulated_categories_follow_the_density() -> None:
    eta = np.array([0.8, -0.3, 0.2, -1.0])
    assert p_value(eta, eta) > 1e-3
    assert p_value(eta, eta + np.array([0.0, 0.0, 0.08, 0.0])) < 1e-6


def test_intercepts_are_around_the_log_odds_against_the_reference() -> None:
    y = np.repeat([0.0, 1.0, 2.0], [100, 200, 50])
    x = np.random.default_rng(1).standard_normal(350)
    rows = Rows(np.c_[np.ones(350), x - x.mean()], y, np.zeros(350), np.ones(350))
    names = ["Intercept", "x"]
    model = with_defaults(multinomial(levels=3), rows, names)
    location = model.prior_table(model.labels(names))[:, 1]
    np.testing.assert_allclose([math.log(2.0), 0.0, -math.log(2.0), 0.0], location, atol=0.01)
    start = model.start(rows)
    np.testing.assert_allclose([math.log(2.0), 0.0, -math.log(2.0), 0.0], start, atol=0.01)


def test_a_mean_is_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match=r"categories have no order: ask for their probabilities"):
        multinomial(levels=3).mean(np.zeros((2, 1)))


@pytest.mark.parametrize("levels", [1, 51, 2.5, "5", True])
def test_levels_are_a_whole_number_from_2_to_50(levels: object) -> None:
    with pytest.raises(ConfigError, match="levels must be a whole number from 2 to 50"):
        multinomial(levels=levels)  # type: ignore[arg-type]


THETA = np.array([[0.5, 1.0, -0.3], [-0.4, 0.2, 0.8], [-1.0, -0.5, 0.5]])


def made(n: int, seed: int) -> tuple[Matrix, Vector]:
    """Return a design (n, 3) with an intercept and responses of four categories."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    return X, multinomial(levels=4).simulate(THETA @ X.T, rng)


def test_levels_come_from_the_data_and_offsets_are_refused() -> None:
    X, y = made(300, 1)
    table = {"y": y, "a": X[:, 1], "e": np.ones(300)}
    assert 4 == with_data(multinomial(), streammc.from_table(table, formula="y ~ a")).levels
    with pytest.raises(ModelError, match=r"expected rows without an offset .* found 'offset"):
        with_data(multinomial(), streammc.from_table(table, formula="y ~ a + offset(e)"))
    arrays = streammc.from_arrays(X, y, offset=np.ones(300))
    with pytest.raises(ModelError, match="expected rows without an offset"):
        with_data(multinomial(), arrays)
    absent = {**table, "y": np.where(y == 1.0, 0.0, y)}
    with pytest.raises(ModelError, match="found none of 1: recode"):
        with_data(multinomial(), streammc.from_table(absent, formula="y ~ a"))


def test_groups_and_factors_are_refused() -> None:
    X, y = made(400, 1)
    table = {"y": y, "a": X[:, 1], "g": np.arange(400) % 40}
    data = streammc.from_table(table, formula="y ~ a + (1 | g)")
    with pytest.raises(ConfigError, match=r"found 'multinomial': .* leave the groups out"):
        streammc.sample(data, multinomial(), seed=1)


def maximum(X: Matrix, y: Vector) -> Vector:
    """Return the maximum of the likelihood, the coefficients of each category in a row, flat."""
    k = y.astype(np.int64)

    def minus(at: Vector) -> tuple[float, Vector]:
        eta = np.vstack([np.zeros(len(y)), at.reshape(3, -1) @ X.T])
        slope = special.softmax(eta, axis=0)
        slope[k, np.arange(len(y))] -= 1.0
        value = special.logsumexp(eta, axis=0) - eta[k, np.arange(len(y))]
        return float(value.sum()), (slope[1:] @ X).ravel()

    return optimize.minimize(minus, np.zeros(9), jac=True, options={"gtol": 1e-3}).x


def test_posterior_under_flat_priors_is_at_the_maximum_of_the_likelihood() -> None:
    X, y = made(4000, 4)
    table = {"y": y, "a": 5.0 + 2.0 * X[:, 1], "b": X[:, 2]}
    X[:, 1] = table["a"]
    data = streammc.from_table(table, formula="y ~ a + b", dtype="float64")
    options = {"draws": 1500, "warmup": 500, "chains": 2, "seed": 1}
    found = []
    for sampler in (samplers.hmc(), samplers.hmc_ecs(subsample_size=100)):
        tree = streammc.sample(data, multinomial(flat()), sampler=sampler, **options)
        names = [f"{k}, {x}" for k in "123" for x in ("Intercept", "a", "b")]
        assert names == tree["posterior"]["beta_dim"].values.tolist()
        found.append(tree["posterior"]["beta"].values.reshape(3000, 9))
    for draws in found:
        away = [
            np.abs(draws.mean(axis=0) - maximum(X[:n], y[:n])) / draws.std(axis=0)
            for n in (4000, 2000)
        ]
        assert away[0].max() < 0.15
        assert away[1].max() > 0.15


def test_fifty_categories_are_fitted() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(6000)
    theta = np.c_[rng.normal(0.0, 0.3, 49), rng.normal(0.0, 0.3, 49)]
    y = multinomial(levels=50).simulate(theta @ np.vstack([np.ones(6000), x]), rng)
    data = streammc.from_table({"y": y, "x": x}, formula="y ~ x")
    tree = streammc.sample(data, multinomial(), draws=100, warmup=100, chains=2, seed=1)
    beta = tree["posterior"]["beta"].values.reshape(200, 98)
    z = (beta.mean(axis=0) - theta.ravel()) / beta.std(axis=0)
    assert 98 == beta.shape[1]
    assert 0.5 < z.std() < 1.5


def test_an_offset_of_one_row_that_no_sample_has_is_refused() -> None:
    rng = np.random.default_rng(5)
    n = 70_000
    X, y = np.c_[np.ones(n), rng.normal(size=n)], rng.integers(3, size=n).astype(np.float64)
    numbered = streammc.from_arrays(X, y, offset=np.arange(n) + 1.0)
    seen = {*draw_subset(numbered, _SUBSET_BYTES).offset.astype(int).tolist()}
    offset = np.zeros(n)
    offset[next(i for i in range(n) if i + 1 not in seen)] = 1.0
    with pytest.raises(ModelError, match="found an offset"):
        streammc.control_variates.compute(streammc.from_arrays(X, y, offset=offset), multinomial())
