"""Expansions that a block of rows keeps."""

from __future__ import annotations

import numpy as np
import pytest

from streammc import registry
from streammc.likelihood.blocks import (
    ExpansionPoint,
    allocate_block,
    allocate_rows,
    allocate_scratch,
    expand,
)
from streammc.likelihood.difference import remainder_values, remainders

M, Q = 700, 3


def expanded_rows(model, order, width_of):
    """700 rows, expanded to ``order`` in a block that has room for ``width_of``."""
    rng = np.random.default_rng(1)
    rows, p = allocate_rows(M, Q), model.n_linear + model.n_scalar
    rows.X[:] = rng.normal(size=(M, Q))
    rows.y[:] = rng.random(M) < 0.5
    rows.weight[:] = rng.integers(0, 3, M)
    block, scratch = allocate_block(M, Q, p, width_of), allocate_scratch(p)
    star = 0.3 * rng.normal(size=model.dim(Q))
    n = model.n_linear
    expand(
        model.link, ExpansionPoint(star, model.constants, n, order), rows, 0, M, block, 0, scratch
    )
    delta = 0.2 * rng.normal(size=model.dim(Q))
    value, values, slope = np.zeros(M), np.zeros(M), np.zeros((p, M))
    for lo in (0, 512):
        hi = min(lo + 512, M)
        given = (model.link, model.constants, block, delta, n, lo, hi, scratch)
        remainders(*given, value, slope)
        remainder_values(*given, values)
    return block, value, values, slope


@pytest.mark.parametrize("name", ["logistic", "gaussian", "network"])
@pytest.mark.parametrize("order", [-1, 0, 1])
def test_a_block_without_pairs_gives_the_same_bits(name, order):
    model = registry.model(name)(**({"hidden": [3]} if name == "network" else {}))
    narrow, wide = (expanded_rows(model, order, width) for width in (order, 2))
    p = model.n_linear + model.n_scalar
    assert len(narrow[0].expansion) == (3 if p == 1 else 1 + p)
    for one, other in zip(narrow[1:], wide[1:], strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.abs(narrow[3]).max() > 0.1


@pytest.mark.parametrize("name", ["gaussian", "network"])
def test_order_2_expansions_keep_pairs_of_predictors(name):
    model = registry.model(name)(**({"hidden": [3]} if name == "network" else {}))
    first, second = (expanded_rows(model, order, order) for order in (1, 2))
    assert len(second[0].expansion) > len(first[0].expansion)
    assert np.abs(second[1]).sum() < 0.7 * np.abs(first[1]).sum()
