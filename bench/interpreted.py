"""pytest plugin: compiled functions run as the Python that they are written in.

    PYTHONPATH=bench python -m pytest -p interpreted tests/likelihood

A changed kernel is then tested without compiling all that depends on it, which takes minutes, and
coverage sees its lines. Arithmetic is that of NumPy's scalars, without their warnings. Functions
written in LLVM's language have a counterpart in Python below. Tests of the compiler and tests that
take too long without it are not for this mode.
"""

from __future__ import annotations

import ctypes
import inspect
import struct
from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np

_KINDS = {"float": "f4", "double": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}


def _plain(*arguments: Any, **_options: Any) -> Any:
    """Return a function as it is, or a decorator that leaves functions as they are."""
    if arguments and inspect.isfunction(arguments[0]):
        return arguments[0]
    return lambda function: function


def _reader(function: Callable[..., Any]) -> Callable[[int, int], float]:
    """Return what reads one number in memory, for an intrinsic of ``numerics.addresses``."""
    said = inspect.getclosurevars(function).nonlocals
    code = _KINDS[str(said["kind"])]
    dtype = np.dtype(code.replace("i", "u") if said["convert"] == "uitofp" else code)

    def read(address: int, index: int) -> float:
        place = int(address) + int(index) * dtype.itemsize
        return float(np.frombuffer(ctypes.string_at(place, dtype.itemsize), dtype)[0])

    return read


def _row_products(
    design: Any, lo: int, w: int, vector: Any, first: int, out: Any, start: int
) -> None:
    out[start : start + w] = vector[first : first + len(design)] @ design[:, lo : lo + w]


def _add_row_sums(
    design: Any, lo: int, w: int, weights: Any, start: int, out: Any, first: int
) -> None:
    out[first : first + len(design)] += design[:, lo : lo + w] @ weights[start : start + w]


def _add_four_draws(sums: Any, at: int, remainders: Any, first: int) -> None:
    r = remainders.reshape(-1)[first + np.arange(4) * remainders.shape[1]]
    for place, power in enumerate((r, r**2, r**3, r**4)):
        sums[at + 4 * place : at + 4 * place + 4] += power
    largest = sums[at + 16 : at + 20]
    largest[:] = np.where(np.abs(r) <= largest, largest, np.abs(r))


_COUNTERPARTS: dict[str, Callable[..., Any]] = {
    "multiply_add": lambda a, b, c: a * b + c,
    "select": lambda condition, a, b: a if condition else b,
    "_bits": lambda x: struct.unpack("<q", struct.pack("<d", x))[0],
    "_from_bits": lambda x: np.float64(struct.unpack("<d", struct.pack("<Q", x & (2**64 - 1)))[0]),
    "matrix_view": lambda vector, rows, columns: vector[: rows * columns].reshape(rows, columns),
    "row_products": _row_products,
    "add_row_sums": _add_row_sums,
    "_add_four_draws": _add_four_draws,
}


def _intrinsic(function: Callable[..., Any]) -> Any:
    """Return the counterpart of a function that is written in LLVM's language."""
    return _COUNTERPARTS.get(function.__name__) or _reader(function)


numba.extending.intrinsic = _intrinsic
numba.njit = _plain
np.seterr(all="ignore")

import streammc.numerics.jit as compiled  # noqa: E402

compiled.jit = compiled.inline = _plain  # type: ignore[assignment]
