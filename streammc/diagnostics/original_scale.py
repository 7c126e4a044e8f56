"""Coefficients on the scale of the table that was ingested.

The store holds ``z_j = (x_j - mean_j) / scale_j``, so that the linear predictor is

    sum_j beta_j z_j = sum_j (beta_j / scale_j) x_j - sum_j beta_j mean_j / scale_j

and the last sum belongs to the intercept. Draws are transformed, then summarised:
quantiles and R-hat of a sum are not those of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.summary import Statistics, draws_and_labels, summarize_draws
from streammc.errors import StoreError

if TYPE_CHECKING:
    import xarray as xr

INTERCEPT: Final = "Intercept"
VARIABLE: Final = "beta"
"""Name of the coefficients of the first linear predictor."""


def original_scale(tree: xr.DataTree, attributes: Mapping[str, Any]) -> dict[str, Statistics]:
    """Return the statistics of every parameter on the table's scale, by ArviZ label.

    Parameters
    ----------
    tree
        A run.
    attributes
        Attributes of its store: ``features`` and ``standardization``, a mapping with
        ``mean`` and ``scale`` per feature, or ``None``.

    Returns
    -------
    dict
        As :func:`~streammc.diagnostics.summary.summarize`; parameters other than the
        coefficients of the first linear predictor are unchanged.

    Raises
    ------
    StoreError
        If the standardisation does not fit the parameters.
    """
    theta, labels = draws_and_labels(tree)
    return summarize_draws(*transform(theta, labels, attributes))


def transform(
    theta: NDArray[np.float64], labels: Sequence[str], attributes: Mapping[str, Any]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws (chain, draw, d) and labels on the table's scale.

    A centred design without an intercept column implies an intercept on the table's
    scale: it is added, as the first column.
    """
    standardization = attributes.get("standardization")
    if standardization is None:
        return theta, list(labels)
    features = list(attributes["features"])
    mean = np.asarray(standardization["mean"], dtype=np.float64)
    scale = np.asarray(standardization["scale"], dtype=np.float64)
    names = [f"{VARIABLE}[{feature}]" for feature in features]
    fits = mean.shape == scale.shape == (len(features),) and {*names} <= {*labels}
    if not fits or not np.isfinite(mean).all() or not (scale > 0).all():
        raise StoreError(
            f"expected a mean and a positive scale for each of {len(features)} coefficients, found "
            f"{mean.shape} and {scale.shape} for {len(labels)} parameters: verify the store"
        )
    place = [list(labels).index(name) for name in names]
    result = theta.copy()
    result[:, :, place] = theta[:, :, place] / scale
    shift = -(result[:, :, place] * mean).sum(axis=-1)
    if INTERCEPT in features:
        # Its own mean is 0 and scale 1, so that the shift does not contain it.
        result[:, :, place[features.index(INTERCEPT)]] += shift
        return result, list(labels)
    if not mean.any():
        return result, list(labels)
    return (
        np.concatenate([shift[:, :, None], result], axis=2),
        [f"{VARIABLE}[{INTERCEPT}]", *labels],
    )
