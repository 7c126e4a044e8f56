"""ROC curves and calibration by group with their uncertainty, from the totals of a pass.

With a threshold ``t`` a row is classified as positive if its score is at least ``t``. The
thresholds are the edges of the bins, so that both rates are exact at each threshold. The area
under the curve is P(score of a positive > score of a negative), with a tie counted as one
half. Pairs inside one bin count as ties, so that the area is exact up to the resolution

    sum over bins of P_b N_b / (2 P N)

with ``P`` positives and ``N`` negatives, of which ``P_b`` and ``N_b`` are in bin ``b``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.diagnostics.quantiles import mean, quantiles
from streammc.errors import DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.models.responses import row_name
from streammc.numerics.jit import f8, i8, jit, matrix, vector
from streammc.prediction.mean_responses import responses
from streammc.prediction.predictors import Coefficients
from streammc.protocols import Dataset, Matrix, Model, PassTask, RowBlock, Vector


class Covariate(NamedTuple):
    """A covariate as a linear function of the design, and the edges of its groups."""

    weights: Vector
    """(q,) weights of the columns of the design."""
    constant: float
    edges: Vector
    """(G - 1,) rising edges; a row with the value x is in group ``#{edges <= x}``."""

    def values(self, X: NDArray[Any]) -> Vector:
        """Return the covariate (m,) of rows ``X`` (m, q)."""
        column: Vector = np.asarray(X, dtype=np.float64) @ self.weights + self.constant
        return column


_CELLS: Final = 2**16
_cube: Any = types.Array(f8, 3, "C")
_cells: Any = types.Array(types.int32, 1, "C")
bin_matrix: Any = types.Array(types.uint16, 2, "C")


class Thresholds(NamedTuple):
    """Edges of the bins of a score, with a table of cells that shortens the search."""

    padded: Vector
    """The B - 1 rising edges, padded with infinities that a search may read past the end."""
    starts: NDArray[np.int32]
    """(cells,) number of edges in the cells of equal width before each cell."""
    low: float
    scale: float
    """The cell of a score x is ``(x - low) scale``, rounded down."""
    steps: int
    """Halving steps that find an edge in the fullest cell."""

    @property
    def edges(self) -> Vector:
        """The B - 1 rising edges."""
        return self.padded[np.isfinite(self.padded)]


def find_thresholds(edges: Vector) -> Thresholds:
    """Return the thresholds of ``edges`` with the table of cells for a short search."""
    low, high = (float(edges[0]), float(edges[-1])) if len(edges) else (0.0, 0.0)
    scale = _CELLS / (high - low) if high > low else 0.0
    scale = scale if np.isfinite(scale) else 0.0
    cells = np.minimum(np.maximum((edges - low) * scale, 0.0), _CELLS - 1).astype(np.int64)
    starts = np.searchsorted(cells, np.arange(_CELLS + 1))
    steps = int(np.diff(starts).max()).bit_length()
    padded = np.append(edges, np.full(4 * 2**steps, np.inf))
    return Thresholds(padded, starts[:-1].astype(np.int32), low, scale, steps)


@jit(types.void(matrix, vector, _cells, f8, f8, i8, i8, bin_matrix))
def find_bins(scores, padded, starts, low, scale, steps, first, bins):  # type: ignore[no-untyped-def]
    """Write the bins of ``scores`` (S, m) into the columns of ``bins`` from ``first`` on.

    The bin is the number of edges not above the score. Cells increase with scores, so that
    an edge in a lower cell is below the score and an edge in a higher cell above it. Every
    score takes the same number of steps: branch mispredictions at the end of a search would
    cost more. Cells are computed first, in a loop that vectorises, and the usual two steps
    are unrolled: 3 ns per score instead of 11.
    """
    if first < 0:
        return
    m = scores.shape[1]
    last = float(starts.shape[0] - 1)
    cells = np.empty(m, np.int32)
    # An unsigned index needs no check for a negative index.
    one, two = np.uint64(1), np.uint64(2)
    most = one << np.uint64(max(steps - 1, 0))
    for s in range(scores.shape[0]):
        for i in range(m):
            cell = (scores[s, i] - low) * scale
            cell = 0.0 if cell < 0.0 else cell
            cells[i] = np.int32(last if cell > last else cell)
        for i in range(m if steps <= 2 else 0):
            at = np.uint64(starts[np.uint64(cells[i])])
            at += two * np.uint64(padded[at + one] <= scores[s, i])
            at += np.uint64(padded[at] <= scores[s, i])
            bins[s, first + i] = at
        for i in range(m if steps > 2 else 0):
            at = np.uint64(starts[np.uint64(cells[i])])
            half = most
            for _ in range(steps):
                at += half * np.uint64(padded[at + half - one] <= scores[s, i])
                half >>= one
            bins[s, first + i] = at


