"""Predictions of every row and sums over all rows, in one pass over a table.

For draws ``theta_s`` with weights (all 1, or signs) a row has the mean responses
``mu_s = E[y | eta(theta_s)]``, of which the weighted mean and quantiles are written. Sums over
rows, for each draw: histograms of ``mu_s``, means by group, and the log predictive density.

Predictions of the rows of groups are integrated over the effect of the group: at a draw theta a row
has the mean response ``mu = E[h(x . beta + offset + w)]``, ``w`` the part of
its group (``prediction.row_effects``). Quantiles are those of ``h`` over the draws and the effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, cast

import numpy as np
from numba import types
from numpy.typing import NDArray

from streammc.diagnostics.quantiles import mean, quantiles
from streammc.errors import DataError, ModelError
from streammc.models.mixed.group_constants import (
    PANELS,
    STUDENT_T,
    STUDENT_T_FIXED,
    group_constants,
)
from streammc.models.mixed.group_effects import normal_densities
from streammc.models.mixed.mixed_model import constants_of, kind_of
from streammc.models.responses import counts_of_trials
from streammc.numerics.coded_matrix import expanded_rows
from streammc.numerics.jit import LINK_TYPE, design_view, f8, index_vector, jit, matrix, vector
from streammc.prediction.crossed_effects import CrossedEffects
from streammc.prediction.mean_responses import CategoryChance, NormalRules, effect_levels, responses
from streammc.prediction.predictors import Coefficients
from streammc.prediction.roc import Covariate, Thresholds, add_bins, find_bins
from streammc.prediction.row_effects import UNKNOWN, GroupPart, RowEffects, quantile_points
from streammc.protocols import Index, Matrix, Model, PieceTask, RowBlock, Rows, Vector
from streammc.trace.row_arrays import RowTarget

NEAR_ONE: Final = 0.999
"""Probability p of a 1 above which ``1 - p`` has lost digits; the link is used instead."""
_cube: Any = types.Array(f8, 3, "C")


@jit(types.void(LINK_TYPE, _cube, design_view, vector, vector, matrix, matrix, matrix), borrow=True)
def log_densities(link, eta, X, y, constants, some, out, values):  # type: ignore[no-untyped-def]
    """Write log densities (S, m) at ``eta`` (p, m, S) to ``values``; ``some``, ``out``: buffers."""
    for s in range(values.shape[0]):
        for a in range(some.shape[0]):
            for i in range(some.shape[1]):
                some[a, i] = eta[a, i, s]
        link(some, X, y, constants, 0, out)
        for i in range(some.shape[1]):
            values[s, i] = out[0, i]


def densities_at(
    model: Model, eta: NDArray[np.float64], X: NDArray[Any], y: NDArray[Any]
) -> Matrix:
    """Return the log densities (S, m) of rows ``X`` (m, q), ``y`` at predictors (p, m, S)."""
    p, m, draws = eta.shape
    values = np.empty((draws, m))
    log_densities(
        model.link,
        np.ascontiguousarray(eta),
        np.asarray(X, dtype=np.float64).T,
        np.ascontiguousarray(y, dtype=np.float64),
        model.constants,
        np.empty((p, m)),
        np.empty((1 + p + p * (p + 1) // 2, m)),
        values,
    )
    return values


def log_chance(y: Vector, chance: Vector) -> Vector:
    """Return ``y log p + (1 - y) log(1 - p)`` (m,) for the averaged probability p of a 1.

    Accurate up to p = ``NEAR_ONE``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ones = np.where(y > 0.0, y * np.log(chance), 0.0)
        return ones + np.where(y < 1.0, (1.0 - y) * np.log1p(-chance), 0.0)


def add_scores(log_density: Vector, weight: Vector, scores: Vector) -> None:
    """Add to ``scores`` (3,): weighted sum of log densities (m,), sum of weights, NaN rows."""
    lost = np.isnan(log_density)
    used = ~lost & (weight > 0.0)
    scores[0] += float((weight[used] * log_density[used]).sum())
    scores[1] += float(weight.sum())
    scores[2] += float(lost.sum())


