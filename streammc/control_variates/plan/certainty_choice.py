"""Choice of certainty rows and of the number of sampled rows, for equal or scored units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.block_kernel import N_BINS
from streammc.control_variates.full_pass.block_pass import Histogram
from streammc.control_variates.plan.pilot import Pilot, UnitMoments, add_by_group
from streammc.control_variates.plan.unit_scores import (
    UNIFORM_SHARE,
    UnitScores,
    relative_probabilities,
)
from streammc.protocols import Index, Matrix, Vector


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
    """Growth of remainders up to the edge of the posterior, or ``None``; see :meth:`rows`."""

    def rows(self, moments: RemainderMoments, deff: float = 1.0, b: int = 1) -> Vector:
        """Return (t,) the fewest sampled rows m = k b that meet every limit; ``inf`` if no m does.

        Without ``edge`` the perturbation is limited. An unbiased estimate of the likelihood has no
        perturbation; instead its factors ``1 + U D / k`` have to stay positive, by two standard
        deviations, up to the edge of the posterior, where remainders are ``edge`` times those of
        the draws.
        """
        with np.errstate(invalid="ignore"):
            variance = np.nan_to_num(np.quantile(moments.variance, 0.9, axis=1), nan=np.inf)
        m = np.maximum(LEAST_UNITS * b, deff * variance / self.variance)
        m = np.maximum(m, moments.largest / LARGEST_JUMP)
        if self.edge is None:
            m = np.maximum(m, _rows_for_perturbation(moments, deff, b))
        else:
            middle = np.median(moments.total, axis=1, keepdims=True)
            drift = np.abs(moments.total - middle).max(axis=1)
            m = np.maximum(m, self.edge * (b * drift + 2.0 * np.sqrt(b * deff * variance)))
        rows: Vector = b * np.ceil(m / b)
        return rows


@dataclass(frozen=True)
class Choice:
    """A set of certainty rows, with the number of sampled rows that the others need."""

    certain: Index
    """(c,) sorted."""
    load: float
    """Their cost in rows of the mean size: c, but for groups, which are of many sizes."""
    rest: Pilot
    """Pilot without the certainty rows, with the unit probabilities of the run."""
    units: UnitMoments
    """Moments of the units of ``rest``."""
    moments: tuple[RemainderMoments, RemainderMoments]
    """From the pass and from the pilot, each for this one threshold."""
    rows: int
    """Rows per item of ``moments``: b where the items are units, 1 where they are rows."""
    deff: float = 1.0
    """Design effect of a unit where ``moments`` is about single rows, else 1."""
    needed: float = math.inf
    bare: float = math.inf
    """Sampled rows m that meet every limit: with these certainty rows, and without any."""

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
            deff = max(rest.variance_ratio(b), 1e-3)
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
    allowed = sizes <= bounds.most_certain
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


LEAST_UNITS = 30
LARGEST_JUMP = 0.5
LARGEST_PERTURBATION_RANGE = 0.02


@dataclass(frozen=True)
class RemainderMoments:
    """Moments of the rows that are not certain, per threshold (axis 0) and draw (axis 1)."""

    total: Matrix
    """(t, S) n E(d): the remainder that is sampled."""
    variance: Matrix
    """(t, S) n^2 Var(d): variance of the log-likelihood estimate times m, b = 1."""
    third: Matrix
    """(t, S) n^3 E(d - mean)^3: its third cumulant times m^2."""
    largest: Vector
    """(t,) n max abs(D - mean D): the largest jump times m, over the draws."""

    def only(self, at: int) -> RemainderMoments:
        """Return the moments of one threshold."""
        here = slice(at, at + 1)
        return RemainderMoments(
            self.total[here], self.variance[here], self.third[here], self.largest[here]
        )

    @staticmethod
    def of_histogram(
        histogram: Histogram, n_candidates: int, uniform_share: float | None = None
    ) -> tuple[RemainderMoments, Index]:
        """Return the moments per threshold, and the numbers of certainty rows (t,).

        Only thresholds whose certainty rows are all candidates are used; since the candidates
        are the rows with the highest scores, these are the first ``sizes[t]`` of them. With
        ``uniform_share`` the other rows are drawn by score, mixed with that share of the uniform
        distribution, and d is divided by n omega.
        """
        if uniform_share is None:
            counts, moments, maxima = histogram.below()
        else:
            counts, moments, maxima = histogram.below_weighted(uniform_share)
        n = int(counts[-1])
        sizes = n - counts
        keep = np.flatnonzero((sizes <= n_candidates) & np.append(True, np.diff(counts) > 0))
        if not len(keep) or sizes[keep[-1]] != 0:
            keep = np.append(keep, N_BINS)
        result = RemainderMoments.from_sums(moments[keep, :, :3], maxima[keep], n, n)
        return result, sizes[keep]

    @staticmethod
    def of_pilot(pilot: Pilot, candidates: Index, sizes: Index) -> RemainderMoments:
        """Return the moments from the pilot, if the first ``sizes[t]`` candidates are certain."""
        rows = pilot.rows.ravel()
        inside = rows < pilot.n_rows
        order = np.argsort(candidates, kind="stable")
        ranked = candidates[order]
        place = np.searchsorted(ranked, rows)
        place_in = np.minimum(place, max(len(ranked) - 1, 0))
        rank = np.full(len(rows), np.iinfo(np.int64).max)
        if len(ranked):
            hit = ranked[place_in] == rows
            rank[hit] = order[place_in[hit]]
        # A row is certain for every size above its rank: group rows by the sizes that sample them.
        ascending = np.sort(sizes)
        group = np.searchsorted(ascending, rank, side="right")
        n_groups = len(ascending) + 1
        values = np.ascontiguousarray(pilot.values, np.float32).reshape(len(pilot.values), -1)
        by_draw = np.zeros((len(values), n_groups, 3))
        largest = np.zeros((len(values), n_groups))
        add_by_group(values, group, by_draw, largest)
        sums, maxima = np.moveaxis(by_draw, 1, 0), largest.T
        with np.errstate(over="ignore", invalid="ignore"):
            # size ascending[g] keeps the groups g + 1 and above
            sums = np.cumsum(sums[::-1], axis=0)[::-1][1:]
        maxima = np.maximum.accumulate(maxima[::-1], axis=0)[::-1][1:]
        where = np.searchsorted(ascending, sizes)
        return RemainderMoments.from_sums(
            sums[where], maxima[where], int(inside.sum()), pilot.n_rows
        )

    @staticmethod
    def of_units(units: UnitMoments, n_units: int) -> RemainderMoments:
        """Return the moments of units for one set of certainty rows; m counts units."""
        with np.errstate(over="ignore", invalid="ignore"):
            third = float(n_units) ** 3 * units.skewness * units.variance**1.5
            return RemainderMoments(
                np.nan_to_num(n_units * units.mean)[None],
                np.nan_to_num(float(n_units) ** 2 * units.variance, nan=np.inf)[None],
                np.nan_to_num(np.where(units.variance > 0.0, third, 0.0), nan=np.inf)[None],
                np.nan_to_num(n_units * units.largest.max(keepdims=True), nan=np.inf),
            )

    @staticmethod
    def from_sums(
        sums: NDArray[np.float64], maxima: Matrix, counted: int, n: int
    ) -> RemainderMoments:
        """Return the moments of ``n`` rows from power sums (t, S, 3) over ``counted`` of them."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean, square, cube = np.moveaxis(sums / counted, 2, 0)
            variance = n * (n * np.maximum(square - mean**2, 0.0))
            third = float(n) ** 3 * (cube - 3.0 * mean * square + 2.0 * mean**3)
            largest = np.max(n * (maxima + np.abs(mean)), axis=1)
        return RemainderMoments(
            np.nan_to_num(n * mean),
            np.nan_to_num(variance, nan=np.inf, posinf=np.inf),
            np.nan_to_num(third, nan=np.inf, posinf=np.inf, neginf=-np.inf),
            np.nan_to_num(largest, nan=np.inf, posinf=np.inf),
        )

    def perturbation_range(self, deff: float, b: int, m: float | Vector) -> Vector:
        """Return (t,) the range over draws of V^2 / (4k) - gamma V^1.5 / (3 sqrt k).

        gamma V^1.5 / sqrt(k) is the third cumulant of the estimate. For runs of b equal rows
        it is b^2 times larger, the square of their design effect.
        """
        m = np.asarray(m, np.float64)
        per_draw = m[..., None]
        with np.errstate(over="ignore", invalid="ignore"):
            v = deff * self.variance / per_draw
            value = v * v * b / (4.0 * per_draw) - deff**2 * self.third / (3.0 * per_draw**2)
            spread: Vector = value.max(axis=1) - value.min(axis=1)
            spread[~np.isfinite(spread)] = np.inf
        return spread


def _rows_for_perturbation(moments: RemainderMoments, deff: float, b: int) -> Vector:
    """Return (t,) the smallest m, by bisection, with a perturbation range below 0.02."""
    low = np.zeros(len(moments.variance))
    high = np.full(len(low), 62.0)
    for _ in range(30):
        middle = 0.5 * (low + high)
        good = moments.perturbation_range(deff, b, 2.0**middle) < LARGEST_PERTURBATION_RANGE
        high = np.where(good, middle, high)
        low = np.where(good, low, middle)
    return np.where(high >= 61.9, np.inf, 2.0**high)
