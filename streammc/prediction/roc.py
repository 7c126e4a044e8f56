"""ROC curves and calibration by group with their uncertainty, from the totals of a pass.

With a threshold ``t`` a row is classified as positive if its score is at least ``t``. The
thresholds are the edges of the bins, so that both rates are exact at each threshold. The area
under the curve is P(score of a positive > score of a negative), with a tie counted as one
half. Pairs inside one bin count as ties, so that the area is exact up to the resolution

    sum over bins of P_b N_b / (2 P N)

with ``P`` positives and ``N`` negatives, of which ``P_b`` and ``N_b`` are in bin ``b``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.quantiles import mean, quantiles
from streammc.protocols import Matrix, Vector

Arrays = dict[str, tuple[Sequence[str], NDArray[Any]]]
_GRID = 1001


def rates(histogram: NDArray[np.float64]) -> tuple[Matrix, Matrix]:
    """Return false and true positive rates (S, B + 1) from counts (S, B, 2).

    The thresholds are ``-inf``, the edges and ``inf``, so that the rates fall from 1 to 0.
    """
    draws, bins, classes = histogram.shape
    above = np.zeros((draws, bins + 1, classes))
    above[:, :-1] = np.cumsum(histogram[:, ::-1], axis=1)[:, ::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = above / above[:, :1]
    return shares[..., 0], shares[..., 1]


def areas(histogram: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """Return the areas under the curves (S,) and their resolutions (S,) from counts (S, B, 2)."""
    negative, positive = histogram[..., 0], histogram[..., 1]
    below = np.cumsum(negative, axis=-1) - negative
    pairs = positive.sum(axis=-1) * negative.sum(axis=-1)
    ties = 0.5 * (positive * negative).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((positive * below).sum(axis=-1) + ties) / pairs, ties / pairs


def curves(
    histogram: NDArray[np.float64],
    edges: Vector,
    probabilities: Sequence[float],
    names: Sequence[str],
    weights: Vector | None,
) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of the ROC curve, and the mean, quantiles and resolution of its area.

    Parameters
    ----------
    histogram
        (S + 1, B, 2) counts by draw; the last are those of the predictive mean.
    edges
        (B - 1,) thresholds.
    probabilities, names
        Probabilities of the ends of the band, and their names.
    weights
        (S,) weights of the draws; ``None``: all 1.
    """
    false, true = rates(histogram[:-1])
    area, ties = areas(histogram[:-1])
    area_of_mean, ties_of_mean = areas(histogram[-1:])
    grid = np.linspace(0.0, 1.0, _GRID)
    # Rates fall along the thresholds; np.interp needs them increasing.
    at_grid = np.array(
        [np.interp(grid, f[::-1], t[::-1]) for f, t in zip(false, true, strict=True)]
    )
    false_of_mean, true_of_mean = rates(histogram[-1:])
    arrays: Arrays = {
        "threshold": (("threshold",), edges),
        "fpr_grid": (("fpr_grid",), grid),
        "auc": (("draw",), area),
        "roc_of_mean": (
            ("fpr_grid",),
            np.interp(grid, false_of_mean[0, ::-1], true_of_mean[0, ::-1]),
        ),
    }
    banded = {"fpr": ("threshold", false[:, 1:-1]), "tpr": ("threshold", true[:, 1:-1])}
    banded["roc"] = ("fpr_grid", at_grid)
    for name, (dim, values) in banded.items():
        arrays |= _band(name, dim, values, probabilities, names, weights)
    low, high = quantiles(area, probabilities, weights)
    facts = {
        "mean": float(mean(area, weights)),
        names[0]: float(low),
        names[1]: float(high),
        "of_mean": float(area_of_mean[0]),
        "resolution": float(max(ties.max(), ties_of_mean.max())),
    }
    return arrays, facts


def calibration(
    sums: Matrix,
    edges: Vector,
    probabilities: Sequence[float],
    names: Sequence[str],
    weights: Vector | None,
    scored: bool,
) -> Arrays:
    """Return predictive and realised means by group of a covariate.

    Parameters
    ----------
    sums
        (S + 4, G), the transpose of ``predictive.Totals.groups``; groups of weight 0 are
        left out.
    edges
        (G - 1,) edges of the groups.
    probabilities, names, weights
        As for :func:`curves`.
    scored
        Whether the table has a response.
    """
    draws = len(sums) - 4
    used = sums[draws + 2] > 0.0
    weight = sums[draws + 2, used]
    arrays: Arrays = {
        "group_lower": (("group",), np.append(-np.inf, edges)[used]),
        "group_covariate": (("group",), sums[draws, used] / weight),
        "group_rows": (("group",), sums[draws + 3, used].astype(np.int64)),
        "group_weight": (("group",), weight),
    }
    if scored:
        arrays["group_realised"] = (("group",), sums[draws + 1, used] / weight)
    means = sums[:draws, used] / weight
    return arrays | _band("group_mean", "group", means, probabilities, names, weights)


def _band(
    name: str,
    dim: str,
    values: Matrix,
    probabilities: Sequence[float],
    names: Sequence[str],
    weights: Vector | None,
) -> Arrays:
    """Return the mean and the quantiles over draws of ``values`` (S, k), as named arrays."""
    by_place = np.ascontiguousarray(values.T)
    found: Arrays = {name: ((dim,), mean(by_place, weights))}
    for end, bound in zip(names, quantiles(by_place, probabilities, weights), strict=True):
        found[f"{name}_{end}"] = ((dim,), bound)
    return found
