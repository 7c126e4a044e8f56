"""Data set at a temperature T: every row counts ``1 / T`` times.

The log-likelihood of row i with the weight ``w_i`` is ``w_i l_i(theta)``. With ``w_i / T``
the posterior is ``prior x likelihood^(1/T)``, for every sampler and every sum of a pass; the
prior does not change. Estimates of the log-likelihood are divided by T, and their variances
by T^2.
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
