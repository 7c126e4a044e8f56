"""Compensated sums against math.fsum, moments against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammc.numerics.jit import jit
from streammc.numerics.summation import (
    Moments,
    add_compensated,
    column_moments,
    merge_compensated,
    merge_moments,
    sum_compensated,
    two_sum,
)
from streammc.protocols import Matrix, Vector


@jit()
def _add(high: Vector, low: Vector, values: Vector) -> None:
    add_compensated(high, low, values)


@jit()
def _two_sum(a: float, b: float) -> tuple[float, float]:
    return two_sum(a, b)


def ill_conditioned(n: int, seed: int = 0) -> Vector:
    """Return values over 16 decades that nearly cancel."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * 10.0 ** rng.integers(-8, 9, n)
    return rng.permutation(np.concatenate([x, -x * (1 + 1e-12)]))


moderate = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(moderate, moderate)
@settings(max_examples=200, deadline=None)
def test_two_sum_is_exact(a: float, b: float) -> None:
    s, e = _two_sum(a, b)
    assert s == a + b
    assert Fraction(s) + Fraction(e) == Fraction(a) + Fraction(b)


@pytest.mark.trust(11)
def test_sum_agrees_with_fsum_where_the_naive_sum_does_not() -> None:
    x = ill_conditioned(200_000)
    exact = math.fsum(x)
    assert abs(sum_compensated(x) / exact - 1) < 1e-13
    naive = 0.0
    for value in x.tolist():
        naive += value
    assert abs(naive / exact - 1) > 1e-6


def test_sum_accepts_read_only_and_empty_arrays() -> None:
    x = np.array([1.0, 1e100, 1.0, -1e100])
    x.flags.writeable = False
    assert sum_compensated(x) == 2.0
    assert sum_compensated(np.empty(0)) == 0.0


def test_totals_merged_from_blocks_agree_with_fsum() -> None:
    x = np.column_stack([ill_conditioned(10_000, seed) for seed in range(3)])
    blocks = []
    for block in np.array_split(x, 7):
        total = np.zeros((2, 3))
        for row in block:
            _add(total[0], total[1], row)
        blocks.append(total)
    merged = reduce(merge_compensated, blocks)
    exact = np.array([math.fsum(column) for column in x.T])
    np.testing.assert_allclose(merged.sum(axis=0), exact, rtol=1e-12)
    assert (np.abs(np.cumsum(x, axis=0)[-1] / exact - 1) > 1e-8).any()


def exact_variance(column: Vector) -> float:
    """Return the variance in exact arithmetic; the mean is near a whole number."""
    centre = float(np.round(column.mean()))
    x = column.astype(np.float64) - centre  # exact: neighbours in magnitude
    total, squares = math.fsum(x), math.fsum(x * x)
    return (squares - total * total / len(x)) / (len(x) - 1)


def textbook(x: Matrix) -> float:
    """Return the variance from sums of x and x^2: the broken partner."""
    return float((np.sum(x * x) - np.sum(x) ** 2 / len(x)) / (len(x) - 1))


@pytest.mark.trust(11)
@pytest.mark.slow
def test_variance_keeps_ten_digits_at_mean_1e8_and_ten_million_rows(
    record_property: Callable[[str, object], None],
) -> None:
    x = np.random.default_rng(0).normal(1e8, 1.0, (10_000_000, 1))
    exact = exact_variance(x[:, 0])
    errors = []
    for size in (1_009, 65_536, len(x)):
        blocks = [column_moments(x[i : i + size]) for i in range(0, len(x), size)]
        merged = reduce(merge_moments, blocks)
        assert len(x) == merged.n_rows
        errors.append(abs(merged.variance[0] / exact - 1))
    assert max(errors) < 1e-10
    wrong = abs(textbook(x) / exact - 1)
    assert wrong > 0.1
    record_property("figure", f"variance at mean 1e8 in 1e7 rows: error {max(errors):.0e}")
    record_property("caught", f"sums of x and x^2 (error {wrong:.0%})")


@pytest.mark.parametrize("order", ["random", "sorted"])
def test_variance_keeps_ten_digits_for_any_cut_into_blocks(order: str) -> None:
    x = np.random.default_rng(1).normal(1e8, 1.0, (20_000, 1))
    if order == "sorted":
        x.sort(axis=0)
    exact = exact_variance(x[:, 0])
    for size in (1, 7, 511, 512, 513, 20_000):
        blocks = [column_moments(x[i : i + size]) for i in range(0, len(x), size)]
        variance = reduce(merge_moments, blocks).variance[0]
        assert abs(variance / exact - 1) < 1e-10, size
    assert abs(textbook(x) / exact - 1) > 1e-3


def test_means_rounded_to_float64_would_lose_the_variance() -> None:
    """Why means are kept relative to a pivot: the same merge with plain means drifts."""
    x = np.random.default_rng(2).normal(1e8, 1e-4, (50_000, 1))
    exact = exact_variance(x[:, 0])
    blocks = [column_moments(x[i : i + 50]) for i in range(0, len(x), 50)]
    assert abs(reduce(merge_moments, blocks).variance[0] / exact - 1) < 1e-10
    plain = [b._replace(pivot=b.mean, shift=np.zeros(1)) for b in blocks]

    def merge_plain(left: Moments, right: Moments) -> Moments:
        both = merge_moments(left, right)
        return both._replace(pivot=both.mean, shift=np.zeros(1))

    assert abs(reduce(merge_plain, plain).variance[0] / exact - 1) > 1e-10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_several_columns(dtype: type) -> None:
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((1300, 4)) * [1.0, 1e3, 1e-3, 0.0] + [0.0, 5.0, 1e4, 2.0]).astype(
        dtype
    )
    X.flags.writeable = False
    moments = column_moments(X)
    wide = X.astype(np.float64)
    assert moments.n_rows == 1300
    exact = np.array([math.fsum(column) / 1300 for column in wide.T])
    error = np.abs(moments.mean - exact)
    assert (error <= 1e-15 * (np.abs(exact) + wide.std(axis=0))).all()
    np.testing.assert_allclose(moments.variance, wide.var(axis=0, ddof=1), rtol=1e-9, atol=1e-30)
    assert moments.variance[3] == 0.0


def test_one_row_has_a_mean_and_no_variance() -> None:
    moments = column_moments(np.array([[3.0, -1.0]]))
    np.testing.assert_array_equal([3.0, -1.0], moments.mean)
    assert np.isnan(moments.variance).all()
