"""Conversion of arrays given by the user to float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streammc.errors import ConfigError


def numbers(name: str, values: ArrayLike, ndim: int | None = None) -> NDArray[np.float64]:
    """Return ``values`` as float64 with ``ndim`` dimensions, by default 1 or more.

    ConfigError if they are not numbers, or have another number of dimensions.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected an array of numbers as {name}, found {type(values).__name__}: pass one"
        ) from None
    if array.ndim != (array.ndim or -1 if ndim is None else ndim):
        wanted = "1 or more" if ndim is None else ndim
        raise ConfigError(
            f"expected {name} of {wanted} dimensions, found shape {array.shape}: pass an array"
        )
    return array
