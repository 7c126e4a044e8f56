"""The alias table: whole tickets, so that draws and weights have exactly equal probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streammc import rng as streams
from streammc.likelihood.drawn_units import CELL, TABLE_BYTES, AliasTable, Lookahead, UnitDesign

RELATIVE = np.array([0.1, 0.1, 4.0, 0.3, 0.1, 2.0, 0.9, 0.5])


def held(table):
    """Tickets of each unit, counted cell by cell."""
    n = len(table.alias)
    own = np.where(table.alias == np.arange(n), CELL, table.threshold.astype(np.int64))
    tickets = own.copy()
    np.add.at(tickets, table.alias, CELL - own)
    return tickets


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60))
def test_cells_hold_the_tickets_of_each_unit(relative):
    table = AliasTable(np.array(relative))
    n = len(relative)
    np.testing.assert_array_equal(table.tickets, held(table))
    assert table.tickets.sum() == n * CELL
    omega = np.array(relative) / np.sum(relative)
    np.testing.assert_allclose(held(table) / (n * float(CELL)), omega, rtol=0, atol=0.5 / CELL)
    assert table.tickets.min() >= 1


def test_cells_add_up_to_the_probabilities():
    table = AliasTable(RELATIVE / RELATIVE.mean())
    omega = table.tickets / (len(RELATIVE) * float(CELL))
    np.testing.assert_allclose(held(table) / (len(RELATIVE) * float(CELL)), omega, atol=1e-15)
    np.testing.assert_allclose(omega, RELATIVE / RELATIVE.sum(), rtol=1e-8)
    np.testing.assert_allclose(table.weights(np.arange(8)) * 8 * omega, 1.0, rtol=1e-15)


def test_equal_probabilities_count_once():
    table = AliasTable(np.full(1001, 7.0, np.float32))
    np.testing.assert_array_equal(table.weights(np.arange(1001)), 1.0)


def test_a_million_units_of_very_different_probabilities():
    relative = np.random.default_rng(0).pareto(0.8, size=1_000_000).astype(np.float32) + 0.1
    table = AliasTable(relative)
    np.testing.assert_array_equal(table.tickets, held(table))
    assert (
        abs(table.weights(np.array([17]))[0] * relative[17] / relative.mean(dtype=float) - 1) < 1e-6
    )


@pytest.mark.parametrize("wrong", [[], [1.0, 0.0], [1.0, np.inf], [1.0, np.nan], [1.0, -1.0]])
def test_invalid_probabilities_are_refused(wrong):
    with pytest.raises(ValueError, match="above 0 and finite"):
        AliasTable(np.array(wrong))


class NoRows:
    def will_need(self, starts, unit_rows):
        pass


def counts(table, draws=400_000):
    """How often each unit is drawn by a chain's own stream, in uneven pieces."""
    design = UnitDesign(8, 1, 40, 8, probabilities=table)
    ahead = Lookahead(design, NoRows(), streams.stream(3, 0, streams.Role.SUBSAMPLE))
    found = np.zeros(8, np.int64)
    for count in (1, 7, 1000, draws - 1008):
        found += np.bincount(ahead.take(count), minlength=8)
    return found


def test_production_draws_have_the_probabilities():
    expected = RELATIVE / RELATIVE.sum() * 400_000
    assert stats.chisquare(counts(AliasTable(RELATIVE)), expected).pvalue > 1e-3
    broken = AliasTable(RELATIVE)
    broken.alias[:] = np.arange(8)  # every cell its own
    assert stats.chisquare(counts(broken), expected).pvalue < 1e-9


def test_rows_of_a_unit_are_weighed_by_its_probability():
    design = UnitDesign(23, 3, 4, 2, probabilities=AliasTable(RELATIVE))
    weight = np.ones(9)
    design.reweigh(np.array([2, 0, 7]), weight)
    omega = RELATIVE / RELATIVE.sum()
    np.testing.assert_allclose(weight, np.repeat(1 / (8 * omega[[2, 0, 7]]), 3), rtol=1e-8)


def test_the_bytes_of_a_unit_are_those_of_its_tables():
    table = AliasTable(np.arange(1.0, 101.0))
    held = table.tickets.nbytes + table.threshold.nbytes + table.alias.nbytes
    assert 100 * TABLE_BYTES == held
