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
    expanded,
)
from streammc.likelihood.estimators import remainder_values, remainders

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


def test_allocated_blocks_are_zeros():
    for block in (allocate_block(5, 3, 2), allocate_block(5, 3, 1, order=1), allocate_rows(4, 2)):
        assert [0] * len(block) == [np.count_nonzero(array) for array in block]


def test_a_block_without_pairs_is_not_read_beyond_its_end():
    block = expanded_rows(registry.model("gaussian")(), 1, 1)[0]
    room = np.full((6, M), 1e3)
    room[:3] = block.expansion
    found = []
    for expansion in (block.expansion, room[:3]):
        value, slope = np.zeros(M), np.zeros((2, M))
        model, given = registry.model("gaussian")(), block._replace(expansion=expansion)
        arguments = (model.constants, given, np.full(Q + 1, 0.1), 1, 0, 512, allocate_scratch(2))
        remainders(model.link, *arguments, value, slope)
        found.append(np.vstack([value, slope]))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("columns", [1, 3, 4, 7, 9])  # four of them are summed in one sweep
@pytest.mark.parametrize("name", ["logistic", "gaussian"])
def test_remainders_are_those_of_every_column_and_of_rows_that_count(name, columns):
    model, rng, n = registry.model(name)(), np.random.default_rng(4), 600
    rows, p = allocate_rows(n, columns), model.n_linear + model.n_scalar
    rows.X[:] = rng.normal(size=(n, columns))
    rows.y[:] = rng.random(n) < 0.5
    rows.weight[:] = rng.random(n)
    left_out = rng.random(n) < 0.3
    rows.weight[left_out] = 0.0
    star = 0.3 * rng.normal(size=model.dim(columns))
    block = expanded(model, star, 1, rows)
    delta = 0.2 * rng.normal(size=model.dim(columns))
    moved = expanded(model, star + delta, 1, rows).expansion
    step = np.vstack([rows.X @ delta[:columns], *(np.full(n, s) for s in delta[columns:])])
    first = block.expansion[1 : 1 + p]
    expected = moved[0] - block.expansion[0] - (first * step).sum(axis=0)
    value, values, slope = np.zeros(n), np.zeros(n), np.zeros((p, n))
    for lo in (0, 512):  # the second tile begins within the rows
        hi = min(lo + 512, n)
        given = (model.link, model.constants, block, delta, model.n_linear, lo, hi)
        remainders(*given, allocate_scratch(p), value, slope)
        remainder_values(*given, allocate_scratch(p), values)
    np.testing.assert_allclose(expected, value, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(expected, values, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(moved[1 : 1 + p] - first, slope, rtol=1e-10, atol=1e-13)
    assert not value[left_out].any()
    assert np.abs(value[~left_out]).min() > 0.0
