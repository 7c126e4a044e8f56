"""Parameters on the scale of the table that was ingested, and ratios.

The store holds ``z_j = (x_j - mean_j) / scale_j``, so that a linear predictor is

    sum_j beta_j z_j = sum_j (beta_j / scale_j) x_j - sum_j beta_j mean_j / scale_j

and the last sum belongs to the intercept; a mean of the columns themselves becomes
``mean_j + scale_j mu_j``, a distance (between means, a length scale) ``scale_j`` times it.
Draws are transformed, then summarised: quantiles and R-hat of a sum are not those of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.summary import Statistics, draws_and_labels, summarize_draws
from streammc.errors import StoreError

if TYPE_CHECKING:
    import xarray as xr

INTERCEPT: Final = "Intercept"
COEFFICIENT: Final = "beta"
MEAN: Final = "mu"
"""Name of the mean of the columns themselves."""

LENGTH: Final = "length_scale"
"""Name of a length scale: of each column, or of all together."""

TIED: Final = ["theta1", "theta2"]
"""A mean of the only column, and how far the other is from it."""

RATIOS: Final = {
    "logistic": "odds ratio",
    "binomial": "odds ratio",
    "poisson": "rate ratio",
    "negative-binomial": "rate ratio",
}
"""What the exponential of a coefficient is, by the name of the model."""


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
        As :func:`~streammc.diagnostics.summary.summarize`; parameters that do not
        belong to features are unchanged.

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
    scale: it is added, before the coefficients of its predictor.
    """
    standardization = attributes.get("standardization")
    if standardization is None:
        return theta, list(labels)
    features = list(attributes["features"])
    mean = np.asarray(standardization["mean"], dtype=np.float64)
    scale = np.asarray(standardization["scale"], dtype=np.float64)
    groups = _variables(labels, features)
    groups = {} if (free := _free(labels)) else groups
    tied = list(labels) == TIED and len(features) == 1
    shared = labels.index(LENGTH) if LENGTH in labels else None
    fits = mean.shape == scale.shape == (len(features),)
    fits = fits and (bool(groups) or tied or shared is not None or (free and len(features) == 1))
    if not fits or not np.isfinite(mean).all() or not (scale > 0).all():
        raise StoreError(
            f"expected a mean and a positive scale for each of {len(features)} coefficients, found "
            f"{mean.shape} and {scale.shape} for {len(labels)} parameters: verify the store"
        )
    result = theta * scale if tied else theta.copy()
    if tied:
        result[:, :, 0] += mean
    if shared is not None and (scale == scale[0]).all():
        result[:, :, shared] *= scale[0]
    if free:
        count = sum(label.startswith("mu[") for label in labels)
        result[:, :, : len(labels) - count + 1] *= scale  # means, and scales
        result[:, :, :count] += mean
    names = list(labels)
    added: list[tuple[int, str, NDArray[np.float64]]] = []
    for start, place in groups.items():
        if start.partition("[")[0] == MEAN:
            result[:, :, place] = mean + scale * theta[:, :, place]
            continue
        if start.partition("[")[0] == LENGTH:
            result[:, :, place] = scale * theta[:, :, place]
            continue
        result[:, :, place] = theta[:, :, place] / scale
        shift = -(result[:, :, place] * mean).sum(axis=-1)
        if INTERCEPT in features:
            # Its own mean is 0 and scale 1, so that the shift does not contain it.
            result[:, :, place[features.index(INTERCEPT)]] += shift
        elif mean.any():
            added.append((min(place), f"{start}{INTERCEPT}]", shift))
    for at, name, shift in sorted(added, reverse=True, key=lambda item: item[0]):
        result = np.insert(result, at, shift, axis=2)
        names.insert(at, name)
    return result, names


def _free(labels: Sequence[str]) -> bool:
    """Return whether these are means, scales and weights of components in one column."""
    count = sum(label.startswith("mu[") for label in labels)
    means = [f"mu[{k}]" for k in range(count)]
    weights = [f"weight[{k}]" for k in range(count - 1)]
    scales = [f"sigma[{k}]" for k in range(count)]
    given = list(labels)
    return count > 0 and given in ([*means, *weights], [*means, *scales, *weights])


def _variables(labels: Sequence[str], features: Sequence[str]) -> dict[str, list[int]]:
    """Return the columns of all that has one parameter per feature, by how its labels begin.

    ``beta[``; or ``beta[0, `` for each unit of a network, ``mu[0, `` for each component of a
    mixture.
    """
    place = {label: column for column, label in enumerate(labels)}
    found = {}
    for variable in dict.fromkeys(label.partition("[")[0] for label in labels):
        starts = [f"{variable}["]
        if variable in (COEFFICIENT, MEAN):
            starts += takewhile(
                lambda start: f"{start}{features[0]}]" in place,
                (f"{variable}[{k}, " for k in range(len(labels))),
            )
        for start in starts:
            wanted = [f"{start}{feature}]" for feature in features]
            if {*wanted} <= place.keys():
                found[start] = [place[label] for label in wanted]
    return found


def as_variables(
    theta: NDArray[np.float64], labels: Sequence[str], features: Sequence[str]
) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    """Return draws (chain, draw, d) as ``name -> (dims, values)``, a variable per name.

    Parameters by feature, and an intercept, share the dimension ``feature``; any other
    variable has its own, ``<name>_dim``. Coordinates are included.
    """
    columns: dict[str, list[int]] = {}
    for column, label in enumerate(labels):
        columns.setdefault(label.partition("[")[0], []).append(column)
    out: dict[str, tuple[tuple[str, ...], NDArray[Any]]] = {
        "chain": (("chain",), np.arange(theta.shape[0])),
        "draw": (("draw",), np.arange(theta.shape[1])),
    }
    for variable, place in columns.items():
        inside = [labels[column].partition("[")[2].removesuffix("]") for column in place]
        if not any(inside):
            out[variable] = (("chain", "draw"), np.ascontiguousarray(theta[:, :, place[0]]))
            continue
        by_feature = {*features} <= {*inside} <= {*features, INTERCEPT}
        dim = "feature" if by_feature else f"{variable}_dim"
        out[variable] = (("chain", "draw", dim), np.ascontiguousarray(theta[:, :, place]))
        out[dim] = ((dim,), np.array(inside))
    return out


def ratios(
    theta: NDArray[np.float64],
    labels: Sequence[str],
    model: str,
    sign: NDArray[np.float64] | None = None,
) -> dict[str, Any] | None:
    """Return the exponentials of the coefficients, summarised, or ``None``.

    Parameters
    ----------
    theta, labels
        Draws (chain, draw, d) on the table's scale.
    model
        Name of the model: see :data:`RATIOS`.
    sign
        (chain, draw) weights of a signed run.

    Returns
    -------
    dict
        ``kind`` and ``parameters``, label -> statistics, without intercepts: the factor
        on the odds or the rate for one unit more of the column.
    """
    if model not in RATIOS:
        return None
    kept = [
        column
        for column, label in enumerate(labels)
        if label.startswith("beta[") and label != f"beta[{INTERCEPT}]"
    ]
    with np.errstate(over="ignore"):
        values = np.exp(theta[:, :, kept])
    names = [labels[column].removeprefix("beta[").removesuffix("]") for column in kept]
    return {"kind": RATIOS[model], "parameters": summarize_draws(values, names, sign)}
