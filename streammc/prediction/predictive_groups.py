"""Predictions of the rows of groups: each draw is integrated over the effect of the group.

At a draw theta a row has the mean response ``mu = E[h(x . beta + offset + w)]``, ``w`` the part of
its group (``prediction.row_effects``). Quantiles are those of ``h`` over the draws and the effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.quantiles import quantiles
from streammc.models.mixed.group_constants import (
    KINDS,
    PANELS,
    STUDENT_T,
    STUDENT_T_FIXED,
    group_constants,
)
from streammc.models.mixed.group_effects import normal_densities
from streammc.prediction.predictive import PredictTask, Totals, densities_at
from streammc.prediction.predictors import responses
from streammc.prediction.row_effects import UNKNOWN, GroupPart, RowEffects, quantile_points
from streammc.protocols import Index, Matrix, Model, RowBlock, Vector

_TILE_ENTRIES: Final = 2**18
_LEAST_TILE: Final = 16
_POINTS: Final = 1000
"""Fewest points of a row whose quantiles are taken."""
_LEAST_LEVELS: Final = 4
_GOLDEN: Final = 0.6180339887498949
_HERMITE: Final = 15
_STEP: Final = 0.5
"""Widest distance of the nodes of the trapezoidal rule, in standard deviations."""
_HALVINGS: Final = 8
_REACH: Final = 8.0
"""Half the length of the trapezoidal rule, in standard deviations."""
_ERROR: Final = 1e-4
_CHECKED: Final = 65
_WIDEST: Final = 10.0
"""Log2 of the largest standard deviation for which there is a rule of its own."""
_NODES: Final = 31
"""Nodes for the density of a response where the effect is not wider than ``_NARROW``."""
_NARROW: Final = 3.0


@dataclass(frozen=True, eq=False)
class GroupedPredictTask(PredictTask):
    """``PieceTask`` that writes the predictions of rows of groups."""

    effects: RowEffects = field(kw_only=True)

    @cached_property
    def rules(self) -> NormalRules:
        """Return the nodes for mean responses where the effect is normal."""
        return NormalRules(self.model)

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
    ) -> tuple[Matrix, list[GroupPart]]:
        """Return the mean responses (m, S), and the parts of the groups."""
        parts = self.effects.of_rows(groups, X)
        found = np.empty(eta.shape[1:])
        for part in parts:
            own = eta[:, part.rows]
            if part.values is None:
                own[0] += part.mean
                found[part.rows] = self.rules.means(own, part.sd)
                continue
            assert part.shares is not None
            at_nodes = responses(self.model, _moved(own, part.values))
            # The nodes that a rule does not use are 0 with share 0.
            terms = at_nodes.reshape(part.shares.shape) * part.shares
            found[part.rows] = terms.sum(axis=-1)
        return found, parts

    def bounds(self, means: Matrix, eta: NDArray[np.float64], made_by: list[GroupPart]) -> Matrix:
        """Return the quantiles (probabilities, m) of the mean response.

        Those of the predictor, of which every mean response is an increasing function. At each
        draw the effect has J equally probable values, at levels that differ between draws.
        """
        draws = self.coefficients.draws
        count = max(-(-_POINTS // draws), _LEAST_LEVELS)
        turn = (0.5 + _GOLDEN * np.arange(draws)) % 1.0
        levels = (np.arange(count) + turn[:, None]) / count
        points = np.empty((*eta.shape[1:], count))
        for part in made_by:
            points[part.rows] = eta[0, part.rows][..., None] + quantile_points(part, levels)
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
        for part in self.effects.of_rows(groups, X):
            own, here = eta[:, part.rows], np.ascontiguousarray(y[part.rows])
            if part.values is None:
                own[0] += part.mean
                values = self._of_normal(own, part.sd, here)
                found[part.rows] = self._average(values[..., None], np.ones((*values.shape, 1)))
            else:
                found[part.rows] = self._at_nodes(own, X[part.rows], here, part)
        return found

    def _of_normal(self, eta: NDArray[np.float64], sd: Matrix, y: Vector) -> Matrix:
        """Return the log densities (k, S) of responses, integrated over normal effects."""
        kind = KINDS[self.model.name]
        if kind == STUDENT_T and len(self.model.constants):
            kind = STUDENT_T_FIXED
        wide = (sd.max(axis=1) > _NARROW) | (kind in (STUDENT_T, STUDENT_T_FIXED))
        scalars, found = len(self.coefficients.scalars), np.empty(sd.shape)
        for rows, nodes in ((np.flatnonzero(~wide), _NODES), (np.flatnonzero(wide), PANELS)):
            constants = group_constants(kind, 0, scalars, False, -1, nodes, self.model.constants)
            values = np.empty((len(rows), sd.shape[1]))
            own = np.ascontiguousarray(eta[:, rows])
            normal_densities(own, sd[rows], y[rows], constants, values)
            found[rows] = values
        return found

    def _at_nodes(
        self, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, part: GroupPart
    ) -> Vector:
        """Return the log predictive densities (k,) of rows with known values of the effects."""
        assert part.values is not None
        assert part.shares is not None
        values = densities_at(self.model, _moved(eta, part.values), X, y)
        return self._average(values.T.reshape(part.values.shape), part.shares)

    def _average(self, log_density: NDArray[np.float64], shares: NDArray[np.float64]) -> Vector:
        """Return the logs (k,) of densities (k, S, Q), averaged by shares and over draws."""
        weights, draws = self.coefficients.weights, self.coefficients.draws
        share = shares / draws
        if weights is not None:
            share = shares * (weights / weights.sum())[:, None]
        values = np.where(share == 0.0, -np.inf, log_density)
        top = values.max(axis=(1, 2))
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = (share * np.exp(values - top[:, None, None])).sum(axis=(1, 2))
            found: Vector = np.log(total) + top
        return found


class NormalRules:
    """Mean responses where the linear predictor has a normal part, by nodes of measured error.

    Of a log link they are ``exp(eta + sd^2 / 2)``.

    A mean response is a function of the predictor over a range that is narrow beside a wide normal
    part: 15 Gauss-Hermite nodes, 6 apart at a standard deviation of 20, do not see it. The nodes of
    a row are the fewest of a list with an error, against half their distance and a wider
    reach, below 1e-4 of the mean at predictors all over the range. The list has the Gauss-Hermite
    rule and the trapezoidal rule at distances that halve, whose error falls as ``exp(-c / h)``.
    """

    def __init__(self, model: Model) -> None:
        self._model, self._known = model, dict[int, tuple[Vector, Vector]]()
        eta = np.zeros((1 + model.n_scalar, 4))
        eta[0] = -3.0, 0.0, 1.0, 2.0
        mean = model.mean(eta)
        self._exponential = bool(np.allclose(mean, mean[1] * np.exp(eta[0]), rtol=1e-10, atol=0.0))

    def means(self, eta: NDArray[np.float64], sd: Matrix) -> Matrix:
        """Return the mean responses (m, S) at predictors ``eta`` (p, m, S) and ``sd`` (m, S)."""
        if self._exponential:
            moved = eta.copy()
            moved[0] += 0.5 * sd * sd
            return responses(self._model, moved)
        found = np.zeros(sd.shape)
        largest = np.maximum(sd.max(axis=1, initial=0.0), 1.0)
        size = np.ceil(np.log2(np.minimum(largest, 2.0**_WIDEST))).astype(np.int64)
        for each in np.unique(size):
            rows = np.flatnonzero(size == each)
            found[rows] = self._integrated(eta[:, rows], sd[rows], *self.rule(int(each)))
        return found

    def rule(self, size: int) -> tuple[Vector, Vector]:
        """Return nodes and weights for standard deviations up to ``2^size``."""
        if size not in self._known:
            self._known[size] = self._chosen(2.0**size)
        return self._known[size]

    def _chosen(self, sd: float) -> tuple[Vector, Vector]:
        z, weights = np.polynomial.hermite_e.hermegauss(_HERMITE)
        rules = [(z, weights / weights.sum(), _STEP, _REACH)]
        steps = _STEP / 2.0 ** np.arange(_HALVINGS)
        rules += [(*_trapezia(step, _REACH), step, _REACH) for step in steps]
        eta = np.zeros((1 + self._model.n_scalar, _CHECKED, 1))
        eta[0, :, 0] = np.linspace(-4.0 * sd - 8.0, 4.0 * sd + 8.0, _CHECKED)
        spread = np.full((_CHECKED, 1), sd)
        for z, weights, step, reach in rules:
            finer = self._integrated(eta, spread, *_trapezia(0.5 * step, reach + 4.0))
            error = np.abs(self._integrated(eta, spread, z, weights) - finer)
            if (error <= _ERROR * np.abs(finer)).all():
                break
        return z, weights

    def _integrated(
        self, eta: NDArray[np.float64], sd: Matrix, z: Vector, weights: Vector
    ) -> Matrix:
        """Return the weighted sum (m, S) of the mean responses at the nodes."""
        total, moved = np.zeros(sd.shape), eta.copy()
        for node, weight in zip(z.tolist(), weights.tolist(), strict=True):
            np.add(eta[0], sd * node, out=moved[0])
            total += weight * responses(self._model, moved)
        return total


def _trapezia(step: float, reach: float) -> tuple[Vector, Vector]:
    """Return nodes of the trapezoidal rule over a standard normal density, and their weights."""
    most = math.ceil(reach / step)
    z: Vector = step * np.arange(-most, most + 1, dtype=np.float64)
    weights: Vector = np.exp(-0.5 * z * z)
    return z, weights / weights.sum()


def _moved(eta: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return predictors (p, m, S Q) with the part of the groups added to the first."""
    m, draws, size = values.shape
    out = np.empty((len(eta), m, draws, size))
    np.add(eta[0][..., None], values, out=out[0])
    out[1:] = eta[1:, ..., None]
    return out.reshape(len(eta), m, draws * size)
