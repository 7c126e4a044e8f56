"""Numbers in memory: at an address, in any dtype of a store, and matrices in a vector.

A function pointer has one signature for every data set, so a link that reads rows by itself
gets the addresses of their arrays among its constants. The owner of the arrays keeps them
mapped for as long as the constants are in use.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from streammc.numerics.jit import LINK_TYPE, inline

ABSENT: Final = 0
"""Code of an array that is not there."""
_DTYPES: Final = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
CODES: Final = {np.dtype(name).str.lstrip("<|="): 1 + at for at, name in enumerate(_DTYPES)}
"""dtype -> code."""


def place(array: NDArray[Any]) -> tuple[float, float]:
    """Return the address of a C-contiguous array and the code of its dtype; zeros if empty."""
    if not array.size:
        return 0.0, float(ABSENT)
    return float(array.ctypes.data), float(CODES[array.dtype.str.lstrip("<|=")])


def _reader(kind: Any, convert: str) -> Any:
    """Return a compiled ``read(address, index)`` for numbers of one LLVM type."""

    @intrinsic  # type: ignore[untyped-decorator]
    def read(_context: Any, address: Any, index: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            value = builder.load(builder.gep(pointer, [args[1]]))
            return getattr(builder, convert)(value, ir.DoubleType()) if convert else value

        return types.float64(types.int64, types.int64), generate

    return read


read_f4: Final = _reader(ir.FloatType(), "fpext")
read_f8: Final = _reader(ir.DoubleType(), "")
read_i1: Final = _reader(ir.IntType(8), "sitofp")
read_i2: Final = _reader(ir.IntType(16), "sitofp")
read_i4: Final = _reader(ir.IntType(32), "sitofp")
read_i8: Final = _reader(ir.IntType(64), "sitofp")
read_u1: Final = _reader(ir.IntType(8), "uitofp")
read_u2: Final = _reader(ir.IntType(16), "uitofp")
read_u4: Final = _reader(ir.IntType(32), "uitofp")
read_u8: Final = _reader(ir.IntType(64), "uitofp")


@inline
def read(address, code, index):  # type: ignore[no-untyped-def]
    """Return number ``index`` of the array at ``address`` with this code of a dtype."""
    if code == 1:
        return read_f4(address, index)
    if code == 2:
        return read_f8(address, index)
    if code == 3:
        return read_i1(address, index)
    if code == 4:
        return read_i2(address, index)
    if code == 5:
        return read_i4(address, index)
    if code == 6:
        return read_i8(address, index)
    if code == 8:
        return read_u2(address, index)
    if code == 9:
        return read_u4(address, index)
    if code == 10:
        return read_u8(address, index)
    return read_u1(address, index)  # also a boolean


@intrinsic  # type: ignore[untyped-decorator]
def link_at(_context: Any, address: Any) -> Any:
    """Return the link whose entry for pointers is at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        pointer.c_addr = builder.inttoptr(args[0], pointer.c_addr.type)
        pointer.py_addr = cgutils.get_null_value(pointer.py_addr.type)
        pointer.jit_addr = cgutils.get_null_value(pointer.jit_addr.type)
        return pointer._getvalue()

    return LINK_TYPE(types.int64), generate


_MATRIX: Any = types.Array(types.float64, 2, "C")


@intrinsic  # type: ignore[untyped-decorator]
def matrix_view(_context: Any, vector: Any, rows: Any, columns: Any) -> Any:
    """Return the first ``rows * columns`` numbers of a contiguous ``vector`` as a matrix.

    ``reshape`` does the same by a call of the C library, about 10 ns each. The vector must outlive
    the matrix, which does not own its memory.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        view = context.make_array(_MATRIX)(context, builder)
        size = context.get_constant(types.intp, 8)
        populate_array(
            view,
            data=source.data,
            shape=cgutils.pack_array(builder, args[1:]),
            strides=cgutils.pack_array(builder, [builder.mul(args[2], size), size]),
            itemsize=size,
            meminfo=None,
        )
        return view._getvalue()

    return _MATRIX(vector, types.int64, types.int64), generate
