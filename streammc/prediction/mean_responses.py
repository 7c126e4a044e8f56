"""Draws as coefficients of linear predictors, and the mean responses of rows at each of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ModelError
from streammc.protocols import Matrix, Model, Vector

_TILE_ENTRIES = 2**16  # rows times draws: 512 KB each for predictors and means
_LEAST_TILE = 64
_CURVE_DRAWS = 100
"""Draws with a ROC curve, enough for its band: a count costs as much as a prediction."""


class Coefficients(NamedTuple):
    """Draws as coefficients of the linear predictors of a table, on the table's scale."""

    slopes: NDArray[np.float64]
    """(n_linear, S, q) slopes."""
    shifts: Matrix
    """(n_linear, S) added to each predictor, for the difference of two standardisations."""
    scalars: Matrix
    """(n_scalar, S) parameters without a column."""
    weights: Vector | None
    """(S,) weights of the draws; ``None``: all 1."""

    @property
    def draws(self) -> int:
        """Number of draws, S."""
        return int(self.shifts.shape[1])

    def predictors(
        self, X: NDArray[Any], offset: Vector, eta: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return the predictors (p, m, S) of rows ``X`` (m, q), in ``eta`` if it is given.

        The draws of a row are contiguous, because quantiles sort them.
        """
        design = np.asarray(X, dtype=np.float64)
        n_linear, draws = self.shifts.shape
        if eta is None:
            eta = np.empty((n_linear + len(self.scalars), len(X), draws))
        for a in range(n_linear):
            np.matmul(design, self.slopes[a].T, out=eta[a])
            if self.shifts[a].any():
                eta[a] += self.shifts[a]
        if offset.any():
            eta[0] += offset[:, None]
        eta[n_linear:] = self.scalars[:, None, :]
        return eta

    def tile_rows(self) -> int:
        """Return the rows of a tile, so that it fits into a cache."""
        return max(_TILE_ENTRIES // self.draws // _LEAST_TILE, 1) * _LEAST_TILE

    @property
    def curve_step(self) -> int:
        """Step between draws with a ROC curve; 1 if the draws have weights."""
        return 1 if self.weights is not None else -(-self.draws // _CURVE_DRAWS)

    @property
    def curve_draws(self) -> int:
        """Number of draws with a ROC curve, C."""
        return -(-self.draws // self.curve_step)

    def thinned(self, most: int) -> Coefficients:
        """Return at most ``most`` evenly spaced draws, without their weights."""
        kept = np.arange(self.draws)[:: max(-(-self.draws // most), 1)]
        slopes, shifts, scalars = self.slopes[:, kept], self.shifts[:, kept], self.scalars[:, kept]
        return Coefficients(slopes, shifts, scalars, None)


def responses(model: Model, eta: NDArray[np.float64]) -> Matrix:
    """Return the mean responses (m, S) of predictors (p, m, S), in a new array.

    Raises
    ------
    ModelError
        If the model has no mean response, or returns another shape.
    """
    p, m, draws = eta.shape
    found = model.mean(eta.reshape(p, m * draws))
    if found.shape != (m * draws,):
        raise ModelError(
            f"expected mean(eta) of the model {model.name!r} to return shape {(m * draws,)}, "
            f"found {found.shape}: correct the function"
        )
    means = np.ascontiguousarray(found.reshape(m, draws), dtype=np.float64)
    return means.copy() if np.may_share_memory(means, eta) else means
