"""Default priors in the units of the data, much as ``rstanarm`` scales its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from streammc.priors.by_name import NamedPriors, ScaledPriors
from streammc.priors.coefficients import normal
from streammc.priors.family import FamilyPrior
from streammc.priors.scales import half_student_t
from streammc.protocols import Rows, Vector

M = TypeVar("M")

WIDTH: Final = 2.5
"""Standard deviations of a prior per unit of what it is scaled with (Gabry et al., rstanarm)."""
LINK_INTERCEPT: Final = 5.0
"""Standard deviation of an intercept on the scale of a link, around the link of the mean."""
UNKNOWN_INTERCEPT: Final = 10.0
"""The same where the link is not known: around 0."""
INTERCEPT: Final = "Intercept"
LARGEST_LOG: Final = 700.0
"""Of a mean rate, either way: no finite rate has more, whatever an offset says."""
_LARGEST: Final = 1e300


@dataclass(frozen=True)
class Level:
    """Location and scale of a linear predictor where every column is at its mean."""

    location: float = 0.0
    unit: float = 1.0
    """Scale of the predictor: a coefficient has ``WIDTH`` units per scale of its column."""
    width: float = UNKNOWN_INTERCEPT
    """Standard deviation of the intercept."""


def with_defaults(model: M, rows: Rows, feature_names: Sequence[str]) -> M:
    """Return the model with numbers in place of the defaults that scale with the data.

    Parameters
    ----------
    model
        A model; one whose prior has its numbers is returned as it is.
    rows
        Rows that stand for all; those with an invalid response are left out.
    feature_names
        Names of the columns.
    """
    given: Any = model
    prior = getattr(model, "prior", None)
    if not isinstance(prior, ScaledPriors):
        return model
    labels = given.labels(feature_names)
    missing = {
        label
        for label, each in zip(labels, prior.each(labels, [False] * len(labels)), strict=True)
        if each is None
    }
    defaults: dict[str, FamilyPrior] = {}
    if missing and hasattr(model, "default_priors"):
        found = given.default_priors(labels, feature_names, _usable(given, rows))
        defaults = {label: each for label, each in found.items() if label in missing}
    named = dict(prior.priors) | defaults
    resolved = NamedPriors(tuple(sorted(named.items())), tuple(defaults))
    return replace(given, prior=resolved)  # type: ignore[no-any-return]


def coefficients(rows: Rows, names: Sequence[str], level: Level) -> list[FamilyPrior]:
    """Return the priors of the coefficients of one linear predictor, one per column.

    A slope is Normal(0, 2.5 unit / scale) with the standard deviation of its column as
    scale; the range where the column has two values, and 1 where it is constant. An
    intercept is at the level of the predictor. Columns that are not centred move it by
    slope times mean, so that its variance has those terms too. Without an intercept the
    slopes have to reach the level: it counts as part of the unit.
    """
    share = shares(rows)
    place = _intercept(rows, names)
    unit = level.unit if place is not None else math.hypot(level.unit, level.location)
    priors = []
    moved = [level.width]
    for j in range(len(names)):
        mean, sd, ends = spread(rows.X[:, j], share)
        if j == place:
            priors.append(normal())
            continue
        scale = rounded(WIDTH * unit / (ends or sd or 1.0))
        moved.append(scale * mean)
        priors.append(normal(scale))
    if place is not None:
        value = float(rows.X[0, place]) if len(rows.y) and rows.X[0, place] else 1.0
        priors[place] = located(level.location / value, math.hypot(*moved) / abs(value))
    return priors


def located(location: float, scale: float) -> FamilyPrior:
    """Return a normal prior with numbers as they are printed.

    The scale has three digits, the location those that a hundredth of the scale needs.
    """
    scale = rounded(scale)
    if not math.isfinite(location):
        return normal(scale)
    digits = 0
    if location:
        digits = 3 + math.floor(math.log10(abs(location))) - math.floor(math.log10(scale))
    at = float(f"{location:.{min(digits, 17)}g}") if digits > 0 else 0.0
    return normal(scale, location=at)


def means(rows: Rows, covariance: Sequence[Sequence[float]]) -> list[FamilyPrior]:
    """Return the priors of means of the columns: Normal(mean(x), 2.5 sd(x)).

    The standard deviation counts as no less than that of the known covariance (q, q).
    """
    share, found = shares(rows), []
    for j in range(rows.X.shape[1]):
        mean, sd, _ = spread(rows.X[:, j], share)
        found.append(located(mean, WIDTH * max(sd, math.sqrt(covariance[j][j]))))
    return found


def scale_prior(unit: float) -> FamilyPrior:
    """Return half-Student-t(3, 2.5 unit), for a standard deviation in the units of the data."""
    return half_student_t(3.0, rounded(WIDTH * unit))


def rounded(scale: float) -> float:
    """Return a scale with three digits, positive and finite."""
    bounded = min(max(scale, 1.0 / _LARGEST), _LARGEST)
    return float(f"{bounded:.3g}")


def shares(rows: Rows) -> Vector:
    """Return the weights divided by their sum."""
    weight = rows.weight / max(float(rows.weight.max(initial=0.0)), 1e-300)
    share: Vector = weight / max(float(weight.sum()), 1e-300)
    return share


def spread(x: Vector, share: Vector) -> tuple[float, float, float]:
    """Return mean, standard deviation, and the range where there are just two values, else 0.

    A constant has a standard deviation of exactly 0.
    """
    if len(x) == 0:
        return 0.0, 0.0, 0.0
    low, high = float(x.min()), float(x.max())
    if low == high:
        return low, 0.0, 0.0
    mean = float(np.sum(share * x))
    with np.errstate(over="ignore", invalid="ignore"):
        away = x - mean
        most = float(np.abs(away).max())
        sd = most * math.sqrt(float(np.sum(share * np.square(away / most))))
    two = bool(np.all((x == low) | (x == high)))
    return mean, min(sd, _LARGEST), high - low if two else 0.0


def response_level(rows: Rows) -> Level:
    """Return the level of a predictor in the units of the response.

    The unit is the standard deviation of ``y - offset``; of a constant its size.
    """
    mean, sd, _ = spread(rows.y - rows.offset, shares(rows))
    unit = sd or abs(mean) or 1.0
    return Level(mean, unit, WIDTH * unit)


def logit_level(rows: Rows) -> Level:
    """Return the level under a logit link: the log odds of the mean response."""
    chance, offset = _mean_response(rows)
    return Level(math.log(chance / (1.0 - chance)) - offset, 1.0, LINK_INTERCEPT)


def probit_level(rows: Rows) -> Level:
    """Return the level under a probit link: the probit of the mean response."""
    from scipy.special import ndtri

    chance, offset = _mean_response(rows)
    return Level(float(ndtri(chance)) - offset, 1.0, LINK_INTERCEPT)


def _mean_response(rows: Rows) -> tuple[float, float]:
    """Return the mean response, away from 0 and 1 by half a row, and the mean offset."""
    share, half = shares(rows), 0.5 / (len(rows.y) + 1.0)
    mean, offset = spread(rows.y, share)[0], float(np.sum(share * rows.offset))
    if len(rows.y) and 0.0 < mean < 1.0:  # as it is: weights are as good as repeated rows
        return mean, offset
    return (1.0 - half if mean >= 1.0 else half), offset


def log_level(rows: Rows) -> Level:
    """Return the level under a log link: the log of the mean rate; of no counts, of half a count.

    The mean of ``log(y / exposure)`` would not do: most counts of a rare event are 0.
    """
    if len(rows.y) == 0:
        return Level(0.0, 1.0, LINK_INTERCEPT)
    share, shift = shares(rows), float(rows.offset.max())
    exposure = float(np.sum(share * np.exp(rows.offset - shift)))
    counts = float(np.sum(share * rows.y)) or 0.5 / len(rows.y)
    location = math.log(counts) - math.log(max(exposure, 1e-300)) - shift
    return Level(max(min(location, LARGEST_LOG), -LARGEST_LOG), 1.0, LINK_INTERCEPT)


def _usable(model: Any, rows: Rows) -> Rows:
    """Return the rows that count: finite, of positive weight, with a valid response."""
    good = np.isfinite(rows.X).all(axis=1) & np.isfinite(rows.offset)
    good &= np.isfinite(rows.weight) & (rows.weight > 0.0)
    fault = getattr(model, "inner", model).response_fault(rows.y)  # that of a group has no response
    if fault is not None:
        good[fault[0]] = False
    if good.all():
        return rows
    return Rows(rows.X[good], rows.y[good], rows.offset[good], rows.weight[good])


def _intercept(rows: Rows, names: Sequence[str]) -> int | None:
    """Return the column of that name, else the first constant that is not 0, else ``None``."""
    if INTERCEPT in names:
        return list(names).index(INTERCEPT)
    if len(rows.y) == 0:
        return None
    constant = (rows.X[0] == rows.X).all(axis=0) & (rows.X[0] != 0.0)
    return int(np.argmax(constant)) if constant.any() else None
