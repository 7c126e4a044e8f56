"""Parameters on the scale of the table: rules, and the transformation of draws.

The store holds ``z_j = (x_j - mean_j) / scale_j``, so that a linear predictor is

    sum_j beta_j z_j = sum_j (beta_j / scale_j) x_j - sum_j beta_j mean_j / scale_j

and the last sum is part of the intercept. A parameter ``mu_j`` that is a mean of column j
becomes ``mean_j + scale_j mu_j``; a distance (between means, or a length scale) is multiplied
by ``scale_j``. A group's intercept ``u_1`` and slope ``u_2`` of column j become
``u_1 - u_2 mean_j / scale_j`` and ``u_2 / scale_j``. The model states the rule of each
parameter. Draws are transformed before they are summarised: quantiles and R-hat of a sum do not
follow from those of its terms.

It imports nothing that is compiled: whoever opens a run reads this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StoreError

# Rules by which a parameter goes from the scale of the store to that of the table.
UNCHANGED: Final = ""
COEFFICIENT: Final = "coefficient"
"""Of a linear predictor: ``beta_j / scale_j``; the intercept takes up the means."""
PLACE: Final = "place"
"""A place in the columns: ``mean_j + scale_j mu_j``."""
DISTANCE: Final = "distance"
"""A distance in the columns: ``scale_j`` times it."""
RULES: Final = (UNCHANGED, COEFFICIENT, PLACE, DISTANCE)

INTERCEPT: Final = "Intercept"
EFFECTS: Final = "effects"
"""Standard deviations of the effects of groups on intercept and slope, and their correlation if it
is sampled. With ``u_1`` and ``u_2`` the effects on the store's scale and j the slope's column,
those on the table's are ``u_1 - u_2 mean_j / scale_j`` and ``u_2 / scale_j``."""

FACTOR: Final = "factor"
"""Effects of the levels of factors and their scales, which stay as they are: their columns are
indicators. Exponentials of them are no ratios of one unit."""


class ScaleBlock(NamedTuple):
    """Parameters that go to the table's scale together."""

    rule: str
    """One of :data:`RULES`, :data:`EFFECTS` or :data:`FACTOR`."""
    labels: tuple[str, ...]
    """One per feature, in their order; or a single one that all features share."""
    intercept: str = ""
    """Coefficients without an intercept: label of the one that a centred design implies.
    Effects: feature of the slope."""
    exponential: str = ""
    """What the exponential of a coefficient is, such as ``odds ratio``; empty: nothing."""
    columns: tuple[int, ...] = ()
    """Columns of the labels of a predictor that does not have them all; empty: it has."""

    def features(self, names: Sequence[str]) -> list[str]:
        """Return the names of its columns, among those of all columns of the design."""
        return [names[j] for j in self.columns] or list(names)

    @property
    def described(self) -> dict[str, Any]:
        """The block as JSON types."""
        described = {**self._asdict(), "labels": list(self.labels), "columns": list(self.columns)}
        if not self.columns:  # as in the runs from before it could be stated
            del described["columns"]
        return described


def describe_blocks(blocks: Iterable[ScaleBlock]) -> list[dict[str, Any]]:
    """Return blocks as JSON."""
    return [block.described for block in blocks]


def blocks_from_description(described: Iterable[Mapping[str, Any]]) -> tuple[ScaleBlock, ...]:
    """Return the blocks that :func:`describe_blocks` described."""
    return tuple(
        ScaleBlock(
            **{
                **entry,
                "labels": tuple(entry["labels"]),
                "columns": tuple(entry.get("columns", ())),
            }
        )
        for entry in described
    )


