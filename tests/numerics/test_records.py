from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import types

from streammc.numerics.jit import _type, record_type
from streammc.protocols import Index, Matrix, Vector


class Inner(NamedTuple):
    scale: float
    count: int


class Outer(NamedTuple):
    vector: Vector
    matrix: Matrix
    index: Index
    inner: Inner
    cube: Annotated[Any, types.Array(types.float64, 3, "C")]


class Vectors(NamedTuple):
    one: Vector
    two: Vector


class Unclear(NamedTuple):
    array: Any


def test_type_of_a_record_is_that_of_its_values() -> None:
    vector, index = np.zeros(2), np.zeros(2, dtype=np.int64)
    value = Outer(vector, np.zeros((2, 2)), index, Inner(1.0, 2), np.zeros((1, 1, 1)))
    assert numba.typeof(value) == record_type(Outer)
    assert numba.typeof(Vectors(vector, vector)) == record_type(Vectors)


def test_an_array_is_known_by_its_type_however_numpy_writes_it() -> None:
    expected = types.Array(types.int64, 1, "C")
    for alias in (np.ndarray[Any, np.dtype[np.int64]], GenericAlias(list, (np.int64,))):
        assert expected == _type(Inner, "numbers", Annotated[alias, 1])


def test_annotation_without_a_type_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"found typing.Any as Unclear.array"):
        record_type(Unclear)
