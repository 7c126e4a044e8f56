"""Compiled functions as arguments: their callers are compiled without them."""

from __future__ import annotations

from typing import Any

from numba import types


def pointer(function: Any) -> Any:
    """Return the type of an argument that is ``function``, or another of the same signature.

    A compiled function that names another contains a copy of it: for the transitions of a chain
    that is half a minute of compilation in each test.
    """
    (signature,) = function._signatures
    return types.FunctionType(signature)