def log_average(
    model: Model, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, weights: Vector | None
) -> Vector:
    """Return ``log(sum_s w_s p(y | eta_s) / sum_s w_s)`` (m,); NaN if signs make the sum < 0."""
    values = densities_at(model, eta, X, y)
    top = values.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    density = np.exp(values - top)
    average = density.mean(axis=0) if weights is None else (weights / weights.sum()) @ density
    with np.errstate(divide="ignore", invalid="ignore"):
        log_density: Vector = np.log(average) + top
    return log_density


_COUNTED_ROWS = 2**14
"""Number of rows whose bins are stored before they are counted."""


class Workspace(NamedTuple):
    """Buffers that are reused for every tile of a block."""

    eta: Vector
    """Predictors (p, m, S), flat."""
    bins: NDArray[np.uint16]
    """Bins of the means of C draws and of their average (C + 1, rows), flat; or empty."""
    groups: Index
    """(m,) groups of the rows of the piece; empty for a model without."""


class Totals(NamedTuple):
    """Sums over rows; the totals of two blocks are added."""

    histogram: NDArray[np.float64]
    """(C + 1, B, 2) weight of classes 0 and 1 by bin of ``mu_s``; the last of their mean."""
    groups: Matrix
    """(G, S + 4) sums: ``mu_s`` by draw, covariate, response, weights, number of rows."""
    scores: Vector
    """(3,) weighted sum of log predictive densities, sum of weights, rows without a density."""
    new_rows: Vector
    """(1,) number of rows of groups that are not in the data of the run."""


@jit(types.void(matrix, index_vector, vector, vector, vector, matrix), borrow=True)
def add_groups(means, group, x, y, weight, sums):  # type: ignore[no-untyped-def]
    """Add rows with mean responses ``means`` (m, S) to ``sums`` (G, S + 4); see `Totals.groups`."""
    draws = means.shape[1]
    for i in range(means.shape[0]):
        to = sums[group[i]]
        for s in range(draws):
            to[s] += weight[i] * means[i, s]
        to[draws] += weight[i] * x[i]
        to[draws + 1] += weight[i] * y[i]
        to[draws + 2] += weight[i]
        to[draws + 3] += 1.0


