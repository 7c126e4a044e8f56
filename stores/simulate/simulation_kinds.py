"""The kinds of simulated data: the true parameters and the rows of each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Vector

_TILE_VALUES: Final = 1 << 16
"""Values of a stream that stay in a core's cache while they are summed."""
_SIGMA: Final = 0.5
_NU: Final = 4.0
_PHI: Final = 2.0
_COMPONENTS: Final = 3
_TIED_VARIANCE: Final = 2.0
_HIDDEN: Final = (8, 4)


class Kind(Protocol):
    """One distribution of rows."""

    @property
    def y_dtype(self) -> str | None:
        """Return the dtype of the response; ``None`` without a response."""

    @property
    def ones(self) -> bool:
        """Return whether the first column is an intercept."""

    @property
    def most_rows(self) -> int | None:
        """Return the largest number of rows if all rows depend on each other, else ``None``."""

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the store's attributes of this kind beside kind, seed and theta."""

    def truth(self, dim: int, rng: np.random.Generator, intercept: float | None) -> Vector:
        """Return the true theta; refuse a ``dim`` or ``intercept`` that the kind does not allow."""

    def draw(
        self, theta: Vector, Z: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[Any] | None:
        """Fill ``Z`` (m, dim) with rows; return their responses (m,), or ``None``."""


@dataclass(frozen=True)
class Regression:
    """Regression data: the response depends on one linear predictor."""

    y_dtype: str
    intercept: float
    spread: float
    """Largest standard deviation of the linear predictor, for every ``dim``."""
    respond: Callable[[Vector, np.random.Generator], NDArray[Any]]
    scales: dict[str, float] = field(default_factory=dict)
    """True scale parameters by name."""
    most: float = 30.0
    """Largest intercept; counts must fit their dtype."""
    ones: bool = True
    most_rows: None = None

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the true scale parameters."""
        return {"scales": dict(self.scales)} if self.scales else {}

    def truth(self, dim: int, rng: np.random.Generator, intercept: float | None) -> Vector:
        """Return theta ~ N(0, 0.5^2), narrower if the predictor would exceed ``spread``."""
        if intercept is not None and not -30.0 <= intercept <= self.most:
            raise ConfigError(
                f"expected an intercept between -30 and {self.most:g} for this kind, found "
                f"{intercept!r}: give one in this range"
            )
        theta = rng.normal(0.0, min(0.5, self.spread / np.sqrt(max(dim - 1, 1))), dim)
        theta[0] = self.intercept if intercept is None else intercept
        return theta

    def draw(
        self,
        theta: Vector,
        Z: NDArray[np.float32],
        rng: np.random.Generator,
        effects: Vector | None = None,
    ) -> NDArray[Any]:
        """Fill ``Z`` with ones and standard normals; return the responses.

        ``effects`` (m,) are added to the linear predictor, if given.
        """
        eta = _predictors(theta[None], Z, rng)[0]
        return self.respond(eta if effects is None else eta + effects, rng)


@dataclass(frozen=True)
class Network:
    """Binary responses of a sigmoid network with random weights."""

    y_dtype: str = "uint8"
    ones: bool = True
    most_rows: None = None

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the sizes of the hidden layers."""
        return {"model": "network", "options": {"hidden": list(_HIDDEN)}}

    def truth(self, dim: int, rng: np.random.Generator, intercept: float | None) -> Vector:
        """Return random weights that use the range of the sigmoids; each bias centres its unit."""
        _no_intercept(intercept)
        parts = [rng.normal(0.0, 2.0 / np.sqrt(dim), _HIDDEN[0] * dim)]
        for n_in, n_out in pairwise((*_HIDDEN, 1)):
            weights = rng.normal(0.0, 8.0 / np.sqrt(n_in), (n_out, n_in))
            parts += [weights.ravel(), -0.5 * weights.sum(axis=1)]
        return np.concatenate(parts)

    def draw(self, theta: Vector, Z: NDArray[np.float32], rng: np.random.Generator) -> NDArray[Any]:
        """Fill ``Z`` with ones and standard normals; return the responses."""
        position = _HIDDEN[0] * Z.shape[1]
        inputs = _predictors(theta[:position].reshape(_HIDDEN[0], -1), Z, rng)
        for n_in, n_out in pairwise((*_HIDDEN, 1)):
            active = 0.5 * (1.0 + np.tanh(0.5 * inputs))
            inputs = np.tile(theta[position + n_out * n_in :][:n_out, None], len(Z))
            for k in range(n_out):
                for j in range(n_in):
                    inputs[k] += theta[position + k * n_in + j] * active[j]
            position += n_out * (n_in + 1)
        return _bernoulli(inputs[0], rng)


@dataclass(frozen=True)
class Mixture:
    """Rows of a mixture of equally likely Gaussians of one variance, without a response."""

    tied: bool
    y_dtype: None = None
    ones: bool = False
    most_rows: None = None

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the model and its fixed options."""
        if self.tied:
            return {"model": "gaussian-mixture-tied", "options": {"variance": _TIED_VARIANCE}}
        options = {"components": _COMPONENTS, "covariance": 1.0, "dim": dim}
        return {"model": "gaussian-mixture", "options": options}

    def truth(self, dim: int, rng: np.random.Generator, intercept: float | None) -> Vector:
        """Return theta = (0, 1) for tied means, or means drawn from N(0, 3^2)."""
        _no_intercept(intercept)
        if self.tied and dim != 1:
            raise ConfigError(
                f"expected dim 1, found {dim}: tied means are of one column, give --dim 1"
            )
        return np.array([0.0, 1.0]) if self.tied else rng.normal(0.0, 3.0, _COMPONENTS * dim)

    def draw(self, theta: Vector, Z: NDArray[np.float32], rng: np.random.Generator) -> None:
        """Fill ``Z`` with rows of the mixture."""
        means = np.cumsum(theta)[:, None] if self.tied else theta.reshape(_COMPONENTS, -1)
        rng.standard_normal(out=Z, dtype=np.float32)
        if self.tied:
            Z *= np.sqrt(_TIED_VARIANCE)
        Z += means[rng.integers(0, len(means), len(Z))]


@dataclass(frozen=True)
class Process:
    """A Gaussian process at random inputs (van de Meent, Paige and Wood 2014, section 4.2)."""

    y_dtype: str = "float64"
    ones: bool = False
    most_rows: int = 2048

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the name of the model."""
        return {"model": "gaussian-process"}

    def truth(self, dim: int, rng: np.random.Generator, intercept: float | None) -> Vector:
        """Return the logarithms of hyperparameters drawn from their priors (dim + 2,)."""
        _no_intercept(intercept)
        lengths = rng.normal(0.5, 1.0, dim)
        return np.append(lengths, np.log([rng.gamma(4.0), rng.gamma(2.0, 0.5)]))

    def draw(self, theta: Vector, Z: NDArray[np.float32], rng: np.random.Generator) -> Vector:
        """Fill ``Z`` with normals of sd equal to the mean length scale; return the responses.

        The Cholesky factor is triangular, so that a row depends only on the rows before it.
        """
        lengths, height, noise = np.exp(theta[:-2]), np.exp(theta[-2]), np.exp(theta[-1])
        rng.standard_normal(out=Z, dtype=np.float32)
        Z *= np.float32(lengths.mean())
        square = np.zeros((len(Z), len(Z)))
        for column, length in zip(Z.T.astype(np.float64), lengths, strict=True):
            square += np.subtract.outer(column, column) ** 2 / length**2
        covariance = height**2 * np.exp(-0.5 * square)
        covariance[np.diag_indices(len(Z))] += noise**2
        with single_threaded():
            y: Vector = np.linalg.cholesky(covariance) @ rng.standard_normal(len(Z))
        return y


def _no_intercept(intercept: float | None) -> None:
    if intercept is not None:
        raise ConfigError(f"expected no intercept of this kind, found {intercept!r}: leave it out")


def _predictors(
    theta: NDArray[np.float64], Z: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Fill ``Z`` (m, dim) with ones and standard normals; return ``theta Z^T`` (k, m)."""
    eta = np.zeros((len(theta), len(Z)))
    step = max(256, _TILE_VALUES // Z.shape[1])
    for low in range(0, len(Z), step):
        tile, totals = Z[low : low + step], eta[:, low : low + step]
        rng.standard_normal(out=tile, dtype=np.float32)
        tile[:, 0] = 1.0
        for total, coefficients in zip(totals, theta, strict=True):
            for column in range(Z.shape[1]):  # a fixed order of summation, unlike a BLAS product
                total += coefficients[column] * tile[:, column]
    return eta


def _bernoulli(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    # tanh does not overflow: 1 / (1 + exp(-eta)) = (1 + tanh(eta / 2)) / 2.
    return rng.random(eta.size) < 0.5 * (1.0 + np.tanh(0.5 * eta))


def _poisson(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return rng.poisson(np.exp(eta))


def _probit(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return rng.standard_normal(eta.size) < eta


def _negative_binomial(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return rng.poisson(np.exp(eta) * rng.gamma(_PHI, 1.0 / _PHI, eta.size))


def _normal(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return eta + _SIGMA * rng.standard_normal(eta.size)


def _student_t(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return eta + _SIGMA * rng.standard_t(_NU, eta.size)


KINDS: Final[dict[str, Kind]] = {
    "gaussian": Regression("float64", 0.5, 1.0, _normal, {"sigma": _SIGMA}),
    "gaussian-process": Process(),
    "logistic": Regression("uint8", -0.5, 1.0, _bernoulli),
    "mixture": Mixture(tied=False),
    "mixture-tied": Mixture(tied=True),
    "negative-binomial": Regression("int32", 0.0, 0.5, _negative_binomial, {"phi": _PHI}, 12.0),
    "network": Network(),
    "poisson": Regression("int32", 0.0, 0.5, _poisson, most=12.0),
    "probit": Regression("uint8", -0.5, 1.0, _probit),
    "student-t": Regression("float64", 0.5, 1.0, _student_t, {"sigma": _SIGMA, "nu": _NU}),
}
