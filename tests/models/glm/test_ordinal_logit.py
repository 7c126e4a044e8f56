"""The cumulative logit link in its tails and at small gaps, its simulator and its start."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from families import FAMILIES
from scipy import optimize, special, stats

import streammc
from streammc import samplers
from streammc.errors import ConfigError
from streammc.models import logistic, ordinal
from streammc.models.check import evaluate
from streammc.priors import flat
from streammc.protocols import Matrix, Rows, Vector
from streammc.samplers.common.sampler import Sampler

LOG_LIK = FAMILIES["ordinal"].log_lik
SIZES = (1e-9, 0.3, 5.0, 37.0, 345.0, 700.0)
GAPS = (1e-10, 1e-3, 0.29, 0.31, 1.0, 30.0, 1e3)


def grid(count: int) -> Matrix:
    """Return some predictors and log gaps (3, count) of a grid with extremes."""
    signed = [0.0, *SIZES, *(-size for size in SIZES)]
    every = np.array([*itertools.product(signed, np.log(GAPS), np.log(GAPS))])
    return np.random.default_rng(0).choice(every, count, replace=False).T


def value_error(eta: Matrix, y: Vector, factor: float = 1.0) -> float:
    """Return the largest error of the value relative to it; ``factor`` multiplies the value."""
    value, worst = factor * evaluate(ordinal(levels=len(eta) + 1), eta, y, 0)[0], 0.0
    with mpmath.workdps(1300):
        for found, at, k in zip(value, eta.T, y, strict=True):
            exact = LOG_LIK(mpmath.mpf(k), *(mpmath.mpf(float(each)) for each in at))
            worst = max(worst, float(abs(found - exact) / abs(exact)))
    return worst


def test_value_keeps_its_digits_in_the_tails_and_at_small_gaps() -> None:
    eta = grid(90)
    y = np.arange(90.0) % 4
    kept = (evaluate(ordinal(levels=4), eta, y, 0)[0] < -1e-300).nonzero()[0]  # normal numbers
    assert len(kept) > 70
    eta, y = eta[:, kept], y[kept]
    assert value_error(eta, y) < 1e-12
    assert value_error(eta, y, 1.0 + 2e-12) > 1e-12


@pytest.mark.parametrize("y", range(4))
def test_derivatives_are_those_of_the_textbook(y: int) -> None:
    rng = np.random.default_rng(y)
    eta = np.concatenate([rng.normal(0.0, 6.0, (1, 5)), rng.normal(-1.0, 2.0, (2, 5))])
    eta[:, 0] = [30.0, -23.0, 0.0]
    eta[:, 1] = [-150.0, 1.0, -23.0]
    out = evaluate(ordinal(levels=4), eta, np.full(5, float(y)))
    pairs = [(), *((a,) for a in range(3)), *itertools.combinations_with_replacement(range(3), 2)]
    with mpmath.workdps(160):
        for i in range(5):
            at = [mpmath.mpf(float(each)) for each in eta[:, i]]
            for row, pair in enumerate(pairs):
                order = tuple(pair.count(a) for a in range(3))
                exact = mpmath.diff(lambda *x: LOG_LIK(mpmath.mpf(y), *x), at, order)
                # Of a category between two cut points, the slopes at both are subtracted.
                size = max(abs(exact), 1 if y in (1, 2) else 0)
                assert abs(out[row, i] - exact) <= 1e-13 * size, (row, i)


def test_gaps_may_differ_between_the_rows_of_a_block() -> None:
    rng = np.random.default_rng(3)
    eta, y = rng.normal(size=(4, 300)), rng.integers(5, size=300).astype(np.float64)
    eta[1:, 40:260] = eta[1:, 40:41]
    whole = evaluate(ordinal(levels=5), eta, y)
    for i in range(0, 300, 7):
        alone = evaluate(ordinal(levels=5), eta[:, [i]], y[[i]])
        np.testing.assert_array_equal(alone[:, 0], whole[:, i])


def test_two_levels_are_logistic_regression() -> None:
    eta = np.random.default_rng(1).normal(0.0, 9.0, (1, 200))
    y = (np.arange(200) % 2).astype(np.float64)
    found, expected = evaluate(ordinal(levels=2), eta, y), evaluate(logistic(), eta, y)
    np.testing.assert_allclose(expected, found, rtol=1e-14)


def test_a_category_that_is_none_has_no_likelihood() -> None:
    y = np.array([5.0, -1.0, 1.5, np.nan, np.inf, 1e300, 2.0])
    value = evaluate(ordinal(levels=5), np.zeros((4, 7)), y, 0)[0]
    assert [True] * 6 + [False] == np.isnan(value).tolist()


def p_value(eta: Vector, simulated_at: Vector) -> float:
    """Return the chi-square probability of simulated categories under the density at ``eta``."""
    n, levels = 40_000, len(eta) + 1
    model = ordinal(levels=levels)
    y = model.simulate(np.tile(simulated_at[:, None], n), np.random.default_rng(5))
    count = np.bincount(y.astype(np.int64), minlength=levels)
    every = np.arange(float(levels))
    chance = np.exp(evaluate(model, np.tile(eta[:, None], levels), every, 0)[0])
    return float(stats.chisquare(count, n * chance).pvalue)


def test_simulated_categories_follow_the_density() -> None:
    eta = np.array([0.8, -0.3, 0.2, -1.0])
    assert p_value(eta, eta) > 1e-3
    assert p_value(eta, eta + np.array([0.0, 0.0, 0.08, 0.0])) < 1e-6


def test_mean_is_the_expected_number_of_the_category() -> None:
    eta = np.tile(np.array([0.8, -0.3, 0.2, -1.0])[:, None], 5)
    model = ordinal(levels=5)
    chance = np.exp(evaluate(model, eta, np.arange(5.0), 0)[0])
    np.testing.assert_allclose(chance @ np.arange(5.0), model.mean(eta), rtol=1e-14)


def made(n: int, seed: int, spread: float = 0.3) -> tuple[Rows, Vector]:
    """Return rows of five categories, and the theta that they were drawn from."""
    rng = np.random.default_rng(seed)
    theta = np.array([1.0, 0.8, -0.5, *np.log([0.7, 1.5, 1.0])])
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    offset = rng.normal(scale=spread, size=n)
    eta = np.vstack([X @ theta[:3] + offset, np.tile(theta[3:, None], n)])
    return Rows(X, ordinal(levels=5).simulate(eta, rng), offset, np.ones(n)), theta


def test_start_is_near_and_ignores_rows_without_weight() -> None:
    rows, theta = made(4000, 1)
    start = ordinal(levels=5).start(rows)
    np.testing.assert_allclose(theta, start, atol=0.5)
    weight = np.ones(4000)
    weight[::2] = 0.0
    y = np.where(weight == 0.0, 1e9, rows.y)
    half = Rows(*(np.ascontiguousarray(part[1::2]) for part in rows))
    found = ordinal(levels=5).start(rows._replace(y=y, weight=weight))
    np.testing.assert_allclose(ordinal(levels=5).start(half), found, rtol=1e-9)


def test_start_of_one_category_is_finite() -> None:
    rows, _ = made(200, 2)
    for k in (0.0, 2.0, 4.0):
        assert np.isfinite(ordinal(levels=5).start(rows._replace(y=np.full(200, k)))).all()


def test_number_of_levels_is_part_of_the_description() -> None:
    assert ordinal(levels=3).describe() != ordinal(levels=4).describe()
    assert 2 + 18 == ordinal(levels=20).dim(2)


@pytest.mark.parametrize("levels", [1, 21, 2.5, "5", True])
def test_levels_are_a_whole_number_from_2_to_20(levels: object) -> None:
    with pytest.raises(ConfigError, match="levels must be a whole number from 2 to 20"):
        ordinal(levels=levels)  # type: ignore[arg-type]


def maximum(rows: Rows) -> Vector:
    """Return the maximum of the likelihood in slopes and thresholds, as ``MASS::polr`` has them."""

    def minus(at: Vector) -> float:
        ends = np.concatenate([[-np.inf], at[2:], [np.inf]])
        k, eta = rows.y.astype(np.int64), rows.X[:, 1:] @ at[:2]
        chance = special.expit(ends[k + 1] - eta) - special.expit(ends[k] - eta)
        return -float(np.log(np.maximum(chance, 1e-300)).sum())

    start = np.array([0.0, 0.0, -1.0, 0.0, 1.0, 2.0])
    return optimize.minimize(minus, start, method="BFGS", options={"gtol": 1e-4}).x


@pytest.mark.parametrize("sampler", [samplers.hmc(), samplers.hmc_ecs(subsample_size=100)])
def test_posterior_under_flat_priors_is_at_the_maximum_of_the_likelihood(sampler: Sampler) -> None:
    rows, _ = made(8000, 4, 0.0)
    table = {"y": rows.y, "a": 5.0 + 2.0 * rows.X[:, 1], "b": rows.X[:, 2]}
    options = {"draws": 1500, "warmup": 300, "chains": 2, "seed": 1}
    data = streammc.from_table(table, formula="y ~ a + b", dtype="float64")
    tree = streammc.sample(data, ordinal(flat()), sampler=sampler, **options)
    beta, gap = (tree["posterior"][name].values.reshape(3000, -1) for name in ("beta", "gap"))
    cut = np.c_[np.zeros(3000), np.cumsum(gap, axis=1)]
    # Thresholds of the columns a and b: of the table, and not of the standardised store.
    derived = tree["posterior_derived"]["cut"]
    assert ["0", "1", "2", "3"] == derived["cut_dim"].values.tolist()
    np.testing.assert_allclose(cut - beta[:, :1], derived.values.reshape(3000, 4), rtol=1e-12)
    # Back to those of the two columns of the rows.
    intercept = beta[:, :1] + 5.0 * beta[:, 1:2]
    draws = np.c_[2.0 * beta[:, 1], beta[:, 2], cut - intercept]
    away = [
        np.abs(draws.mean(axis=0) - maximum(Rows(*(part[some] for part in rows)))) / draws.std(0)
        for some in (slice(None), slice(0, 4000))
    ]
    assert away[0].max() < 0.15
    assert away[1].max() > 0.15
