"""Mean responses at predictors, and their averages over a normal part of the predictor.

NumPy alone: the scorer of a model file uses it, too.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ModelError
from streammc.protocols import Matrix, Vector

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

    Of a log link they are ``exp(eta + sd^2 / 2)``.

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
        self._exponential = bool(np.allclose(mean, mean[1] * np.exp(eta[0]), rtol=1e-10, atol=0.0))

    def means(self, eta: NDArray[np.float64], sd: Matrix) -> Matrix:
        """Return the mean responses (m, S) at predictors ``eta`` (p, m, S) and ``sd`` (m, S)."""
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
