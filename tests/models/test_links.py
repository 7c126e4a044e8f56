"""Links with several predictors, or tails of their own, against a textbook with many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numba
import numpy as np
import pytest
from families import FAMILIES
from scipy import stats

from streammc import registry
from streammc.errors import ConfigError
from streammc.models import negative_binomial, poisson, probit, student_t
from streammc.models.check import check_model, evaluate
from streammc.models.glm import (
    bernoulli_probit,
    gaussian_identity,
    negative_binomial_log,
    student_t_identity,
)
from streammc.numerics.jit import LINK_SIGNATURE
from streammc.protocols import Matrix, Model, Vector

Points = tuple[Matrix, Vector]


def truth(log_lik: Callable[..., mpmath.mpf], y: float, eta: Vector) -> list[mpmath.mpf]:
    """Return value, derivatives and the upper triangle, by differences with all digits."""
    at = tuple(mpmath.mpf(float(value)) for value in eta)
    p = len(at)

    def function(*arguments: mpmath.mpf) -> mpmath.mpf:
        return log_lik(mpmath.mpf(y), *arguments)

    orders = [(0,) * p, *(tuple(int(k == a) for k in range(p)) for a in range(p))]
    for a in range(p):
        orders += [tuple(int(k == a) + int(k == b) for k in range(p)) for b in range(a, p)]
    single = p == 1
    return [
        function(*at)
        if not any(order)
        else mpmath.diff(function, at[0] if single else at, order[0] if single else order)
        for order in orders
    ]


def worst(
    model: Model, log_lik: Callable[..., mpmath.mpf], points: Points, digits: int = 80
) -> Vector:
    """Return the largest error of each output, relative to itself or, below 1, absolute."""
    eta, y = points
    out = evaluate(model, eta, y)
    errors = np.zeros(out.shape)
    with mpmath.workdps(digits):
        for i in range(len(y)):
            for k, exact in enumerate(truth(log_lik, float(y[i]), eta[:, i])):
                errors[k, i] = float(abs(out[k, i] - exact) / max(abs(exact), 1))
    return errors.max(axis=1)


def around(seed: int, n: int, *spreads: float) -> Matrix:
    return np.random.default_rng(seed).standard_normal((len(spreads), n)) * np.array([spreads]).T


def test_gaussian_link_has_every_digit() -> None:
    y = 5.0 * np.random.default_rng(0).standard_normal(30)
    points = around(1, 30, 5.0, 3.0), y
    model = registry.model("gaussian")()
    assert (worst(model, FAMILIES["gaussian"].log_lik, points) < 2e-15).all()


@pytest.mark.parametrize("df", [0.05, 1.0, 5.0, 1e8])
def test_student_t_link_with_fixed_degrees_has_every_digit(df: float) -> None:
    def log_lik(y: mpmath.mpf, eta: mpmath.mpf, log_sigma: mpmath.mpf) -> mpmath.mpf:
        return FAMILIES["student-t"].log_lik(y, eta, log_sigma, mpmath.log(mpmath.mpf(df)))

    y = 5.0 * np.random.default_rng(2).standard_normal(20)
    assert (worst(student_t(df=df), log_lik, (around(3, 20, 5.0, 2.0), y)) < 4e-15).all()


@pytest.mark.parametrize(("centre", "spread"), [(1.0, 3.0), (-3.0, 0.5), (12.0, 6.0)])
def test_student_t_link_with_sampled_degrees_has_every_digit(centre: float, spread: float) -> None:
    eta = around(4, 20, 5.0, 2.0, spread)
    eta[2] += centre
    y = 5.0 * np.random.default_rng(5).standard_normal(20)
    assert (worst(student_t(), FAMILIES["student-t"].log_lik, (eta, y)) < 4e-15).all()


def test_slope_in_the_degrees_of_freedom_keeps_its_digits_near_the_normal() -> None:
    rng = np.random.default_rng(6)
    eta = np.array(
        [
            rng.normal(size=20),
            0.1 * rng.normal(size=20),
            np.log(10) * rng.uniform(4, 8) + np.zeros(20),
        ]
    )
    y = 2.0 * rng.standard_normal(20)
    out = evaluate(student_t(), eta, y)
    with mpmath.workdps(80):
        for i in range(20):
            exact = truth(FAMILIES["student-t"].log_lik, y[i], eta[:, i])
            assert abs(exact[3]) < 1e-2
            for k in (3, 6, 8, 9):
                # Relative: what is left after terms of order one have cancelled.
                assert abs(out[k, i] / exact[k] - 1) < 1e-12, (k, i)


@pytest.mark.parametrize(
    ("log_mu", "log_phi", "limit"), [(1.0, 0.5, 1e-14), (6.5, 0.0, 2e-12), (2.0, 18.4, 2e-14)]
)
def test_negative_binomial_link_has_every_digit(
    log_mu: float, log_phi: float, limit: float
) -> None:
    rng = np.random.default_rng(7)
    eta = np.array([[log_mu], [log_phi]]) + around(8, 25, 1.5, 1.5)
    y = rng.poisson(np.exp(eta[0]) * rng.gamma(2.0, 0.5, 25)).astype(float)
    log_lik = FAMILIES["negative-binomial"].log_lik
    assert (worst(negative_binomial(), log_lik, (eta, y)) < limit).all()


def test_negative_binomial_slope_in_log_phi_keeps_its_digits_near_poisson() -> None:
    eta = np.array([[1.0, 2.0, 0.0, 3.0], np.log([1e8, 1e6, 1e7, 1e8])])
    y = np.array([0.0, 3.0, 1.0, 40.0])
    out = evaluate(negative_binomial(), eta, y)
    with mpmath.workdps(80):
        for i in range(4):
            exact = truth(FAMILIES["negative-binomial"].log_lik, y[i], eta[:, i])
            assert abs(exact[2]) < 1e-4
            assert abs(out[2, i] / exact[2] - 1) < 1e-13
            assert abs(out[5, i] / exact[5] - 1) < 1e-12


def test_negative_binomial_with_a_huge_phi_is_poisson() -> None:
    eta = np.linspace(-5.0, 5.0, 50)
    y = np.arange(50.0)
    ours = evaluate(negative_binomial(), np.array([eta, np.full(50, 600.0)]), y)
    theirs = evaluate(poisson(), eta[None, :], y)
    np.testing.assert_allclose(ours[[0, 1, 3]], theirs, rtol=1e-13)
    np.testing.assert_array_equal(0.0, np.abs(ours[[2, 4, 5]]) > 1e-200)


@pytest.mark.slow
def test_probit_link_has_every_digit_in_both_tails() -> None:
    eta = np.concatenate([np.linspace(-37.0, 37.0, 21), [1e-9, -1e-9]])[None, :]
    for y in (0.0, 1.0):
        points = eta, np.full(eta.shape[1], y)
        errors = worst(probit(), FAMILIES["probit"].log_lik, points, digits=350)
        assert (errors < 2e-15).all()


@pytest.mark.parametrize("size", [100.0, 345.0, 700.0])
@pytest.mark.parametrize("name", ["gaussian", "student-t", "negative-binomial"])
def test_extreme_predictors_give_the_truth_or_its_overflow(name: str, size: float) -> None:
    model = registry.model(name)()
    p = model.n_scalar + 1
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * p)).reshape(p, -1)
    eta = size * signs
    largest = np.finfo(float).max
    with mpmath.workdps(400):
        for y in (0.0, 3.0):
            out = evaluate(model, eta, np.full(eta.shape[1], y))
            assert not np.isnan(out).any()
            for i in range(eta.shape[1]):
                at = [mpmath.mpf(float(value)) for value in eta[:, i]]
                exact = FAMILIES[name].log_lik(mpmath.mpf(y), *at)
                if abs(exact) > largest:
                    assert out[0, i] == -np.inf
                else:
                    assert abs(out[0, i] - exact) <= 1e-13 * max(1, abs(exact)), (y, eta[:, i])


def test_student_t_far_out_is_a_power_of_the_residual() -> None:
    y = np.array([1e120, -1e150, 1e250])
    eta = np.array([[0.0] * 3, [-300.0, 5.0, 0.0]])
    out = evaluate(student_t(df=3.0), eta, y)
    exact = stats.t.logpdf(0.0, 3.0) - 2.0 * np.log1p(1.0 / 3.0)  # at a residual of sigma
    near = evaluate(student_t(df=3.0), np.zeros((2, 1)), np.ones(1))
    np.testing.assert_allclose(exact, near[0, 0], rtol=1e-15)
    log_t = 2.0 * (np.log(np.abs(y)) - eta[1]) - np.log(3.0)
    np.testing.assert_allclose(stats.t.logpdf(0.0, 3.0) - eta[1] - 2.0 * log_t, out[0], rtol=1e-14)
    np.testing.assert_allclose(4.0 / y, out[1], rtol=1e-15)
    np.testing.assert_allclose([3.0] * 3, out[2], rtol=1e-15)


def test_values_are_those_of_scipy() -> None:
    rng = np.random.default_rng(9)
    eta = around(10, 200, 1.0, 1.0, 1.0)
    y = rng.normal(size=200)
    counts = rng.poisson(3.0, 200).astype(float)
    sigma, nu = np.exp(eta[1]), np.exp(eta[2])
    expected = {
        "gaussian": (eta[:2], y, stats.norm.logpdf(y, eta[0], sigma)),
        "student-t": (eta, y, stats.t.logpdf(y, nu, eta[0], sigma)),
        "negative-binomial": (
            eta[:2],
            counts,
            stats.nbinom.logpmf(counts, sigma, sigma / (sigma + np.exp(eta[0]))),
        ),
        "probit": (eta[:1], np.ones(200), stats.norm.logcdf(eta[0])),
        "binomial": (eta[:1], np.ones(200), stats.logistic.logcdf(eta[0])),
    }
    for name, (predictors, response, value) in expected.items():
        out = evaluate(registry.model(name)(), predictors, response)
        np.testing.assert_allclose(value, out[0], rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("df", [0.5, 4.0, 200.0])
def test_student_t_with_fixed_degrees_agrees_with_itself(df: float) -> None:
    report = check_model(student_t(df=df), seed=3)
    assert report.passed, str(report)


def test_fixed_and_sampled_degrees_agree() -> None:
    eta = around(11, 50, 2.0, 1.0)
    y = np.linspace(-9.0, 9.0, 50)
    fixed = evaluate(student_t(df=4.0), eta, y)
    sampled = evaluate(student_t(), np.vstack([eta, np.full(50, np.log(4.0))]), y)
    np.testing.assert_allclose(fixed, sampled[[0, 1, 2, 4, 5, 7]], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("df", [0.0, -1.0, np.nan, np.inf, True, "5"])
def test_invalid_degrees_of_freedom_are_refused(df: object) -> None:
    with pytest.raises(ConfigError, match=r"df must be a finite number above 0, found .*: leave"):
        student_t(df=df)  # type: ignore[arg-type]


def test_degrees_of_freedom_are_part_of_the_description() -> None:
    assert student_t(df=5).describe()["df"] == 5.0
    assert student_t().describe()["df"] is None
    assert student_t(df=5).labels(["a"]) == ("beta[a]", "sigma")


@pytest.mark.parametrize(
    "link",
    [
        gaussian_identity.link,
        student_t_identity.link_fixed,
        student_t_identity.link_sampled,
        negative_binomial_log.link,
        bernoulli_probit.link,
    ],
    ids=["gaussian", "student-t fixed", "student-t sampled", "negative-binomial", "probit"],
)
def test_loops_are_vectorised(link: Any) -> None:
    """A leaf that is not inlined, or a branch, costs threefold."""
    fresh = numba.njit(LINK_SIGNATURE, error_model="numpy")(link.py_func)  # the cached has no text
    (assembly,) = fresh.inspect_asm().values()
    packed = [line for line in assembly.splitlines() if "mulpd" in line or ".2d" in line]
    assert len(packed) >= 3 * 6  # three loops, each with an exponential
