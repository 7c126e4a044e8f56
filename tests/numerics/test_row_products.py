"""Products of rows agree with NumPy for every number of rows and columns, and touch no other."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.numerics.jit import jit
from streammc.numerics.row_products import add_row_sums, row_products


@jit()
def products(design, lo, w, vector, first, out, start):
    row_products(design, lo, w, vector, first, out, start)


@jit()
def sums(design, lo, w, weights, start, out, first):
    add_row_sums(design, lo, w, weights, start, out, first)


@pytest.mark.parametrize("w", [0, 1, 7, 8, 9, 31, 32, 33, 40, 70])
@pytest.mark.parametrize("q", [1, 3, 4, 29])
def test_products_and_sums_agree_with_numpy(w, q):
    rng = np.random.default_rng(w + q)
    design, lo = rng.normal(size=(q, w + 5)), 2
    outside = np.nan  # read or added, it would show
    design[:, :lo] = design[:, lo + w :] = outside
    vector, weights = rng.normal(size=q + 1), np.full(w + 3, outside)
    weights[1 : 1 + w] = rng.normal(size=w)
    out, total = np.full(w + 9, 7.0), np.ones(q + 2)
    products(design, lo, w, vector, 1, out, 3)
    sums(design, lo, w, weights, 1, total, 1)
    rows = design[:, lo : lo + w]
    np.testing.assert_allclose(out[3 : 3 + w], vector[1:] @ rows, rtol=1e-12, atol=1e-13)
    assert np.all(out[:3] == 7.0)
    assert np.all(out[3 + w :] == 7.0)
    np.testing.assert_allclose(
        total[1 : 1 + q], 1.0 + rows @ weights[1 : 1 + w], rtol=1e-12, atol=1e-13
    )
    assert total[0] == total[-1] == 1.0


def test_product_of_a_row_has_the_same_bits_at_every_place():
    rng = np.random.default_rng(1)
    design, vector = rng.normal(size=(11, 45)), rng.normal(size=11)
    whole, one = np.zeros(45), np.zeros(1)
    products(design, 0, 45, vector, 0, whole, 0)
    for i in range(45):
        products(design, i, 1, vector, 0, one, 0)
        assert one[0] == whole[i]
