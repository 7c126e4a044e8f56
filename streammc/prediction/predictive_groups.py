"""Predictions of the rows of groups: each draw is integrated over the effect of the group.

At a draw theta a row has the mean response ``mu = E[h(x . beta + offset + w)]``, ``w`` the part of
its group (``prediction.row_effects``). Quantiles are those of ``h`` over the draws and the effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.quantiles import quantiles
from streammc.prediction.label_index import UNKNOWN
from streammc.prediction.log_scores import log_densities
from streammc.prediction.mean_responses import responses
from streammc.prediction.predictive import PredictTask, Totals
from streammc.prediction.row_effects import SCORE_NODES, GroupPart, RowEffects, quantile_points
from streammc.protocols import Index, Matrix, RowBlock, Vector

_TILE_ENTRIES: Final = 2**18
_LEAST_TILE: Final = 16
_POINTS: Final = 1000
"""Fewest points of a row whose quantiles are taken."""
_LEAST_LEVELS: Final = 4
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class GroupedPredictTask(PredictTask):
    """``PieceTask`` that writes the predictions of rows of groups."""

    effects: RowEffects = field(kw_only=True)

    def tile_rows(self) -> int:
        """Return the rows of a tile, so that it fits into a cache."""
        entries = self.coefficients.draws * self.effects.nodes
        return max(_TILE_ENTRIES // entries // _LEAST_TILE, 1) * _LEAST_TILE

    def groups_of(self, piece: RowBlock, totals: Totals) -> Index:
        """Return the groups of the rows of a piece; count those of new groups."""
        found = self.effects.groups_of(piece.start, piece.start + len(piece.y))
        totals.new_rows[0] += float((found == UNKNOWN).sum())
        return found

    def means(
        self, eta: NDArray[np.float64], X: NDArray[Any], groups: Index
    ) -> tuple[Matrix, GroupPart]:
        """Return the mean responses (m, S), and the part of the groups."""
        part = self.effects.of_rows(groups, X)
        at_nodes = responses(self.model, _moved(eta, part.values))
        shaped = at_nodes.reshape(part.shares.shape)
        # The nodes that a rule does not use are 0 with share 0.
        return np.einsum("msq,msq->ms", shaped, part.shares), part

    def bounds(self, means: Matrix, eta: NDArray[np.float64], made_by: GroupPart) -> Matrix:
        """Return the quantiles (probabilities, m) of the mean response.

        Those of the predictor, of which every mean response is an increasing function. At each
        draw the effect has J equally probable values, at levels that differ between draws.
        """
        draws = self.coefficients.draws
        count = max(-(-_POINTS // draws), _LEAST_LEVELS)
        turn = (0.5 + _GOLDEN * np.arange(draws)) % 1.0
        levels = (np.arange(count) + turn[:, None]) / count
        points = eta[0][..., None] + quantile_points(made_by, levels)
        weights = self.coefficients.weights
        ends = quantiles(
            points.reshape(len(points), -1),
            self.probabilities,
            None if weights is None else np.repeat(weights, count),
            overwrite=True,
        )
        predictors = np.zeros((len(eta), ends.size))
        predictors[0] = ends.ravel()
        found: Matrix = np.asarray(self.model.mean(predictors), dtype=np.float64)
        return found.reshape(ends.shape).copy()

    def log_densities(
        self, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, groups: Index
    ) -> Vector:
        """Return the log predictive densities (m,) of responses, over draws and effects."""
        found = np.empty(len(y))
        step = max(self.tile_rows() * self.effects.nodes // (4 * SCORE_NODES), 1)
        for low in range(0, len(y), step):
            here = slice(low, low + step)
            part = self.effects.of_rows(groups[here], X[here], SCORE_NODES)
            found[here] = self._some_densities(eta[:, here], X[here], y[here], part)
        return found

    def _some_densities(
        self, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, part: GroupPart
    ) -> Vector:
        m, draws, size = part.values.shape
        p = len(eta)
        design = np.ascontiguousarray(X, dtype=np.float64).T
        values = np.empty((draws * size, m))
        log_densities(
            self.model.link,
            np.ascontiguousarray(_moved(eta, part.values)),
            design,
            np.ascontiguousarray(y),
            self.model.constants,
            np.empty((p, m)),
            np.empty((1 + p + p * (p + 1) // 2, m)),
            values,
        )
        weights = self.coefficients.weights
        share = part.shares / draws if weights is None else part.shares * weights[:, None]
        share = share.reshape(m, -1).T
        if weights is not None:
            share = share / weights.sum()
        values = np.where(share == 0.0, -np.inf, values)
        top = values.max(axis=0)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Vector = np.log((share * np.exp(values - top)).sum(axis=0)) + top
        return found


def _moved(eta: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return predictors (p, m, S Q) with the part of the groups added to the first."""
    m, draws, size = values.shape
    out = np.empty((len(eta), m, draws, size))
    np.add(eta[0][..., None], values, out=out[0])
    out[1:] = eta[1:, ..., None]
    return out.reshape(len(eta), m, draws * size)
