"""Whitened coordinates change the cost of an evaluation, and only the roundings of its values."""

from __future__ import annotations

import numpy as np
import pytest
from problems import Small

from streammc.likelihood.blocks import allocate_block
from streammc.likelihood.target import (
    CERTAIN,
    DENSITY,
    ESTIMATE,
    VARIANCE,
    allocate_point,
    allocate_work,
    evaluate,
    whiten_rows,
)
from streammc.numerics.row_products import aligned
from streammc.numerics.summation import taylor
from streammc.priors import normal, student_t, uniform
from streammc.samplers.hamiltonian.problem import whiten_block, whitened_base, whitening_pays

UNITS = np.array([1, 4, 4])


def evaluated(small, base, z, change=None):
    """Return the point at ``z``, its rows and its scratch; rows changed by ``change(block)``."""
    sub = small.subsample(UNITS)
    certain = small.expanded(small.rows(small.certain_rows), small.order)
    for block in (sub, certain):
        if change is not None:
            change(block)
    point = allocate_point(small.dim, len(UNITS), len(sub.y), small.p)
    work = allocate_work(small.dim, len(sub.y), small.p, len(certain.y))
    point.z[:] = z
    evaluate(small.model.link, taylor, base, certain, sub, point, work)
    return point, work


def both(small, z):
    """Return the points at ``z`` in theta and in whitened coordinates."""
    base = whitened_base(small.base, small.d)
    there, work = evaluated(small, base, z, lambda block: whiten_block(base.whitening, block))
    return evaluated(small, small.base, z)[0], there, base, work


def agree(first, second):
    for of in (DENSITY, VARIANCE, ESTIMATE, CERTAIN):
        assert first.scalars[of] == pytest.approx(second.scalars[of], rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(first.gradient, second.gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(first.totals, second.totals, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("model", ["logistic", "poisson", "gaussian", "student-t"])
@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("unit_rows", [1, 3])
def test_density_and_gradient_are_those_in_theta(model, order, unit_rows):
    small = Small(model, n=40, d=3, k=3, order=order, unit_rows=unit_rows, certain=(2, 5, 9))
    agree(*both(small, np.linspace(-0.8, 0.9, small.dim))[:2])


@pytest.mark.parametrize("prior", [student_t(df=3.0, scale=2.0), uniform(low=-8.0, high=8.0)])
def test_priors_that_are_not_normal_stay_in_theta(prior):
    small = Small("logistic", n=40, d=3, k=3, certain=(2,), prior=prior)
    inside, there, base, _ = both(small, np.array([0.3, -0.4, 0.2]))
    assert len(base.prior) == 3
    agree(inside, there)


def test_normal_priors_and_expansion_are_one_diagonal_quadratic():
    small = Small("logistic", n=200, d=5, k=3, prior=normal(1.0))
    at_mode = small.base._replace(
        factor=np.ascontiguousarray(
            np.linalg.cholesky(np.linalg.inv(np.eye(5) - small.base.hessian))
        )
    )
    base = whitened_base(at_mode, 5)
    assert len(base.prior) == 0
    np.testing.assert_allclose(base.diagonal, -np.ones(5), rtol=1e-12)


def test_hessian_that_is_not_diagonal_is_kept_whole():
    small = Small("logistic", n=200, d=5, k=3, prior=normal(1.0))
    factor = np.ascontiguousarray(small.base.factor @ np.tril(np.ones((5, 5))))
    small.base = small.base._replace(factor=factor)
    inside, there, base, _ = both(small, np.linspace(-0.2, 0.3, 5))
    assert len(base.diagonal) == 0
    agree(inside, there)


@pytest.mark.parametrize("growth", [0.0, 0.3])
def test_block_poisson_product_is_that_in_theta(growth):
    small = Small("poisson", n=40, d=3, k=3)
    small.base = small.product_base(3, -4.0, growth=growth)
    agree(*both(small, np.array([0.3, -0.2, 0.5]))[:2])


def test_whitened_row_has_the_same_bits_at_every_place():
    small = Small("logistic", n=40, d=7, k=3)
    base, rows = whitened_base(small.base, 7), small.rows(np.arange(40))
    whole, one, buffer = allocate_block(40, 7, 1), allocate_block(1, 7, 1), np.zeros(7)
    whiten_rows(base.whitening, rows, 0, 40, whole, 0, buffer)
    for i in range(40):
        whiten_rows(base.whitening, rows, i, 1, one, 0, buffer)
        np.testing.assert_array_equal(one.design[:, 0], whole.design[:, i])
    np.testing.assert_allclose(whole.design, small.base.factor.T @ rows.X.T, rtol=1e-12, atol=1e-14)


def test_whitening_is_left_out_where_it_would_cost_more():
    small = Small("logistic", n=40, d=3, k=3)
    assert whitening_pays(small.base, 500, rows=100, proposed=1)
    assert whitening_pays(small.base, 29, rows=1300, proposed=13)
    assert not whitening_pays(small.base, 500, rows=1300, proposed=13)


def test_positions_not_linear_in_z_are_left_in_theta():
    base = Small("logistic", n=40, d=3, k=3).base
    assert not whitening_pays(base._replace(levels=np.zeros((1, 3))), 3, 3, 1)
    assert not whitening_pays(base._replace(centre=np.zeros(3)), 3, 3, 1)
    assert not whitening_pays(base._replace(mode=np.zeros(3)), 3, 3, 1)
    assert not whitening_pays(base._replace(n_linear=2), 3, 3, 1)
    assert not whitening_pays(base._replace(factor=np.zeros((0, 0))), 3, 3, 1)


def test_rows_of_an_aligned_matrix_begin_at_a_line_of_the_cache():
    found = aligned(5, 11)
    assert found.shape == (5, 16)
    assert [0] * 5 == [row.ctypes.data % 64 for row in found]
