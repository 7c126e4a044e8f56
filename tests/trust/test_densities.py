"""Check 10: densities and derivatives of every family at points that Hypothesis chooses."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from checks_of_trust import rounds
from families import FAMILIES, Family, built
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from streammc.models.check import evaluate

VALUE, SLOPE = 1e-13, 1e-10
"""Errors that are allowed, relative to the largest term."""
Record = Callable[[str, object], None]


def expected(family: Family, y: float, eta: list[float]) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """Return value, gradient and upper Hessian with 50 digits, and the size of the terms."""
    at = [mpmath.mpf(x) for x in eta]

    def log_lik(*point: mpmath.mpf) -> mpmath.mpf:
        return family.log_lik(mpmath.mpf(y), *point)

    p = len(at)
    found = [log_lik(*at)]
    orders = [[int(i == j) for j in range(p)] for i in range(p)]
    found += [mpmath.diff(log_lik, at, tuple(order)) for order in orders]
    for i, j in itertools.combinations_with_replacement(range(p), 2):
        both = tuple(a + b for a, b in zip(orders[i], orders[j], strict=True))
        found.append(mpmath.diff(log_lik, at, both))
    terms = [abs(mpmath.mpf(y) * x) for x in at] + [mpmath.loggamma(abs(y) + 1)]
    return found, 1 + max(abs(each) for each in (*found, *terms))


def errors(name: str, y: float, eta: list[float], factor: float = 1.0) -> tuple[float, float]:
    """Return the largest error of the value, and of a derivative, relative to the terms.

    ``factor`` multiplies what the model says of its derivatives.
    """
    with mpmath.workdps(50):
        truth, size = expected(FAMILIES[name], y, eta)
        p = len(eta)
        out = evaluate(built(name), np.array(eta)[:, None], np.array([y]))[:, 0]
        if size > sys.float_info.max:  # no float64 is as small
            assert out[0] == -np.inf
            return 0.0, 0.0
        found = [*out[: 1 + p]]
        hessian = out[1 + p :]
        assert len(hessian) == p * (p + 1) // 2
        found += list(hessian)
        wrong = [
            abs(mpmath.mpf(float(a)) * (factor if i else 1) - b) / size
            for i, (a, b) in enumerate(zip(found, truth, strict=True))
        ]
    return float(wrong[0]), float(max(wrong[1:]))


@pytest.mark.trust(10)
@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"network", "beta-binomial"}))
def test_value_and_derivatives_have_the_digits_of_50(name: str, record_property: Record) -> None:
    p = built(name).n_linear + built(name).n_scalar
    responses = [y for y in FAMILIES[name].responses if abs(y) <= 1e4]
    reach = FAMILIES[name].reach
    predictors = st.lists(st.floats(-reach, reach), min_size=p, max_size=p)
    examples, worst = rounds(25, 500), [0.0, 0.0]

    @seed(1)
    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.sampled_from(responses), predictors)
    def look(y: float, eta: list[float]) -> None:
        value, slope = errors(name, y, eta)
        worst[:] = max(worst[0], value), max(worst[1], slope)
        assert value < VALUE
        assert slope < SLOPE

    look()
    record_property("figure", f"{name}: {worst[0]:.0e} and {worst[1]:.0e} at {examples} points")


@pytest.mark.trust(10)
def test_a_derivative_that_is_wrong_in_the_ninth_digit_is_caught(record_property: Record) -> None:
    assert errors("logistic", 1.0, [0.3])[1] < SLOPE < errors("logistic", 1.0, [0.3], 1 + 1e-8)[1]
    record_property("caught", "derivatives that are 1e-8 too large")