@dataclass(frozen=True, eq=False)
class PredictTask(PieceTask[Totals]):
    """``PieceTask`` that writes the predictions of all rows and returns their totals."""

    model: Model
    coefficients: Coefficients
    probabilities: tuple[float, ...]
    names: tuple[str, ...]
    """Names of the arrays of the mean and the quantiles."""
    target: RowTarget
    where: str
    """The table, for messages."""
    scored: bool
    """Whether the table has a response."""
    takes_codes: ClassVar[bool] = True
    """Pieces must be whole chunks: those of the predictions."""
    thresholds: Thresholds | None = None
    """Bins of the histogram; ``None`` if the response is not binary."""
    covariate: Covariate | None = None
    categories: int = 0
    """Number of categories whose probabilities are written; 0: the mean response is."""

    @cached_property
    def of_categories(self) -> list[PredictTask]:
        """Return the task of the probability of each category."""
        return [
            replace(self, model=cast(Model, CategoryChance(self.model, k)), categories=0)
            for k in range(self.categories)
        ]

    def _empty(self) -> Totals:
        draws = self.coefficients.draws
        bins = 0 if self.thresholds is None else len(self.thresholds.edges) + 1
        groups = 0 if self.covariate is None else len(self.covariate.edges) + 1
        curves = self.coefficients.curve_draws
        histogram, sums = np.zeros((curves + 1, bins, 2)), np.zeros((groups, draws + 4))
        return Totals(histogram, sums, np.zeros(3), np.zeros(1))

    def map(self, block: RowBlock) -> Totals:
        """Write the predictions of a block of rows; return its totals."""
        return self.map_pieces(iter([block]))

    def map_pieces(self, pieces: Iterator[RowBlock]) -> Totals:
        """Write the predictions of a block, one chunk at a time; return its totals."""
        totals = self._empty()
        step = self.tile_rows()
        entries = self.coefficients.draws * step
        batch = max(_COUNTED_ROWS // step, 1) * step
        predictors = len(self.coefficients.shifts) + len(self.coefficients.scalars)
        binary = self.scored and self.thresholds is not None
        counted = self.coefficients.curve_draws + 1 if binary else 0
        room = np.empty(counted * batch, np.uint16)
        empty = Workspace(np.empty(predictors * entries), room, np.empty(0, np.int64))
        for piece in pieces:
            work = empty._replace(groups=self.groups_of(piece, totals))
            shape = (len(piece.y), self.categories) if self.categories else len(piece.y)
            columns = {name: np.empty(shape) for name in self.names}
            for start in range(0, len(piece.y), batch):
                stop = min(start + batch, len(piece.y))
                y, offset, weight = (
                    np.ascontiguousarray(part[start:stop], dtype=np.float64) for part in piece[3:]
                )
                rows = stop - start
                bins = work.bins[: counted * rows].reshape(counted, rows)
                if self.scored:
                    sees_trials = self.model.sees_trials
                    seen = counts_of_trials(y, weight)[0] if sees_trials else y
                    self._check(piece.start + start, seen)
                for low in range(start, stop, step):
                    here = slice(low, min(low + step, stop))
                    part = slice(low - start, here.stop - start)
                    tile = Rows(expanded_rows(piece.X[here]), y[part], offset[part], weight[part])
                    first = piece.start + low
                    self._tile(first, tile, columns, here, totals, bins, low - start, work)
                if counted:
                    average = columns[self.names[0]][start:stop]
                    batch_rows = Rows(piece.X[start:stop], y, offset, weight)
                    log_density = self._log_chances(batch_rows, average, work.groups[start:stop])
                    add_scores(log_density, weight, totals.scores)
                    add_bins(bins, y, weight, totals.histogram)
            self.target.write(piece.start, columns)
        return totals

    def tile_rows(self) -> int:
        """Return the rows of a tile, so that it fits into a cache."""
        return self.coefficients.tile_rows()

    def groups_of(self, piece: RowBlock, totals: Totals) -> Index:
        """Return the groups of the rows of a piece, see ``Workspace``; count new ones."""
        return np.empty(0, np.int64)

    def means(self, eta: NDArray[np.float64], X: NDArray[Any], groups: Index) -> tuple[Matrix, Any]:
        """Return the mean responses (m, S) at predictors ``eta`` (p, m, S), and what made them.

        What made them is for :meth:`bounds`.
        """
        return responses(self.model, eta), None

    def bounds(self, means: Matrix, eta: NDArray[np.float64], made_by: Any) -> Matrix:
        """Return the quantiles (probabilities, m) of the mean response; ``means`` may change."""
        return quantiles(means, self.probabilities, self.coefficients.weights, overwrite=True)

    def log_densities(
        self, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, groups: Index
    ) -> Vector:
        """Return the log predictive densities (m,) of responses."""
        return log_average(self.model, eta, X, y, self.coefficients.weights)

    def _log_chances(self, rows: Rows, average: Vector, groups: Index) -> Vector:
        """Return the log predictive densities (m,) of binary responses, given P(y = 1)."""
        X, y, offset, _ = rows
        log_density = log_chance(y, average)
        near = np.flatnonzero((average > NEAR_ONE) & (y < 1.0))
        step = self.tile_rows()
        for low in range(0, len(near), step):
            at = near[low : low + step]
            near_rows = expanded_rows(X[at])
            eta = self.coefficients.predictors(near_rows, offset[at])
            own = groups[at] if len(groups) else groups
            other = self.log_densities(eta, near_rows, np.zeros(len(at)), own)
            ones = np.where(y[at] > 0.0, y[at] * np.log(average[at]), 0.0)
            log_density[at] = ones + (1.0 - y[at]) * other
        return log_density

    def combine(self, left: Totals, right: Totals) -> Totals:
        """Return the sum of the totals of two neighbouring blocks."""
        return Totals(*(a + b for a, b in zip(left, right, strict=True)))

    def _tile(
        self,
        start: int,
        rows: Rows,
        columns: dict[str, Vector],
        here: slice,
        totals: Totals,
        bins: NDArray[np.uint16],
        first: int,
        work: Workspace,
    ) -> None:
        X, y, offset, weight = rows
        weights, m, draws = self.coefficients.weights, len(X), self.coefficients.draws
        count = len(self.coefficients.shifts) + len(self.coefficients.scalars)
        eta = work.eta[: count * m * draws].reshape(count, m, draws)
        self.coefficients.predictors(X, offset, eta)
        groups = work.groups[here]
        if not self.model.takes_offset and offset.any():
            raise DataError(
                f"expected rows without an offset in {self.where} for {self.model.name!r}, found "
                "an offset: make the data set without it"
            )
        for k, task in enumerate(self.of_categories):
            chances, made_by = task.means(eta, X, groups)
            average = mean(chances, weights)
            if not np.isfinite(average).all():
                self._refuse(start, X, offset, chances)
            columns[self.names[0]][here, k] = average
            bounds = task.bounds(chances, eta, made_by)
            for name, bound in zip(self.names[1:], bounds, strict=True):
                columns[name][here, k] = bound
        if self.categories:
            if self.scored:
                log_density = self.log_densities(eta, X, y, groups)
                add_scores(log_density, weight, totals.scores)
            return
        means, made_by = self.means(eta, X, groups)
        average = mean(means, weights)
        # A finite average has only finite terms.
        if not (np.isfinite(average).all() or np.isfinite(means).all()):
            self._refuse(start, X, offset, means)
        columns[self.names[0]][here] = average
        if self.scored:
            if self.thresholds is None:
                if self.model.sees_trials:  # of a row, here by trial, as that of binomial is
                    counts, _ = counts_of_trials(y, weight)
                    log_density = self.log_densities(eta, X, counts, groups)
                    log_density /= np.maximum(weight, 1.0)
                else:
                    log_density = self.log_densities(eta, X, y, groups)
                add_scores(log_density, weight, totals.scores)
            else:
                some = np.ascontiguousarray(means[:, :: self.coefficients.curve_step].T)
                find_bins(some, *self.thresholds, first, bins)
                find_bins(average[None, :], *self.thresholds, first, bins[-1:])
        if self.covariate is not None:
            x = self.covariate.values(X)
            group = np.searchsorted(self.covariate.edges, x, side="right").astype(np.int64)
            add_groups(means, group, x, y, weight, totals.groups)
        bounds = self.bounds(means, eta, made_by)
        for name, bound in zip(self.names[1:], bounds, strict=True):
            columns[name][here] = bound

    def _refuse(self, start: int, X: NDArray[Any], offset: Vector, means: Matrix) -> None:
        row = int(np.flatnonzero(~np.isfinite(means).all(axis=1))[0])
        if not (np.isfinite(X[row]).all() and np.isfinite(offset[row])):
            raise DataError(
                f"expected finite numbers in {self.where}, found NaN or infinity in row "
                f"{start + row + 1}: make the store again"
            )
        raise DataError(
            f"expected finite mean responses in {self.where}, found {means[row].max()} in row "
            f"{start + row + 1}: its columns are far outside those that the model was "
            "fitted to; check them"
        )

    def _check(self, start: int, y: Vector) -> None:
        fault = self.model.response_fault(y)
        if fault is not None:
            rows, expected = fault
            raise ModelError(
                f"expected {expected} as response of {self.model.name}, found {y[rows[0]]:g} in "
                f"row {start + int(rows[0]) + 1} of {self.where}: mend the response"
            )


_TILE_ENTRIES: Final = 2**18
_LEAST_TILE: Final = 16
_NODES: Final = 31
"""Nodes for the density of a response where the effect is not wider than ``_NARROW``."""
_NARROW: Final = 3.0


@dataclass(frozen=True, eq=False)
class GroupedPredictTask(PredictTask):
    """``PieceTask`` that writes the predictions of rows of groups."""

    effects: RowEffects | CrossedEffects = field(kw_only=True)

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
        groups = self.effects.groups_of(piece.start, piece.start + len(piece.y))
        new = groups == UNKNOWN  # of a row, or of each of its factors
        totals.new_rows[0] += float((new if new.ndim == 1 else new.any(axis=1)).sum())
        return groups

    def means(
        self, eta: NDArray[np.float64], X: NDArray[Any], groups: Index
    ) -> tuple[Matrix, list[GroupPart]]:
        """Return the mean responses (m, S), and the parts of the groups."""
        parts = self.effects.of_rows(groups, X)
        means = np.empty(eta.shape[1:])
        for part in parts:
            own = eta[:, part.rows]
            if part.values is None:
                own[0] += part.mean
                means[part.rows] = self.rules.means(own, part.sd)
                continue
            assert part.shares is not None
            at_nodes = responses(self.model, _moved(own, part.values))
            # The nodes that a rule does not use are 0 with share 0.
            terms = at_nodes.reshape(part.shares.shape) * part.shares
            means[part.rows] = terms.sum(axis=-1)
        return means, parts

    def bounds(self, means: Matrix, eta: NDArray[np.float64], made_by: list[GroupPart]) -> Matrix:
        """Return the quantiles (probabilities, m) of the mean response.

        Those of the predictor, of which every mean response is an increasing function, unless that
        function differs between draws. At each draw the effect has J equally probable values, at
        levels that differ between draws.
        """
        levels = effect_levels(self.coefficients.draws)
        points = np.empty((*eta.shape[1:], levels.shape[1]))
        for part in made_by:
            points[part.rows] = quantile_points(part, levels)
        by_draw = self.model.mean_by_draw
        points = (
            responses(self.model, _moved(eta, points)) if by_draw else eta[0][..., None] + points
        )
        weights = self.coefficients.weights
        ends = quantiles(
            points.reshape(len(points), -1),
            self.probabilities,
            None if weights is None else np.repeat(weights, levels.shape[1]),
            overwrite=True,
        )
        if by_draw:
            return ends
        predictors = np.zeros((len(eta), ends.size))
        predictors[0] = ends.ravel()
        bounds: Matrix = np.asarray(self.model.mean(predictors), dtype=np.float64)
        return bounds.reshape(ends.shape).copy()

    def log_densities(
        self, eta: NDArray[np.float64], X: NDArray[Any], y: Vector, groups: Index
    ) -> Vector:
        """Return the log predictive densities (m,) of responses, over draws and effects."""
        log_density = np.empty(len(y))
        for part in self.effects.of_rows(groups, X):
            own, here = eta[:, part.rows], np.ascontiguousarray(y[part.rows])
            if part.values is None:
                own[0] += part.mean
                values = self._of_normal(own, part.sd, here)
                log_density[part.rows] = self._average(
                    values[..., None], np.ones((*values.shape, 1))
                )
            else:
                log_density[part.rows] = self._at_nodes(own, X[part.rows], here, part)
        return log_density

    def _of_normal(self, eta: NDArray[np.float64], sd: Matrix, y: Vector) -> Matrix:
        """Return the log densities (k, S) of responses, integrated over normal effects."""
        kind, own_constants = kind_of(self.model), constants_of(self.model)
        assert kind is not None
        wide = (sd.max(axis=1) > _NARROW) | (kind in (STUDENT_T, STUDENT_T_FIXED))
        scalars, log_density = len(self.coefficients.scalars), np.empty(sd.shape)
        for rows, nodes in ((np.flatnonzero(~wide), _NODES), (np.flatnonzero(wide), PANELS)):
            constants = group_constants(kind, 0, scalars, False, -1, nodes, own_constants)
            values = np.empty((len(rows), sd.shape[1]))
            own = np.ascontiguousarray(eta[:, rows])
            normal_densities(own, sd[rows], y[rows], constants, values)
            log_density[rows] = values
        return log_density

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
            average: Vector = np.log(total) + top
        return average


def _moved(eta: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return predictors (p, m, S Q) with the part of the groups added to the first."""
    m, draws, size = values.shape
    out = np.empty((len(eta), m, draws, size))
    np.add(eta[0][..., None], values, out=out[0])
    out[1:] = eta[1:, ..., None]
    return out.reshape(len(eta), m, draws * size)
