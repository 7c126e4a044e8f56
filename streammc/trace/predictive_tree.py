"""A run with replicated responses, in the groups that ArviZ expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from streammc.trace.datatree import open_run
from streammc.trace.run_directory import RunDirectory

_DIMS: Final = ("chain", "draw")


def predictive_tree(
    run: RunDirectory,
    kept: NDArray[np.int64],
    name: str,
    rows: NDArray[np.int64],
    arrays: Mapping[str, NDArray[np.float64]],
) -> xr.DataTree:
    """Return a tree of thinned draws and arrays by row, in memory.

    Parameters
    ----------
    run
        The run, whose draws become the group ``posterior``.
    kept
        (D,) numbers of the draws in each chain.
    name
        Name of the response.
    rows
        (m,) numbers of the rows.
    arrays
        By group: (m,) for ``observed_data``, else (chains D, m), chain after chain.
    """
    posterior = open_run(run.path, verify=False)["posterior"].to_dataset()
    groups = {"posterior": posterior.isel(draw=kept).load()}
    shape = (run.chains, len(kept))
    by_draw = {dim: posterior[dim].values for dim in _DIMS}
    by_draw["draw"] = by_draw["draw"][kept]
    by_row = {"row": rows}
    for group, values in arrays.items():
        if values.ndim == 1:
            groups[group] = xr.Dataset({name: ("row", values)}, coords=by_row)
        else:
            shaped = values.reshape(*shape, values.shape[-1])
            groups[group] = xr.Dataset(
                {name: ((*_DIMS, "row"), shaped)}, coords={**by_draw, **by_row}
            )
    return xr.DataTree.from_dict(groups)
