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
"""Standard deviations of the effects of groups on intercept and slopes, and their correlations if
these are sampled. With ``u_1`` and ``u_2`` the effects on the store's scale and j the slope's
column, those on the table's are ``u_1 - u_2 mean_j / scale_j`` and ``u_2 / scale_j``."""

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
    Effects of an intercept and one slope: feature of the slope."""
    exponential: str = ""
    """What the exponential of a coefficient is, such as ``odds ratio``; empty: nothing."""
    columns: tuple[int, ...] = ()
    """Columns of the labels of a predictor that does not have them all; empty: it has."""
    effects: tuple[str, ...] = ()
    """Effects: their names; empty: an intercept, and ``intercept``."""

    def features(self, names: Sequence[str]) -> list[str]:
        """Return the names of its columns, among those of all columns of the design."""
        return [names[j] for j in self.columns] or list(names)

    @property
    def described(self) -> dict[str, Any]:
        """The block as JSON types."""
        described = {**self._asdict(), "labels": list(self.labels)}
        for name in ("columns", "effects"):  # absent from the runs from before they could be stated
            described[name] = list(described[name])
            if not described[name]:
                del described[name]
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
                "effects": tuple(entry.get("effects", ())),
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
            effects = block.effects or (INTERCEPT, block.intercept)
            k, slopes = len(effects), [features.index(e) for e in effects if e != INTERCEPT]
            moved = _effects(theta[:, :, columns], k, mean[slopes], scale[slopes])
            result[:, :, columns] = moved[..., : len(columns)]
            if len(columns) == k > len(slopes) and mean[slopes].any():
                # Uncorrelated at the means of the columns alone; slopes stay so.
                grouping = _column_of(block.labels[0], effects[0])
                named = zip(pairs_of(k), correlations(grouping, effects), strict=True)
                added += [
                    (max(columns) + 1, name, moved[..., k + n])
                    for n, ((_, j), name) in enumerate(named)
                    if j == 0
                ]
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
    for column, name, shift in sorted(added, key=lambda item: item[0])[::-1]:
        result = np.insert(result, column, shift, axis=2)
        names.insert(column, name)
    return result, names


def pairs_of(k: int) -> list[tuple[int, int]]:
    """Return the pairs of k effects in the order of their correlations: (1, 0), (2, 0), (2, 1)."""
    return [(i, j) for i in range(k) for j in range(i)]


def correlations(column: str, effects: Sequence[str]) -> list[str]:
    """Return the names of the correlations of the effects of a column.

    Examples
    --------
    >>> correlations("g", ["Intercept", "x"]), correlations("g", ["x", "y", "z"])
    (['rho[g]'], ['rho[g:x,y]', 'rho[g:x,z]', 'rho[g:y,z]'])
    """
    if len(effects) == 2:
        return [f"rho[{column}]"]
    return [f"rho[{column}:{effects[j]},{effects[i]}]" for i, j in pairs_of(len(effects))]


def correlation_roots(values: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the Cholesky factors (..., k, k) of correlations in the order of ``pairs_of``.

    They are numbers within rounding of a correlation matrix, which may be singular.
    """
    root = np.zeros((*values.shape[:-1], k, k))
    left = np.ones((*values.shape[:-1], k))
    for n, (i, j) in enumerate(pairs_of(k)):
        rest = values[..., n] - np.einsum("...m,...m->...", root[..., i, :j], root[..., j, :j])
        most = np.sqrt(left[..., i])
        own = np.sqrt(np.maximum(left[..., j], 1e-300))
        root[..., i, j] = np.clip(rest / own, -most, most)
        left[..., i] = np.maximum(left[..., i] - root[..., i, j] ** 2, 0.0)
        root[..., j, j] = own
    root[..., range(k), range(k)] = np.sqrt(left)
    return root


def _effects(
    values: NDArray[np.float64], k: int, mean: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return standard deviations of k effects and their correlations (..., k (k + 1) / 2).

    Those of ``u_1 - sum_j u_j mean_j / scale_j`` and ``u_j / scale_j``, where the last effects are
    slopes. ``values``: the same of u, or without the correlations, (..., k), where they are 0.
    """
    sampled = values.shape[-1] > k
    pairs = values[..., k:] if sampled else np.zeros((*values.shape[:-1], k * (k - 1) // 2))
    root = _turn(k, mean, scale) @ (values[..., :k, None] * correlation_roots(pairs, k))
    deviations = np.sqrt((root**2).sum(axis=-1))
    unit = root / np.maximum(deviations, 1e-300)[..., None]
    moved = [np.einsum("...m,...m->...", unit[..., i, :], unit[..., j, :]) for i, j in pairs_of(k)]
    return np.concatenate([deviations, np.stack(moved, axis=-1)], axis=-1) if k > 1 else deviations


def _turn(k: int, mean: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    turn = np.eye(k)
    slopes = range(k - len(mean), k)
    turn[slopes, slopes] = 1.0 / scale
    if len(mean) < k:
        turn[0, 1:] = -mean / scale
    return turn


def turn_of_effects(effects: Sequence[str], attributes: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the matrix (k, k) by which effects of a level go to the table's scale.

    ``effects`` are their names, those of slopes among the features of ``attributes``, a design.
    """
    stated, names = attributes.get("standardization"), list(attributes["features"])
    if stated is None:
        return np.eye(len(effects))
    at = [names.index(each) for each in effects if each != INTERCEPT]
    mean, scale = (np.asarray(stated[key], dtype=np.float64)[at] for key in ("mean", "scale"))
    return _turn(len(effects), mean, scale)


def _column_of(deviation: str, effect: str) -> str:
    """Return the grouping column of ``tau[g:Intercept]``: ``g``."""
    return deviation.removeprefix("tau[").removesuffix(f":{effect}]")
