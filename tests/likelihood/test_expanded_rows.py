"""Rows that are kept in memory, with their expansions: slice by slice, if they fit."""

from __future__ import annotations

import numpy as np
import pytest
from problems import Small

from streammc.errors import OutOfMemoryError
from streammc.likelihood import blocks
from streammc.likelihood.blocks import block_bytes, expanded, load_block
from streammc.stores import from_arrays

N, SLICE = 1000, 128


@pytest.fixture
def problem(monkeypatch):
    monkeypatch.setattr(blocks, "_SLICE", SLICE)
    return Small(n=N, order=2)


def dataset(problem):
    return from_arrays(problem.X, problem.y, offset=problem.offset, weight=problem.weight)


@pytest.mark.parametrize("count", [1, SLICE, SLICE + 1, 3 * SLICE - 1])
def test_rows_of_several_slices_are_expanded_as_at_once(problem, count):
    rows = np.sort(np.random.default_rng(1).choice(N, count, replace=False)).astype(np.int64)
    found = load_block(dataset(problem), problem.model, rows, problem.theta_star, 2)
    expected = expanded(problem.model, problem.theta_star, 2, problem.rows(rows))
    for name, array in expected._asdict().items():
        # The design is padded to whole vectors of the processor.
        other = getattr(found, name)[..., :count]
        np.testing.assert_allclose(array, other, rtol=1e-13, err_msg=name)
    assert count == len(found.y)


def test_rows_that_do_not_fit_are_refused_before_any_is_read(problem, monkeypatch):
    rows, data = np.arange(300), dataset(problem)
    needed = block_bytes(300, 2, 1, 2)
    monkeypatch.setattr(blocks, "memory_limit", lambda: needed)
    load_block(data, problem.model, rows, problem.theta_star, 2)
    monkeypatch.setattr(blocks, "memory_limit", lambda: needed - 1)
    monkeypatch.setattr(type(data), "rows", lambda self: pytest.fail("rows were asked for"))
    with pytest.raises(OutOfMemoryError, match="found 300 rows x 2 features"):
        load_block(data, problem.model, rows, problem.theta_star, 2)


def test_the_bytes_are_those_of_the_arrays(problem):
    found = load_block(dataset(problem), problem.model, np.arange(N), problem.theta_star, 2)
    held = sum(array.nbytes for array in found)
    assert held <= block_bytes(N, 2, 1, 2) <= 1.5 * held
