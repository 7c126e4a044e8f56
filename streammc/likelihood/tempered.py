"""A data set at a temperature: at T every row counts ``1 / T`` times.

The log-likelihood of row i with the weight ``w_i`` is ``w_i l_i(theta)``. With ``w_i / T``
the posterior is ``prior x likelihood^(1/T)``, for every sampler and every sum of a pass,
and the prior is what it was. Estimates of the log-likelihood are divided by T, and their
variances by T^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

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

T = TypeVar("T")

_MARK: Final = "@T="


def tempered(dataset: Dataset, temperature: float) -> Dataset:
    """Return ``dataset`` at a temperature: itself where that is 1."""
    return dataset if temperature == 1.0 else Tempered(dataset, temperature)


def split_fingerprint(fingerprint: str) -> tuple[str, float]:
    """Return the fingerprint of the data set, and the temperature it was looked at."""
    own, _, temperature = fingerprint.partition(_MARK)
    return own, float(temperature or 1.0)


class Tempered:
    """A ``protocols.Dataset`` whose weights are those of another, divided by T.

    Parameters
    ----------
    dataset
        The rows; nothing of it is copied.
    temperature
        T, finite and above 0.

    Attributes
    ----------
    fingerprint
        Another one than that of ``dataset``, and for every T: what was computed at one
        temperature is not taken for what belongs to another.
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
        """Return the row source."""
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
        """Return the ids of rows."""
        return self.dataset.row_ids(start, stop)

    def covariate(self, name: str) -> tuple[Vector, float]:
        """Return ``(a, c)`` with ``x_i . a + c`` the column ``name`` on the table's scale."""
        return self.dataset.covariate(name)

    def stamps(self) -> Index:
        """Return what the files are known by."""
        return self.dataset.stamps()

    def recheck(self, stamps: Index) -> None:
        """Raise StoreError if an object that changed since ``stamps`` fails its checksum."""
        self.dataset.recheck(stamps)


class _TemperedRows:
    """A ``protocols.RowSource``; padding keeps the weight 0."""

    def __init__(self, source: RowSource, temperature: float) -> None:
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.row_bytes = source.row_bytes
        self.will_need = source.will_need
        self._source, self._temperature = source, temperature

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy runs into ``out``; see ``protocols.RowSource.gather``."""
        self._source.gather(starts, unit_rows, out)
        np.divide(out.weight, self._temperature, out=out.weight)


@dataclass(frozen=True)
class _TemperedTask(Generic[T]):
    """A ``protocols.PassTask`` that sees the weights divided by T."""

    task: PassTask[T]
    temperature: float

    def _divide(self, block: RowBlock) -> RowBlock:
        return block._replace(weight=block.weight / self.temperature)

    def map(self, block: RowBlock) -> T:
        """Reduce some rows."""
        return self.task.map(self._divide(block))

    def combine(self, left: T, right: T) -> T:
        """Merge two neighbours."""
        return self.task.combine(left, right)


@dataclass(frozen=True)
class _TemperedPieces(_TemperedTask[T]):
    """The same for a ``protocols.PieceTask``."""

    task: PieceTask[T]

    def map_pieces(self, pieces: Iterator[RowBlock]) -> T:
        """Reduce one block."""
        return self.task.map_pieces(map(self._divide, pieces))
