"""Intraclass correlation: the share of the variance between rows that is between groups.

For a random intercept with standard deviation tau it is ``tau^2 / (tau^2 + v)``, on the scale of
the linear predictor. v is the variance of a row given its group: sigma^2 of a Gaussian response,
and of a binary one that of the latent variable whose sign it is, pi^2 / 3 of a logistic and 1 of a
probit regression (Goldstein, Browne and Rasbash 2002). Counts have no such v.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.summary import draws_and_labels
from streammc.docstrings import documented
from streammc.errors import ConfigError

if TYPE_CHECKING:
    import xarray as xr

_LATENT: Final = {"logistic": math.pi**2 / 3.0, "binomial": math.pi**2 / 3.0, "probit": 1.0}
"""Variance of the latent variable of a trial, by the name of the regression."""
_SIGMA: Final = "sigma"


def defined(described: Mapping[str, Any]) -> bool:
    """Return whether a model with this description has an intraclass correlation."""
    inner = described.get("inner", {}).get("name")
    known = inner == "gaussian" or inner in _LATENT
    return described.get("name") == "mixed" and len(described["effects"]) == 1 and known


def derived(
    theta: NDArray[np.float64], labels: Sequence[str], described: Mapping[str, Any]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws (chain, draw, 1) of the intraclass correlation and its label.

    Without one: (chain, draw, 0) and no label.

    Parameters
    ----------
    theta, labels
        Draws (chain, draw, d) of the parameters.
    described
        The model, by ``Model.describe``.
    """
    if not defined(described):
        return theta[:, :, :0], []
    column, inner = described["group"], described["inner"]["name"]
    square = theta[:, :, labels.index(f"tau[{column}]")] ** 2
    rest: Any = _LATENT.get(inner)
    if rest is None:
        rest = theta[:, :, labels.index(_SIGMA)] ** 2
    return (square / (square + rest))[..., None], [f"icc[{column}]"]


@documented()
def intraclass_correlation(tree: xr.DataTree) -> xr.DataArray:
    """Return the draws of the intraclass correlation of a run of a mixed model.

    ``tau^2 / (tau^2 + v)`` with v = sigma^2 of a gaussian model, pi^2 / 3 of logistic and
    binomial and 1 of probit ones: on the scale of the linear predictor.

    Parameters
    ----------
    tree
        The run, from ``sample`` or ``open_run``.

    Returns
    -------
    xarray.DataArray
        (chain, draw) named ``icc``.

    Raises
    ------
    ConfigError
        If the run has no random intercept alone, or a response without such a v.
    """
    if "posterior" not in getattr(tree, "children", ()):
        raise ConfigError(
            f"expected a tree with a group 'posterior', found {type(tree).__name__}: "
            "pass what streammc.open_run(path) returned"
        )
    written = tree.attrs.get("streammc", {})
    written = json.loads(written) if isinstance(written, str) else written
    described = written.get("identity", {}).get("model", {})
    if not defined(described):
        inner = described.get("inner", {}).get("name")
        found_model = f"mixed {inner}" if inner else described.get("name")
        slope = " with a slope" if len(described.get("effects", ())) > 1 else ""
        raise ConfigError(
            "expected a run of a random intercept of a gaussian, logistic, binomial or probit "
            f"model, found {found_model}{slope}: report tau instead"
        )
    values, _ = derived(*draws_and_labels(tree), described)
    like = next(iter(tree["posterior"].data_vars.values()))
    keep = {dim: 0 for dim in like.dims if dim not in ("chain", "draw")}
    found: xr.DataArray = like.isel(keep, drop=True).transpose("chain", "draw")
    return found.copy(data=values[..., 0]).rename("icc")
