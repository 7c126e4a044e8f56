"""Numbers read at an address: every dtype of a store, as float64."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.numerics.addresses import CODES, place, read
from streammc.numerics.jit import f8, i8, jit


@jit(f8(i8, i8, i8))
def number(address, code, index):
    return read(address, code, index)


@pytest.mark.parametrize("dtype", CODES)
def test_every_dtype_is_read_as_float64(dtype):
    least = 0 if dtype[0] in "ub" else -1
    array = np.array([0, 1, least], dtype=dtype)
    if dtype[0] in "iu":
        array[1] = np.iinfo(dtype).max
    address, code = place(array)
    found = [number(int(address), int(code), i) for i in range(3)]
    assert found == [float(value) for value in array]


def test_an_empty_array_has_the_code_of_an_absent_one():
    assert place(np.empty(0)) == (0.0, 0.0)
