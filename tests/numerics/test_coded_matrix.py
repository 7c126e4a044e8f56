from __future__ import annotations

import numpy as np
import pytest

from streammc.numerics.coded_matrix import (
    CodedMatrix,
    coded_columns,
    compressed,
    expanded_pieces,
    expanded_rows,
)
from streammc.numerics.expand_runs import expand_runs
from streammc.protocols import RowBlock


def example(dtype: str = "float32") -> CodedMatrix:
    """A design of 7 columns: dense, 3 coded, dense, 2 coded."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(2, 7)).astype(dtype).astype(np.float64)
    columns = coded_columns(7, np.array([1, 5]), np.array([3, 2]), *values)
    codes = np.stack([rng.integers(0, 4, 50), rng.integers(0, 3, 50)], 1).astype(np.uint16)
    return CodedMatrix(rng.normal(size=(50, 2)).astype(dtype), codes, columns)


def by_hand(design: CodedMatrix) -> np.ndarray:
    found = np.zeros(design.shape)
    for i in range(len(design)):
        found[i, [0, 4]] = design.dense[i]
        for first, width, code in ((1, 3, design.codes[i, 0]), (5, 2, design.codes[i, 1])):
            for j in range(width):
                on = code == j + 1
                found[i, first + j] = (design.columns.on if on else design.columns.off)[first + j]
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_expanded_rows_have_one_indicator_on_per_factor(dtype):
    design = example(dtype)
    np.testing.assert_array_equal(by_hand(design), design.expanded())
    assert dtype == design.expanded().dtype
    np.testing.assert_array_equal(by_hand(design)[7:9], design[7:9].expanded())
    np.testing.assert_array_equal(by_hand(design)[[3, 1]], expanded_rows(design[np.array([3, 1])]))


def test_compressed_rows_are_the_dense_columns_and_codes():
    design = example()
    found = compressed(design.expanded().astype(np.float64), design.columns)
    np.testing.assert_array_equal(design.codes, found.codes)
    np.testing.assert_array_equal(design.dense, found.dense)


def test_gathered_runs_are_the_expanded_rows_and_zeros_outside():
    design = example()
    starts = np.array([48, 3, 11])
    out, dense = np.full((9, 7), np.nan), np.zeros((9, 2))
    rows = (starts[:, None] + np.arange(3)).reshape(-1)
    inside = rows < 50
    dense[inside] = design.dense[rows[inside]]
    codes = design.codes.view()
    codes.flags.writeable = False
    assert 0 == expand_runs(dense, codes, starts, 3, 50, design.columns, out)
    np.testing.assert_array_equal(by_hand(design)[rows[inside]], out[inside])
    np.testing.assert_array_equal(0.0, out[~inside])


def test_wrong_codes_are_counted_and_write_nothing_outside_their_block():
    design = example()
    codes = design.codes.copy()
    codes[5] = 65535, 3
    assert (5, 0, 65535) == CodedMatrix(design.dense, codes, design.columns).fault()
    assert design.fault() is None
    codes.flags.writeable = False
    out = np.zeros((1, 7))
    assert 2 == expand_runs(np.zeros((1, 2)), codes, np.array([5]), 1, 50, design.columns, out)
    np.testing.assert_array_equal(np.delete(design.columns.off, [0, 4]), np.delete(out, [0, 4]))


def test_pieces_are_cut_into_a_few_megabytes_in_order():
    columns = coded_columns(3001, np.array([1]), np.array([3000]), np.ones(3001), np.zeros(3001))
    codes = np.arange(2000, dtype=np.uint16)[:, None]
    design = CodedMatrix(np.ones((2000, 1), np.float32), codes, columns)
    y = np.arange(2000.0)
    pieces = list(expanded_pieces(iter([RowBlock(0, 100, design, y, y, y)])))
    assert [100, 612, 1124, 1636] == [piece.start for piece in pieces]
    assert max(piece.X.nbytes for piece in pieces) < 8 << 20
    for piece in pieces:
        on = np.argmax(piece.X[:, 1:], axis=1) + 1
        here = piece.start - 100 + np.arange(len(piece.X))
        np.testing.assert_array_equal(here[1:], on[1:])
        np.testing.assert_array_equal(here, piece.y)


def test_dense_columns_are_counted_beyond_sixteen_bits():
    on, off = np.ones(40_000), np.zeros(40_000)
    found = coded_columns(40_000, np.array([5]), np.array([39_990]), on, off)
    np.testing.assert_array_equal([0, 1, 2, 3, 4, *range(39_995, 40_000)], found.place)
