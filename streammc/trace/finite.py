"""The check that draws are finite numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ModelError


def require_finite(
    theta: NDArray[np.float64], labels: Sequence[str], phase: str, start: int
) -> None:
    """Refuse draws (chain, iteration, d) with a NaN or infinity.

    ``start`` is the iteration of the first draw in its phase.
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
    """Return ``value`` as a float for JSON; ``None`` if it is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None
