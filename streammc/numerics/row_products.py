"""Products of rows with a vector, in vector registers.

A design is kept transposed, (q, m). LLVM vectorises its loops over rows by itself, but runs up to
15 rows of each column one by one, and keeps sums in memory: at 30 rows of 29 columns that takes
over twice as long. Here eight rows are one vector, and a mask covers the last ones, so that no
array needs padding; LLVM splits the vectors on a processor with shorter ones. Every product of a
row is a chain of multiply-adds in the order of the columns: its bits do not depend on the place of
the row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from streammc.protocols import Matrix

LANES: Final = 8
"""Rows of a vector: 64 bytes, a line of the cache."""
_PANEL: Final = 4
"""Vectors of rows whose products are summed at once; columns, for sums over rows."""

_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)
_DOUBLE: Final = ir.DoubleType()
_VECTOR: Final = ir.VectorType(_DOUBLE, LANES)
_MASK: Final = ir.VectorType(ir.IntType(1), LANES)
_ZEROS: Final = ir.Constant(_VECTOR, [0.0] * LANES)


def aligned(rows: int, columns: int) -> Matrix:
    """Return a matrix of zeros for which every vector of a row lies in one line of the cache.

    It has up to ``LANES - 1`` more columns than asked for. Unaligned, products of 1300 rows of 29
    columns take 1.7 times as long.
    """
    width = -(-columns // LANES) * LANES
    memory = np.zeros(rows * width + LANES)
    first = -memory.ctypes.data // memory.itemsize % LANES
    return memory[first : first + rows * width].reshape(rows, width)


class _Vectors:
    """Writes LLVM instructions on vectors of ``LANES`` numbers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def _call(self, name: str, result: Any, *args: Any, **options: Any) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, args, **options)

    def _spread(self, value: Any) -> Any:
        """Return a vector with ``value`` in every lane."""
        empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        one = self.builder.insert_element(empty, value, ir.Constant(_I32, 0))
        lanes = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, empty, lanes)

    def first_lanes(self, count: Any) -> Any:
        """Return the mask of the first ``count`` lanes: none, all, or some."""
        lanes = ir.Constant(ir.VectorType(_I64, LANES), list(range(LANES)))
        return self.builder.icmp_signed("<", lanes, self._spread(count))

    def load(self, address: Any, mask: Any) -> Any:
        """Return ``LANES`` numbers; zeros where ``mask`` is false. ``None``: read all."""
        pointer = self.builder.bitcast(address, _VECTOR.as_pointer())
        if mask is None:
            value = self.builder.load(pointer)
            value.align = 8
            return value
        align = ir.Constant(_I32, 8)
        return self._call("llvm.masked.load.v8f64.p0", _VECTOR, pointer, align, mask, _ZEROS)

    def store(self, value: Any, address: Any, mask: Any) -> None:
        """Write the lanes of ``mask``; ``None``: all."""
        pointer = self.builder.bitcast(address, _VECTOR.as_pointer())
        if mask is None:
            self.builder.store(value, pointer).align = 8
            return
        align = ir.Constant(_I32, 8)
        self._call("llvm.masked.store.v8f64.p0", ir.VoidType(), value, pointer, align, mask)

    def add_product(self, scalar: Any, vector: Any, place: Any) -> None:
        """Add ``scalar * vector`` to the vector at ``place``; a vector as scalar: lane by lane."""
        factor = self._spread(scalar) if scalar.type == _DOUBLE else scalar
        total = self.builder.load(place)
        total = self._call("llvm.fmuladd.v8f64", _VECTOR, factor, vector, total)
        self.builder.store(total, place)

    def _add_lanes(self, one: Any, two: Any, lanes: list[int], distance: int) -> Any:
        """Return some lanes plus those at a distance; lanes of ``two`` follow those of ``one``."""
        kind = ir.VectorType(_I32, len(lanes))
        first, second = (
            self.builder.shuffle_vector(one, two, ir.Constant(kind, [lane + by for lane in lanes]))
            for by in (0, distance)
        )
        return self.builder.fadd(first, second)

    def add_sums(self, vectors: list[Any], address: Any) -> None:
        """Add the sums over all lanes to the numbers at ``address``: of four vectors, or of one.

        Four sums together take a third of the instructions of four alone.
        """
        if len(vectors) == 1:
            total = self.builder.load(address)
            name = "llvm.vector.reduce.fadd.v8f64"
            total = self._call(name, _DOUBLE, total, vectors[0], fastmath=("reassoc",))
            self.builder.store(total, address)
            return
        pairs = [
            self._add_lanes(one, two, [0, 8, 2, 10, 4, 12, 6, 14], 1)
            for one, two in (vectors[:2], vectors[2:])
        ]
        halves = self._add_lanes(pairs[0], pairs[1], [0, 1, 8, 9, 4, 5, 12, 13], 2)
        sums = self._add_lanes(halves, halves, [0, 1, 2, 3], 4)
        pointer = self.builder.bitcast(address, sums.type.as_pointer())
        total = self.builder.load(pointer)
        total.align = 8
        self.builder.store(self.builder.fadd(total, sums), pointer).align = 8


