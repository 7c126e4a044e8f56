"""Lines through whitened space: the ends of the posterior on them, and the region they span."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from streammc.protocols import Matrix, Vector

MASS_BEYOND: Final = 1e-7
"""Posterior mass of a line beyond its end, on either side."""
_NEAR = (1.5, 3.0, 4.2, 5.2, 6.3)
FAR: Final = (8.0, 10.5, 14.0, 19.0, 26.0, 36.0, 50.0, 70.0, 100.0)
"""Farther grid points of a line, in standard deviations of the Laplace approximation."""
_START = 4.0
"""Largest distance of a start, in standard deviations."""
_DROP = 17.0
"""Drop of the log density below its maximum at which a line has less than 1e-7 left."""


def ends_of(
    posterior: Callable[[Matrix], Matrix], origin: Matrix, direction: Matrix, power: Vector
) -> Matrix:
    """Return (2, L) the ends of each line, beyond which ``MASS_BEYOND`` of its mass lies.

    Both sides are followed until the density has fallen by ``_DROP``; if it never does, the
    end is infinite. NaN where the posterior has no mass on the line.
    """
    dim = origin.shape[1]
    # on a line through the centre t is the length of all d coordinates
    longer = np.where(power > 0.0, math.sqrt(dim - 1.0 + _NEAR[-1] ** 2) / _NEAR[-1], 1.0)
    half = np.array([*_NEAR, *FAR])
    grid = np.concatenate([-half[::-1], [0.0], half])
    t = longer[:, None] * grid
    log = np.full(t.shape, -np.inf)
    middle = len(half)
    columns = np.arange(middle - len(_NEAR), middle + len(_NEAR) + 1)
    needed = np.zeros(t.shape, np.bool_)
    needed[:, columns] = True
    for step in range(len(_NEAR), len(half) + 1):
        line, column = np.nonzero(needed)
        if not len(line):
            break
        z = origin[line] + t[line, column, None] * direction[line]
        with np.errstate(divide="ignore"):
            volume = np.where(power > 0.0, power, 0.0)[line] * np.log(
                np.maximum(np.abs(t[line, column]), 1e-3)
            )
        log[line, column] = posterior(z)[0] + volume
        needed[:] = False
        top = log.max(axis=1)
        open_sides = [log[:, middle + side * step] > top - _DROP for side in (-1, 1)]
        if step < len(half):
            for side, still in zip((-1, 1), open_sides, strict=True):
                needed[still, middle + side * (step + 1)] = True
    ends = np.empty((2, len(t)))
    for row in range(len(t)):
        if not np.isfinite(log[row]).any():  # beyond a wall of the prior
            ends[:, row] = np.nan
            continue
        fine = np.linspace(t[row, 0], t[row, -1], 8001)
        value = np.interp(fine, t[row], np.maximum(log[row], log[row].max() - 1e4))
        mass = np.exp(value - value.max())
        below = np.cumsum(mass) / mass.sum()
        first, last = (int(np.searchsorted(below, p)) for p in (MASS_BEYOND, 1.0 - MASS_BEYOND))
        ends[:, row] = fine[first], fine[min(last, len(fine) - 1)]
    for end, still, infinite in zip(ends, open_sides, (-np.inf, np.inf), strict=True):
        end[still] = infinite
    return ends


def region(origin: Matrix, direction: Matrix, ends: Matrix) -> tuple[float, Matrix]:
    """Return the radius of the smallest ball, and walls across the lines, that hold all ends.

    Every wall is beyond the ends of all lines, not only of its own: the end of a slanted line
    may be near although the posterior has a long tail to its side. The Laplace approximation
    at ``theta_star``, where chains start, is also inside, however far from the mode it is.
    """
    d = origin.shape[1]
    with np.errstate(invalid="ignore"):  # an infinite end of a line along few coordinates
        corners = np.concatenate([origin + end[:, None] * direction for end in ends])
    walls = np.full((2 * len(direction), d + 1), np.inf)
    walls[0::2, :d], walls[1::2, :d] = -direction, direction
    finite = np.isfinite(corners).all(axis=1)
    walls[:, d] = (walls[:, :d] @ corners[finite].T).max(axis=1, initial=-np.inf)
    walls[:, d] = np.maximum(walls[:, d], _START)
    walls[~np.isfinite(ends.T.ravel()), d] = np.inf
    walls[~np.isfinite(walls[:, d]), d] = np.inf
    if not finite.all():
        return math.inf, walls
    farthest = float(np.sqrt((corners**2).sum(axis=1).max()))
    return max(farthest, math.sqrt(d) + _START), walls


def inside(origin: Matrix, direction: Matrix, radius: float, walls: Matrix) -> Matrix:
    """Return (2, L) the interval of t in which ``o + t v`` is inside the region."""
    middle = (origin * direction).sum(axis=1)
    square = radius**2 - (origin**2).sum(axis=1) + middle**2
    half = np.sqrt(np.maximum(square, 0.0))
    low, high = -middle - half, -middle + half
    slope = direction @ walls[:, :-1].T
    room = walls[:, -1] - origin @ walls[:, :-1].T
    with np.errstate(divide="ignore", invalid="ignore"):
        at = room / slope
    low = np.maximum(low, np.where(slope < -1e-9, at, -np.inf).max(axis=1))
    high = np.minimum(high, np.where(slope > 1e-9, at, np.inf).min(axis=1))
    return np.stack([low, high])


def unit(rows: Matrix) -> Matrix:
    """Return the rows scaled to length 1; a row of zeros stays zero."""
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    scaled: Matrix = rows / np.where(length > 0.0, length, 1.0)
    return scaled
