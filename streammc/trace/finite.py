"""Draws that are no numbers, and what to do about them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ModelError


def require_finite(
    theta: NDArray[np.float64], labels: Sequence[str], phase: str, start: int
) -> None:
    """Refuse draws (chain, iteration, d) of which one is not finite.

    ``start`` is the iteration of the phase that the first of them is.

    Raises
    ------
    ModelError
        Naming the first such draw: its parameter, chain and iteration.
    """
    finite = np.isfinite(theta)
    if finite.all():
        return
    earliest = int(np.argmin(finite.all(axis=(0, 2))))
    chain, column = (int(i) for i in np.argwhere(~finite[:, earliest])[0])
    label = labels[column]
    value = theta[chain, earliest, column]
    found = "NaN" if np.isnan(value) else "infinity" if value > 0 else "minus infinity"
    where = "the warm-up" if phase == "warmup" else f"the {phase}"
    raise ModelError(
        f"expected finite draws, found {found} in {label!r} (chain {chain}, iteration "
        f"{start + earliest + 1} of {where}): nothing holds {label!r} back, as where columns fit "
        f"the response exactly or its size is far from the priors; give {label!r} a tighter prior "
        "(--prior), rescale the response, or leave out columns"
    )


def finite_or_none(value: float | None) -> float | None:
    """Return ``value`` as JSON can hold it."""
    return float(value) if value is not None and math.isfinite(value) else None
