"""An xarray Dataset as a data set: used in place, or copied to a store block by block."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError, StreammcError
from streammc.stores.format.layout import CODES, GROUP_OFFSET, ROW_ID
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.ingestion import IngestCall, make_data_set
from streammc.stores.ingest.row_labels import id_texts, id_values
from streammc.stores.memory import from_arrays
from streammc.stores.packed_values import StoredNumbers
from streammc.stores.sources.array_source import (
    ArraySource,
    refuse_codes,
    refuse_groups,
    require_path,
)
from streammc.stores.store import open_store

if TYPE_CHECKING:
    from streammc.stores.memory import MemoryStore
    from streammc.stores.store import Store


_BLOCK_BYTES: Final = 32 << 20
_ADVICE: Final = (
    "open the dataset with mask_and_scale=True, or delete the attribute if these are the values"
)


@documented(IngestCall)
def from_xarray(
    dataset: Any,
    *,
    path: str | os.PathLike[str] | None = None,
    design: str = "X",
    response: str | None = "y",
    offset: str | None = "offset",
    weight: str | None = "weight",
    trials: str | None = None,
    row_id: str | None = ROW_ID,
    groups: Any = None,
    shuffle: bool = False,
    seed: int = 0,
    dtype: str | None = None,
    standardize: bool = False,
    intercept: bool = False,
    drop_missing: bool = False,
    chunk_rows: int | None = None,
    overwrite: bool = False,
) -> Store | MemoryStore:
    """Use an xarray Dataset as a data set: in place, or copied to a new store at ``path``.

    Without ``path`` nothing is written. For a dataset that was opened from a streammc store
    and still has its values (they are compared block by block), the store itself is returned.
    A dataset in memory is used in place, without a copy if the design is C-contiguous float32
    or float64. Any other dataset needs ``path``.

    Parameters
    ----------
    dataset : xarray.Dataset or xarray.DataArray
        With a variable ``design`` of two dimensions, rows and features (in this order,
        or called ``row`` and ``feature``), and vectors over the rows. A DataArray is a
        dataset of a design alone.
    path
        Path of a new store, written block by block. ``None``: nothing is written;
        ``shuffle``, ``standardize``, ``intercept`` and ``drop_missing`` need one.
    design
        Name of the variable that holds the features. Their names are the coordinate of their
        dimension, else ``x0, x1, ...``.
    response, trials, offset, weight, row_id
        Name of the variable; ``None``: none. Those with another default may be absent.
    groups
        Refused, as in ``from_dask``; so are those of a store, unless it is returned itself.
    shuffle
        Put the rows into a uniformly random order.
    dtype : {'float32', 'float64', None}
        Dtype of the stored ``X``. ``None``: the design's dtype, or float64 if that is another.

    Raises
    ------
    ConfigError
        If ``dataset`` is not an xarray Dataset, or ``path`` is missing.
    DataError
        If variables are missing or do not fit, or values cannot be used: see ``ingest``. Also if
        attributes say that the numbers are not the values, as in a dataset that was opened with
        ``mask_and_scale=False``: packed ones, or marks of missing values.
    """
    refuse_groups(groups, "a dataset")
    stored = getattr(dataset, "variables", {}).get(GROUP_OFFSET)  # of a store with groups
    table = DatasetVariables(dataset, design, response, [offset, weight], trials, row_id)
    offset, weight = table.optional
    if path is None:
        writes = {"shuffle": shuffle, "standardize": standardize, "intercept": intercept}
        asked = [name for name, value in (writes | {"drop_missing": drop_missing}).items() if value]
        if asked:
            require_path(None, f"the dataset with {asked[0]}=True", "leave that out")
        if (same := table.same_store()) is not None:
            return same
        refuse_groups(stored, "a dataset")
        refuse_codes(dataset, design)
        in_place = table.in_memory(response, offset, weight, trials, chunk_rows)
        if in_place is not None:
            return in_place
        require_path(None, "a dataset that is not in memory", "use dataset.load() if it fits there")
    refuse_groups(stored, "a dataset")
    refuse_codes(dataset, design)
    if dtype is None:
        dtype = table.dtype.name if table.dtype.name in ("float32", "float64") else "float64"
    options = IngestOptions(
        response=response,
        features=table.features,
        offset=offset,
        weight=weight,
        trials=trials,
        row_id=table.row_id,
        shuffle=shuffle,
        seed=seed,
        dtype=dtype,
        standardize=standardize,
        intercept=intercept,
        drop_missing=drop_missing,
        chunk_rows=chunk_rows,
    )
    return make_data_set(table.source(), options, path, overwrite=overwrite)


class DatasetVariables:
    """The variables of a dataset in use; duck-typed, as this layer does not import xarray."""

    def __init__(
        self,
        dataset: Any,
        design: str,
        response: str | None,
        optional: list[str | None],
        trials: str | None,
        row_id: str | None,
    ) -> None:
        if not hasattr(dataset, "data_vars") and hasattr(dataset, "to_dataset"):
            dataset = dataset.to_dataset(name=design)
        if not (hasattr(dataset, "data_vars") and hasattr(dataset, "isel")):
            raise ConfigError(
                f"expected an xarray Dataset, found {type(dataset).__name__}: use "
                "streammc.from_table for tables, streammc.from_arrays for arrays"
            )
        # A variable of the default name may be absent; any other must exist.
        self.optional = [
            None if name == default and name not in dataset else name
            for name, default in zip(optional, ("offset", "weight"), strict=True)
        ]
        vectors = [name for name in (response, *self.optional, trials) if name is not None]
        for name in (design, *vectors):
            if name not in dataset:
                shown = ", ".join(map(repr, list(dataset.data_vars)[:8])) or "none"
                raise DataError(
                    f"expected the variable {name!r} in the dataset, found {shown}: name it with "
                    "design= or response=, or response=None; a table is for streammc.from_table"
                )
        X = dataset[design]
        if len(X.dims) != 2 or 0 in X.shape:
            raise DataError(
                f"expected rows and features in {design!r}, found dimensions {X.dims} of shape "
                f"{X.shape}: give a matrix of rows and features"
            )
        self.row, self.feature = (
            X.dims[::-1] if X.dims[1] == "row" or X.dims[0] == "feature" else X.dims
        )
        for name in vectors:
            if dataset[name].dims != (self.row,):
                raise DataError(
                    f"expected {name!r} over the dimension {self.row!r} alone, found "
                    f"{dataset[name].dims}: give one value per row"
                )
        self._design, self._vectors = design, vectors
        self._numbers = {
            name: StoredNumbers(
                dataset[name].attrs, dataset[name].dtype, f"{name!r} of the dataset", _ADVICE
            )
            for name in (design, *vectors)
        }
        self.row_id = None if row_id == ROW_ID and row_id not in dataset else row_id
        if self.row_id is not None and self.row_id not in dataset:
            raise DataError(
                f"expected the row ids {row_id!r} in the dataset, found none: name others with "
                "row_id=, or row_id=None"
            )
        if self.row_id is not None:
            self._require_ids(dataset[self.row_id], vectors)
        used = [design, *vectors, *([] if self.row_id is None else [self.row_id])]
        self._table = dataset[used].transpose(self.row, ...)
        self._codes = dataset.variables.get(CODES)
        self._source = getattr(dataset, "encoding", {}).get("source")
        self.n_rows, width = self._table[design].shape
        self.dtype = np.dtype(X.dtype)
        if self.feature in X.coords:
            self.features = [str(name) for name in X.coords[self.feature].values]
        else:
            self.features = [f"x{column}" for column in range(width)]

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        """Return rows of the design and of the vectors, computed together."""
        part = self._table.isel({self.row: slice(start, stop)}).compute()
        for name, numbers in self._numbers.items():
            numbers.refuse_marked(part[name].values, start)
        arrays = [part[name].values for name in self._vectors]
        if self.row_id is not None:
            arrays.append(id_values(part[self.row_id].values))
        return part[self._design].values, arrays

    def _require_ids(self, ids: Any, vectors: list[str]) -> None:
        """Refuse row ids that are neither (n,) nor the bytes (n, width) of a store."""
        stored = len(ids.dims) == 2 and ids.dims[0] == self.row and ids.dtype == np.uint8
        if (ids.dims != (self.row,) and not stored) or ids.name in vectors:
            raise DataError(
                f"expected row ids {ids.name!r} over the dimension {self.row!r} alone, found "
                f"{ids.dims}: name others with row_id=, or row_id=None"
            )

    def edges(self) -> list[int]:
        """Return the edges of the blocks of rows: whole chunks, about 32 MB."""
        X = self._table[self._design]
        preferred = X.encoding.get("preferred_chunks", {}).get(self.row, 1)
        unit = X.chunks[0][0] if X.chunks else int(preferred)
        row_bytes = self.dtype.itemsize * len(self.features)
        step = unit * max(1, _BLOCK_BYTES // (unit * row_bytes))
        return [*range(0, self.n_rows, step), self.n_rows]

    def source(self) -> ArraySource:
        """Return the dataset as a source of ``ingest``."""
        dtypes = [self._table[name].dtype for name in (self._design, *self._vectors)]
        vectors = self._vectors
        if self.row_id is not None:
            ids = self._table[self.row_id]
            vectors = [*vectors, self.row_id]
            dtypes.append(ids.dtype if ids.ndim == 1 else np.dtype(str))
        lazy = any(self._table[name].chunks for name in (self._design, *self._vectors))
        return ArraySource(
            "the dataset",
            self.features,
            vectors,
            dtypes,
            self.edges(),
            self.read,
            spool=lazy,
            row_id=self.row_id,
        )

    def same_store(self) -> Store | None:
        """Return the store that the dataset was opened from, if it has the same values."""
        store = None
        with suppress(StreammcError):
            store = open_store(self._source) if isinstance(self._source, str) else None
        if store is None or store.foreign is not None:
            return None
        arrays = dict(zip(("X", "y", "offset", "weight"), store.rows().arrays, strict=True))
        present = {name for name, array in arrays.items() if array.size}
        codes = store.rows().codes
        names = store.feature_names if codes is None else tuple(self.features)
        shape = (self.n_rows, tuple(self.features))
        same = present == {self._design, *self._vectors} and shape == (store.n_rows, names)
        if codes is not None:
            own = np.asarray(getattr(self._codes, "values", None))
            same = same and np.array_equal(own, codes[: store.n_rows])
        edges = self.edges()
        for start, stop in pairwise(edges):
            if not same:
                return None
            design, vectors = self.read(start, stop)
            if self.row_id is not None:
                own, stored_ids = vectors.pop(), store.row_ids(start, stop)
                same = stored_ids is not None and np.array_equal(own, id_texts(stored_ids))
            pairs = zip((self._design, *self._vectors), (design, *vectors), strict=True)
            same &= all(np.array_equal(arrays[name][start:stop], part) for name, part in pairs)
        return store if same else None

    def in_memory(
        self,
        response: str | None,
        offset: str | None,
        weight: str | None,
        trials: str | None,
        chunk_rows: int | None,
    ) -> MemoryStore | None:
        """Return a data set of the arrays in place, or ``None`` if one is not in memory."""
        for name in (self._design, *self._vectors):
            # Not .values: it would load the variable from disk.
            if not getattr(self._table[name].variable, "_in_memory", False):
                return None
        table = self._table
        for name, numbers in self._numbers.items():
            numbers.refuse_marked(table[name].values, 0)

        def vector(name: str | None) -> NDArray[Any] | None:
            return None if name is None else np.asarray(table[name].values)

        return from_arrays(
            table[self._design].values,
            vector(response),
            offset=vector(offset),
            weight=vector(weight),
            trials=vector(trials),
            row_id=None if self.row_id is None else id_values(table[self.row_id].values),
            feature_names=self.features,
            response=response,
            chunk_rows=chunk_rows,
        )
