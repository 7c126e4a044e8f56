"""Temperature of the likelihood: its schedule, and a data set at a temperature.

At temperature T every row counts ``1 / T`` times. The log-likelihood of row i with the weight
``w_i`` is ``w_i l_i(theta)``. With ``w_i / T`` the posterior is ``prior x likelihood^(1/T)``, for
every sampler and every sum of a pass; the prior does not change. Estimates of the log-likelihood
are divided by T, and their variances by T^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError
from streammc.protocols import (
    Dataset,
    Index,
    PassTask,
    PieceTask,
    RowBlock,
    Rows,
    RowSource,
    Vector,
)

SQRT: Final = "sqrt"
FORMS: Final = "T, 'T:sqrt' (T / sqrt(i + 1), at least 1) or 'T:N' (T for N iterations, then 1)"

IMPLIED: Final = "implied_temperature"
"""Attribute of a run: temperature implied by the sampler, a factor on the requested one."""

_LARGEST: Final = 1e9
"""Largest first temperature that counts for the length of a schedule ``T:sqrt``."""


@dataclass(frozen=True)
class Schedule:
    """The temperature of every iteration of a chain, warm-up included.

    ``T_i = T`` where it is constant; with ``fall='sqrt'`` ``T_i = max(1, T / sqrt(i + 1))``;
    with ``fall=N`` ``T_i = T`` for ``i < N``, then 1. Iterations count from 0.
    """

    first: float = 1.0
    """T, above 0; above 1 in a falling schedule."""
    fall: str | int | None = None

    @classmethod
    def parse(cls, value: Any) -> Schedule:
        """Return the schedule given as a number, or as text ``"T"``, ``"T:sqrt"`` or ``"T:N"``.

        Raises
        ------
        ConfigError
            If ``value`` has none of these forms, or a number is out of range.

        Examples
        --------
        >>> Schedule.parse("1000:sqrt").at(0, 4)
        array([1000.        ,  707.10678119,  577.35026919,  500.        ])
        >>> Schedule.parse("100:2").at(0, 4)
        array([100., 100.,   1.,   1.])
        """
        if isinstance(value, cls):
            return value
        head, colon, tail = value.partition(":") if isinstance(value, str) else (value, "", "")
        first = _number(head, value)
        if not colon:
            return cls(first)
        if first <= 1.0:
            raise ConfigError(
                f"a temperature that falls to 1 must begin above 1, found {value!r}; "
                f"give {head} for a constant temperature"
            )
        if tail == SQRT:
            return cls(first, SQRT)
        if not (tail.isascii() and tail.isdigit()) or int(tail) < 1 or len(tail) > 9:
            raise ConfigError(
                f"expected temperature {FORMS}, N from 1 to 999999999, found {value!r}"
                ": give one of these"
            )
        return cls(first, int(tail))

    @property
    def constant(self) -> bool:
        """Whether the temperature never changes."""
        return self.fall is None

    @property
    def final(self) -> float:
        """Final temperature: T if constant, else 1."""
        return self.first if self.constant else 1.0

    @property
    def settled(self) -> int:
        """First iteration from which the temperature is ``final``."""
        if self.fall is None:
            return 0
        return (
            math.ceil(min(self.first, _LARGEST) ** 2) - 1 if self.fall == SQRT else int(self.fall)
        )

    def at(self, iteration: int, n: int) -> Vector:
        """Return (n,) the temperatures of the iterations from ``iteration`` on."""
        i = np.arange(iteration, iteration + n, dtype=np.float64)
        if self.fall is None:
            return np.full(n, self.first)
        if self.fall == SQRT:
            return np.maximum(1.0, self.first / np.sqrt(i + 1.0))
        return np.where(i < int(self.fall), self.first, 1.0)

    def describe(self) -> float | str:
        """Return the schedule in a form that :meth:`parse` reads: a number if it is constant."""
        return self.first if self.constant else str(self)

    def __str__(self) -> str:
        """Return the schedule as given on a command line."""
        return f"{self.first:.17g}" + ("" if self.constant else f":{self.fall}")


def _number(text: Any, whole: Any) -> float:
    """Return ``text`` as a finite number above 0; raise ConfigError if it is none."""
    try:
        if isinstance(text, bool):
            raise TypeError
        found = float(text)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected temperature {FORMS}, found {whole!r}: give one of these"
        ) from None
    if not (math.isfinite(found) and found > 0.0):
        raise ConfigError(
            f"temperature must be a finite number above 0, found {whole!r}: give a larger number"
        )
    return found


def schedule_of(identity: Mapping[str, Any]) -> Schedule:
    """Return the temperature schedule of the run with this identity."""
    return Schedule.parse(identity.get("temperature", 1.0))


def temperature_of(identity: Mapping[str, Any], attributes: Mapping[str, Any]) -> float:
    """Return the final temperature of a run, with that implied by its sampler."""
    return schedule_of(identity).final * float(attributes.get(IMPLIED, 1.0))


T = TypeVar("T")

_MARK: Final = "@T="


def tempered(dataset: Dataset, temperature: float) -> Dataset:
    """Return ``dataset`` at a temperature; at temperature 1 the data set itself."""
    return dataset if temperature == 1.0 else Tempered(dataset, temperature)


def split_fingerprint(fingerprint: str) -> tuple[str, float]:
    """Return the fingerprint without the temperature, and the temperature."""
    own, _, temperature = fingerprint.partition(_MARK)
    return own, float(temperature or 1.0)


class Tempered:
    """A ``protocols.Dataset`` with the rows of another, and its weights divided by T.

    Parameters
    ----------
    dataset
        The data set; its rows are not copied.
    temperature
        T, finite and above 0.

    Attributes
    ----------
    fingerprint
        Fingerprint of ``dataset`` and T: results of one temperature are never taken for those
        of another.
    """

    def __init__(self, dataset: Dataset, temperature: float) -> None:
        self.dataset = dataset
        self.temperature = float(temperature)
        self.n_rows, self.n_features = dataset.n_rows, dataset.n_features
        self.feature_names, self.response = dataset.feature_names, dataset.response
        self.fingerprint = f"{dataset.fingerprint}{_MARK}{self.temperature:.17g}"
        self.address = dataset.address
        self.attributes: Mapping[str, Any] = dataset.attributes

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<Tempered: {self.dataset!r} at temperature {self.temperature:g}>"

    def rows(self) -> RowSource:
        """Return the source of rows with weights divided by T."""
        return _TemperedRows(self.dataset.rows(), self.temperature)

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once; see ``protocols.Dataset.reduce``."""
        wrapped = _TemperedTask(task, self.temperature)
        if isinstance(task, PieceTask):
            wrapped = _TemperedPieces(task, self.temperature)
        return self.dataset.reduce(wrapped, scheduler=scheduler, progress=progress)

    def block_rows(self) -> int:
        """Return the rows of one block of :meth:`reduce`."""
        return self.dataset.block_rows()

    def piece_rows(self) -> int:
        """Return the rows of every piece of a block but the last."""
        return self.dataset.piece_rows()

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the ids of the rows from ``start`` to ``stop``, or None."""
        return self.dataset.row_ids(start, stop)

    def covariate(self, name: str) -> tuple[Vector, float]:
        """Return ``(a, c)`` with ``x_i . a + c`` the column ``name`` on the table's scale."""
        return self.dataset.covariate(name)

    def stamps(self) -> Index:
        """Return the stamps of the files, which change with them; see ``protocols.Dataset``."""
        return self.dataset.stamps()

    def recheck(self, stamps: Index) -> None:
        """Raise StoreError if an object that changed since ``stamps`` fails its checksum."""
        self.dataset.recheck(stamps)