@jit(types.void(bin_matrix, vector, vector, _cube), borrow=True)
def add_bins(bins, y, weight, counts):  # type: ignore[no-untyped-def]
    """Add ``weight (1 - y)`` and ``weight y`` of the first rows in ``bins`` (S, M) to ``counts``.

    ``counts`` is (S, B, 2). Call it with thousands of rows: the counts of one draw then stay
    in a cache, unlike those of all draws. A response of 0 or 1 adds to one count: 1.7 ns per
    row and draw; a proportion of trials adds to two: 2.8 ns.
    """
    two = np.uint64(2)
    binary = True
    for i in range(y.shape[0]):
        binary = binary and (y[i] == 0.0 or y[i] == 1.0)
    for s in range(counts.shape[0] if binary else 0):
        flat = counts[s].reshape(2 * counts.shape[1])
        row = bins[s]
        for i in range(y.shape[0]):
            flat[two * np.uint64(row[i]) + np.uint64(y[i])] += weight[i]
    for s in range(0 if binary else counts.shape[0]):
        for i in range(y.shape[0]):
            at = np.int64(bins[s, i])
            ones = weight[i] * y[i]
            counts[s, at, 0] += weight[i] - ones
            counts[s, at, 1] += ones


Cube = NDArray[np.float64]

_SCORE_BINS: Final = 4096
_PILOT_ROWS: Final = 16_384
_PILOT_DRAWS: Final = 50
"""Draws for the thresholds, which depend on the spread between rows; 50 do as well as 400."""
_EXACT_ROWS: Final = 2**23
"""Largest number of rows for which quantiles of a covariate use all rows, in 64 MB."""
_SAMPLE_ROWS: Final = 2**20
_SLICE: Final = 4096


def is_binary(model: Model) -> bool:
    """Return whether the model accepts responses of 0 and 1 but not of 2 or -1."""
    valid = [model.response_fault(np.array([y])) is None for y in (0.0, 1.0, 2.0, -1.0)]
    return valid == [True, True, False, False]


@dataclass(frozen=True, eq=False)
class _Column(PassTask[Vector]):
    """``PassTask`` that returns the values of a covariate in the order of the rows."""

    covariate: Covariate

    def map(self, block: RowBlock) -> Vector:
        return self.covariate.values(block.X)

    def combine(self, left: Vector, right: Vector) -> Vector:
        return np.concatenate([left, right])


def groups(
    table: Dataset,
    by: str,
    bins: int,
    seed: int,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Covariate, bool]:
    """Return the covariate with the edges of its groups, and whether they are from a sample."""
    weights, constant = table.covariate(by)
    column = Covariate(np.asarray(weights), float(constant), np.empty(0))
    sampled = table.n_rows > _EXACT_ROWS
    if sampled:
        values = np.concatenate([column.values(X) for X, _ in _sample(table, _SAMPLE_ROWS, seed)])
    else:
        values = table.reduce(_Column(column), scheduler=scheduler, progress=progress)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"expected finite numbers in column {by!r} of {table.address}, found {values[row]}"
            f"{'' if sampled else f' in {row_name(table, row)}'}: make the store again"
        )
    values.sort()
    ranks = np.ceil(np.arange(1, bins) * (len(values) / bins)).astype(np.int64)
    edges = np.unique(values[np.minimum(ranks, len(values) - 1)])
    return column._replace(edges=edges), sampled


def thresholds(
    model: Model,
    coefficients: Coefficients,
    table: Dataset,
    seed: int,
    spread: float = 0.0,
    new: Callable[[Cube, Matrix], Matrix] | None = None,
) -> Thresholds:
    """Return thresholds at the quantiles of the scores of a sample of rows and draws.

    ``spread`` is the standard deviation of what else the predictors have, such as effects of known
    groups; 0 if there are none. ``new`` returns the mean responses (m, S) of rows of new groups at
    predictors (p, m, S) and their design (m, q), where there may be any.
    """
    pilot, rng = coefficients.thinned(_PILOT_DRAWS), np.random.default_rng(seed)
    scores = []
    for X, offset in _sample(table, _PILOT_ROWS, seed):
        eta = pilot.predictors(X, offset)
        if new is not None:
            scores.append(new(eta, X).ravel())
        if spread > 0.0:
            eta[0] += spread * rng.standard_normal(eta[0].shape)
        if spread > 0.0 or new is None:
            scores.append(responses(model, eta).ravel())
    ordered = np.sort(np.concatenate(scores))
    ranks = np.arange(1, _SCORE_BINS) * len(ordered) // _SCORE_BINS
    edges = np.unique(ordered[ranks])
    return find_thresholds(edges[np.isfinite(edges)])


def _sample(table: Dataset, size: int, seed: int) -> Iterator[tuple[Matrix, Vector]]:
    """Yield ``X`` (m, q) and offset (m,) of rows sampled without replacement, in slices."""
    rows = np.arange(table.n_rows)
    if table.n_rows > size:
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(table.n_rows, size, replace=False, shuffle=False))
    source = table.rows()
    for start in range(0, len(rows), _SLICE):
        piece = rows[start : start + _SLICE].astype(np.int64)
        buffer = allocate_rows(len(piece), table.n_features)
        source.gather(piece, 1, buffer)
        yield buffer.X, buffer.offset


