"""Stores with a known truth, of any size, in bounded memory.

The first feature is an intercept of ones, the others are independent standard
normals. With ``theta`` drawn once,

    logistic   y_i ~ Bernoulli(1 / (1 + exp(-x_i . theta)))
    probit     y_i ~ Bernoulli(Phi(x_i . theta))
    poisson    y_i ~ Poisson(exp(x_i . theta))
    negative-binomial   y_i ~ Poisson(exp(x_i . theta) Gamma(phi, mean 1)), phi = 2
    gaussian   y_i ~ Normal(x_i . theta, sigma), sigma = 0.5
    student-t  y_i ~ x_i . theta + sigma StudentT(nu), sigma = 0.5, nu = 4

Every 65,536 rows have their own stream of random numbers, so that row ``i`` depends
on the kind, ``dim``, the seed and ``i`` alone: not on ``n_rows`` or the chunks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.protocols import Matrix, Vector
from streammc.rng import Role, stream
from streammc.stores.layout import MAX_FEATURES, MAX_ROWS
from streammc.stores.writer import StoreWriter

_STREAM_ROWS: Final = 65_536
_SIGMA: Final = 0.5
_NU: Final = 4.0
_PHI: Final = 2.0


@dataclass(frozen=True)
class _Kind:
    """One response distribution."""

    y_dtype: str
    intercept: float
    spread: float
    """Largest standard deviation of the linear predictor, whatever ``dim``."""
    draw: Callable[[Vector, np.random.Generator], NDArray[Any]]
    scales: dict[str, float] = field(default_factory=dict)
    """True scale parameters by name."""


def _bernoulli(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    # tanh does not overflow: 1 / (1 + exp(-eta)) = (1 + tanh(eta / 2)) / 2.
    return rng.random(eta.size) < 0.5 * (1.0 + np.tanh(0.5 * eta))


def _counts(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return rng.poisson(np.exp(eta))


def _signs(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return rng.standard_normal(eta.size) < eta


def _mixed_counts(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return rng.poisson(np.exp(eta) * rng.gamma(_PHI, 1.0 / _PHI, eta.size))


def _normals(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return eta + _SIGMA * rng.standard_normal(eta.size)


def _heavy(eta: Vector, rng: np.random.Generator) -> NDArray[Any]:
    return eta + _SIGMA * rng.standard_t(_NU, eta.size)


KINDS: Final[dict[str, _Kind]] = {
    "gaussian": _Kind("float64", 0.5, 1.0, _normals, {"sigma": _SIGMA}),
    "logistic": _Kind("uint8", -0.5, 1.0, _bernoulli),
    "negative-binomial": _Kind("int32", 0.0, 0.5, _mixed_counts, {"phi": _PHI}),
    "poisson": _Kind("int32", 0.0, 0.5, _counts),
    "probit": _Kind("uint8", -0.5, 1.0, _signs),
    "student-t": _Kind("float64", 0.5, 1.0, _heavy, {"sigma": _SIGMA, "nu": _NU}),
}


def simulate(
    kind: str,
    path: str | os.PathLike[str],
    rows: int,
    dim: int,
    seed: int,
    chunk_rows: int | None = None,
    dtype: str = "float32",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Write a simulated store; return its ``simulation`` attribute.

    Parameters
    ----------
    kind
        ``logistic``, ``probit``, ``poisson``, ``negative-binomial``, ``gaussian`` or
        ``student-t``.
    path
        The new store.
    rows, dim
        Rows and columns, the intercept included.
    seed
        Seed in ``[0, 2**64)``.
    chunk_rows
        Rows per chunk.
    dtype
        How ``X`` is stored.
    progress
        Called with (rows written, rows in all).

    Returns
    -------
    dict
        ``kind``, ``seed``, the true ``theta`` and ``scales`` where there are some, also
        kept in the store.

    Raises
    ------
    ConfigError
        If an argument is out of range.
    IdentityError, OutputError, StorageIOError
        As :class:`streammc.stores.StoreWriter`.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind {kind!r}: choose one of {', '.join(sorted(KINDS))}")
    for name, value, low, high in (
        ("rows", rows, 1, MAX_ROWS),
        ("dim", dim, 1, MAX_FEATURES),
        ("seed", seed, 0, 2**64 - 1),
    ):
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"expected {name} between {low} and {high}, found {value!r}")
    family = KINDS[kind]
    theta = _truth(family, dim, seed)
    record: dict[str, Any] = {"kind": kind, "seed": seed, "theta": theta.tolist()}
    if family.scales:
        record["scales"] = dict(family.scales)
    features = ["Intercept", *(f"x{column}" for column in range(1, dim))]
    with StoreWriter(
        path,
        features=features,
        dtype=dtype,
        y_dtype=family.y_dtype,
        chunk_rows=chunk_rows,
        n_rows=rows,
    ) as writer:
        for start in range(0, rows, _STREAM_ROWS):
            X, y = _rows(family, theta, seed, start // _STREAM_ROWS, dtype)
            count = min(_STREAM_ROWS, rows - start)
            writer.append(X[:count], y[:count])
            if progress is not None:
                progress(start + count, rows)
        writer.commit({"response": "y", "intercept": True, "simulation": record})
    return record


def _truth(family: _Kind, dim: int, seed: int) -> Vector:
    """Return theta: N(0, 0.5^2), narrower where many columns would add up too far."""
    rng = stream(seed, 0, Role.SIMULATE)
    theta = rng.normal(0.0, min(0.5, family.spread / np.sqrt(max(dim - 1, 1))), dim)
    theta[0] = family.intercept
    return theta


def _rows(
    family: _Kind, theta: Vector, seed: int, block: int, dtype: str
) -> tuple[Matrix, NDArray[Any]]:
    """Return the rows of one stream; the response sees ``X`` as it is stored."""
    rng = stream(seed, block + 1, Role.SIMULATE)
    X = rng.standard_normal((_STREAM_ROWS, theta.size), dtype=np.float32)
    X[:, 0] = 1.0
    eta = np.zeros(_STREAM_ROWS)
    for column in range(theta.size):  # in this order on every machine, unlike a BLAS product
        eta += theta[column] * X[:, column]
    return X.astype(dtype), family.draw(eta, rng)
