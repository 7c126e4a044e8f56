"""Errors of the normal approximation against closed forms and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import norm

from streammc.samplers.metropolis import clt
from streammc.samplers.metropolis.acceptance import COUNT, N_CARRIED, N_FACTS, N_TERMS, add_terms

X = np.random.default_rng(3).gamma(0.7, size=400)


def _facts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    facts, kept = np.zeros(N_FACTS), np.zeros(N_TERMS)
    for piece in np.array_split(x, 3):
        add_terms(np.ascontiguousarray(piece), piece.size, 1.0, facts, kept)
    return facts, kept


def test_moments_are_those_of_the_terms() -> None:
    facts, kept = _facts(X)
    z = (X - X.mean()) / X.std()
    np.testing.assert_allclose(clt.variance_of_mean(facts), X.var(ddof=1) / X.size, rtol=1e-12)
    np.testing.assert_allclose(clt.skewness(facts), (z**3).mean(), rtol=1e-10)
    np.testing.assert_allclose(clt.kurtosis(facts, kept), (z**4).mean() - 3.0, rtol=1e-10)
    expected = (6.4 * (np.abs(z) ** 3).mean() + 2.0 * np.abs(z).mean()) / np.sqrt(X.size)
    np.testing.assert_allclose(clt.corollary_1(facts, kept), expected, rtol=1e-12)


def test_bound_of_standardised_terms_does_not_depend_on_their_scale() -> None:
    one, other = (clt.corollary_1(*_facts(scale * X)) for scale in (1.0, 1e-3))
    np.testing.assert_allclose(one, other, rtol=1e-9)
    # The moments in Algorithm 1 taken literally, of terms that are not standardised.
    z = 1e-3 * (X - X.mean())
    assert (6.4 * (np.abs(z) ** 3).mean() + 2.0 * np.abs(z).mean()) / np.sqrt(X.size) < 0.01 * one


def test_no_terms_have_a_smaller_bound_than_two_values() -> None:
    facts, kept = _facts(np.tile([-1.0, 1.0], 50))
    np.testing.assert_allclose(clt.corollary_1(facts, kept), 8.4 / 10.0, rtol=1e-12)
    assert clt.corollary_1(*_facts(X)) > 8.4 / np.sqrt(X.size)


def test_constants_are_the_maxima_they_stand_for() -> None:
    y = np.linspace(-6.0, 6.0, 200_001)
    np.testing.assert_allclose(
        clt.STUDENTISED, ((2.0 * y * y + 1.0) * norm.pdf(y) / 6.0).max(), rtol=1e-7
    )
    assert f"{clt.STUDENTISED:.3f}" == "0.126"
    p = expit(y)
    second = p * (1 - p) * (1 - 2 * p)
    third = p * (1 - p) * (1 - 6 * p + 6 * p * p)
    fourth = np.gradient(third, y)
    np.testing.assert_allclose(np.abs(third).max() / 3.0, clt._THIRD, rtol=1e-7)
    np.testing.assert_allclose(np.abs(second).max(), clt._SECOND_DERIVATIVE, rtol=1e-7)
    assert 0.7 * clt._SECOND < np.abs(fourth).max() / 24.0 < clt._SECOND


def test_edgeworth_at_full_variance_is_the_published_form() -> None:
    facts, _ = _facts(X)
    skew = ((X - X.mean()) ** 3).mean() / X.std() ** 3
    np.testing.assert_allclose(
        clt.edgeworth(facts, 1.0, 1.0), clt.STUDENTISED * skew / np.sqrt(X.size), rtol=1e-9
    )
    np.testing.assert_allclose(
        clt.edgeworth(facts, 0.25, 1.0), clt.edgeworth(facts, 1.0, 1.0) / 8.0, rtol=1e-12
    )


def test_first_term_is_that_of_noise_made_up_with_an_estimated_variance() -> None:
    """``W = mean + N(0, 1 - s^2)``: ``2 y^2 - 2``, and neither ``1 - y^2`` nor ``2 y^2 + 1``."""
    n, v, size = 60, 0.9, 400_000
    rng = np.random.default_rng(8)
    mean, square = np.empty(size), np.empty(size)
    for k in range(0, size, 20_000):
        x = (rng.exponential(size=(20_000, n)) - 1.0) * (v * np.sqrt(n))
        mean[k : k + 20_000] = x.mean(axis=1)
        square[k : k + 20_000] = x.var(axis=1, ddof=1) / n
    room = 4.0 - square  # sigma = 2: the variance left over is never negative
    found, sigma = [], 2.0
    points = np.array([-4.0, -2.0, 0.0, 2.0, 4.0])
    for at in points:
        found.append(ndtr((at - mean[room > 0]) / np.sqrt(room[room > 0])).mean())
    y = points / sigma
    scale = 2.0 * (v / sigma) ** 3 / (6.0 * np.sqrt(n)) * norm.pdf(y)
    departure = np.array(found) - ndtr(y)
    ours = np.abs(departure - scale * (2.0 * y * y - 2.0)).max()
    assert (room > 0).mean() > 0.9999
    assert ours < 6e-4
    for wrong in (1.0 - y * y, 2.0 * y * y + 1.0):
        assert np.abs(departure - scale * wrong).max() > 3.0 * ours


@pytest.mark.parametrize("first", [300.0, 700.0])
def test_stopping_moves_the_mean_as_estimated(first: float) -> None:
    """Stop at the first check with ``s^2 < 1``: one check near the crossing, then the next."""
    step, checks, size, scale = 100, 5, 40_000, np.sqrt(230.0)
    rng = np.random.default_rng(4)
    moved, estimated, claimed = [], [], []
    for _ in range(size // 10_000):
        x = (rng.exponential(size=(10_000, step * checks)) - 1.0) * scale * np.sqrt(first / 700.0)
        alive = np.ones(10_000, dtype=bool)
        for k in range(1, checks + 1):
            part = x[:, : k * step]
            stops = alive & (part.var(axis=1, ddof=1) / (k * step) < 1.0)
            moved.append(part[stops].mean(axis=1))
            for i in np.flatnonzero(stops)[::10]:
                facts, kept = _facts(part[i])
                variance = clt.variance_of_mean(facts)
                estimated.append(clt.moved_by_stopping(facts, kept, variance, 1.0, step))
                claimed.append(clt.stopping(facts, kept, variance, 1.0, step))
            alive &= ~stops
    all_moved = np.concatenate(moved)
    shift, noise = all_moved.mean(), all_moved.std() / np.sqrt(all_moved.size)
    assert shift < -10.0 * noise
    assert 0.25 * abs(shift) < np.mean(claimed)
    assert abs(shift - np.mean(estimated)) < 0.5 * abs(shift)


def test_a_dominating_term_leaves_no_estimate_unless_the_variance_is_small() -> None:
    x = np.append(np.zeros(99), 1.0)
    facts, kept = _facts(x)
    assert np.isnan(clt.unless_dominated(facts, kept, 0.5, 0.01))
    np.testing.assert_allclose(
        clt.unless_dominated(facts, kept, 0.05, 1e-9), 0.05 / (6.0 * np.sqrt(3.0)), rtol=1e-12
    )
    assert 0.01 == clt.unless_dominated(*_facts(X), 0.5, 0.01)


def test_error_is_unknown_after_many_decisions_of_unknown_error() -> None:
    carried = np.zeros(N_CARRIED)
    for _ in range(40):
        assert clt.unless_often_unknown(carried, 0.01) == 0.01
    for _ in range(6):
        assert np.isnan(clt.unless_often_unknown(carried, np.nan))
    assert np.isnan(clt.unless_often_unknown(carried, 0.01))
    for _ in range(100):
        last = clt.unless_often_unknown(carried, 0.01)
    assert last == 0.01


def test_twenty_decisions_are_enough_to_know_that_errors_are_unknown() -> None:
    carried = np.zeros(N_CARRIED)
    assert all(np.isnan(clt.unless_often_unknown(carried, np.nan)) for _ in range(4))
    assert all(clt.unless_often_unknown(carried, 0.01) == 0.01 for _ in range(15))
    assert np.isnan(clt.unless_often_unknown(carried, 0.01))


def test_equal_terms_are_no_division_by_zero() -> None:
    facts, kept = _facts(np.ones(12))
    assert 12 == facts[COUNT]
    assert (0.0, 0.0) == (clt.skewness(facts), clt.kurtosis(facts, kept))
    assert 0.0 == clt.edgeworth(facts, 0.0, 1.0) == clt.stopping(facts, kept, 0.0, 1.0, 10.0)
    assert 0.0 == clt.moved_by_stopping(facts, kept, 0.0, 1.0, 10.0)
    np.testing.assert_allclose(clt.corollary_1(facts, kept), 8.4 / np.sqrt(12.0))


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.21, 0.3, 1.0])
@pytest.mark.parametrize("step", [5.0, 20.0, 60.0])
def test_the_terms_of_stopping_are_those_of_their_formulas(sigma: float, step: float) -> None:
    facts, terms = _facts(X[:60] ** 1.5)
    n, variance = 60.0, clt.variance_of_mean(facts)
    heavy, pull = clt.kurtosis(facts, terms) + 2.0, clt.coupling(facts, terms)
    near = (sigma**2 / variance - 1.0) / np.sqrt(heavy / n)
    if n > step:  # the check before this one
        before = abs((n - step) / n * sigma**2 / variance - 1.0) / np.sqrt(heavy / n)
        near = min(near, before)
    weight = np.exp(-0.5 * max(0.0, near - 1.0) ** 2)
    moved = max(0.4 * step, np.sqrt(heavy / n) * n) / (n + step)
    expected = 0.4 * abs(pull) * np.sqrt(variance) * moved * weight
    assert expected == pytest.approx(clt.stopping(facts, terms, variance, sigma, step), rel=1e-12)
    crossing = n * variance / sigma**2
    checks = [
        check
        for check in range(1, 10_000)
        if abs(check * step - crossing) <= np.sqrt(heavy / crossing) * crossing
    ]
    shares = [0.5 * np.sqrt(n * variance / (check * step)) / (check + 1.0) for check in checks]
    found = clt.moved_by_stopping(facts, terms, variance, sigma, step)
    assert -pull * sum(shares) == pytest.approx(found, rel=1e-12)
