"""Arrays in memory as a data set, through the same interface as a store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError
from streammc.group_table import CrossedFactor, GroupTable
from streammc.numerics.coded_matrix import CODE_DTYPE, MOST_COLUMNS, CodedMatrix
from streammc.protocols import Index, PassTask
from streammc.shown import Shown
from streammc.stores.data_set import RowTable, dataset_facts
from streammc.stores.format.codes import described_codes, read_columns, with_codes
from streammc.stores.format.layout import (
    CODES,
    CROSSED,
    FORMAT,
    MAX_FEATURES,
    ROW_ID,
    choose_chunk_rows,
    chunks_per_block,
    described_effects,
    round_chunk_rows,
)
from streammc.stores.number_checks import (
    check_finite,
    checked_numbers,
    checked_vectors,
    given_names,
    unmasked,
)
from streammc.stores.rows.row_blocks import MemoryBlock
from streammc.stores.rows.row_weights import weighted

if TYPE_CHECKING:
    from streammc.stores.rows.row_source import MemoryRows


T = TypeVar("T")


def _part(labels: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    return labels[start:stop]


class MemoryStore(RowTable, Shown):
    """A ``Dataset`` of arrays in memory; made by :func:`from_arrays`.

    Parameters
    ----------
    X
        (n, q) float32 or float64, also with codes.
    y, offset, weight
        (n,), or empty if absent.
    attributes
        Attributes as in the group attribute of a store.
    chunk_rows
        Rows of a piece, rounded up to a multiple of 4096; a block of a full pass is a multiple of
        it. ``None``: chosen by the width of a row.
    ids
        (n,) row ids. ``None``: the numbers of the rows.
    groups
        The groups of the rows, or (n,) the labels of the groups of rows that keep their order.
    levels
        (n, F) levels of factors that cross, and the labels of each, by its column.
    """

    address = "memory"

    def __init__(
        self,
        X: NDArray[Any] | CodedMatrix,
        y: NDArray[Any],
        offset: NDArray[np.float64],
        weight: NDArray[np.float64],
        attributes: dict[str, Any],
        chunk_rows: int | None,
        ids: NDArray[Any] | None = None,
        groups: GroupTable | NDArray[Any] | None = None,
        levels: tuple[NDArray[np.uint32], Mapping[str, NDArray[Any]]] | None = None,
    ) -> None:
        self.attributes: Mapping[str, Any] = MappingProxyType(attributes)
        self.feature_names: tuple[str, ...] = tuple(attributes["features"])
        self.n_rows, self.n_features = X.shape
        self.response: str | None = attributes["response"]
        self._arrays = (X, y, offset, weight)
        if chunk_rows is None:
            chunk_rows = choose_chunk_rows(self.n_features * X.dtype.itemsize)
        self._chunk_rows: int = min(round_chunk_rows(chunk_rows), self.n_rows)
        self._ids = ids
        self.groups = groups if isinstance(groups, GroupTable) else None
        self._row_groups = None if isinstance(groups, GroupTable) else groups
        self._levels = levels
        if levels is not None:
            self.crossed = tuple(
                CrossedFactor(name, len(each), partial(_part, each), *described_effects(stated))
                for (name, each), stated in zip(levels[1].items(), attributes[CROSSED], strict=True)
            )
        self._rows: MemoryRows | None = None
        self.fingerprint = self._digest(attributes)

    def _digest(self, attributes: dict[str, Any]) -> str:
        """Return the SHA-256 of a JSON header and the bytes of the arrays."""
        arrays = self._plain_arrays()
        shapes = [(array.dtype.str, array.shape) for array in arrays]
        # The same rows from another place, or the same place in other words, are the same.
        known = {**attributes, "sources": []} if "sources" in attributes else attributes
        header = json.dumps([known, shapes, self._chunk_rows], sort_keys=True)
        digest = hashlib.sha256(header.encode())
        # Positions follow from the seed of the shuffle; ids given by the user are data.
        ids = [self._ids] if self._ids is not None and attributes.get(ROW_ID) else []
        if self.groups is not None:
            ids += [self.groups.offset, self.groups.labels(0, self.groups.n_groups)]
        ids += [] if self._row_groups is None else [self._row_groups]
        if self._levels is not None:
            ids += [self._levels[0], *self._levels[1].values()]
        for array in (*arrays, *ids):
            digest.update(array.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def _plain_arrays(self) -> list[NDArray[Any]]:
        design, *others = self._arrays
        if isinstance(design, CodedMatrix):
            return [design.dense, *others, design.codes]
        return [design, *others]

    def __repr__(self) -> str:
        """Return one line for a notebook."""
        return f"<MemoryStore: {self.n_rows} rows, {self.n_features} features>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        arrays = self._plain_arrays()
        layout = {
            "layout": f"{arrays[0].dtype} columns in memory",
            "megabytes": sum(array.nbytes for array in arrays) / 1e6,
        }
        return "MemoryStore", dataset_facts(self, **layout)

    def rows(self) -> MemoryRows:
        """Return the row source of the arrays; nothing is copied."""
        from streammc.stores.rows.row_source import MemoryRows

        if self._rows is None:
            self._rows = MemoryRows(*self._arrays, self.n_rows)
        return self._rows

    def block_rows(self) -> int:
        """Return the rows of one block of :meth:`reduce`."""
        return self._chunk_rows * chunks_per_block(self.n_rows, self._chunk_rows)

    def piece_rows(self) -> int:
        """Return the rows of a piece of a block: a chunk."""
        return self._chunk_rows

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the ids of rows (m,); see ``Dataset.row_ids``."""
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        return np.arange(start, stop) if self._ids is None else self._ids[start:stop]

    def row_groups(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the labels of the groups of rows (m,); ``None`` without groups."""
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        if self.groups is not None:
            return self.groups.labels_of_rows(start, stop)
        return None if self._row_groups is None else self._row_groups[start:stop]

    def row_levels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint32]:
        """Return the levels (m, F) of the factors that cross."""
        if self._levels is None:
            return super().row_levels(start, stop)
        return self._levels[0][start:stop]

    def blocks(self) -> list[MemoryBlock]:
        """Return the row blocks of a full pass, in the order of the rows."""
        step = self.block_rows()
        return [self._block(index, index * step, step) for index in range(-(-self.n_rows // step))]

    def _block(self, index: int, start: int, step: int) -> MemoryBlock:
        X, *others = self._arrays
        y, offset, weight = (array[start : start + step] for array in others)
        design = X[start : start + step]
        return MemoryBlock(index, start, len(design), design, y, offset, weight, self._chunk_rows)

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once; see ``protocols.Dataset.reduce``."""
        from streammc.stores.reduction import run

        return run(task, self.blocks(), scheduler=scheduler, progress=progress)

    def stamps(self) -> Index:
        """Return an empty (0, 3) array: there are no files."""
        return np.empty((0, 3), np.int64)

    def recheck(self, stamps: Index) -> None:
        """Do nothing: arrays in memory have no files that could change."""


@documented()
def from_arrays(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    offset: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    trials: ArrayLike | None = None,
    censored: ArrayLike | None = None,
    row_id: ArrayLike | None = None,
    factors: Mapping[str, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    terms: Sequence[str] = ("1",),
    correlated: bool = True,
    feature_names: Sequence[str] | None = None,
    response: str | None = None,
    chunk_rows: int | None = None,
) -> MemoryStore:
    """Use arrays as a data set: no intercept is added and nothing is standardised.

    With ``groups`` the rows of a group are put together, in a copy; the row ids keep the
    positions.

    Parameters
    ----------
    X
        (n, q) design matrix. float32 and float64 keep their dtype, without a copy if
        C-contiguous: do not change them afterwards. Other numbers become float64.
    y
        (n,) response, numbers or booleans.
    offset
        (n,) numbers added to the linear predictor.
    weight
        (n,) power of the likelihood of each row, from 0 to 2**53, such as frequencies or survey
        weights. ``None``: 1.
    trials
        (n,) binomial trials N; ``y`` then counts successes and is stored as the proportion
        y / N, with the weight multiplied by N.
    censored
        (n,) 0 and 1, or booleans: 1 where the event had not happened by the time ``y``, which is
        then stored as ``-y``. Times are above 0.
    row_id
        (n,) integers or text that identify the rows in predictions. ``None``: the number of
        the row, from 0.
    factors
        (n,) integers from 0 by name. Each factor becomes an indicator ``name[T.k]`` of every value
        k but 0, after the columns of ``X``, and takes 2 bytes a row. Not with groups.
    groups
        (n,) labels of the groups of a mixed model: integers, text, booleans or dates.
    terms
        Random effects of the groups: ``("1",)``, an intercept, or ``("1", name)``, with the slope
        of the feature of this name.
    correlated
        Whether intercept and slope are correlated.
    feature_names
        Names of the columns. ``None``: ``x0, x1, ...``.
    response
        Name of the response. ``None``: ``"y"``.
    chunk_rows
        Rows of a chunk, rounded up to a multiple of 4096; a block of a full pass is a multiple
        of it. ``None``: chosen by the width of a row.

    Raises
    ------
    DataError
        If shapes disagree, or a value is NaN, infinite or not a number: the message
        names the column, the first row and the count.
    """
    matrix = checked_numbers(X, "X", 2)
    rows, columns = matrix.shape
    if rows < 1 or not 0 < columns <= MAX_FEATURES:
        raise DataError(
            f"expected at least one row and column in X, found shape {matrix.shape}"
            ": check the array"
        )
    names = given_names(feature_names, columns)
    if len(set(names)) != columns:
        raise DataError(
            f"expected {columns} different feature_names, found {names[:20]!r}"
            ": give one name per column"
        )
    if not (response is None or isinstance(response, str)):
        raise ConfigError(
            f"expected the name of the response as text, found {type(response).__name__}: pass "
            "its values as y"
        )
    check_finite(matrix, names)
    vectors = {"y": y, "offset": offset, "weight": weight, "trials": trials}
    vectors["censored"] = censored
    response_values, offsets, weights = weighted(*checked_vectors(vectors, rows))
    attributes = {
        "format": FORMAT,
        "n_rows": rows,
        "response": None if y is None else (response or "y"),
        "features": names,
        "intercept": bool(np.all(matrix[:, 0] == 1)),
        "standardization": None,
        "formula": None,
        "shuffle_seed": False,
        "sources": [],
        "dtype": matrix.dtype.name,
    }
    design: NDArray[Any] | CodedMatrix = matrix
    if factors is not None:
        design, names, coded = with_factors(matrix, names, factors, groups)
        attributes |= coded
    if trials is not None:
        attributes |= {"trials": "trials"} | ({} if weight is None else {"weight": "weight"})
    if censored is not None:
        attributes["censored"] = "censored"
    ids = None
    if row_id is not None:
        from streammc.stores.ingest.row_labels import in_memory

        ids = in_memory(row_id, rows)
        attributes[ROW_ID] = ROW_ID
    table = None
    if groups is not None or tuple(terms) != ("1",) or not correlated:
        from streammc.stores.ingest.row_labels import arrange

        given_rows = matrix, response_values, offsets, weights
        arranged, ids, table = arrange((groups, terms, correlated), names, given_rows, ids)
        design, response_values, offsets, weights = arranged
        attributes |= {"shuffle_seed": 0, "groups": table.describe()}
    return MemoryStore(
        design, response_values, offsets, weights, attributes, chunk_rows, ids, table
    )


def with_factors(
    matrix: NDArray[Any], names: Sequence[str], factors: Mapping[str, ArrayLike], groups: Any
) -> tuple[Any, list[str], dict[str, Any]]:
    """Return a design with factors as codes, the names of its columns, and its attributes.

    ``matrix`` (n, q) has the dense columns, the first of the design. Each factor, (n,) whole
    numbers from 0, becomes an indicator of every value but 0.
    """
    if not isinstance(factors, Mapping) or not factors:
        raise ConfigError(
            f"expected factors by name, found {'none' if factors == {} else type(factors).__name__}"
            ": give a dictionary of arrays, or leave them out"
        )
    if groups is not None:
        raise ConfigError(
            "expected factors or groups, found both: leave one out, or give the factors as columns "
            "of X"
        )
    features, stated, codes = list(names), [], []
    for name, levels in factors.items():
        values = _whole_numbers(str(name), levels, len(matrix))
        columns = int(values.max())
        stated.append(described_codes(str(name), len(features), columns))
        features += [f"{name}[T.{level}]" for level in range(1, columns + 1)]
        codes.append(values.astype(CODE_DTYPE))
    if len(set(features)) != len(features) or len(features) > MAX_FEATURES:
        raise DataError(
            f"expected at most {MAX_FEATURES:,} columns of different names with those of the "
            f"factors, found {len(features):,}: rename the factors, or merge rare levels"
        )
    attributes = {
        "features": features,
        CODES: stated,
        "standardization": None,
        "dtype": matrix.dtype.name,
    }
    design = with_codes(matrix, np.stack(codes, axis=1), read_columns(attributes))
    return design, features, {"features": features, CODES: stated}


def _whole_numbers(name: str, levels: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Return the values of a factor (n,), checked."""
    values = unmasked(levels, f"factor {name!r}")
    wrong = f"shape {values.shape} of {values.dtype}"
    if values.shape == (n_rows,) and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if low >= 0 and 0 < high <= MOST_COLUMNS:
            return values
        wrong = f"values from {low} to {high}"
    raise DataError(
        f"expected {n_rows} integers from 0 to {MOST_COLUMNS}, not all 0, as factor {name!r}, "
        f"found {wrong}: give the number of the level, 0 for the reference"
    )
