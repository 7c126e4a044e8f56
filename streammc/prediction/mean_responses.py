"""Mean responses at predictors, and their averages over a normal part of the predictor.

NumPy alone: the scorer of a model file uses it, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ModelError
from streammc.protocols import Matrix, Model, Vector

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
_POINTS: Final = 1000
"""Fewest points of a row whose quantiles are taken."""
_LEAST_LEVELS: Final = 4
_GOLDEN: Final = 0.6180339887498949


class MeanModel(Protocol):
    """What is asked of a model here."""

    @property
    def name(self) -> str:
        """Name of the model."""

    @property
    def n_scalar(self) -> int:
        """Number of parameters without a column."""

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m)."""


@dataclass(frozen=True)
class CategoryChance:
    """A model whose mean response is the probability of a category.

    It is the exponential of the log density there, ``P(y = k) = exp(l_k)``, with the derivatives
    ``P l_k'`` and ``P (l_k'' + l_k' l_k'^T)``.
    """

    model: Model
    """Regression on categories."""
    category: int
    mean_by_draw: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the regression."""
        return self.model.name

    @property
    def n_linear(self) -> int:
        """Number of its linear predictors."""
        return self.model.n_linear

    @property
    def n_scalar(self) -> int:
        """Number of its parameters without a column."""
        return self.model.n_scalar

    def mean(self, eta: Matrix) -> Vector:
        """Return the probability per column of ``eta`` (p, m)."""
        chance: Vector = np.exp(self._log_density(eta, 0)[0])
        return chance

    def derivatives(self, eta: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """Return the probability (m,) and its derivatives in the predictors (p, m).

        First ones (p, m), and second ones (p (p + 1) / 2, m) in the pairs b <= a, by a.
        """
        p = len(eta)
        out = self._log_density(eta, 2)
        chance, slope = np.exp(out[0]), out[1 : 1 + p]
        row = {pair: 1 + p + k for k, pair in enumerate(combinations_with_replacement(range(p), 2))}
        bend = [out[row[b, a]] + slope[a] * slope[b] for a in range(p) for b in range(a + 1)]
        return chance, chance * slope, chance * np.array(bend)

    def _log_density(self, eta: Matrix, order: int) -> Matrix:
        """Return log density and derivatives (., m) of the category."""
        p, m = eta.shape
        out = np.empty((1 if order == 0 else 1 + p + p * (p + 1) // 2, m))
        category = np.full(m, float(self.category))
        at = np.ascontiguousarray(eta, np.float64)
        self.model.link(at, np.zeros((0, m)), category, self.model.constants, order, out)
        return out


def responses(model: MeanModel, eta: NDArray[np.float64]) -> Matrix:
    """Return the mean responses (m, S) of predictors (p, m, S), in a new array.

    ModelError if the model has no mean response, or returns another shape.
    """
    p, m, draws = eta.shape
    mean = model.mean(eta.reshape(p, m * draws))
    if mean.shape != (m * draws,):
        raise ModelError(
            f"expected mean(eta) of the model {model.name!r} to return shape {(m * draws,)}, "
            f"found {mean.shape}: correct the function"
        )
    means = np.ascontiguousarray(mean.reshape(m, draws), dtype=np.float64)
    return means.copy() if np.may_share_memory(means, eta) else means


def effect_levels(draws: int) -> Matrix:
    """Return the levels (S, J) of J equally probable values of an effect, that differ by draw."""
    count = max(-(-_POINTS // draws), _LEAST_LEVELS)
    turn = (0.5 + _GOLDEN * np.arange(draws)) % 1.0
    levels: Matrix = (np.arange(count) + turn[:, None]) / count
    return levels


class NormalRules:
    """Mean responses where the linear predictor has a normal part, by nodes of measured error.

    Of a log link they are ``exp(eta + sd^2 / 2)``, of an identity those at ``eta``.

    A mean response is a function of the predictor over a range that is narrow beside a wide normal
    part: 15 Gauss-Hermite nodes, 6 apart at a standard deviation of 20, do not see it. The nodes of
    a row are the fewest of a list with an error, against half their distance and a wider
    reach, below 1e-4 of the mean at predictors all over the range. The list has the Gauss-Hermite
    rule and the trapezoidal rule at distances that halve, whose error falls as ``exp(-c / h)``.
    """

    def __init__(self, model: MeanModel) -> None:
        self._model, self._known = model, dict[int, tuple[Vector, Vector]]()
        eta = np.zeros((1 + model.n_scalar, 4))
        eta[0] = -3.0, 0.0, 1.0, 2.0
        mean = model.mean(eta)
        line = mean[1] + (mean[2] - mean[1]) * eta[0]
        self._straight = bool(np.allclose(mean, line, rtol=1e-10, atol=0.0))
        self._exponential = bool(np.allclose(mean, mean[1] * np.exp(eta[0]), rtol=1e-10, atol=0.0))

    def means(self, eta: NDArray[np.float64], sd: Matrix) -> Matrix:
        """Return the mean responses (m, S) at predictors ``eta`` (p, m, S) and ``sd`` (m, S)."""
        if self._straight:
            return responses(self._model, eta)
        if self._exponential:
            moved = eta.copy()
            moved[0] += 0.5 * sd * sd
            return responses(self._model, moved)
        means = np.zeros(sd.shape)
        largest = np.maximum(sd.max(axis=1, initial=0.0), 1.0)
        size = np.ceil(np.log2(np.minimum(largest, 2.0**_WIDEST))).astype(np.int64)
        for each in np.unique(size):
            rows = np.flatnonzero(size == each)
            means[rows] = self._integrated(eta[:, rows], sd[rows], *self.rule(int(each)))
        return means

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
