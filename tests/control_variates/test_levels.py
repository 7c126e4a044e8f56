"""The number of categories of an ordinal response: from the rows, or as it was given."""

from __future__ import annotations

import numpy as np
import pytest

import streammc
from streammc import from_arrays
from streammc.control_variates.bound import as_recorded, with_data
from streammc.errors import ModelError
from streammc.models import ordinal
from streammc.protocols import Vector
from streammc.stores import MemoryStore

SAMPLED = 65_536
"""Rows of a table of which all are looked at."""


def table(y: Vector) -> MemoryStore:
    x = np.random.default_rng(1).normal(size=len(y))
    return from_arrays(np.c_[np.ones(len(y)), x], y, feature_names=["Intercept", "x"])


def test_levels_are_those_of_the_rows() -> None:
    data = table(np.arange(300.0) % 4)
    assert 4 == with_data(ordinal(), data).levels
    assert 4 == with_data(ordinal(levels=4), data).levels
    assert ("beta[Intercept]", "beta[x]", "gap[1]", "gap[2]") == with_data(ordinal(), data).labels(
        data.feature_names
    )


def test_a_run_keeps_its_levels() -> None:
    described = with_data(ordinal(), table(np.arange(300.0) % 4)).describe()
    assert 4 == as_recorded(ordinal(), described).levels
    assert 3 == as_recorded(ordinal(levels=3), described).levels


def test_categories_that_never_occur_are_named() -> None:
    y = np.array([0.0, 2.0, 3.0, 5.0] * 50)
    with pytest.raises(ModelError, match=r"each of the categories 0 to 5 .* found none of 1, 4:"):
        with_data(ordinal(), table(y))
    with pytest.raises(ModelError, match=r"none of 3: .* and leave levels out"):
        with_data(ordinal(levels=4), table(np.arange(300.0) % 3))
    with pytest.raises(ModelError, match=r"two categories or more .* found 2 alone"):
        with_data(ordinal(), table(np.full(200, 2.0)))


def test_a_category_above_the_levels_is_refused_by_the_pass() -> None:
    y = np.arange(300.0) % 5
    y[7] = 7.0
    with pytest.raises(ModelError, match=r"whole numbers from 0 to 4 \(levels=5.* found 7 in"):
        streammc.control_variates(table(y), ordinal(levels=5))
    y[7] = 0.5
    with pytest.raises(ModelError, match=r"from 0 to 19 \(of at most 20 categories\).* found 0.5"):
        streammc.control_variates(table(y), ordinal())


def test_a_category_that_the_sample_misses_is_refused_by_the_pass() -> None:
    y = np.arange(4.0 * SAMPLED) % 4
    seen = with_data(ordinal(), table(y)).levels
    y[np.flatnonzero(y == 3.0)[1:]] = 2.0  # one row, which the sample does not have
    assert (4, 3) == (seen, with_data(ordinal(), table(y)).levels)
    with pytest.raises(ModelError, match=r"0 to 2 \(levels=3, unless another number is given\)"):
        streammc.control_variates(table(y), ordinal())


def test_a_category_that_never_occurs_in_a_large_table_is_named() -> None:
    y = np.arange(2.0 * SAMPLED) % 4
    y[y == 2.0] = 3.0
    with pytest.raises(ModelError, match=r"categories 0 to 3 .* found none of 2:"):
        with_data(ordinal(), table(y))
    y[-1] = 2.0  # one row, which the sample does not have
    assert 4 == with_data(ordinal(), table(y)).levels
    with pytest.raises(ModelError, match=r"categories 0 to 4 .* found none of 4:"):
        with_data(ordinal(levels=5), table(y))
