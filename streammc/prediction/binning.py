"""Bin edges for a table of any size: thresholds of scores, and groups of a covariate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError
from streammc.likelihood.blocks import allocate_rows
from streammc.likelihood.invalid_responses import row_name
from streammc.prediction.histogram import Thresholds, find_thresholds
from streammc.prediction.mean_responses import Coefficients, responses
from streammc.prediction.predictive import Covariate
from streammc.protocols import Dataset, Matrix, Model, RowBlock, Vector

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
class _Column:
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