def _number(value: int) -> Any:
    return ir.Constant(_I64, value)


def _shifted(context: Any, builder: Any, kind: Any, value: Any, first: Any) -> tuple[Any, Any]:
    """Return the address of an array from the element ``first`` on, and its shape."""
    array = context.make_array(kind)(context, builder, value)
    return builder.gep(array.data, [first]), cgutils.unpack_tuple(builder, array.shape)


@intrinsic  # type: ignore[untyped-decorator]
def row_products(
    _context: Any, design: Any, lo: Any, w: Any, vector: Any, first: Any, out: Any, start: Any
) -> Any:
    """Write ``out[start + i] = sum_j vector[first + j] design[j, lo + i]`` for ``i < w``.

    ``design`` is (q, m), the others have one dimension; nothing is checked.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = _Vectors(builder), signature.args
        rows, (q, stride) = _shifted(context, builder, kinds[0], args[0], args[1])
        numbers, _ = _shifted(context, builder, kinds[3], args[3], args[4])
        target, _ = _shifted(context, builder, kinds[5], args[5], args[6])
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_PANEL)]

        def panel(begin: Any, masks: list[Any]) -> None:
            """Sum over all columns, ``LANES`` rows a mask, and write the sums."""
            places = sums[: len(masks)]
            for place in places:
                builder.store(_ZEROS, place)
            corner = builder.gep(rows, [begin])
            with cgutils.for_range(builder, q) as column:
                number = builder.load(builder.gep(numbers, [column.index]))
                line = builder.gep(corner, [builder.mul(column.index, stride)])
                for k, (mask, place) in enumerate(zip(masks, places, strict=True)):
                    x = write.load(builder.gep(line, [_number(k * LANES)]), mask)
                    write.add_product(number, x, place)
            for k, (mask, place) in enumerate(zip(masks, places, strict=True)):
                at = builder.gep(target, [builder.add(begin, _number(k * LANES))])
                write.store(builder.load(place), at, mask)

        size = _number(LANES * _PANEL)
        whole = builder.mul(builder.sdiv(args[2], size), size)
        with cgutils.for_range_slice(builder, _number(0), whole, size) as (begin, _):
            panel(begin, [None] * _PANEL)
        left = builder.sub(args[2], whole)
        with builder.if_then(builder.icmp_signed(">", left, _number(0))):
            masks = [
                write.first_lanes(builder.sub(left, _number(k * LANES))) for k in range(_PANEL)
            ]
            several = builder.icmp_signed(">", left, _number(LANES))
            with builder.if_else(several) as (many, one):
                with many:
                    panel(whole, masks)
                with one:
                    panel(whole, masks[:1])
        return context.get_dummy_value()

    return types.void(design, types.int64, types.int64, vector, types.int64, out, types.int64), (
        generate
    )


@intrinsic  # type: ignore[untyped-decorator]
def add_row_sums(
    _context: Any, design: Any, lo: Any, w: Any, weights: Any, start: Any, out: Any, first: Any
) -> Any:
    """Add ``sum_{i < w} weights[start + i] design[j, lo + i]`` to ``out[first + j]``, all ``j``.

    ``design`` is (q, m), the others have one dimension; nothing is checked.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = _Vectors(builder), signature.args
        rows, (q, stride) = _shifted(context, builder, kinds[0], args[0], args[1])
        numbers, _ = _shifted(context, builder, kinds[3], args[3], args[4])
        target, _ = _shifted(context, builder, kinds[5], args[5], args[6])
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_PANEL)]
        size = _number(LANES)
        whole = builder.mul(builder.sdiv(args[2], size), size)
        left = builder.sub(args[2], whole)
        tail = write.first_lanes(left)

        def columns(begin: Any, count: int) -> None:
            """Sum over all rows for ``count`` columns, and add the sums."""
            places = sums[:count]
            for place in places:
                builder.store(_ZEROS, place)
            at = [builder.add(begin, _number(k)) for k in range(count)]
            lines = [builder.gep(rows, [builder.mul(j, stride)]) for j in at]

            def add(row: Any, mask: Any) -> None:
                weight = write.load(builder.gep(numbers, [row]), mask)
                for line, place in zip(lines, places, strict=True):
                    write.add_product(weight, write.load(builder.gep(line, [row]), mask), place)

            with cgutils.for_range_slice(builder, _number(0), whole, size) as (row, _):
                add(row, None)
            with builder.if_then(builder.icmp_signed(">", left, _number(0))):
                add(whole, tail)
            write.add_sums([builder.load(place) for place in places], builder.gep(target, [begin]))

        several = _number(_PANEL)
        most = builder.mul(builder.sdiv(q, several), several)
        with cgutils.for_range_slice(builder, _number(0), most, several) as (begin, _):
            columns(begin, _PANEL)
        with cgutils.for_range_slice(builder, most, q, _number(1)) as (begin, _):
            columns(begin, 1)
        return context.get_dummy_value()

    return types.void(design, types.int64, types.int64, weights, types.int64, out, types.int64), (
        generate
    )
