"""``streammc.fit``: from a table to its posterior, in one call."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from streammc import registry
from streammc.errors import ConfigError
from streammc.priors import PriorOption
from streammc.samplers.common.sampler import RunArguments, Sampler
from streammc.settings import called_with, values_of
from streammc.stores.data_set import RowTable
from streammc.stores.ingest.table_options import ColumnOptions

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class FitCall(RunArguments, ColumnOptions):
    """Arguments of :func:`fit`.

    Parameters
    ----------
    table : path, table, or list of them
        Files (CSV, also compressed, Parquet, Feather or Arrow IPC), patterns and directories of
        them, also at ``s3://``, ``gs://`` or ``az://``, folders ``name=value`` being columns; or
        tables in memory or lazy ones (frames of pandas, polars, DuckDB, Dask or Ibis, Arrow tables,
        mappings from names to arrays, objects with ``__arrow_c_stream__``). A lazy frame is
        computed once, into a temporary file of the columns in use.
    formula
        ``"late ~ distance + C(origin) + (1 | carrier)"``: see the how-to on formulas. ``None``:
        ``response`` and the columns ``features``.
    family
        Name of a model, such as ``"logistic"``, or one of ``streammc.models`` with its options.
    prior
        A prior of all coefficients, or a mapping from parameters to priors, for a family given by
        name. ``None``: priors that scale with the data.
    store
        Path of a store to keep the rows in, for further runs and for samplers that need rows at
        random. ``None``: the rows stay in memory; those that need more than half of it, or with
        ``sampler="smh"`` over 256 MB, are read from the table whenever they are needed, in order,
        and sampled with ``smh``.
    sampler
        Name or one of ``streammc.samplers``. ``None`` chooses, see ``streammc.sample``.
    """

    table: Any
    formula: str | None
    family: Any
    _: KW_ONLY
    prior: PriorOption | None = None
    store: str | os.PathLike[str] | None = None
    sampler: Sampler | str | None = None


@called_with(FitCall)
def fit(call: FitCall) -> xarray.DataTree:
    """Sample the posterior of a regression of a table, in one call.

    As ``streammc.from_table`` and ``streammc.sample`` after each other: same rows, same draws.

    Returns
    -------
    xarray.DataTree
        Draws, as ``streammc.sample`` returns them.

    Raises
    ------
    ConfigError
        If an argument is of another kind, or out of range, or the family does not exist.
    DataError
        If the table cannot be read, or a value is missing or not a number.
    RefusedError
        If the rows do not fit in memory, there is no ``store``, and ``smh`` cannot sample them.
    IdentityError
        If ``store`` exists, and is not to be overwritten; or ``path`` holds another run.

    Warns
    -----
    SamplingWarning
        For each warning of the summary.

    Examples
    --------
    >>> import numpy as np
    >>> import streammc
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=500)
    >>> table = {"x": x, "y": (rng.logistic(size=500) < 0.5 + x).astype(int)}
    >>> tree = streammc.fit(table, "y ~ x", "logistic", draws=200, warmup=100, chains=2, seed=1)
    >>> list(tree.posterior.feature.values)
    ['Intercept', 'x']
    """
    from streammc.models.base import sums_of_responses
    from streammc.runs.interactive import sample
    from streammc.runs.setup import refuse_in_order
    from streammc.stores.ingest.ingest_options import IngestOptions, as_in
    from streammc.stores.ingest.ingestion import rows_of

    if isinstance(call.table, RowTable):
        raise ConfigError(
            "expected a table to fit, found a data set: call streammc.sample with it and a model"
        )
    model, sampler = call.family, call.sampler
    if isinstance(model, str):
        model = registry.model(model)(prior=call.prior)
    elif call.prior is not None:
        raise ConfigError(
            "expected the prior in the model, found it beside a model: give it to "
            f"streammc.models.{getattr(model, 'name', 'NAME')}(prior=...)"
        )
    if isinstance(sampler, str):
        sampler = None if sampler == "auto" else registry.sampler(sampler)()
    if sampler is not None:
        sampler.check_model(model)
    table = values_of(call, ColumnOptions)
    del table["seed"]  # that of the run, and not of the shuffle
    sums = sums_of_responses(model)
    made = IngestOptions(**table, formula=call.formula, sufficient=sums)
    options = as_in(made, None)
    store = rows_of(
        call.table,
        options,
        call.store,
        overwrite=call.overwrite,
        depth=5,
        in_order=sampler is not None and not sampler.needs_rows(model),
        no_cells=model.sees_trials,
        refuse_in_order=lambda: refuse_in_order(model, sampler),
    )
    run = values_of(call, RunArguments)
    return sample(store, model, sampler=sampler, **run)
