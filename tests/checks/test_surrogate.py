"""Surrogates against closed forms and quadrature of the second-order expansion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from streammc import models
from streammc.checks import leave_one_out as module
from streammc.checks.leave_one_out import Surrogate
from streammc.errors import DataError
from streammc.protocols import RowBlock, Rows

N = 50


def rows_of(y, weight=None):
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(N), rng.normal(size=N)]
    return Rows(X, y, np.linspace(-0.2, 0.2, N), np.ones(N) if weight is None else weight)


def covariance_of(d, size):
    root = np.random.default_rng(8).normal(size=(d, d))
    return size * (root @ root.T / d + np.eye(d))


def expanded(model, mean, covariance, rows, whole_rows):
    """Return elpd and lpd of the expansion by quadrature over the predictors, row by row."""
    p, q = model.n_linear + model.n_scalar, rows.X.shape[1]
    z, w = np.polynomial.hermite_e.hermegauss(61)
    grid = np.stack(np.meshgrid(*[z] * p, indexing="ij")).reshape(p, -1)
    share = np.prod(np.stack(np.meshgrid(*[w] * p, indexing="ij")).reshape(p, -1), axis=0)
    share = share / share.sum()
    eta = np.vstack([rows.X @ mean[:q] + rows.offset, *np.tile(mean[q:, None], N)])
    out = np.empty((1 + p + p * (p + 1) // 2, N))
    model.link(np.ascontiguousarray(eta), rows.X.T.copy(), rows.y, model.constants, 2, out)
    found = np.empty((N, 2))
    for i in range(N):
        J = np.zeros((p, len(mean)))
        J[0, :q] = rows.X[i]
        J[1:, q:] = np.eye(p - 1)
        s = np.linalg.cholesky(J @ covariance @ J.T) @ grid
        H = np.zeros((p, p))
        H[np.triu_indices(p)] = out[1 + p :, i]
        H = H + np.triu(H, 1).T
        value = out[1 : 1 + p, i] @ s + 0.5 * np.einsum("ag,ab,bg->g", s, H, s)
        value, count = out[0, i] + value, rows.weight[i]
        if whole_rows:
            value, count = count * value, 1.0
        left_out = share @ np.exp((1.0 - min(count, 1.0)) * value)
        left_out /= share @ np.exp(-min(count, 1.0) * value)
        found[i] = count * math.log(left_out), count * math.log(share @ np.exp(value))
    return found


def test_a_gaussian_response_of_known_scale_has_its_closed_form():
    rng = np.random.default_rng(1)
    sigma = 0.6
    rows = rows_of(rng.normal(size=N))
    inverse = np.linalg.inv(rows.X.T @ rows.X) * sigma**2
    beta = inverse @ rows.X.T @ (rows.y - rows.offset) / sigma**2
    covariance = np.zeros((3, 3))
    covariance[:2, :2] = inverse
    mean = np.array([*beta, math.log(sigma)])
    found = Surrogate(models.gaussian(), mean, covariance, "store").of_rows(rows, np.arange(N))
    leverage = np.einsum("ij,jk,ik->i", rows.X, inverse, rows.X) / sigma**2
    residual = rows.y - rows.offset - rows.X @ beta
    left_out = stats.norm.logpdf(residual / (1 - leverage), scale=sigma / np.sqrt(1 - leverage))
    inside = stats.norm.logpdf(residual, scale=sigma * np.sqrt(1 + leverage))
    np.testing.assert_allclose(found, np.c_[left_out, inside, inside - left_out], atol=1e-10)


@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize(
    ("model", "scalars"),
    [(models.poisson(), []), (models.logistic(), []), (models.negative_binomial(), [0.8])],
)
def test_surrogates_are_expectations_of_the_expansion(model, scalars, whole_rows):
    rng = np.random.default_rng(2)
    weight = 0.5 + 3.0 * rng.random(N)
    rows = rows_of(rng.integers(0, 2, N).astype(float), weight)
    mean = np.array([0.2, -0.3, *scalars])
    covariance = covariance_of(len(mean), 0.01)
    task = Surrogate(model, mean, covariance, "store", whole_rows=whole_rows)
    found = task.of_rows(rows, np.arange(N))
    expected = expanded(model, mean, covariance, rows, whole_rows)
    np.testing.assert_allclose(found[:, :2], expected, rtol=1e-8)
    wrong = task.of_rows(rows._replace(X=np.roll(rows.X, 1, axis=0)), np.arange(N))
    assert np.abs(wrong[:, :2] - expected).max() > 1e-3


def test_one_predictor_and_several_agree(monkeypatch):
    rows = rows_of(np.random.default_rng(2).integers(0, 4, N).astype(float))
    task = Surrogate(models.poisson(), np.array([0.2, 0.1]), covariance_of(2, 0.02), "store")
    short = task.of_rows(rows, np.arange(N))
    out = np.empty((3, N))
    eta = (rows.X @ task.mean + rows.offset)[None]
    task.model.link(eta, rows.X.T.copy(), rows.y, task.model.constants, 2, out)
    V = task._variances(rows.X, 1)
    b, values = module._root(V)[:, 0] * out[1][:, None], V[:, 0] * out[2][:, None]
    elpd = -module._log_mean(-np.ones(N), out[0], b, values)
    np.testing.assert_allclose(short[:, 0], elpd, rtol=1e-12)


def test_sums_are_those_of_the_rows_whatever_the_blocks():
    rows = rows_of(np.random.default_rng(2).integers(0, 4, N).astype(float), np.arange(N) % 2 + 0.0)
    mean, covariance = np.array([0.2, 0.1]), covariance_of(2, 0.02)
    task = Surrogate(models.poisson(), mean, covariance, "store", largest=7)
    values = task.of_rows(rows, np.arange(N))
    assert (values[::2] == 0.0).all()
    left, right = (
        task.map(RowBlock(0, low, *(part[low:high] for part in rows)))
        for low, high in ((0, 20), (20, N))
    )
    found = task.combine(left, right)
    np.testing.assert_allclose(found.total, values.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.square, (values**2).sum(axis=0), rtol=1e-12)
    assert found.observations == N // 2
    assert [N // 2, 0, 0] == found.weights.tolist()
    assert found.place.tolist() == np.argsort(-np.abs(values[:, 2]), kind="stable")[:7].tolist()


def test_a_log_likelihood_that_is_not_finite_is_named_by_its_row():
    y = np.zeros(N)
    y[12] = math.nan
    task = Surrogate(models.poisson(), np.array([0.2, 0.1]), covariance_of(2, 0.02), "store 'a'")
    with pytest.raises(DataError, match=r"store 'a', found none in row 85: check"):
        task.of_rows(rows_of(y), np.arange(0, 7 * N, 7))


def test_a_wide_table_has_the_log_likelihood_at_the_mean(monkeypatch):
    monkeypatch.setattr(module, "_MOST_FEATURES", 1)
    rows = rows_of(np.random.default_rng(2).integers(0, 4, N).astype(float))
    mean = np.array([0.2, 0.1])
    found = Surrogate(models.poisson(), mean, covariance_of(2, 0.02), "store").of_rows(
        rows, np.arange(N)
    )
    expected = stats.poisson.logpmf(rows.y, np.exp(rows.X @ mean + rows.offset))
    np.testing.assert_allclose(found, np.c_[expected, expected, 0 * expected], rtol=1e-10)
