from __future__ import annotations

import numpy as np
import pytest

from streammc import rng as streams
from streammc.likelihood.drawn_units import AliasTable, Lookahead, UnitDesign


class Recorder:
    """A row source that remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    def will_need(self, starts, unit_rows):
        self.asked.append((starts.copy(), unit_rows))


def make(n_rows, source=None, table=None):
    design = UnitDesign(n_rows, 3, 40, 8, probabilities=table)
    rng = streams.stream(5, 0, streams.Role.SUBSAMPLE)
    return Lookahead(design, source or Recorder(), rng), design


@pytest.mark.parametrize(("n_rows", "unequal"), [(1000, False), (10**12, False), (1000, True)])
def test_units_and_state_do_not_depend_on_how_far_ahead_they_were_drawn(n_rows, unequal):
    table = AliasTable(np.arange(1.0, 335.0)) if unequal else None
    (ahead, design), order = make(n_rows, table=table), np.random.default_rng(1)
    expected = design.draw(2000, streams.stream(5, 0, streams.Role.SUBSAMPLE))
    taken = 0
    while taken < 1500:
        ahead.prefetch(int(order.integers(0, 60)))
        count = int(order.integers(0, 40))
        np.testing.assert_array_equal(expected[taken : taken + count], ahead.take(count))
        taken += count
        other, _ = make(n_rows, table=table)
        other.set_state(ahead.get_state())
        np.testing.assert_array_equal(expected[taken : taken + 20], other.take(20))
    plain = streams.stream(5, 0, streams.Role.SUBSAMPLE)
    design.draw(taken, plain)
    assert ahead.get_state() == streams.get_state(plain)


def test_every_unit_is_asked_for_once_sorted_and_before_it_is_taken():
    source = Recorder()
    ahead, design = make(1000, source)
    ahead.prefetch(10)
    ahead.prefetch(25)
    ahead.prefetch(5)
    assert [10, 15] == [len(starts) for starts, _ in source.asked]
    taken = ahead.take(30)
    assert [10, 15, 5] == [len(starts) for starts, _ in source.asked]
    for starts, unit_rows in source.asked:
        assert unit_rows == 3
        assert np.all(np.diff(starts) >= 0)
    asked = np.concatenate([starts for starts, _ in source.asked])
    np.testing.assert_array_equal(np.sort(design.starts(taken)), np.sort(asked))


def test_a_new_state_forgets_what_was_drawn_ahead():
    ahead, _ = make(1000)
    start = ahead.get_state()
    first = ahead.take(7)
    ahead.prefetch(50)
    ahead.set_state(start)
    np.testing.assert_array_equal(first, ahead.take(7))
