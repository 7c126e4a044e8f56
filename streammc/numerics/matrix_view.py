"""Matrices in the memory of a vector, made without a call."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

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
