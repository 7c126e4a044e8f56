"""The correction variable: published errors, the authors' table, and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, ndtr

from streammc.errors import ConfigError
from streammc.numerics.jit import jit
from streammc.samplers.metropolis.correction import (
    OPTIMAL,
    PAPER,
    SOLVED,
    Cells,
    correction,
    distribution,
    draw_correction,
    linear_programme,
    ridge,
    table_of,
    worst,
)

SIGMAS = (0.8, 0.9, 1.0, 1.1)
PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01)
TABLE_3 = {
    2000: (
        ("2.6e-03", "3.3e-03", "4.4e-03", "6.8e-03"),
        ("4.0e-04", "6.4e-04", "1.3e-03", "4.6e-03"),
        ("6.7e-05", "1.6e-04", "1.1e-03", "7.5e-03"),
        ("1.4e-05", "1.3e-04", "2.0e-03", "1.3e-02"),
        ("5.0e-06", "2.7e-04", "3.6e-03", "2.4e-02"),
    ),
    4000: (
        ("8.3e-04", "1.2e-03", "1.9e-03", "4.3e-03"),
        ("1.3e-04", "2.6e-04", "8.9e-04", "6.0e-03"),
        ("2.5e-05", "1.0e-04", "1.6e-03", "1.0e-02"),
        ("6.7e-06", "2.0e-04", "2.8e-03", "1.2e-02"),
        ("7.4e-06", "3.9e-04", "5.2e-03", "3.5e-02"),
    ),
}
NOT_REPRODUCED = {
    (4000, 10.0, 1.1): "6.2e-03",
    (4000, 0.1, 1.1): "1.9e-02",
    (4000, 0.01, 0.8): "7.3e-06",
    (4000, 0.01, 1.1): "3.6e-02",
}
"""What a dense Cholesky factorisation gives too: 6.171e-3, 1.900e-2, 7.272e-6, 3.579e-2."""
CASES = [
    pytest.param(
        n, penalty, i, k, marks=[] if n == 2000 else [pytest.mark.slow],
        id=f"{n}-{penalty:g}-{sigma}",
    )
    for n in TABLE_3
    for i, penalty in enumerate(PENALTIES)
    for k, sigma in enumerate(SIGMAS)
    if k == i % 4 or (n, penalty, sigma) in NOT_REPRODUCED
]  # fmt: skip
"""Every size, penalty and sigma, and the values that are not reproduced."""


@pytest.mark.parametrize(("n", "penalty", "i", "k"), CASES)
def test_errors_of_the_published_table(n: int, penalty: float, i: int, k: int) -> None:
    published = TABLE_3[n][i][k]
    _, error = ridge(SIGMAS[k], n=n, penalty=penalty)
    assert NOT_REPRODUCED.get((n, penalty, SIGMAS[k]), published) == f"{error:.1e}"


def test_four_values_of_the_table_differ_from_the_published() -> None:
    differ = {
        (n, PENALTIES[i], SIGMAS[k])
        for n, i, k in [(4000, 1, 3), (4000, 3, 3), (4000, 4, 0), (4000, 4, 3)]
        if TABLE_3[n][i][k] != NOT_REPRODUCED[n, PENALTIES[i], SIGMAS[k]]
    }
    assert set(NOT_REPRODUCED) == differ


@pytest.mark.parametrize(("sigma", "penalty"), [(0.8, 0.01), (1.0, 10.0), (1.1, 1.0)])
def test_iterations_end_at_the_solution_of_the_normal_equations(
    sigma: float, penalty: float
) -> None:
    n, reach = 150, 20.0
    step = reach / n
    x, y = np.arange(-2 * n, 2 * n + 1) * step, np.arange(-n, n + 1) * step
    M = ndtr((x[:, None] - y) / sigma)
    u = np.linalg.solve(M.T @ M + penalty * np.eye(y.size), M.T @ expit(x))
    cells, error = ridge(sigma, n=n, penalty=penalty)
    np.testing.assert_allclose(cells.masses, np.maximum(u, 0.0), atol=2e-8 * u.max())
    expected = np.abs(M @ np.maximum(u, 0.0) - expit(x)).max()
    np.testing.assert_allclose(error, expected, rtol=1e-4)
    wrong, _ = ridge(sigma, n=n, penalty=2.0 * penalty)
    assert np.abs(wrong.masses - np.maximum(u, 0.0)).max() > 1e-5 * u.max()


@pytest.mark.slow
def test_masses_are_those_of_the_authors_table(data_folder) -> None:
    path = data_folder / "seita2017" / "xcorr_norm2log4000_20_1.0.npz"
    if not path.is_file():
        pytest.skip("the authors' table is not here")
    with np.load(path) as published:
        x, pmf = published["x"], published["pmf"]
    cells, error = ridge(1.0)
    np.testing.assert_allclose(x, cells.centres, atol=1e-9)
    assert np.abs(cells.masses - pmf).max() < 1e-6 * pmf.max()
    theirs = np.abs(distribution(cells.centres, Cells(x, pmf, 0.005), 1.0) - expit(x)).max()
    assert f"{error:.2e}" == f"{theirs:.2e}" == "8.86e-04"
    renormalised = Cells(x, pmf / pmf.sum(), 0.005)
    assert "5.58e-04" == f"{worst(renormalised, 1.0):.2e}"


@pytest.mark.parametrize("sigma", sorted(SOLVED))
def test_stored_correction_is_as_good_as_the_linear_programme(sigma: float) -> None:
    kept, found = correction(sigma).error, worst(linear_programme(sigma), sigma)
    np.testing.assert_allclose(kept, found, rtol=0.05)
    assert kept < {1.0: 6e-8, 1.2: 1.7e-5, 1.4: 5e-4}[sigma]


@pytest.mark.parametrize("sigma", [0.8, 1.3])
def test_optimal_correction_is_closer_than_the_ridge(sigma: float) -> None:
    assert correction(sigma, OPTIMAL).error < 0.02 * correction(sigma, PAPER).error
    assert correction(sigma, PAPER).error < 0.03


def test_a_wrong_sigma_is_far_off() -> None:
    index, mass = np.array(SOLVED[1.0]).T
    cells = Cells(np.r_[-0.1 * index[:0:-1], 0.1 * index],
                  np.r_[0.5 * mass[:0:-1], mass[:1], 0.5 * mass[1:]], 0.1)  # fmt: skip
    assert worst(cells, 1.0) < 6e-8
    assert worst(cells, 1.1) > 5e-3
    assert worst(cells, 0.01) > 0.1


@jit()
def _quantiles(table, u):
    return np.array([draw_correction(table, x) for x in u])


@pytest.mark.parametrize("kind", [OPTIMAL, PAPER])
def test_draws_plus_normal_are_logistic(kind: str) -> None:
    made = correction(1.0, kind)
    u = (np.arange(200_000) + 0.5) / 200_000
    x = _quantiles(made.table, u)
    assert (np.diff(x) >= 0.0).all()
    np.testing.assert_allclose(np.interp(x, made.table[0], made.table[1]), u, atol=1e-12)
    # Over the quantiles the distribution function of the sum is an average of normal ones.
    for at in (-4.0, -1.0, 0.0, 0.3, 2.5):
        assert abs(ndtr(at - x).mean() - expit(at)) < made.error + 2e-6
        assert abs((at - x > 0.0).mean() - expit(at)) > 10 * made.error or at == 0.0


def test_padding_after_the_last_position_is_never_drawn() -> None:
    table = table_of(Cells(np.array([-1.0, 2.0]), np.array([1.0, 3.0]), 1.0))
    np.testing.assert_array_equal([[-1.5, -0.5, 1.5, 2.5], [0.0, 0.25, 0.25, 1.0]], table)
    padded = np.c_[table, np.repeat(table[:, -1:], 5, axis=1)]
    u = np.array([1e-12, 0.1, 0.2499, 0.25, 0.5, 1.0 - 1e-12])
    expected = [-1.5, -1.1, -0.5004, 1.5, 1.5 + 1 / 3, 2.5]
    np.testing.assert_allclose(_quantiles(padded, u), expected, atol=1e-9)


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.pi / np.sqrt(3.0), 2.0, np.nan])
def test_sigma_outside_its_range_is_refused(sigma: float) -> None:
    with pytest.raises(ConfigError, match=r"sigma must be above 0 and below .*1\.8138"):
        correction(sigma)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="correction must be one of optimal, paper"):
        correction(1.0, "best")
