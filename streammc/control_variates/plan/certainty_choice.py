"""Choice of certainty rows and of the number of sampled rows, for equal or scored units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.pilot import Pilot, UnitMoments
from streammc.control_variates.plan.remainder_moments import (
    LARGEST_JUMP,
    RemainderMoments,
    required_rows,
)
from streammc.control_variates.plan.unit_scores import (
    UNIFORM_SHARE,
    UnitScores,
    relative_probabilities,
)
from streammc.protocols import Index, Vector


@dataclass(frozen=True)
class Bounds:
    """Limits that a choice of certainty rows has to meet."""

    variance: float
    """Largest variance of the log-likelihood estimate."""
    given: int | None
    """m as chosen by the user, or ``None``."""
    most_certain: int
    """Largest number of certainty rows."""
    edge: float | None
    """Growth of remainders up to the edge of the posterior, or ``None``; see ``required_rows``."""

    def rows(self, moments: RemainderMoments, deff: float = 1.0, b: int = 1) -> Vector:
        """Return (t,) the smallest numbers of sampled rows that meet the limits."""
        return required_rows(moments, deff, b, self.variance, edge=self.edge)

    def allowed(self, sizes: Index) -> NDArray[np.bool_]:
        """Return which of these numbers of certainty rows are allowed."""
        return sizes <= self.most_certain


@dataclass(frozen=True)
class Choice:
    """A set of certainty rows, with the number of sampled rows that the others need.

    Attributes
    ----------
    certain
        (c,) sorted.
    load
        Their cost in rows of the mean size: c, but for groups, which are of many sizes.
    rest
        Pilot without the certainty rows, with the unit probabilities of the run.
    units
        Moments of the units of ``rest``.
    moments
        From the pass and from the pilot, each for this one threshold.
    rows
        Rows per item of ``moments``: b where the items are units, 1 where they are rows.
    deff
        Design effect of a unit where ``moments`` is about single rows, else 1.
    needed, bare
        Sampled rows m that meet every limit: with these certainty rows, and without any.
    """

    certain: Index
    load: float
    rest: Pilot
    units: UnitMoments
    moments: tuple[RemainderMoments, RemainderMoments]
    rows: int
    deff: float = 1.0
    needed: float = math.inf
    bare: float = math.inf

    def predict(self, k: int, unit_rows: int, n_units: int) -> dict[str, Any]:
        """Return the predicted variance, largest jump and moments of an estimate from k units."""
        b = unit_rows // self.rows
        m = k * b
        by_pass, by_pilot = (moments.variance[0] * self.deff / m for moments in self.moments)
        jump = n_units * self.units.largest.max() / k
        return {
            "variance": float(max(np.quantile(by_pilot, 0.9), np.quantile(by_pass, 0.9))),
            "variance_by_draw": [float(v) for v in by_pilot],
            "skewness": float(np.nan_to_num(np.median(self.units.skewness))),
            "remainder_kurtosis": float(np.nan_to_num(np.median(self.units.kurtosis))),
            "perturbation_range": float(
                max(moments.perturbation_range(self.deff, b, m)[0] for moments in self.moments)
            ),
            "max_jump": float(max(*(moments.largest[0] / m for moments in self.moments), jump)),
            "needed_without_certainty": self.bare,
        }


def same_for_all(cv: ControlVariates, pilot: Pilot, b: int, bounds: Bounds, cost: Vector) -> Choice:
    """Return the cheapest choice for units of equal probability.

    ``cost`` (c,) is that of each candidate, in rows of the mean size.
    """
    total = np.concatenate([[0.0], np.cumsum(cost)])
    by_pass, sizes = RemainderMoments.of_histogram(cv.histogram, len(cv.candidates))
    by_pilot = RemainderMoments.of_pilot(pilot, cv.candidates, sizes)
    deff = 1.0
    for _ in range(1 if b == 1 else 3):
        needed = np.maximum(bounds.rows(by_pass, deff, b), bounds.rows(by_pilot, deff, b))
        at = _choose(sizes, total[sizes] + needed, needed, bounds)
        certain = np.sort(cv.candidates[: sizes[at]])
        rest = pilot.without(certain)
        units = rest.units(b)
        if b > 1:
            deff = max(rest.design_effect(b), 1e-3)
            jump = pilot.n_rows * float(units.largest.max()) / LARGEST_JUMP
            needed[at] = max(needed[at], b * np.ceil(jump / b))
    return Choice(
        certain,
        float(total[sizes[at]]),
        rest,
        units,
        (by_pass.only(at), by_pilot.only(at)),
        rows=1,
        deff=deff,
        needed=float(needed[at]),
        bare=float(needed[sizes == 0][0]),
    )


def by_score(pilot: Pilot, b: int, bounds: Bounds, scores: UnitScores) -> Choice:
    """Return the cheapest choice for units drawn by score; certainty rows are whole units.

    The pass gives a lower bound on the rows of a choice, which the pilot may raise: the
    cheapest choice is evaluated with the pilot until the cheapest is one already evaluated.
    """
    n_units = len(scores.scores)
    by_pass, sizes = RemainderMoments.of_histogram(
        scores.histogram, bounds.most_certain // b, uniform_share=UNIFORM_SHARE
    )
    needed = b * bounds.rows(by_pass)
    checked: dict[int, Choice] = {}
    while (at := _choose(sizes * b, sizes * b + needed, needed, bounds)) not in checked:
        units = scores.best(int(sizes[at]))
        certain = (units[:, None] * b + np.arange(b)).ravel()
        certain = certain[certain < pilot.n_rows]
        left = scores.scores.copy()
        left[units] = 0.0
        relative = relative_probabilities(left)
        rest = pilot.without(certain, relative)
        drawn = rest.units(b)
        by_pilot = RemainderMoments.of_units(drawn, n_units)
        needed[at] = max(needed[at], b * bounds.rows(by_pilot)[0])
        moments = by_pass.only(at), by_pilot
        checked[at] = Choice(certain, float(len(certain)), rest, drawn, moments, rows=b)
    bare = float(needed[sizes == 0][0])
    return replace(checked[at], needed=float(needed[at]), bare=bare)


def _choose(sizes: Index, cost: Vector, needed: Vector, bounds: Bounds) -> int:
    """Return the index of the cheapest allowed set of certainty rows; the smallest if none.

    ``cost`` (t,) is that of an iteration with each set and the sampled rows it needs.
    """
    allowed = bounds.allowed(sizes)
    if bounds.given is not None:
        enough = allowed & (needed <= bounds.given)
        if enough.any():
            return int(np.argmin(np.where(enough, sizes, np.iinfo(np.int64).max)))
        best = np.where(allowed, needed, np.inf)
    else:
        best = np.where(allowed, cost, np.inf)
    if not np.isfinite(best).any():
        return int(np.argmin(sizes))
    # Among equally cheap sets take the smallest: certainty rows that save nothing are useless.
    return int(np.argmin(np.where(best == best.min(), sizes, np.iinfo(np.int64).max)))