def transform(
    theta: NDArray[np.float64],
    labels: Sequence[str],
    attributes: Mapping[str, Any],
    blocks: Sequence[ScaleBlock],
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws (chain, draw, d) and labels on the table's scale.

    ``blocks`` are blocks of parameters with their rules, from the model. A centred design without
    an intercept column implies an intercept on the table's scale: it is added before the
    coefficients of its predictor. Uncorrelated effects of a centred slope are correlated on the
    table's scale: ``rho`` is added after their deviations.
    """
    standardization = attributes.get("standardization")
    if standardization is None:
        return theta, list(labels)
    features = list(attributes["features"])
    mean = np.asarray(standardization["mean"], dtype=np.float64)
    scale = np.asarray(standardization["scale"], dtype=np.float64)
    position = {label: column for column, label in enumerate(labels)}
    fits = mean.shape == scale.shape == (len(features),)
    fits = fits and all(
        (
            len(block.labels) in (1, len(block.columns) or len(features))
            or block.rule in (EFFECTS, FACTOR)
        )
        and {*block.columns} <= {*range(len(features))}
        and {*block.labels} <= position.keys()
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
        columns = [position[label] for label in block.labels]
        if block.rule == FACTOR:
            continue
        if block.rule == EFFECTS:
            j = features.index(block.intercept)
            moved = _effects(theta[:, :, columns], mean[j] / scale[j], scale[j])
            result[:, :, columns] = moved[..., : len(columns)]
            if len(columns) == 2 and mean[j]:  # uncorrelated at the mean of the column alone
                column = max(columns) + 1
                added.append((column, _correlation(block.labels[0]), moved[..., 2]))
            continue
        own = list(block.columns) or list(range(len(features)))
        moved = scale if block.rule == DISTANCE else np.stack([scale, mean])
        if len(columns) < len(own) and np.ptp(moved, axis=-1).any():
            continue  # a parameter shared by columns of different scales stays as it is
        if block.rule == COEFFICIENT:
            result[:, :, columns] = theta[:, :, columns] / scale[own]
            # Contiguous: the bits of a sum do not depend on how many draws are transformed.
            shift = -np.ascontiguousarray(result[:, :, columns] * mean[own]).sum(axis=-1)
            known = block.features(features)
            if INTERCEPT in known:
                # The intercept column has mean 0 and scale 1: the shift does not include it.
                result[:, :, columns[known.index(INTERCEPT)]] += shift
            elif mean[own].any():
                added.append((min(columns), block.intercept, shift))
        elif block.rule == PLACE:
            result[:, :, columns] = (
                mean[: len(columns)] + scale[: len(columns)] * theta[:, :, columns]
            )
        elif block.rule == DISTANCE:
            result[:, :, columns] = scale[: len(columns)] * theta[:, :, columns]
    for column, name, shift in sorted(added, reverse=True, key=lambda item: item[0]):
        result = np.insert(result, column, shift, axis=2)
        names.insert(column, name)
    return result, names


def _effects(values: NDArray[np.float64], shift: float, scale: float) -> NDArray[np.float64]:
    """Return standard deviations of intercept and slope and their correlation (..., 3).

    Those of ``u_1 - shift u_2`` and ``u_2 / scale``. ``values``: the same of ``u_1`` and ``u_2``,
    or without the correlation, (..., 2), where it is 0.
    """
    moved = np.empty((*values.shape[:-1], 3))
    intercept, slope = values[..., 0], values[..., 1]
    rho = values[..., 2] if values.shape[-1] == 3 else np.zeros_like(slope)
    # Two squares, so that nothing cancels.
    along = rho * intercept - shift * slope
    moved[..., 0] = np.hypot(along, np.sqrt((1.0 - rho) * (1.0 + rho)) * intercept)
    moved[..., 1] = slope / scale
    moved[..., 2] = along / np.maximum(moved[..., 0], 1e-300)
    return moved


def _correlation(deviation: str) -> str:
    """Return the name of the correlation beside ``tau[g:Intercept]``: ``rho[g]``."""
    column = deviation.removeprefix("tau[").removesuffix(f":{INTERCEPT}]")
    return f"rho[{column}]"
