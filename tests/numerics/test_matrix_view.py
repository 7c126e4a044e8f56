from __future__ import annotations

import numpy as np

from streammc.numerics.addresses import matrix_view
from streammc.numerics.jit import jit


@jit()
def _rows(vector, rows, columns, total):
    view = matrix_view(vector, rows, columns)
    for i in range(view.shape[0]):
        for j in range(view.shape[1]):
            total[i, j] = view[i, j]
    view[rows - 1, columns - 1] = -1.0
    return view.shape


def test_a_view_has_the_first_numbers_of_the_vector_and_its_memory() -> None:
    vector, copied = np.arange(10.0), np.full((5, 5), np.nan)
    assert (2, 3) == _rows(vector, 2, 3, copied)
    assert np.array_equal(np.arange(6.0).reshape(2, 3), copied[:2, :3])
    assert np.isnan(copied[2:]).all()
    assert np.isnan(copied[:, 3:]).all()
    assert -1.0 == vector[5]
