"""The correction of the tests with Barker's function: as a table, and drawn from it.

A distribution that is uniform in each of its cells has a distribution function that is
linear between the edges of the cells. The table holds these edges and the values there, so
that its inverse at a uniform number is one search and one division, and what is drawn is
exactly the distribution whose error is reported.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.jit import inline
from streammc.protocols import Matrix
from streammc.samplers.metropolis.acceptance.deconvolution import (
    WIDTH,
    Cells,
    linear_programme,
    mirrored,
    ridge,
    worst,
)

OPTIMAL: Final = "optimal"
PAPER: Final = "paper"
KINDS: Final = (OPTIMAL, PAPER)
LARGEST_SIGMA: Final = math.pi / math.sqrt(3.0)
"""Standard deviation of the logistic distribution: nothing is left to correct with."""

SOLVED: Final = {
    1.0: (
        (0, 0.421037659), (11, 0.131983443), (12, 0.258549316), (23, 0.0203382151),
        (24, 0.112805113), (36, 0.0161043094), (37, 0.0243128647), (50, 0.010143486),
        (51, 0.00103899294), (64, 0.00156883746), (65, 0.00130211793), (80, 0.000631279203),
        (81, 2.7833517e-05), (97, 9.33658554e-05), (98, 3.93891124e-05), (117, 1.34580056e-05),
        (118, 8.00687558e-06), (143, 5.68634472e-07), (144, 1.74344727e-06),
    ),
    1.2: (
        (0, 0.660065313), (18, 0.222480917), (19, 0.0680266292), (38, 0.0116352574),
        (39, 0.0327120666), (63, 0.003536107), (64, 0.00130287582), (99, 6.9538214e-05),
        (100, 0.000171295777),
    ),
    1.4: (
        (0, 0.855253352), (28, 0.0649294133), (29, 0.0765408248), (79, 0.00281671685),
        (80, 0.000459692728),
    ),
}  # fmt: skip
"""Solutions of ``linear_programme``: cell ``j`` and the mass of ``+-j``, for the usual sigmas.
Kept, because the best distribution is not unique and another release of the solver may find
another one, with the same error and other draws."""


class Correction(NamedTuple):
    """``X_corr``, to be added to a variable with standard deviation ``sigma``."""

    sigma: float
    table: Matrix
    """(2, k): ascending positions, and the distribution function there, from 0 to 1."""
    error: float
    """Largest error of the distribution function of the sum: of the acceptance probability."""


@cache
def correction(sigma: float, kind: str = OPTIMAL) -> Correction:
    """Return the correction for ``sigma``.

    Parameters
    ----------
    sigma
        Standard deviation of the normal variable, in (0, pi / sqrt(3)).
    kind
        ``optimal``: the distribution with the smallest largest error; ``paper``: that of
        Seita et al. 2017 (N = 4000, lambda = 10), drawn as they do from its renormalised
        masses, but uniformly within a cell. That smoothing has variance ``h^2 / 12`` with
        ``h = 0.005`` and changes the error by less than 1e-6.

    Raises
    ------
    ConfigError
        If ``sigma`` leaves nothing to correct with, or ``kind`` does not exist.
    """
    if not 0.0 < sigma < LARGEST_SIGMA:
        raise ConfigError(
            f"sigma must be above 0 and below pi / sqrt(3) = {LARGEST_SIGMA:.4f}, the standard "
            f"deviation of the logistic distribution, found {sigma!r}; give a number in this range"
        )
    if kind not in KINDS:
        raise ConfigError(
            f"correction must be one of {', '.join(KINDS)}, found {kind!r}: choose one of them"
        )
    cells = _cells(sigma, kind)
    return Correction(sigma, table_of(cells), worst(cells, sigma))


def _cells(sigma: float, kind: str) -> Cells:
    """Masses that sum to 1."""
    if kind == PAPER:
        cells = ridge(sigma)[0]
        return cells._replace(masses=cells.masses / cells.masses.sum())
    if sigma in SOLVED:
        index, mass = np.array(SOLVED[sigma]).T
        return mirrored(index * WIDTH, mass / mass.sum(), WIDTH)
    # Narrow normal variables need narrow cells beside them.
    return linear_programme(sigma, width=min(WIDTH, 0.5 * sigma))


def table_of(cells: Cells) -> Matrix:
    """Return the edges of the cells that have mass, and the distribution function there."""
    used = cells.masses > 0.0
    centres, masses = cells.centres[used], cells.masses[used]
    after = np.cumsum(masses)
    edges = np.stack((centres - 0.5 * cells.width, centres + 0.5 * cells.width), axis=1)
    values = np.stack((np.append(0.0, after[:-1]), after), axis=1)
    return np.ascontiguousarray((edges.ravel(), values.ravel() / after[-1]))


@inline
def draw_correction(table, u):  # type: ignore[no-untyped-def]
    """Return the quantile at ``u`` in (0, 1) of the first two rows of ``table``.

    The last of the positions where the distribution function is at most ``u``, and from
    there linearly to the next. Rows may end with the value 1 repeated.
    """
    low = 0
    high = table.shape[1] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if table[1, middle] <= u:
            low = middle
        else:
            high = middle
    height = table[1, high] - table[1, low]
    if height <= 0.0:
        return table[0, low]
    return table[0, low] + (table[0, high] - table[0, low]) * (u - table[1, low]) / height
