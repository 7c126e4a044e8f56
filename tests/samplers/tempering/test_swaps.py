"""Swaps keep the product of all levels: every outcome of the production code added up."""

from __future__ import annotations

import numpy as np
import pytest
from ladders import CASES, Tabulated, by_hand

from streammc.numerics.jit import f8, i8, jit, matrix
from streammc.samplers.common.proposals import probability
from streammc.samplers.tempering.ladder import LADDER_TYPE, LOG_LIK, LOG_PRIOR, STALE, Ladder
from streammc.samplers.tempering.loop import _of_powers, statistic


def defect(move, target):
    """How far a move takes the target away from itself, in total variation."""
    target = target / target.sum()
    return 0.5 * np.abs(target @ move - target).sum()


@pytest.mark.parametrize("schedule", ["sweep", "even-odd"])
@pytest.mark.parametrize("name", CASES)
def test_swaps_leave_the_product_of_all_levels_invariant(name, schedule):
    case = Tabulated(name, swaps=schedule)
    moves = [case.swaps(0)] if schedule == "sweep" else [case.swaps(0), case.swaps(1)]
    for move in moves:
        np.testing.assert_allclose(1.0, move.sum(axis=1), rtol=1e-14)
        assert defect(move, case.target()) < 1e-15
        assert np.trace(move) < 0.9 * len(move)  # something happened


@pytest.mark.parametrize("name", CASES)
def test_sweep_is_the_one_by_hand_and_misprints_are_not_invariant(name):
    case = Tabulated(name, swaps="sweep")
    np.testing.assert_allclose(by_hand(case), case.swaps(), atol=1e-12)
    assert defect(by_hand(case, pair=1), case.target()) > 1e-2
    assert defect(by_hand(case, swapped=True), case.target()) > 1e-2


def test_state_of_likelihood_zero_never_leaves_the_level_at_the_prior():
    """Level M of power 0 may be anywhere; such a state never comes down, others do."""
    case = Tabulated("powers", swaps="sweep")
    case.kernel.problem.set_beta(case.kernel.ladder, np.array([1.0, 0.0, 0.0]))
    case.place((0, 1, 2))
    kernel, known = case.kernel, np.zeros(2)

    def change(m):
        pointers = case.problem.link, case.problem.joint
        return statistic(*pointers, kernel.ensemble, kernel._kind, m, m - 1, m, known)

    for nothing in (-np.inf, np.nan):
        kernel.replicas.scalars[1, LOG_LIK] = nothing
        np.testing.assert_equal(nothing, change(1))
        assert 0.0 == probability(change(1))
        assert 0.0 == change(2)  # both are the prior: any exchange is right
    kernel.replicas.scalars[1, LOG_LIK] = -3.0
    assert change(1) == pytest.approx(-3.0 - kernel.replicas.scalars[0, LOG_LIK])
    assert 0.0 == kernel.replicas.scalars[0, STALE]


@jit(f8(LADDER_TYPE, i8, matrix, i8, i8))
def of_powers(ladder, m, scalars, a, b):
    return _of_powers(ladder, m, scalars, a, b)


def test_a_swap_between_powers_compares_likelihoods_and_priors():
    ones, zeros = np.ones(2), np.zeros(2, dtype=np.int64)
    power, prior = np.array([1.0, 0.5]), np.array([1.0, 0.25])
    ladder = Ladder(power, power, prior, zeros, zeros + 3, ones, 1, 0.0, 0)
    scalars = np.zeros((2, 4))
    scalars[:, LOG_LIK], scalars[:, LOG_PRIOR] = (-3.0, -1.0), (-2.0, -7.0)
    assert 0.5 * (-1.0 + 3.0) + 0.75 * (-7.0 + 2.0) == of_powers(ladder, 1, scalars, 0, 1)
