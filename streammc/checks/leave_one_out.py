"""Leave-one-out terms of rows from their log-likelihoods at draws (PSIS-LOO, WAIC).

With draws ``theta_s`` of the posterior and ``l_is = log p(y_i | theta_s)``, row i has

    lpd_i  = log (1/S) sum_s exp(l_is)
    elpd_i = log sum_s v_is exp(l_is),   v_is: smoothed and normalised exp(-l_is)
    waic_i = lpd_i - var_s l_is

(Vehtari, Gelman and Gabry 2017, eqs. 3, 10 and 11-13). The smoothing is that of
:mod:`streammc.diagnostics.weights`.

A row of weight w counts as w observations of one response, of which **one** is left out: its terms
are w times those of an observation, as in the table that has the row w times. Of a weight below 1
there is no more to leave out than the row: its importance weights are ``exp(-w l_is)``. Binomial
trials are weights too, but not equal observations: such a row is one observation, left out with all
its trials.

Surrogates of leave-one-out terms: what a Gaussian posterior makes of a row's expansion.

With the draws' mean and covariance, the predictors of row i move by ``s ~ Normal(0, V)``, and its
log-likelihood is expanded to second order, ``l(s) ~ l + g's + s'Hs/2``. The terms are then in
closed form (the Laplace approximation of Magnusson et al. 2020, with its second-order term):

    elpd = -log E exp(-l(s)) ~ l - b' (I + M)^-1 b / 2 + log det(I + M) / 2
    lpd  =  log E exp(l(s))  ~ l + b' (I - M)^-1 b / 2 - log det(I - M) / 2

with ``b = R g`` and ``M = R H R``, R the symmetric root of V. Exact for a Gaussian response of
known scale and a Gaussian posterior; elsewhere the difference estimator corrects what is left.
A row of w observations has w times these terms; of ``w < 1``, ``elpd`` is the difference of
``log E exp((1 - w) l)`` and ``log E exp(-w l)``, as in :mod:`streammc.checks.leave_one_out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.checks.run_draws import RowDensities
from streammc.diagnostics.weights import smoothed_rows
from streammc.errors import DataError
from streammc.models.base import predictors_at, wide
from streammc.protocols import Index, Matrix, Model, PassTask, RowBlock, Rows, Vector


class RowTerms(NamedTuple):
    """Terms of m rows, each (m,), over all observations of a row; all 0 for a row of weight 0."""

    elpd: Vector
    """Log density of the response, one observation left out."""
    lpd: Vector
    """Log density of the response, all observations included."""
    waic: Vector
    """``lpd`` less the variance of the log-likelihood of each observation over draws."""
    shape: Vector
    """Pareto k of the weights that leave the row out; minus infinity where all are equal."""
    observations: Vector
    """Number in the row: its weight, or 1 for a row that is one observation."""
    weight: Vector


def observations(weight: Vector, whole_rows: bool) -> tuple[Vector, Vector]:
    """Return the powers of the density that make an observation of each row, and their numbers.

    With ``whole_rows`` a row is one observation, whatever its weight (m,): the weights are trials.
    """
    used = (weight > 0.0).astype(np.float64)
    return (weight, used) if whole_rows else (used, weight)


def weight_kinds(weight: Vector) -> Vector:
    """Return the sum of weights, and the numbers of those but 0 and 1 and of fractions, (3,)."""
    uneven, fractions = (weight != 0.0) & (weight != 1.0), weight != np.rint(weight)
    return np.array([weight.sum(dtype=np.float64), uneven.sum(), fractions.sum()], np.float64)


def row_terms(values: Matrix, count: Vector, relative_size: float) -> RowTerms:
    """Return the terms of rows from the log-likelihoods ``values`` (S, m) of one observation each.

    S is at least 25. ``count`` (m,) are the observations of each row; its ``weight`` too, unless
    the caller replaces it. ``relative_size``: effective sample size of the draws over their number.
    """
    from scipy.special import logsumexp

    rows = np.ascontiguousarray(values.T)
    left_out = np.minimum(count, 1.0)
    log_weight, shape = smoothed_rows(-rows * left_out[:, None], relative_size)
    level = np.ptp(rows, axis=1) == 0.0
    shape = np.where(level, -np.inf, np.where(np.isnan(shape), np.inf, shape))
    used = count > 0.0
    lpd = logsumexp(rows, axis=1) - np.log(rows.shape[1])
    elpd = logsumexp(log_weight + rows, axis=1)
    waic = lpd - rows.var(axis=1, ddof=1)
    # Rounding must not make a term of a row without an observation.
    elpd, lpd, waic = (np.where(used, count * each, 0.0) for each in (elpd, lpd, waic))
    shape = np.where(used, shape, -np.inf)
    return RowTerms(elpd, lpd, waic, shape, count, count)


def joined(parts: list[RowTerms]) -> RowTerms:
    """Return the terms of neighbouring rows as one."""
    return RowTerms(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class LeaveOneOut(PassTask[RowTerms]):
    """``PassTask`` that returns the terms of all rows, in their order."""

    densities: RowDensities
    relative_size: float
    whole_rows: bool = False
    """Whether a row is one observation, whatever its weight."""

    def map(self, block: RowBlock) -> RowTerms:
        """Return the terms of the rows of a block."""
        return self.of_rows(Rows(*block[2:]), block.start + np.arange(len(block.y)))

    def combine(self, left: RowTerms, right: RowTerms) -> RowTerms:
        """Return the terms of two neighbouring blocks."""
        return joined([left, right])

    def of_rows(self, rows: Rows, numbers: Index) -> RowTerms:
        """Return the terms of rows, evaluated in tiles; ``numbers`` (m,) are for messages."""
        step = self.densities.tile_rows()
        parts = []
        for low in range(0, len(rows.y), step):
            tile = Rows(
                *(np.ascontiguousarray(each[low : low + step], np.float64) for each in rows)
            )
            power, count = observations(tile.weight, self.whole_rows)
            values = self.densities.of_rows(tile._replace(weight=power), numbers[low : low + step])
            terms = row_terms(values, count, self.relative_size)
            parts.append(terms._replace(weight=tile.weight))
        return joined(parts)


COLUMNS: Final = 3
"""Columns of surrogates: of elpd, of lpd, and of their difference, lpd - elpd."""
_TILE_ENTRIES: Final = 2**18
_LEAST: Final = 0.05
"""Least eigenvalue of ``I + M`` and ``I - M``: beyond it a row is not Gaussian at all."""
_MOST_FEATURES: Final = 512
"""Above it, and above ``_MOST_PREDICTORS``, the surrogate is the log-likelihood at the mean."""
_MOST_PREDICTORS: Final = 16


class SurrogateSums(NamedTuple):
    """Sums over rows."""

    observations: float
    """Number of observations."""
    weights: Vector
    """(3,) sum of the weights, and the numbers of those but 0 and 1 and of fractions."""
    total: Vector
    """(COLUMNS,) sums of the surrogates."""
    square: Vector
    """(COLUMNS,) sums of the squares of the surrogates of an observation."""
    size: Vector
    """(k,) sizes ``|lpd - elpd|`` of the most influential rows, in falling order."""
    place: Index
    """(k,) numbers of these rows."""


@dataclass(frozen=True, eq=False)
class Surrogate(PassTask[SurrogateSums]):
    """Surrogates of the terms of rows, and the ``PassTask`` that sums them over all rows."""

    model: Model
    mean: Vector
    """(d,) mean of the draws."""
    covariance: Matrix
    """(d, d) covariance of the draws."""
    where: str
    """The table, for messages."""
    largest: int = 0
    """Number of the most influential rows to find."""
    whole_rows: bool = False
    """Whether a row is one observation, whatever its weight."""

    def map(self, block: RowBlock) -> SurrogateSums:
        """Return the sums over the rows of a block."""
        numbers = block.start + np.arange(len(block.y))
        surrogates = self.of_rows(Rows(*block[2:]), numbers)
        _, count = observations(block.weight, self.whole_rows)
        size, place = self._cut(np.abs(surrogates[:, 2]), numbers)
        square = (surrogates * surrogates / np.where(count > 0.0, count, 1.0)[:, None]).sum(axis=0)
        return SurrogateSums(
            float(count.sum(dtype=np.float64)),
            weight_kinds(block.weight),
            surrogates.sum(axis=0),
            square,
            size,
            place,
        )

    def combine(self, left: SurrogateSums, right: SurrogateSums) -> SurrogateSums:
        """Return the sums over two neighbouring blocks."""
        size, place = self._cut(
            np.concatenate([left.size, right.size]), np.concatenate([left.place, right.place])
        )
        return SurrogateSums(
            left.observations + right.observations,
            left.weights + right.weights,
            left.total + right.total,
            left.square + right.square,
            size,
            place,
        )

    def _cut(self, size: Vector, place: Index) -> tuple[Vector, Index]:
        """Return the largest sizes and their places, in falling order."""
        if len(size) > 2 * self.largest:  # sorting all costs as much as the link
            largest = np.argpartition(-size, self.largest)[: self.largest]
            size, place = size[largest], place[largest]
        order = np.lexsort((place, -size))[: self.largest]
        return size[order], place[order]

    def of_rows(self, rows: Rows, numbers: Index) -> Matrix:
        """Return the surrogates (m, COLUMNS) of rows; 0 for rows of weight 0.

        DataError if one is not finite; ``numbers`` (m,) are those of the rows, for the message.
        """
        m, q = rows.X.shape
        p = self.model.n_linear + self.model.n_scalar
        step = max(_TILE_ENTRIES // max(q, p * p, 1), 1)
        surrogates = np.empty((m, COLUMNS))
        for low in range(0, m, step):
            here = slice(low, low + step)
            tile = Rows(*(np.ascontiguousarray(each[here], np.float64) for each in rows))
            surrogates[here] = self._of_tile(tile)
        wrong = np.flatnonzero(~np.isfinite(surrogates).all(axis=1))
        if len(wrong):
            raise DataError(
                f"expected a finite log-likelihood at the mean of the draws in {self.where}, found "
                f"none in row {int(numbers[wrong[0]]) + 1}: check its columns and its response"
            )
        return surrogates

    def _of_tile(self, rows: Rows) -> Matrix:
        m, q = rows.X.shape
        n, p = self.model.n_linear, self.model.n_linear + self.model.n_scalar
        curved = p <= _MOST_PREDICTORS and q <= _MOST_FEATURES if n else True
        eta = predictors_at(self.model, rows, self.mean)
        out = np.empty((1 + p + p * (p + 1) // 2, m))
        order = 2 if curved else 0
        self.model.link(eta, rows.X.T, rows.y, self.model.constants, order, out)
        power, count = observations(rows.weight, self.whole_rows)
        with np.errstate(invalid="ignore"):
            out = np.where(power > 0.0, out * power, 0.0)
        if not curved:
            value = count * out[0]
            return np.stack([value, value, np.zeros(m)], axis=1)
        b, values = self._reduced(rows.X, out, p)
        left_out = np.minimum(count, 1.0)
        elpd = -_log_mean(-left_out, out[0], b, values)
        if (left_out < 1.0).any():
            elpd += _log_mean(1.0 - left_out, out[0], b, values)
        elpd *= count
        lpd = count * _log_mean(np.ones(m), out[0], b, values)
        return np.stack([elpd, lpd, lpd - elpd], axis=1)

    def _reduced(self, X: Matrix, out: Matrix, p: int) -> tuple[Matrix, Matrix]:
        """Return ``b`` in the eigenvectors of M (m, p), and the eigenvalues (m, p)."""
        m, n = len(X), self.model.n_linear
        if p == 1 and n == 1:
            variance = np.einsum("ij,ij->i", X @ self.covariance, X)
            return (np.sqrt(variance) * out[1])[:, None], (variance * out[2])[:, None]
        gradient, hessian = out[1 : 1 + p].T, np.empty((m, p, p))
        upper = np.triu_indices(p)
        hessian[:, upper[0], upper[1]] = out[1 + p :].T
        hessian[:, upper[1], upper[0]] = out[1 + p :].T
        root = _root(self._variances(X, p))
        values, vectors = np.linalg.eigh(root @ hessian @ root)
        b = np.einsum("iab,ia->ib", vectors, np.einsum("...ab,...b->...a", root, gradient))
        return b, values

    def _variances(self, X: Matrix, p: int) -> NDArray[np.float64]:
        """Return the covariances of the predictors, (m, p, p), or (p, p) without a linear one."""
        m, q = X.shape
        n = self.model.n_linear
        if not n:
            return self.covariance
        covariances = np.empty((m, p, p))
        covariance = wide(self.model, wide(self.model, self.covariance, q).T, q)
        shared = covariance[n * q :]
        covariances[:, n:, n:] = shared[:, n * q :]
        for a in range(n):
            own = slice(a * q, (a + 1) * q)
            covariances[:, a, n:] = X @ shared[:, own].T
            covariances[:, n:, a] = covariances[:, a, n:]
            for b in range(a, n):
                cross = X @ covariance[own, b * q : (b + 1) * q]
                covariances[:, a, b] = covariances[:, b, a] = np.einsum("ij,ij->i", cross, X)
        return covariances


@dataclass(frozen=True, eq=False)
class RowSurrogates(PassTask[Vector]):
    """``PassTask`` that returns the surrogates of ``elpd`` of all rows, in their order."""

    surrogate: Surrogate

    def map(self, block: RowBlock) -> Vector:
        """Return the surrogates of the rows of a block."""
        numbers = block.start + np.arange(len(block.y))
        return self.surrogate.of_rows(Rows(*block[2:]), numbers)[:, 0]

    def combine(self, left: Vector, right: Vector) -> Vector:
        """Return the surrogates of two neighbouring blocks."""
        return np.concatenate([left, right])


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric roots of covariances (..., p, p)."""
    values, vectors = np.linalg.eigh(covariance)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    root: NDArray[np.float64] = scaled @ np.swapaxes(vectors, -1, -2)
    return root


def _log_mean(power: Vector, value: Vector, b: Matrix, values: Matrix) -> Vector:
    """Return ``log E exp(a l(s))`` (m,) for powers ``a`` (m,), with the eigenvalues of M (m, p)."""
    a = power[:, None]
    shrunk = np.maximum(1.0 - a * values, _LEAST)
    log_mean: Vector = power * value + 0.5 * ((a * b) ** 2 / shrunk - np.log(shrunk)).sum(axis=1)
    return log_mean
