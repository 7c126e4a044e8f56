"""Whether responses vary as the model says: their spread and their zeros, against replicated ones.

A family without a scale of its own, such as Poisson, states how much responses vary around their
mean. Where they vary more, every interval is too narrow, and no pass, chain or audit sees it: all
of them take the model for granted. Responses are drawn from the model at the mode (Rubin 1984), for
a sample of the rows, and compared by

    D = sum w (y - mu)^2 / E sum w (y* - mu)^2,

the dispersion (McCullagh and Nelder 1989, section 4.5), and by the number of zeros of counts.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streammc import rng
from streammc.errors import ModelError
from streammc.models.base import predictors_at
from streammc.models.mixed.effect_terms import is_mixed_model
from streammc.protocols import Dataset, Model, Rows, Vector

_ROWS: Final = 16_384
_REPLICATES: Final = 16
_DOUBTLESS: Final = 8.0
"""Distance from replicated responses, in their standard deviations."""
_DISPERSION: Final = 1.44
"""Dispersion from which on intervals are a fifth too narrow."""
_SHARE: Final = 0.02
"""Difference of the shares of zeros that matters."""


def dispersion_warnings(dataset: Dataset, model: Model, subset: Rows, theta: Vector) -> list[str]:
    """Return warnings about the spread and the zeros of responses, at ``theta`` (d,).

    ``subset`` are rows of the data set: a random sample, or all.
    """
    cells = dataset.table.attributes.get("cells")
    own_functions = bool(getattr(model, "functions", None))  # of the user: they may do anything
    if model.censored or own_functions or model.n_linear == 0 or is_mixed_model(model):
        return []
    if "statistics" in (cells or {}) or (model.takes_trials and not _counts_trials(dataset)):
        return []  # of sums the spread is lost; trials times a weight are no trials
    draws = rng.stream(0, 2, rng.Role.PLAN)  # 2: the number of this purpose
    used = np.flatnonzero(subset.weight > 0.0)
    if len(used) < 2:
        return []
    if cells:  # a cell is as many rows of the table as it weighs
        share_of = subset.weight[used] / subset.weight[used].sum()
        used = draws.choice(used, _ROWS, p=share_of)
    rows = Rows(*(np.ascontiguousarray(each[used[:: -(-len(used) // _ROWS)]]) for each in subset))
    eta = predictors_at(model, rows, theta)
    y, weight = rows.y, np.ones(len(rows.y)) if cells else rows.weight
    if model.takes_trials and ((y == 0.0) | (y == 1.0)).all():
        return []  # one trial a row has one variance at each mean
    try:
        with np.errstate(all="ignore"):
            mean = model.mean(eta)
            drawn = [model.simulate_trials(eta, weight, draws) for _ in range(_REPLICATES)]
    except ModelError:  # a model of the user's own without one of them
        return []
    if not np.isfinite(mean).all():
        return []
    total, lines = weight.sum(), list[str]()
    if model.n_linear + model.n_scalar == 1:  # any other number is a scale or a chance
        with np.errstate(over="ignore"):
            expected = np.array([weight @ np.square(each - mean) for each in drawn])
            found = float(weight @ np.square(y - mean))
        ratio, z = _compared(found, expected)
        if ratio > _DISPERSION and z > _DOUBTLESS:
            lines.append(
                f"the responses vary {ratio:.3g} times as much as those of {model.name} with the "
                f"same means: intervals are about {math.sqrt(ratio):.2g} times too narrow; "
                + (model.if_overdispersed or "take a model with a scale of its own")
            )
    counts = bool((y == np.floor(y)).all()) and y.min() == 0.0 and y.max() > 1.0
    if counts:
        zeros = np.array([weight @ (each == 0.0) / total for each in drawn])
        if lines:  # more zeros are a part of more variation: beyond those of a negative binomial?
            surplus = float(weight @ (np.square(y - mean) - mean))
            phi = float(weight @ np.square(mean)) / max(surplus, 1e-300)
            zeros += weight @ (1.0 + mean / phi) ** -phi / total - zeros.mean()
        share = float(weight @ (y == 0.0) / total)
        _, z = _compared(share, zeros)
        gap = share - float(zeros.mean())
        if abs(z) > _DOUBTLESS and abs(gap) > _SHARE:
            what, other = "more" if gap > 0.0 else "fewer", "negative-binomial"
            lines.append(
                f"{what} responses are 0 than under {other if lines else model.name}, {share:.1%} "
                f"and not {float(zeros.mean()):.1%}; where zeros have a cause of their own, take a "
                "zero-inflated model or hurdle-poisson"
            )
    return lines


def _counts_trials(dataset: Dataset) -> bool:
    """Return whether the weights of rows are their trials and nothing else."""
    attributes = dataset.table.attributes
    if attributes.get("cells") or dataset.temperature != 1.0:
        return False
    return attributes.get("trials") is None or attributes.get("weight") is None


def _compared(found: float, expected: Vector) -> tuple[float, float]:
    """Return the ratio to the mean of replicated numbers, and the distance in their sd."""
    mean, sd = float(expected.mean()), float(expected.std(ddof=1))
    if not (math.isfinite(found) and math.isfinite(mean) and mean > 0.0):
        return 1.0, 0.0
    # Of few replicates the spread is uncertain, and of rare events it may be seen as 0.
    return found / mean, (found - mean) / max(1.5 * sd, 1e-3 * mean)
