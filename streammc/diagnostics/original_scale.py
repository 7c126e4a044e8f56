"""Parameters on the scale of the table that was ingested, and ratios.

The store holds ``z_j = (x_j - mean_j) / scale_j``, so that a linear predictor is

    sum_j beta_j z_j = sum_j (beta_j / scale_j) x_j - sum_j beta_j mean_j / scale_j

and the last sum belongs to the intercept; a mean of the columns themselves becomes
``mean_j + scale_j mu_j``, a distance (between means, a length scale) ``scale_j`` times it.
Which parameter is which, the model states.
Draws are transformed, then summarised: quantiles and R-hat of a sum are not those of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.summary import Statistics, draws_and_labels, summarize_draws
from streammc.errors import StoreError
from streammc.models.parameters import COEFFICIENT, DISTANCE, PLACE
from streammc.models.table_scale import INTERCEPT, Block

_BASIS: Final = re.compile(r"(?:^|:)(?:bs|cc|cr|poly)\(")
_BRACKETS: Final = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]")

if TYPE_CHECKING:
    import xarray as xr


def original_scale(
    tree: xr.DataTree, attributes: Mapping[str, Any], blocks: Sequence[Block]
) -> dict[str, Statistics]:
    """Return the statistics of every parameter on the table's scale, by ArviZ label.

    Parameters
    ----------
    tree
        A run.
    attributes
        Attributes of its store: ``features`` and ``standardization``, a mapping with
        ``mean`` and ``scale`` per feature, or ``None``.
    blocks
        What its model states of the parameters.

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
    return summarize_draws(*transform(theta, labels, attributes, blocks))


def transform(
    theta: NDArray[np.float64],
    labels: Sequence[str],
    attributes: Mapping[str, Any],
    blocks: Sequence[Block],
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws (chain, draw, d) and labels on the table's scale.

    ``blocks`` is what the model states of its parameters (``models.table_scale``). A centred
    design without an intercept column implies an intercept on the table's scale: it is added,
    before the coefficients of its predictor.
    """
    standardization = attributes.get("standardization")
    if standardization is None:
        return theta, list(labels)
    features = list(attributes["features"])
    mean = np.asarray(standardization["mean"], dtype=np.float64)
    scale = np.asarray(standardization["scale"], dtype=np.float64)
    place = {label: column for column, label in enumerate(labels)}
    fits = mean.shape == scale.shape == (len(features),)
    fits = fits and all(
        len(block.labels) in (1, len(features)) and {*block.labels} <= place.keys()
        for block in blocks
    )
    if not fits or not np.isfinite(mean).all() or not (scale > 0).all():
        raise StoreError(
            f"expected a mean and a positive scale for each of {len(features)} coefficients, found "
            f"{mean.shape} and {scale.shape} for {len(labels)} parameters: verify the store"
        )
    result = theta.copy()
    names = list(labels)
    added: list[tuple[int, str, NDArray[np.float64]]] = []
    for block in blocks:
        at = [place[label] for label in block.labels]
        moved = scale if block.rule == DISTANCE else np.stack([scale, mean])
        if len(at) < len(features) and np.ptp(moved, axis=-1).any():
            continue  # one for all columns has no unit, unless they all have the same
        if block.rule == COEFFICIENT:
            result[:, :, at] = theta[:, :, at] / scale
            shift = -(result[:, :, at] * mean).sum(axis=-1)
            if INTERCEPT in features:
                # Its own mean is 0 and scale 1, so that the shift does not contain it.
                result[:, :, at[features.index(INTERCEPT)]] += shift
            elif mean.any():
                added.append((min(at), block.intercept, shift))
        elif block.rule == PLACE:
            result[:, :, at] = mean[: len(at)] + scale[: len(at)] * theta[:, :, at]
        elif block.rule == DISTANCE:
            result[:, :, at] = scale[: len(at)] * theta[:, :, at]
    for column, name, shift in sorted(added, reverse=True, key=lambda item: item[0]):
        result = np.insert(result, column, shift, axis=2)
        names.insert(column, name)
    return result, names


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
    blocks: Sequence[Block],
    features: Sequence[str],
    sign: NDArray[np.float64] | None = None,
    *,
    formula: bool = False,
) -> dict[str, Any] | None:
    """Return the exponentials of the coefficients, summarised, or ``None``.

    Parameters
    ----------
    theta, labels
        Draws (chain, draw, d) on the table's scale.
    blocks
        What the model states of its parameters, and of their exponentials.
    features
        Columns of the design.
    sign
        (chain, draw) weights of a signed run.
    formula
        Whether a formula made the columns, so that their names say what they are.

    Returns
    -------
    dict
        ``kind`` and ``parameters``, feature (of several linear predictors: label) ->
        statistics, without intercepts: the factor on the odds or the rate for one unit more of
        the column. ``only_together`` lists
        columns of bases and of interactions: no unit more of one leaves the others as they are.
    """
    found = [block for block in blocks if block.exponential]
    if not found:
        return None
    pairs = [
        (name if len(found) == 1 else label, label, name)
        for block in found
        for name, label in zip(features, block.labels, strict=True)
        if name != INTERCEPT
    ]
    place = {label: column for column, label in enumerate(labels)}
    with np.errstate(over="ignore"):
        values = np.exp(theta[:, :, [place[label] for _, label, _ in pairs]])
    return {
        "kind": found[0].exponential,
        "parameters": summarize_draws(values, [shown for shown, _, _ in pairs], sign),
        "only_together": [shown for shown, _, name in pairs if formula and _only_together(name)],
    }


def _only_together(column: str) -> bool:
    """Return whether a column of a formula belongs to a basis or an interaction."""
    if _BASIS.search(column):
        return True
    bare = None
    while bare != column:  # brackets inside brackets
        bare, column = column, _BRACKETS.sub("", column)
    return ":" in column
