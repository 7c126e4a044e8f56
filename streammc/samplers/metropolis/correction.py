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
from streammc.protocols import Matrix, Vector

# A correction to a normal variable that makes it logistic: two ways to compute it.
#
# The distribution function of ``X_norm + X_corr``, with ``X_norm ~ N(0, sigma^2)``, is to be
# ``S(x) = 1 / (1 + exp(-x))``. Its largest error is one of the acceptance test that uses it
# (Seita et al. 2017, section 4). ``ridge`` is their construction; ``linear_programme``
# minimises that error itself, over all distributions with a density on cells.


REACH: Final = 20.0
"""V: ``X_corr`` lies in [-V, V]; Seita et al. 2017, Appendix B.1."""
WIDTH: Final = 0.1
"""Of the cells of the programme; at 0.02 it comes no lower."""


class Cells(NamedTuple):
    """A distribution that is uniform in each of some cells of one width."""

    centres: Vector
    """(k,) ascending."""
    masses: Vector
    """(k,) 0 or more; their sum need not be 1."""
    width: float


def distribution(x: Vector, cells: Cells, spread: float) -> Vector:
    """Return ``P(N(0, spread^2) + X <= x)`` where ``X`` has these cells: (n,).

    A normal variable plus a uniform one of width ``w`` has the distribution function
    ``(spread / w) (G((x + w/2) / spread) - G((x - w/2) / spread))`` with
    ``G(t) = t Phi(t) + phi(t)``.
    """
    used = cells.masses > 0.0
    centres, masses = cells.centres[used], cells.masses[used]
    out = np.empty(x.size)
    for start in range(0, x.size, 64):  # at most 64 x 8001 numbers at a time
        piece = slice(start, start + 64)
        out[piece] = _smoothed(x[piece, None], centres, cells.width, spread) @ masses
    return out


def worst(cells: Cells, sigma: float, step: float = 0.02) -> float:
    """Return the largest error of ``N(0, sigma^2)`` plus these cells against the logistic."""
    from scipy.special import expit

    x = np.arange(-REACH - 10.0, REACH + 10.0, step)
    return float(np.abs(distribution(x, cells, sigma) - expit(x)).max())


def ridge(
    sigma: float, *, n: int = 4000, penalty: float = 10.0, reach: float = REACH
) -> tuple[Cells, float]:
    """Return masses on a grid by least squares with a penalty, negative ones set to 0.

    Minimises ``|M u - v|^2 + penalty |u|^2`` (Seita et al. 2017, eq. 15), where
    ``M_ij = Phi((X_i - Y_j) / sigma)`` and ``v_i = S(X_i)``, with ``2n + 1`` points ``Y`` on
    ``[-V, V]`` and ``4n + 1`` points ``X`` on ``[-2V, 2V]``. ``M`` is a Toeplitz matrix, so
    that a product with it takes three Fourier transforms; the singular values above the
    root of ``penalty`` are few, and so are the iterations of LSQR.

    Returns
    -------
    Cells
        (2n + 1) masses; they are weights, and their sum is not exactly 1.
    float
        ``max |M u - v|`` with these masses, not renormalised: Table 3 of the paper.
    """
    from scipy.fft import irfft, next_fast_len, rfft
    from scipy.sparse.linalg import LinearOperator, lsqr
    from scipy.special import expit, ndtr

    step = reach / n
    points = np.linspace(-reach, reach, 2 * n + 1)
    length = next_fast_len(8 * n + 1, real=True)
    kernel = rfft(ndtr(np.arange(-3 * n, 3 * n + 1) * (step / sigma)), length)
    back = np.arange(-2 * n, 1) % length

    def forward(u: Vector) -> Vector:
        return irfft(kernel * rfft(u, length), length)[2 * n : 6 * n + 1]  # type: ignore[no-any-return]

    def adjoint(r: Vector) -> Vector:
        return irfft(kernel.conj() * rfft(r, length), length)[back]  # type: ignore[no-any-return]

    wanted = expit(np.arange(-2 * n, 2 * n + 1) * step)
    operator = LinearOperator((4 * n + 1, 2 * n + 1), matvec=forward, rmatvec=adjoint, dtype=float)
    found = lsqr(
        operator, wanted, damp=math.sqrt(penalty), atol=1e-14, btol=1e-14, conlim=0, iter_lim=4000
    )
    masses = np.maximum(found[0], 0.0)
    error = float(np.abs(forward(masses) - wanted).max())
    return Cells(points, masses, step), error


def linear_programme(sigma: float, *, width: float = WIDTH, reach: float = REACH) -> Cells:
    """Return the symmetric distribution on cells with the smallest largest error.

    Minimises ``max_x |sum_j p_j F_j(x) - S(x)|`` over ``p >= 0``, ``sum p = 1``, where
    ``F_j`` is the distribution function of ``N(0, sigma^2)`` plus two cells at ``+-y_j``:
    eq. 14 of Seita et al. 2017 itself, which they replace by ``ridge``. Few cells have
    mass. Nothing is clipped, and what is sampled is what the error was computed for.
    """
    from scipy.optimize import linprog
    from scipy.special import expit

    centres = np.linspace(0.0, round(reach / width) * width, round(reach / width) + 1)
    x = np.arange(0.0, reach + 5.0, min(0.1, 0.5 * sigma))
    right = _smoothed(x[:, None], centres, width, sigma)
    pairs: Matrix = 0.5 * (right + _smoothed(x[:, None], -centres, width, sigma))
    slack = np.ones((x.size, 1))
    for tolerance in (1e-10, 1e-7):  # below sigma = 0.5 the first is not always reached
        found = linprog(
            np.append(np.zeros(centres.size), 1.0),
            A_ub=np.block([[pairs, -slack], [-pairs, -slack]]),
            b_ub=np.concatenate((expit(x), -expit(x))),
            A_eq=np.append(np.ones(centres.size), 0.0)[None, :],
            b_eq=[1.0],
            method="highs",
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
            },
        )
        if found.status == 0:
            break
    half = np.where(found.x[:-1] > 1e-12, found.x[:-1], 0.0)
    return mirrored(centres, half / half.sum(), width)


def mirrored(centres: Vector, masses: Vector, width: float) -> Cells:
    """Return the cells at ``+-centres`` that share ``masses`` (k,); the first centre may be 0."""
    positive = centres > 0.0
    return Cells(
        np.concatenate((-centres[positive][::-1], centres)),
        np.concatenate((0.5 * masses[positive][::-1], np.where(positive, 0.5, 1.0) * masses)),
        width,
    )


def _smoothed(x: Matrix, centres: Vector, width: float, spread: float) -> Matrix:
    """Distribution function of a normal variable plus one cell: (n, k)."""
    from scipy.special import ndtr

    def integral(t: Matrix) -> Matrix:
        return t * ndtr(t) + np.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)  # type: ignore[no-any-return]

    above = integral((x - centres + 0.5 * width) / spread)
    return (spread / width) * (above - integral((x - centres - 0.5 * width) / spread))


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
