from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from streammc.protocols import Matrix
from streammc.stores.ingest.table_blocks import Moments


def moments(values: Matrix, block: int) -> tuple[float, float]:
    found = Moments(values.shape[0])
    for start in range(0, values.shape[1], block):
        found.add(values[:, start : start + block])
    mean, sd = found.finish()
    return float(mean[0]), float(sd[0])


def exact(values: Matrix) -> tuple[Fraction, Fraction]:
    """Mean and variance in rational arithmetic."""
    terms = [Fraction(float(value)) for value in values[0]]
    mean = sum(terms) / len(terms)
    return mean, sum((term - mean) ** 2 for term in terms) / len(terms)


def root(value: Fraction) -> float:
    """Square root to 30 digits, however large."""
    shift = 10**700
    return float(Fraction(isqrt(int(value * shift * shift)), shift))


@pytest.mark.parametrize("block", [1, 7, 100, 1_000])
@pytest.mark.parametrize(
    ("location", "scale"), [(0.0, 1.0), (1e8, 1.0), (1e9, 1e-3), (-1e300, 1e299), (1e-310, 1e-311)]
)
def test_moments_agree_with_rational_arithmetic(location: float, scale: float, block: int) -> None:
    values = location + scale * np.random.default_rng(3).normal(size=(1, 1_000))
    mean, sd = moments(values, block)
    true_mean, true_variance = exact(values)
    rounding = max(Fraction(float(np.abs(values).max())) / 2**52, Fraction(1, 2**1073))
    assert abs(Fraction(mean) - true_mean) <= rounding
    tolerance = 1e-13 if abs(location) > 1e-300 else 1e-10  # subnormal numbers have few digits
    assert root(true_variance) == pytest.approx(sd, rel=tolerance)


def test_a_large_mean_does_not_cost_the_variance_its_digits() -> None:
    """Mean 1e8, sd 1, n = 1e7: the plain sum of squares would have no digit left."""
    rng = np.random.default_rng(5)
    found, plain = Moments(1), np.zeros(2)
    reference_sum = reference_square = 0.0
    for _ in range(100):
        z = rng.normal(size=100_000)
        values = 1e8 + z
        z = values - 1e8  # exact
        reference_sum += float(z.sum())
        reference_square += float(z @ z)
        plain += values.sum(), values @ values
        found.add(values[np.newaxis])
    _, sd = found.finish()
    n = 1e7
    reference = reference_square / n - (reference_sum / n) ** 2
    assert sd[0] ** 2 == pytest.approx(reference, rel=1e-10)
    assert plain[1] / n - (plain[0] / n) ** 2 != pytest.approx(reference, rel=1e-3)


def test_rows_sorted_by_value_make_no_difference() -> None:
    values = np.random.default_rng(1).lognormal(sigma=4, size=(1, 20_000))
    mean, sd = moments(values, 512)
    ordered = moments(np.sort(values), 512)
    assert (mean, sd) == pytest.approx(ordered, rel=1e-14)
    assert (mean, sd) == pytest.approx((values.mean(), values.std()), rel=1e-12)


@pytest.mark.parametrize("value", [0.1, -1e300, 5e-324, 0.0])
def test_a_constant_column_has_sd_zero_exactly(value: float) -> None:
    assert moments(np.full((1, 1_001), value), 100) == (value, 0.0)


def test_columns_and_extremes_are_separate() -> None:
    values = np.array([[1.0, 2.0, 6.0], [-1.0, -1.0, 2.0]])
    found = Moments(2)
    found.add(values[:, :2])
    found.add(values[:, 2:])
    mean, sd = found.finish()
    assert mean == pytest.approx([3.0, 0.0])
    assert sd == pytest.approx(values.std(axis=1))
    assert found.minimum.tolist() == [1.0, -1.0]
    assert found.maximum.tolist() == [6.0, 2.0]


def test_blocks_of_different_magnitude_combine() -> None:
    values = np.array([[1e-300, 2e-300, 3.0, 4.0, 1e200, 2e200]])
    mean, sd = moments(values, 2)
    assert mean == pytest.approx(5e199, rel=1e-12)
    assert sd == pytest.approx(root(exact(values)[1]), rel=1e-12)
