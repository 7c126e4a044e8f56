"""The tiled Cholesky factor and inverse against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.numerics.cholesky import factor, invert, solve, tile_shape
from streammc.numerics.process_limits import single_threaded


@pytest.fixture(autouse=True)
def one_thread():
    # Threads of the BLAS wait for each other where other work is on the machine.
    with single_threaded():
        yield


SIZES = [1, 5, 63, 64, 65, 130, 200]


def as_tiles(matrix):
    """Cut (n, n) into tiles, with the rows of the identity past n."""
    n = len(matrix)
    t, b = tile_shape(n)
    whole = np.eye(t * b)
    whole[:n, :n] = matrix
    return np.ascontiguousarray(whole.reshape(t, b, t, b).transpose(0, 2, 1, 3))


def from_tiles(tiles, n):
    t, _, b, _ = tiles.shape
    return np.tril(tiles.transpose(0, 2, 1, 3).reshape(t * b, t * b)[:n, :n])


def covariance(n, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n + 3))
    return A @ A.T / n + 0.1 * np.eye(n)


@pytest.mark.parametrize("n", SIZES)
def test_factor_solution_and_inverse_are_those_of_numpy(n):
    C = covariance(n)
    x = np.random.default_rng(1).normal(size=n)
    L = np.linalg.cholesky(C)
    a, w = as_tiles(C), np.full_like(as_tiles(C), np.nan)
    half = factor(a, w)
    assert half == pytest.approx(np.log(np.diag(L)).sum(), abs=1e-11)
    np.testing.assert_allclose(L, from_tiles(a, n), atol=1e-11)
    z = np.zeros(a.shape[0] * a.shape[2])
    z[:n] = x
    solve(a, w, z)
    np.testing.assert_allclose(np.linalg.solve(L, x), z[:n], atol=1e-9)
    invert(a, w, z)
    np.testing.assert_allclose(np.linalg.solve(C, x), z[:n], atol=1e-8)
    np.testing.assert_allclose(np.tril(np.linalg.inv(C)), from_tiles(a, n), atol=1e-8)
    assert (z[n:] == 0.0).all()


@pytest.mark.parametrize("at", [0, 70, 129])
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf])
def test_factor_of_an_indefinite_matrix_is_nan_without_an_exception(at, value):
    C = covariance(130)
    C[at, at] = value
    a = as_tiles(C)
    assert np.isnan(factor(a, np.zeros_like(a)))


@pytest.mark.parametrize("n", SIZES)
def test_tiles_on_the_diagonal_are_zero_above_it(n):
    tiles, inverses = as_tiles(covariance(n)), np.full(as_tiles(covariance(n)).shape, np.nan)
    factor(tiles, inverses)
    for k in range(len(tiles)):
        assert not np.triu(tiles[k, k], 1).any()
