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
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.numerics.process_limits import available_threads
from streammc.protocols import Matrix, Vector
from streammc.rng import Role, stream
from streammc.stores.format.conversion import page_aligned
from streammc.stores.format.layout import MAX_FEATURES, MAX_ROWS, ROW_MULTIPLE, choose_chunk_rows
from streammc.stores.format.writer import StoreWriter
from streammc.stores.full_pass.workers import in_threads
from streammc.stores.simulate.simulated_groups import SimulatedGroups, simulated_groups
from streammc.stores.simulate.simulation_kinds import KINDS, Kind, Regression

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
    threads: int | None = None,
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
    threads
        Threads that make and write chunks; by default two more than cores.
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
    if threads is None:
        threads = available_threads() + 2  # some wait for the disk
    for name, value, low, high in (
        ("rows", rows, 1, family.most_rows or MAX_ROWS),
        ("dim", dim, 1, MAX_FEATURES),
        ("seed", seed, 0, 2**64 - 1),
        ("threads", threads, 1, 2**16),
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
        record |= made.facts()
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
        _write(source, writer, rows, dtype, threads, progress)
        has_response = family.y_dtype is not None
        described: dict[str, Any] = (
            {"response": "y", "intercept": family.ones} if has_response else {}
        )
        if made is not None and writer.groups is not None:
            writer.groups.add_groups(made.offset[:-1], np.arange(made.effects.size))
            described["groups"] = {"column": "group", "terms": ["1"], "correlated": True}
        writer.commit({**described, "simulation": record})
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
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Make and write all rows; each task of a thread makes whole chunks that span a stream."""
    dim, size = source.dim, writer.chunk_rows
    step = size * -(-source.stream_rows // size)
    buffers = threading.local()
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
