"""Blocks of units: their bounds, and how many units each iteration proposes."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.likelihood.drawn_units import ProductDesign, UnitDesign


@pytest.mark.parametrize(("k", "blocks"), [(7, 3), (100, 7), (12, 4), (5, 5), (9, 1), (101, 100)])
def test_blocks_cover_all_units_and_differ_by_at_most_one(k, blocks):
    bounds = UnitDesign(1000, 3, k, blocks).block_bounds()
    sizes = np.diff(bounds)
    assert (0, k, blocks) == (bounds[0], bounds[-1], len(sizes))
    assert set(sizes) <= {k // blocks, -(-k // blocks)}


def test_an_iteration_proposes_as_many_units_as_its_block_has():
    design = UnitDesign(1000, 3, 7, 3)
    np.testing.assert_array_equal([0, 2, 4, 7], design.block_bounds())
    np.testing.assert_array_equal([2, 2, 3, 2, 2, 3, 2], design.proposal_counts(0, 7))
    np.testing.assert_array_equal([3, 2, 2, 3], design.proposal_counts(5, 4))
    # The first subsample is drawn block by block, in the iterations before the first.
    np.testing.assert_array_equal([2, 2, 3], design.proposal_counts(-3, 3))
    assert 0 == len(design.proposal_counts(4, 0))


def test_factors_of_a_product_have_the_mean_of_their_block():
    design = ProductDesign(1000, 1, 14, 3, 2, seed=5)
    assert 7 == design.products
    np.testing.assert_array_equal([0, 2, 4, 7], design.block_bounds())
    n = 30_000
    counts = design.proposal_counts(0, 3 * n).reshape(n, 3)
    assert not (counts % 2).any()  # two units a factor
    for block, mean in enumerate([2.0, 2.0, 3.0]):
        error = np.sqrt(mean / n)
        found = counts[:, block].mean() / 2
        assert abs(found - mean) < 4.5 * error
        neighbour = [2.0, 2.0, 3.0][block - 1]
        assert neighbour == mean or abs(found - neighbour) > 9.0 * error


def test_sizes_of_a_design_whose_last_unit_is_short():
    design = UnitDesign(10, 3, 4, 2)
    assert (4, 12, 4) == (design.n_units, design.subsample_size, design.capacity)
    np.testing.assert_array_equal([0, 9, 6], design.starts(np.array([0, 3, 2])))


def test_a_product_has_room_for_far_more_factors_than_it_expects():
    design = ProductDesign(1000, 1, 200, 10, 2)
    factors = 2 * 100 + 12 * np.sqrt(200) + 30
    assert 2 * factors <= design.capacity < 2 * factors + 2
