"""Simulated stores of known parameters and any size, written in bounded memory.

The first feature is an intercept of ones, the others are independent standard
normals. With ``theta`` drawn once,

    logistic   y_i ~ Bernoulli(1 / (1 + exp(-x_i . theta)))
    probit     y_i ~ Bernoulli(Phi(x_i . theta))
    poisson    y_i ~ Poisson(exp(x_i . theta))
    negative-binomial   y_i ~ Poisson(exp(x_i . theta) Gamma(phi, mean 1)), phi = 2
    gaussian   y_i ~ Normal(x_i . theta, sigma), sigma = 0.5
    student-t  y_i ~ x_i . theta + sigma StudentT(nu), sigma = 0.5, nu = 4
    network    y_i ~ Bernoulli of a network of sigmoids, 8 and 4 hidden units

A Gaussian process has no intercept, and at most 2,048 rows, since each row depends on all before:

    gaussian-process   y ~ Normal(0, K + sigma_n^2 I), theta (logarithms) drawn from the default
                       priors, columns normal with the mean length scale as sd

A mixture has only columns, no intercept and no response:

    mixture-tied   x_i ~ (Normal(theta1, s) + Normal(theta1 + theta2, s)) / 2, theta = (0, 1),
                   variance s = 2
    mixture        x_i ~ sum_k Normal(mu_k, 1) / 3, three means in dim columns

Every 65,536 rows (fewer if there are more than 64 columns) have their own stream of random
numbers, so that row ``i`` depends only on the kind, ``dim``, the seed, the intercept and
``i``, and not on ``n_rows``, the chunks or the threads. With groups it depends also on the
numbers of rows and groups; the rows of a group follow each other.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.numerics.process_limits import available_threads, single_threaded
from streammc.protocols import Matrix, Vector
from streammc.rng import Role, stream
from streammc.stores.format.layout import MAX_FEATURES, MAX_ROWS, ROW_MULTIPLE, choose_chunk_rows
from streammc.stores.format.writer import StoreWriter, page_aligned
from streammc.stores.in_threads import in_threads

_TILE_VALUES: Final = 1 << 16
"""Values of a stream that stay in a core's cache while they are summed."""
_SIGMA: Final = 0.5
_NU: Final = 4.0
_PHI: Final = 2.0
_COMPONENTS: Final = 3
_TIED_VARIANCE: Final = 2.0
_HIDDEN: Final = (8, 4)


TAU: Final = 1.0
"""Standard deviation of the random intercepts."""
_SHAPE: Final = 2.0
"""Shape of the gamma distribution of the group sizes."""


_STREAM_ROWS: Final = 65_536
_STREAM_VALUES: Final = 1 << 22
"""Largest number of values in a stream: 16 MB."""
_BUFFER_BYTES: Final = 512 << 20
"""Largest size of the buffers of all threads, unless one thread needs more."""


