"""Which rows are certain and how many are sampled, for either way to draw the rest."""

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
    """What a choice has to keep."""

    variance: float
    """Of the log-likelihood estimate."""
    given: int | None
    """m, where the user has chosen it."""
    most_certain: int
    """Certainty rows."""
    edge: float | None
    """``None`` where the perturbation is bounded, too; see ``required_rows``."""

    def rows(self, moments: RemainderMoments, deff: float = 1.0, b: int = 1) -> Vector:
        """Return (t,) the fewest rows that keep them."""
        return required_rows(moments, deff, b, self.variance, edge=self.edge)

    def allowed(self, sizes: Index) -> NDArray[np.bool_]:
        """Return which of these numbers of certainty rows may be chosen."""
        return sizes <= self.most_certain


@dataclass(frozen=True)
class Choice:
    """A set of certainty rows, and what the rest needs.

    Attributes
    ----------
    certain
        (c,) sorted.
    rest
        The pilot without them, units drawn as they will be.
    units
        Moments of its units.
    moments
        By the pass and by the pilot, one threshold each.
    rows
        Rows that ``moments`` takes for one: the unit where it counts units, else 1.
    deff
        Design effect of a unit where ``moments`` is about single rows, else 1.
    needed, bare
        Rows m that keep every bound; and without any certainty rows.
    """

    certain: Index
    rest: Pilot
    units: UnitMoments
    moments: tuple[RemainderMoments, RemainderMoments]
    rows: int
    deff: float = 1.0
    needed: float = math.inf
    bare: float = math.inf

    def predict(self, k: int, unit_rows: int, n_units: int) -> dict[str, Any]:
        """Return what the recorded variance, and the largest jump, will be with k units."""
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


def same_for_all(cv: ControlVariates, pilot: Pilot, b: int, bounds: Bounds) -> Choice:
    """Choose for units of equal probability."""
    by_pass, sizes = RemainderMoments.of_histogram(cv.histogram, len(cv.candidates))
    by_pilot = RemainderMoments.of_pilot(pilot, cv.candidates, sizes)
    deff = 1.0
    for _ in range(1 if b == 1 else 3):
        needed = np.maximum(bounds.rows(by_pass, deff, b), bounds.rows(by_pilot, deff, b))
        at = _choose(sizes, needed, bounds)
        certain = np.sort(cv.candidates[: sizes[at]])
        rest = pilot.without(certain)
        units = rest.units(b)
        if b > 1:
            deff = max(rest.design_effect(b), 1e-3)
            jump = pilot.n_rows * float(units.largest.max()) / LARGEST_JUMP
            needed[at] = max(needed[at], b * np.ceil(jump / b))
    return Choice(
        certain,
        rest,
        units,
        (by_pass.only(at), by_pilot.only(at)),
        rows=1,
        deff=deff,
        needed=float(needed[at]),
        bare=float(needed[sizes == 0][0]),
    )


def by_score(pilot: Pilot, b: int, bounds: Bounds, scores: UnitScores) -> Choice:
    """Choose for units drawn in proportion to their scores; certain are whole units.

    What the pass says of a choice is a lower bound, since the pilot has to agree: the
    cheapest is looked at until it is one that the pilot has seen.
    """
    n_units = len(scores.scores)
    by_pass, sizes = RemainderMoments.of_histogram(
        scores.histogram, bounds.most_certain // b, uniform_share=UNIFORM_SHARE
    )
    needed = b * bounds.rows(by_pass)
    seen: dict[int, Choice] = {}
    while (at := _choose(sizes * b, needed, bounds)) not in seen:
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
        seen[at] = Choice(certain, rest, drawn, moments, rows=b)
    bare = float(needed[sizes == 0][0])
    return replace(seen[at], needed=float(needed[at]), bare=bare)


def _choose(sizes: Index, needed: Vector, bounds: Bounds) -> int:
    """Return the index of the cheapest set of certainty rows; without any if none will do."""
    allowed = bounds.allowed(sizes)
    if bounds.given is not None:
        enough = allowed & (needed <= bounds.given)
        if enough.any():
            return int(np.argmin(np.where(enough, sizes, np.iinfo(np.int64).max)))
        best = np.where(allowed, needed, np.inf)
    else:
        best = np.where(allowed, sizes + needed, np.inf)
    if not np.isfinite(best).any():
        return int(np.argmin(sizes))
    # Of equally cheap sets the smallest: a subsample too small for any bound needs no row.
    return int(np.argmin(np.where(best == best.min(), sizes, np.iinfo(np.int64).max)))
