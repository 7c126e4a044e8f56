"""The block-Poisson estimator is unbiased: summed over every outcome, and in many calls."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from problems import Small
from scipy import stats

from streammc.likelihood.drawn_units import ProductDesign
from streammc.likelihood.estimators import log_product
from streammc.likelihood.target import BOUND, DENSITY, ESTIMATE, SIGN, VARIANCE
from streammc.numerics.jit import jit

THETA = np.array([0.7, -0.4])
MOST = {1.0: 22, 2.0: 28}
"""Factors by intensity; more have a probability below 1e-13 even when their size is counted."""


def far(small):
    """A position where the bound falls: |z|^2 = 34 in two dimensions, beyond 30.0."""
    return small.theta_star + small.base.factor @ np.array([5.0, 3.0])


def remainder(small, theta=THETA):
    """The sampled remainder, d(theta), in plain NumPy."""
    rows = small.remainder_rows(theta)
    return np.delete(rows, small.certain_rows).sum()


def outcomes(small, factor_units):
    """The units of one factor, up to their order, and how likely they are."""
    units = itertools.combinations_with_replacement(range(small.n_units), factor_units)
    chosen = list(units)
    ways = [math.factorial(factor_units) for _ in chosen]
    for i, one in enumerate(chosen):
        for u in set(one):
            ways[i] //= math.factorial(one.count(u))
    return chosen, np.array(ways) * [np.prod(small.omega[list(one)]) for one in chosen]


def expectation(small, base, f, theta=THETA):
    """Sum ``f(point)`` over Poisson many factors and every content they can have."""
    chosen, probability = outcomes(small, base.factor_units)
    total = 0.0
    for n in range(MOST[base.intensity] + 1):
        poisson = stats.poisson(base.intensity).pmf(n)
        for counts in compositions(n, len(chosen)):
            ways = math.factorial(n)
            for c in counts:
                ways //= math.factorial(c)
            weight = poisson * ways * np.prod(probability**counts)
            units = [u for c, one in zip(counts, chosen, strict=True) for u in one * c]
            point, _, _ = small.point_at(theta, np.array(units, dtype=np.int64), base)
            total += weight * np.asarray(f(point))
    return total


def compositions(n, parts):
    if parts == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, parts - 1):
            yield (first, *rest)


def estimate(point):
    return point.scalars[SIGN] * math.exp(point.scalars[DENSITY])


CASES = {
    "rows": ({"n": 3, "unit_rows": 1}, 1),
    "runs and certainty rows": ({"n": 5, "unit_rows": 2, "certain": (1,)}, 1),
    "unequal probabilities": ({"n": 5, "unit_rows": 2, "relative": (0.3, 1.9, 0.8)}, 1),
    "mini-batches of two": ({"n": 2, "unit_rows": 1}, 2),
    "mini-batches of two runs": ({"n": 4, "unit_rows": 2, "certain": (0,)}, 2),
}


@pytest.mark.trust(6)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("intensity", "growth"),
    [(1.0, 0.0), pytest.param(2.0, 0.1, marks=pytest.mark.slow)],
)
def test_estimate_is_unbiased_though_negative_at_times(case, intensity, growth, record_property):
    options, factor_units = CASES[case]
    small = Small(order=1, k=2, seed=4, **options)
    theta = far(small) if growth else THETA
    lowest = min(
        small.n_units * small.point_at(theta, np.array([u]))[0].totals[0]
        for u in range(small.n_units)
    )
    base = small.product_base(intensity, lowest + 0.3 * intensity, factor_units, growth)
    nothing = small.point_at(theta, np.array([], dtype=np.int64), base)[0].scalars
    assert (nothing[BOUND] < base.soft_bound) == (growth > 0.0)
    rest = nothing[DENSITY] - nothing[ESTIMATE]
    exact = math.exp(rest + remainder(small, theta))
    mean, sign, size = expectation(
        small, base, lambda p: (estimate(p), p.scalars[SIGN], abs(estimate(p))), theta
    )
    assert mean == pytest.approx(exact, rel=1e-12)
    record_property("figure", "sum over all outcomes: relative error below 1e-12")
    assert sign < 0.999
    assert size > 1.0001 * exact


@pytest.mark.trust(6)
def test_exponential_of_an_unbiased_logarithm_is_biased(record_property):
    small = Small(n=3, k=2, order=1, seed=4)
    base = small.product_base(3.0, remainder(small) - 1.2)
    chosen, probability = outcomes(small, 1)
    totals = [small.point_at(THETA, np.array(one), base)[0].totals[0] for one in chosen]
    wrong = probability @ np.exp(small.n_units * np.array(totals))
    bias = wrong / math.exp(remainder(small)) - 1
    assert abs(bias) > 0.01
    record_property("caught", f"exp of the estimated logarithm (bias {bias:.0%})")


@pytest.mark.slow
def test_variance_of_the_logarithm_is_estimated_without_bias():
    small = Small(n=3, k=2, order=1, seed=4)
    base = small.product_base(2.0, remainder(small) - 4.0)
    mean, square, found = expectation(
        small,
        base,
        lambda p: (p.scalars[ESTIMATE], p.scalars[ESTIMATE] ** 2, p.scalars[VARIANCE]),
    )
    assert found == pytest.approx(square - mean**2, rel=1e-9)


@pytest.mark.parametrize("growth", [0.0, 0.7])
def test_gradient_matches_central_differences(growth):
    small = Small(n=7, order=1, unit_rows=2, certain=(0,))
    base = small.product_base(4.0, remainder(small) - 2.0, 2, growth)
    units = np.array([0, 2, 3, 1, 2, 2])
    theta = far(small) if growth else THETA
    point, _, _ = small.point_at(theta, units, base)
    gradient = np.linalg.solve(base.factor.T, point.gradient)
    for j in range(2):
        step = np.eye(2)[j] * 1e-5
        up = small.point_at(theta + step, units, base)[0].scalars[DENSITY]
        down = small.point_at(theta - step, units, base)[0].scalars[DENSITY]
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-6)


@jit()
def many(counts, units, table, scale, intensity, bound, factor_units):
    """Estimates of exp(d) from the production function, over drawn factors."""
    out = np.empty((len(counts), 2))
    totals, weights = np.empty(counts.max()), np.empty(counts.max())
    used = 0
    for i in range(len(counts)):
        for j in range(counts[i]):
            totals[j] = table[units[used + j]]
        used += counts[i]
        log, _, sign, _ = log_product(
            totals, counts[i], factor_units, scale, intensity, bound, weights
        )
        out[i, 0] = sign * np.exp(log)
        out[i, 1] = np.exp(scale * totals[: counts[i]].sum() / (intensity)) if counts[i] else 1.0
    return out


@pytest.mark.trust(6)
@pytest.mark.slow
@pytest.mark.parametrize("factor_units", [1, 2])
def test_two_million_calls_with_the_design_of_the_sampler(factor_units, record_property):
    calls, intensity = 2_000_000, 6
    small = Small(n=6, k=2, order=1, seed=4)
    table = np.array([small.point_at(THETA, np.array([u]))[0].totals[0] for u in range(6)])
    d = remainder(small)
    bound = d - intensity
    design = ProductDesign(6, 1, intensity * factor_units, 1, factor_units, seed=3)
    counts = design.proposal_counts(0, calls)
    units = design.draw(int(counts.sum()), np.random.default_rng(5))
    out = many(counts, units, table, 6 / factor_units, float(intensity), bound, factor_units)
    error = out.std(axis=0, ddof=1) / np.sqrt(calls)
    z = (out.mean(axis=0) - np.exp(d)) / error
    assert error[0] / np.exp(d) < 5e-4
    assert abs(z[0]) < 4.5
    record_property(
        "figure", f"z {abs(z[0]):.1f} in {calls:,} calls, {factor_units} units a factor"
    )
    assert abs(z[1]) > 10.0  # the exponential of the mean of the factors' estimates