class _TemperedRows:
    """A ``protocols.RowSource`` with weights divided by T; padding keeps the weight 0."""

    def __init__(self, source: RowSource, temperature: float) -> None:
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.row_bytes = source.row_bytes
        self.will_need = source.will_need
        self.columns = getattr(source, "columns", None)
        self._source, self._temperature = source, temperature

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy runs into ``out``; see ``protocols.RowSource.gather``."""
        self._source.gather(starts, unit_rows, out)
        np.divide(out.weight, self._temperature, out=out.weight)


@dataclass(frozen=True)
class _TemperedTask(Generic[T]):
    """A ``protocols.PassTask`` on rows with weights divided by T."""

    task: PassTask[T]
    temperature: float

    @property
    def takes_codes(self) -> bool:
        """Whether the task reads designs with codes; see ``protocols.PassTask``."""
        return bool(getattr(self.task, "takes_codes", False))

    def _divide(self, block: RowBlock) -> RowBlock:
        return block._replace(weight=block.weight / self.temperature)

    def map(self, block: RowBlock) -> T:
        """Reduce a block with divided weights."""
        return self.task.map(self._divide(block))

    def combine(self, left: T, right: T) -> T:
        """Merge the results of two neighbouring blocks."""
        return self.task.combine(left, right)


@dataclass(frozen=True)
class _TemperedPieces(_TemperedTask[T]):
    """A ``protocols.PieceTask`` on rows with weights divided by T."""

    task: PieceTask[T]

    def map_pieces(self, pieces: Iterator[RowBlock]) -> T:
        """Reduce a block given in pieces, with divided weights."""
        return self.task.map_pieces(map(self._divide, pieces))
