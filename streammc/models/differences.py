"""Derivatives by differences, each with an estimate of its own error.

No single step suits every likelihood: where its scale is 1e-8 a step of 1e-3 is far too
long, and where its terms are of size 1e9 a step of 1e-6 leaves nothing but their rounding.
So a ladder of steps is tried, and the difference with the smallest estimated error taken:
by how much the differences of neighbouring steps disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.protocols import Matrix

FACTOR: Final = 4.0
STEPS: Final = tuple(FACTOR**-k for k in range(15))
"""Relative to the longest."""
_EPSILON: Final = 2.0**-52
_LAST: Final = 5

Array = NDArray[np.float64]


class Difference(NamedTuple):
    """Derivatives of k functions at m places by differences, (k, m) each."""

    slope: Array
    error: Array
    """Estimated error of ``slope``; infinite where no difference is finite."""
    noise: Array
    """Rounding of the functions' values, as it shows at the shortest steps."""


def differences(
    function: Callable[[Matrix], Matrix], x: Matrix, a: int, longest: Array
) -> Difference:
    """Return the derivative of every row of ``function(x)`` in ``x[a]``, and its error.

    Parameters
    ----------
    function
        From (p, m) to (k, m), column by column.
    x
        Where, (p, m).
    a
        Row of ``x`` that is moved.
    longest
        The longest step to try, (m,): steps across the whole of a narrow likelihood agree
        with each other, and not with its derivative.

    Returns
    -------
    Difference
        By differences of fourth order.
    """
    found, floors, still = [], [], []
    with np.errstate(all="ignore"):
        for step in STEPS:
            total: Array = np.zeros(())
            values = []
            for steps, factor in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
                moved = x.copy()
                moved[a] += steps * step * longest
                value = function(moved)
                total = total + factor * value
                values.append(value)
            h = step * longest
            slope = total / (12.0 * h)
            found.append(slope)
            largest = np.abs(values).max(axis=0)
            floors.append(_EPSILON * (largest + np.abs(x[a] * slope)) / h)
            still.append(np.ptp(values, axis=0) == 0.0)
        slopes, floor = np.array(found), np.array(floors)
        gaps = np.abs(np.diff(slopes, axis=0))
        # The neighbours' gaps too: one gap is small by chance. Rounding grows as steps shrink.
        error = gaps + floor[:-1]
        for distance in (1, 2):
            before = FACTOR**distance * gaps[:-distance]
            error[distance:] = np.maximum(error[distance:], before)
            error[:-distance] = np.maximum(error[:-distance], gaps[distance:])
        # Terms that cancel leave coarse values: short steps then show no change at all.
        unseen = np.array(still[:-1])
        error[unseen & ~unseen.all(axis=0)] = np.inf
        steps_taken = np.array(STEPS[-_LAST - 1 : -1])[:, None, None] * longest
        rounding = np.nan_to_num(gaps[-_LAST:] * steps_taken, nan=0.0, posinf=0.0).max(axis=0)
    error[~np.isfinite(error)] = np.inf
    best = error.argmin(axis=0)[None]
    slope, doubt = (np.take_along_axis(table, best, 0)[0] for table in (slopes, error))
    return Difference(slope, doubt, rounding)
