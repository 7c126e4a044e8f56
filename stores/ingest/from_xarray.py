"""An xarray Dataset as a data set: used in place, or copied to a store block by block."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from streammc.docstrings import documented
from streammc.stores.format.layout import GROUP_OFFSET, ROW_ID
from streammc.stores.ingest.dataset_variables import DatasetVariables
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.ingest.write import make_data_set
from streammc.stores.sources.array_source import refuse_codes, refuse_groups, require_path

if TYPE_CHECKING:
    from streammc.stores.memory import MemoryStore
    from streammc.stores.store import Store


@documented(ingest)
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
        found = table.in_memory(response, offset, weight, trials, chunk_rows)
        if found is not None:
            return found
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