Arrays = dict[str, tuple[Sequence[str], NDArray[Any]]]
_GRID = 1001


def rates(histogram: NDArray[np.float64]) -> tuple[Matrix, Matrix]:
    """Return false and true positive rates (S, B + 1) from counts (S, B, 2).

    The thresholds are ``-inf``, the edges and ``inf``, so that the rates fall from 1 to 0.
    """
    draws, bins, classes = histogram.shape
    above = np.zeros((draws, bins + 1, classes))
    above[:, :-1] = np.cumsum(histogram[:, ::-1], axis=1)[:, ::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = above / above[:, :1]
    return shares[..., 0], shares[..., 1]


def areas(histogram: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """Return the areas under the curves (S,) and their resolutions (S,) from counts (S, B, 2)."""
    negative, positive = histogram[..., 0], histogram[..., 1]
    below = np.cumsum(negative, axis=-1) - negative
    pairs = positive.sum(axis=-1) * negative.sum(axis=-1)
    ties = 0.5 * (positive * negative).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((positive * below).sum(axis=-1) + ties) / pairs, ties / pairs


def curves(
    histogram: NDArray[np.float64],
    edges: Vector,
    probabilities: Sequence[float],
    names: Sequence[str],
    weights: Vector | None,
) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of the ROC curve, and the mean, quantiles and resolution of its area.

    ``histogram`` (S + 1, B, 2) has the counts by draw, the last those of the predictive mean,
    between the thresholds ``edges`` (B - 1,). The band ends at ``probabilities`` with these
    ``names``; ``weights`` (S,) are those of the draws, ``None``: all 1.
    """
    false, true = rates(histogram[:-1])
    area, ties = areas(histogram[:-1])
    area_of_mean, ties_of_mean = areas(histogram[-1:])
    grid = np.linspace(0.0, 1.0, _GRID)
    # Rates fall along the thresholds; np.interp needs them increasing.
    at_grid = np.array(
        [np.interp(grid, f[::-1], t[::-1]) for f, t in zip(false, true, strict=True)]
    )
    false_of_mean, true_of_mean = rates(histogram[-1:])
    arrays: Arrays = {
        "threshold": (("threshold",), edges),
        "fpr_grid": (("fpr_grid",), grid),
        "auc": (("draw",), area),
        "roc_of_mean": (
            ("fpr_grid",),
            np.interp(grid, false_of_mean[0, ::-1], true_of_mean[0, ::-1]),
        ),
    }
    banded = {"fpr": ("threshold", false[:, 1:-1]), "tpr": ("threshold", true[:, 1:-1])}
    banded["roc"] = ("fpr_grid", at_grid)
    for name, (dim, values) in banded.items():
        arrays |= _band(name, dim, values, probabilities, names, weights)
    low, high = quantiles(area, probabilities, weights)
    facts = {
        "mean": float(mean(area, weights)),
        names[0]: float(low),
        names[1]: float(high),
        "of_mean": float(area_of_mean[0]),
        "resolution": float(max(ties.max(), ties_of_mean.max())),
    }
    return arrays, facts


def calibration(
    sums: Matrix,
    edges: Vector,
    probabilities: Sequence[float],
    names: Sequence[str],
    weights: Vector | None,
    scored: bool,
) -> Arrays:
    """Return predictive and realised means by group of a covariate.

    ``sums`` (S + 4, G) is the transpose of ``predictive.Totals.groups``; groups of weight 0 are
    left out. ``edges`` (G - 1,) are those of the groups; the rest is as for :func:`curves`.
    ``scored``: whether the table has a response.
    """
    draws = len(sums) - 4
    used = sums[draws + 2] > 0.0
    weight = sums[draws + 2, used]
    arrays: Arrays = {
        "group_lower": (("group",), np.append(-np.inf, edges)[used]),
        "group_covariate": (("group",), sums[draws, used] / weight),
        "group_rows": (("group",), sums[draws + 3, used].astype(np.int64)),
        "group_weight": (("group",), weight),
    }
    if scored:
        arrays["group_realised"] = (("group",), sums[draws + 1, used] / weight)
    means = sums[:draws, used] / weight
    return arrays | _band("group_mean", "group", means, probabilities, names, weights)


def _band(
    name: str,
    dim: str,
    values: Matrix,
    probabilities: Sequence[float],
    names: Sequence[str],
    weights: Vector | None,
) -> Arrays:
    """Return the mean and the quantiles over draws of ``values`` (S, k), as named arrays."""
    by_place = np.ascontiguousarray(values.T)
    arrays: Arrays = {name: ((dim,), mean(by_place, weights))}
    for end, bound in zip(names, quantiles(by_place, probabilities, weights), strict=True):
        arrays[f"{name}_{end}"] = ((dim,), bound)
    return arrays