@documented()
def simulate(
    kind: str,
    path: str | os.PathLike[str],
    rows: int,
    dim: int,
    seed: int,
    chunk_rows: int | None = None,
    dtype: str = "float32",
    progress: Callable[[int, int], None] | None = None,
    *,
    intercept: float | None = None,
    groups: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a store of simulated rows with known parameters; return its ``simulation`` attribute.

    The columns are an intercept and independent standard normals. Row i depends on the kind,
    ``dim``, the seed and the intercept alone; with groups also on the numbers of rows and groups.

    Parameters
    ----------
    kind
        ``logistic``, ``probit``, ``poisson``, ``negative-binomial``, ``gaussian``,
        ``student-t``, ``network``, ``gaussian-process``, ``mixture`` or ``mixture-tied``;
        ``mixture`` and ``gaussian-process`` have no intercept.
    path
        Path of the new store.
    rows, dim
        Numbers of rows and columns, with the intercept; ``mixture-tied`` has one column.
    seed
        Seed in ``[0, 2**64)``.
    chunk_rows
        Rows per chunk; by default about 8 MB of ``X`` in whole streams.
    dtype
        Dtype of the stored ``X``.
    progress
        Called with (rows written, rows in all).
    intercept
        True coefficient of the column of ones, from -30 to 30 (12 for counts); each kind has
        a default. With -14.5 for ``logistic`` about one response in two million is 1.
    groups
        Number of groups of rows with a random intercept, Normal(0, 1), for regressions; their
        sizes vary around rows / groups. ``None``: no groups.
    overwrite
        Replace a store at ``path``.

    Returns
    -------
    dict
        ``kind``, ``seed``, the true ``theta``, ``scales`` if the kind has any, and ``model``
        with its ``options`` if the model is not named like the kind; also kept in the store.

    Raises
    ------
    ConfigError
        If an argument is out of range.
    IdentityError, OutputError, StorageIOError
        As :class:`streammc.stores.StoreWriter`.

    Examples
    --------
    >>> import tempfile
    >>> import streammc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = streammc.simulate("poisson", f"{folder}/counts.zarr", rows=1000, dim=3, seed=1)
    >>> made["kind"], len(made["theta"])
    ('poisson', 3)
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind {kind!r}: choose one of {', '.join(sorted(KINDS))}")
    family = KINDS[kind]
    for name, value, low, high in (
        ("rows", rows, 1, family.most_rows or MAX_ROWS),
        ("dim", dim, 1, MAX_FEATURES),
        ("seed", seed, 0, 2**64 - 1),
    ):
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(
                f"expected {name} between {low} and {high}, found {value!r}: give one in this range"
            )
    theta = family.truth(dim, stream(seed, 0, Role.SIMULATE), intercept)
    record: dict[str, Any] = {"kind": kind, "seed": seed, "theta": theta.tolist()}
    record |= family.facts(dim)
    made = simulated_groups(kind, family, rows, groups, seed)
    if made is not None:
        record |= {"groups": made.effects.size, "tau": TAU}
    features = [f"x{column}" for column in range(1, dim + 1)]
    if family.ones:
        features = ["Intercept", *features[:-1]]
    with StoreWriter(
        path,
        features=features,
        dtype=dtype,
        y_dtype=family.y_dtype,
        chunk_rows=_chunk_rows(dim, dtype, rows) if chunk_rows is None else chunk_rows,
        n_rows=rows,
        group=None if made is None else "int64",
        overwrite=overwrite,
    ) as writer:
        source = _Source(family, theta, dim, seed, made)
        _write(source, writer, rows, dtype, progress)
        has_response = family.y_dtype is not None
        attributes: dict[str, Any] = (
            {"response": "y", "intercept": family.ones} if has_response else {}
        )
        if made is not None and writer.groups is not None:
            writer.groups.add_groups(made.offset[:-1], np.arange(made.effects.size))
            attributes["groups"] = {"column": "group", "terms": ["1"], "correlated": True}
        writer.commit({**attributes, "simulation": record})
    return record


def _stream_rows(dim: int) -> int:
    """Return the rows of one stream: a power of two, at most 16 MB but at least 4096 rows."""
    most = max(ROW_MULTIPLE, _STREAM_VALUES // dim)
    return min(_STREAM_ROWS, 1 << (most.bit_length() - 1))


def _chunk_rows(dim: int, dtype: str, rows: int) -> int:
    """Return the default rows of a chunk: whole streams, or a power of two of rows."""
    wanted = choose_chunk_rows(dim * np.dtype(dtype).itemsize, rows)
    if wanted < _STREAM_ROWS:
        return 1 << (wanted - 1).bit_length()
    return -(-wanted // _STREAM_ROWS) * _STREAM_ROWS


def _write(
    source: _Source,
    writer: StoreWriter,
    rows: int,
    dtype: str,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Make and write all rows; each task of a thread makes whole chunks that span a stream."""
    dim, size = source.dim, writer.chunk_rows
    step = size * -(-source.stream_rows // size)
    buffers = threading.local()
    threads = available_threads() + 2  # some wait for the disk
    threads = max(1, min(threads, _BUFFER_BYTES // (step * dim * np.dtype(dtype).itemsize)))
    done = 0

    def make(start: int) -> int:
        if not hasattr(buffers, "X"):
            # One buffer for all chunks of a thread: new pages cost as much as writing them.
            length = min(step, rows)
            buffers.X = page_aligned((length, dim), dtype)
            buffers.y = None
            if source.family.y_dtype is not None:
                buffers.y = page_aligned((length,), source.family.y_dtype)
        stop = min(start + step, rows)
        X = buffers.X[: stop - start]
        y = None if buffers.y is None else buffers.y[: stop - start]
        source.fill(start, X, y)
        for low in range(0, stop - start, size):
            part = None if y is None else y[low : low + size]
            writer.put_chunk((start + low) // size, X[low : low + size], part)
        return stop - start

    def count(written: int) -> None:
        nonlocal done
        done += written
        if progress is not None:
            progress(done, rows)

    in_threads(make, range(0, rows, step), threads, count)


class _Source:
    """Source of the rows of a simulation, with access from any row."""

    def __init__(
        self, family: Kind, theta: Vector, dim: int, seed: int, groups: SimulatedGroups | None
    ) -> None:
        self.family = family
        self._groups = groups
        self.theta = theta
        self.dim = dim
        self.stream_rows = family.most_rows or _stream_rows(dim)
        self._seed = seed

    def fill(self, start: int, X: Matrix, y: NDArray[Any] | None) -> None:
        """Fill ``X`` and ``y`` with the rows from ``start`` on; ``X`` is drawn as float32."""
        size, stop = self.stream_rows, start + len(X)
        for block in range(start // size, -(-stop // size)):
            low, high = max(start, block * size), min(stop, (block + 1) * size)
            part = X[low - start : high - start]
            in_place = high - low == size and X.dtype == np.float32
            Z: Any = part if in_place else np.empty((size, self.dim), np.float32)
            rng = stream(self._seed, block + 1, Role.SIMULATE)
            response = self._draw(block * size, Z, rng)
            if not in_place:
                part[...] = Z[low - block * size : high - block * size]
            if y is not None and response is not None:
                y[low - start : high - start] = response[low - block * size : high - block * size]

    def _draw(
        self, start: int, Z: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[Any] | None:
        if self._groups is None or not isinstance(self.family, Regression):
            return self.family.draw(self.theta, Z, rng)
        effects = self._groups.effects_of_rows(start, len(Z))
        return self.family.draw(self.theta, Z, rng, effects)


class SimulatedGroups:
    """Contiguous groups with the labels 0, 1, ...; in memory, 16 bytes a group."""

    def __init__(self, n_rows: int, n_groups: int, seed: int) -> None:
        rng = stream(seed, 0, Role.SIMULATE, 1)
        bounds = np.cumsum(rng.standard_gamma(_SHAPE, n_groups))
        # Each group has a row of its own, and its share of the others.
        rest = np.rint(bounds / bounds[-1] * (n_rows - n_groups)).astype(np.int64)
        self.offset = np.append(0, rest + np.arange(1, n_groups + 1))
        self.effects: Vector = rng.normal(0.0, TAU, n_groups)

    def effects_of_rows(self, start: int, count: int) -> Vector:
        """Return the effects (count,) of the rows from ``start``; 0 past the last row."""
        effects = np.zeros(count)
        stop = min(start + count, int(self.offset[-1]))
        if start < stop:
            first = int(np.searchsorted(self.offset, start, side="right")) - 1
            last = int(np.searchsorted(self.offset, stop, side="left"))
            sizes = np.diff(np.clip(self.offset[first : last + 1], start, stop))
            effects[: stop - start] = np.repeat(self.effects[first:last], sizes)
        return effects


def simulated_groups(
    kind: str, family: Kind, n_rows: int, n_groups: int | None, seed: int
) -> SimulatedGroups | None:
    """Return the groups of a simulation; ``None`` without any."""
    if n_groups is None:
        return None
    if not isinstance(family, Regression):
        raise ConfigError(
            f"expected a kind with one linear predictor for groups, found {kind!r}: take logistic, "
            "poisson or gaussian, or leave the groups out"
        )
    if type(n_groups) is not int or not 2 <= n_groups <= n_rows:
        raise ConfigError(
            f"expected between 2 and {n_rows} groups, one row each, found {n_groups!r}"
            ": give a number in this range"
        )
    return SimulatedGroups(n_rows, n_groups, seed)


class Kind(ABC):
    """One distribution of rows."""

    y_dtype: str | None
    """Dtype of the response; ``None`` without a response."""
    ones: bool = True
    """Whether the first column is an intercept."""
    most_rows: int | None = None
    """Largest number of rows if all rows depend on each other."""

    def facts(self, dim: int) -> dict[str, Any]:
        """Return the store's attributes of this kind beside kind, seed and theta."""
        return {}

    @abstractmethod
    def truth(self, dim: int, rng: np.random.Generator, intercept: float | None) -> Vector:
        """Return the true theta; refuse a ``dim`` or ``intercept`` that the kind does not allow."""

    @abstractmethod
    def draw(
        self, theta: Vector, Z: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[Any] | None:
        """Fill ``Z`` (m, dim) with rows; return their responses (m,), or ``None``."""


@dataclass(frozen=True)
class Regression(Kind):
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


class Network(Kind):
    """Binary responses of a sigmoid network with random weights."""

    y_dtype = "uint8"

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
class Mixture(Kind):
    """Rows of a mixture of equally likely Gaussians of one variance, without a response."""

    tied: bool
    y_dtype = None
    ones = False

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


class Process(Kind):
    """A Gaussian process at random inputs (van de Meent, Paige and Wood 2014, section 4.2)."""

    y_dtype = "float64"
    ones = False
    most_rows = 2048

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
