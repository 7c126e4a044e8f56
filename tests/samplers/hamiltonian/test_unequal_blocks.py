"""Chains whose blocks of units have unequal sizes: no unit is lost, repeated or misplaced."""

from __future__ import annotations

import numpy as np
import pytest
from problems import Small, kernel_problem

from streammc.likelihood.drawn_units import UnitDesign
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.transition import allocate_proposal

ITERATIONS = 40
K, BLOCKS = 7, 3


class Generous(UnitDesign):
    """Draws for every block as many units as the largest has: the others waste one."""

    def proposal_counts(self, iteration, n):
        if iteration < 0:
            return super().proposal_counts(iteration, n)
        return np.full(n, np.diff(self.block_bounds()).max(), dtype=np.int64)


def chain(batch, *, kind=UnitDesign, signed=False, unit_rows=3):
    small = Small(n=40, unit_rows=unit_rows, k=K, order=1, certain=(2, 11), seed=4, near_mode=True)
    if signed:
        base = small.product_base(float(K), -40.0, 2)
        problem = kernel_problem(small, base=base, n_blocks=BLOCKS)
    else:
        problem = kernel_problem(small, design=kind(small.n, unit_rows, K, BLOCKS))
    kernel = HamiltonianKernel(problem, seed=3, chain=0, batch_iterations=batch)
    kernel.initialise()
    return kernel


def draws(batch, **options):
    kernel = chain(batch, **options)
    parts = [kernel.advance(ITERATIONS, True), kernel.advance(ITERATIONS, False)]
    return np.concatenate([part["theta"] for part in parts])


@pytest.mark.parametrize("signed", [False, True])
def test_draws_do_not_depend_on_the_iterations_of_a_batch(signed):
    expected = draws(1, signed=signed)
    assert ITERATIONS < len(np.unique(expected[:, 0]))
    for batch in (2, 5):  # neither is a multiple of the blocks
        np.testing.assert_array_equal(expected, draws(batch, signed=signed))


def test_a_design_that_draws_a_unit_too_many_is_caught():
    assert not np.array_equal(draws(1, kind=Generous), draws(5, kind=Generous))


@pytest.mark.parametrize("unit_rows", [1, 3])
@pytest.mark.parametrize("signed", [False, True])
def test_what_the_subsample_carries_is_that_of_its_units(signed, unit_rows):
    kernel = chain(4, signed=signed, unit_rows=unit_rows)
    kernel.advance(ITERATIONS, True)
    before = kernel._units.copy()
    assert kernel.advance(20 * BLOCKS + 1, False)["subsample_accepted"].sum() > 5
    assert (before != kernel._units).any()
    point = kernel._point
    carried = {name: array.copy() for name, array in point._asdict().items()}
    kernel._load_subsample()
    kernel._evaluate()
    for name, array in point._asdict().items():
        np.testing.assert_allclose(carried[name], array, rtol=1e-9, atol=1e-9, err_msg=name)


def test_factors_belong_to_the_blocks_that_drew_them():
    kernel = chain(4, signed=True)
    counts = kernel._design.proposal_counts(-BLOCKS, BLOCKS) // 2
    owner = kernel._proposal.owner[: counts.sum()]
    np.testing.assert_array_equal(np.repeat(np.arange(BLOCKS), counts), owner)
    assert counts.min() > 0


def test_a_proposal_has_room_for_the_rows_of_its_largest_block():
    bounds, units = np.array([0, 2, 5]), np.zeros(5, dtype=np.int64)
    proposal = allocate_proposal(2, 1, 3, bounds, units)
    assert ((2, 9), (1, 9)) == (proposal.rows.design.shape, proposal.slope.shape)
