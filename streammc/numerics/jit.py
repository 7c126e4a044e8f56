"""Decorators of compiled functions; the only module that sets numba options."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numba
import numpy as np
from numba import from_dtype, types
from numba.core.types.containers import BaseTuple

import streammc.first_use as first_use
from streammc.numerics.dispatchers import Compiled, source_digest

first_use.listen()  # reports the time of compiling; before the first function is compiled

f8: Any = types.float64
i8: Any = types.int64
vector: Any = types.Array(f8, 1, "C")
matrix: Any = types.Array(f8, 2, "C")
index_vector: Any = types.Array(i8, 1, "C")

design_view: Any = types.Array(f8, 2, "A", readonly=True)
"""A design with its rows along the second axis, in any memory layout."""

LINK_SIGNATURE: Any = types.void(matrix, design_view, vector, vector, i8, matrix)
"""``link(eta, X, y, constants, order, out)``; see ``protocols.Model``."""

LINK_TYPE: Any = types.FunctionType(LINK_SIGNATURE)

JOINT_SIGNATURE: Any = f8(design_view, vector, vector, vector, i8, vector)
"""``joint(X, y, theta, constants, order, gradient)``; see ``protocols.Model``."""

JOINT_TYPE: Any = types.FunctionType(JOINT_SIGNATURE)

SUMS_TYPE: Any = types.FunctionType(f8(f8, vector, matrix, vector, vector, vector))
"""``sums(log_lik, gradient, hessian, theta_star, delta, out)``; see ``protocols.Model``."""

GENERATOR_TYPE: Any = numba.typeof(np.random.Generator(np.random.PCG64(0)))

# Reassociation lets LLVM vectorise dot products; NaN and infinity keep their meaning.
_REASSOCIATE = {"reassoc", "contract", "nsz"}


def jit(
    *signatures: Any, reassociate: bool = False, borrow: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles: cached on disk, without the GIL, with NumPy's division.

    Parameters
    ----------
    signatures
        Explicit numba signatures, compiled (or loaded) at the first use. Without signatures,
        the function is compiled at the first call with each combination of types.
    reassociate
        Allow sums to be reordered. Never for the accumulators of a full pass.
    borrow
        Omit reference counts, for a function that allocates nothing: its caller owns every
        array. Counting the references of a tuple of arrays costs up to 0.5 us a call, as
        much as the arithmetic on 100 rows.
    """

    def decorate(function: Callable[..., Any]) -> Compiled:
        # Options not given here would be inherited from the first function that calls this one.
        options = {
            "nogil": True,
            "error_model": "numpy",
            "fastmath": reassociate and _REASSOCIATE,
            "forceinline": False,
            "_nrt": not borrow,
        }
        return Compiled(function, signatures, options, source_digest(function.__code__.co_filename))

    return decorate


def inline(
    function: Callable[..., Any] | None = None,
    *,
    reassociate: bool = False,
    composition: bool = False,
) -> Any:
    """Compile a small function that is inlined into its callers; it needs no signature.

    By default it inherits the floating-point options of the function that calls it first. If
    only some callers reassociate, ``reassociate`` sets the option for all of them. A
    ``composition`` is little more than the calls of large functions, which are optimised alone:
    to optimise it too before its callers would take as long again as to optimise these.
    """

    def decorate(leaf: Callable[..., Any]) -> Compiled:
        # LLVM inlines, not numba. Without forceinline it keeps a large function as a call, and the
        # loop around it scalar.
        options = {"nogil": True, "error_model": "numpy", "inline": "never", "forceinline": True}
        if reassociate:
            options["fastmath"] = _REASSOCIATE
        return Compiled(leaf, (), options, composition=composition)

    return decorate if function is None else decorate(function)


_NUMBERS = {float: types.float64, int: types.int64}


@cache
def record_type(record: type) -> Any:
    """Return the numba type of a NamedTuple, derived from its annotations.

    ``Vector``, ``Matrix``, ``Index`` and ``Annotated[NDArray[t], n]`` are C-contiguous arrays (of n
    dimensions), a number is ``float`` or ``int``, a record may hold records, and
    ``Annotated[Any, t]`` is of the numba type ``t``.

    Raises
    ------
    TypeError
        If an annotation has no numba type.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     first: float
    ...     second: int
    >>> record_type(Pair)
    Pair(float64, int64)
    """
    hints = get_type_hints(record, include_extras=True)
    fields = [_type(record, name, hint) for name, hint in hints.items()]
    return BaseTuple.from_types(fields, record)


def _type(record: type, name: str, hint: Any) -> Any:
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if hasattr(hint, "_fields"):
        return record_type(hint)
    if get_origin(hint) is Annotated:
        array, given = get_args(hint)
        if isinstance(given, types.Type):
            return given
        # NDArray[t] is ndarray[shape, dtype[t]]; from NumPy 2.5 on an alias whose argument is t.
        while arguments := get_args(array):
            array = arguments[-1]
        return types.Array(from_dtype(np.dtype(array)), given, "C")
    raise TypeError(
        f"expected a number, an array of known dimension or a record, found {hint!r} as "
        f"{record.__qualname__}.{name}: annotate it with an alias of streammc.protocols"
    )
