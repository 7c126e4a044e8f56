"""Scores of units from one more pass, which set the probabilities of drawing them.

The variance of the estimate, ``(sum_j D_j^2 / omega_j - (sum_j D_j)^2) / k``, is least for
``omega_j`` proportional to ``abs(D_j)``, which changes with theta. The score of a unit is the
root mean square of ``D_j`` over draws from the Laplace approximation. A share of the units
is drawn uniformly, so that no unit counts more than a few times as much as under equal
probabilities, even at a theta that the draws do not represent. The variance is evaluated
at other draws (judging draws), over all rows: at the scoring draws it would be too small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.coordinates import coordinates, covering_draws
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.block_kernel import (
    N_BINS,
    add_to_histogram,
    find_bins,
    score_rows,
)
from streammc.control_variates.full_pass.block_pass import Histogram, RowSums
from streammc.errors import RefusedError
from streammc.likelihood.drawn_units import TABLE_BYTES
from streammc.likelihood.pass_cost import takes_codes
from streammc.numerics.coded_matrix import CodedMatrix
from streammc.protocols import Dataset, Index, Matrix, Model, PassTask, RowBlock, Vector

UNIFORM_SHARE = 0.2
"""Share of units drawn uniformly: a unit counts at most five times. Less saves little."""
JUDGING_DRAWS = 16
MEMORY_LIMIT = 2**28
_FEWEST_DRAWS, _MOST_DRAWS = 32, 128
_EVALUATIONS = 2**30
_SLICE_ENTRIES = 2**21


def relative_probabilities(scores: NDArray[Any]) -> NDArray[np.float32]:
    """Return (U,) probabilities U omega_j: proportional to the scores, mixed with uniform ones."""
    score = np.asarray(scores, np.float64)
    finite = np.isfinite(score)
    score = np.where(finite, score, score[finite].max(initial=0.0))
    mean = score.mean()
    if not mean > 0.0:
        return np.ones(len(score), np.float32)
    relative = UNIFORM_SHARE + (1.0 - UNIFORM_SHARE) * (score / mean)
    rounded: NDArray[np.float32] = relative.astype(np.float32)
    return rounded


@dataclass(frozen=True)
class UnitTotals:
    """Totals and scores of the units in some rows; the edge units may have rows elsewhere."""

    edges: tuple[tuple[int, Vector], ...]
    """Index and totals (S,) of the first and the last unit; one entry if they are the same."""
    scores: tuple[NDArray[np.float32], ...]
    """Scores of the units between, in order."""
    histogram: Histogram
    """Histogram by score of the totals of these units at the judging draws."""


def scoring_draws(n_rows: int) -> int:
    """Return the number of scoring draws: 128 up to 8 million rows, fewer above, at least 32."""
    return min(max(_EVALUATIONS // n_rows // 4 * 4, _FEWEST_DRAWS), _MOST_DRAWS)


def score_units(totals: Matrix, judging: int) -> tuple[NDArray[np.float32], Histogram]:
    """Return scores (m,) and histogram of totals (S, m); the last ``judging`` draws judge."""
    m = totals.shape[1]
    squares, bins = np.empty(m), np.empty(m, np.int64)
    counts, sums = np.zeros(N_BINS, np.int64), np.zeros((N_BINS, judging // 4, 5, 4))
    if m:
        score_rows(totals, len(totals) - judging, m, 0, squares)
        find_bins(squares.view(np.int64), 0, bins)
        add_to_histogram(totals[len(totals) - judging :], bins, counts, sums)
    with np.errstate(over="ignore"):
        scores = np.sqrt(squares).astype(np.float32)
    by_draw = sums.transpose(0, 1, 3, 2).reshape(N_BINS, judging, 5)
    return scores, Histogram(counts, by_draw[..., :4].copy(), by_draw[..., 4].copy())


@dataclass(frozen=True)
class UnitScoreTask(PassTask[UnitTotals]):
    """Totals of all units at several draws; see ``protocols.PassTask``."""

    model: Model
    theta: Vector
    shifts: Matrix
    """(S, d), S in fours."""
    order: int
    unit_rows: int
    judging: int
    """Number of judging draws: the last ones, which do not enter the score."""

    @property
    def takes_codes(self) -> bool:
        """Whether the model's sums by level are possible; see ``protocols.PassTask``."""
        return takes_codes(self.model)

    def map(self, block: RowBlock) -> UnitTotals:
        """Return totals and scores of the units in ``block``."""
        n, q = block.X.shape
        step = max(1, _SLICE_ENTRIES // (q + len(self.shifts)))
        result: UnitTotals | None = None
        for lo in range(0, n, step):
            here = slice(lo, min(lo + step, n))
            part = self._units(block, here)
            result = part if result is None else self.combine(result, part)
        assert result is not None
        return result

    def _units(self, block: RowBlock, here: slice) -> UnitTotals:
        """Return totals and scores of the units in a slice of ``block``."""
        first = block.start + here.start
        m, n_draws = here.stop - here.start, len(self.shifts)
        coded = block.X.columns if isinstance(block.X, CodedMatrix) else None
        settings = (self.model, self.theta, self.shifts, self.order, block.X.shape[1])
        sums = RowSums(*settings, with_sums=False, coded=coded)
        remainders = np.empty((n_draws, m))
        parts = (block.X[here], block.y[here], block.offset[here], block.weight[here])
        sums.add(*parts, np.empty(m), remainders)
        units = np.arange(first // self.unit_rows, (first + m - 1) // self.unit_rows + 1)
        totals = remainders
        if self.unit_rows > 1:
            starts = np.maximum(units * self.unit_rows - first, 0)
            with np.errstate(over="ignore", invalid="ignore"):
                totals = np.add.reduceat(remainders, starts, axis=1)
        ends = sorted({0, len(units) - 1})
        edges = tuple((int(units[e]), totals[:, e].copy()) for e in ends)
        scores, histogram = score_units(np.ascontiguousarray(totals[:, 1:-1]), self.judging)
        return UnitTotals(edges, (scores,), histogram)

    def combine(self, left: UnitTotals, right: UnitTotals) -> UnitTotals:
        """Merge two neighbours; totals of a unit with rows in both are added."""
        edges = list(left.edges)
        for unit, totals in right.edges:
            if unit == edges[-1][0]:
                with np.errstate(over="ignore", invalid="ignore"):
                    edges[-1] = unit, edges[-1][1] + totals
            else:
                edges.append((unit, totals))
        scores, histogram = self._score([totals for _, totals in edges[1:-1]])
        ends = (edges[0], edges[-1]) if len(edges) > 1 else (edges[0],)
        return UnitTotals(
            ends,
            (*left.scores, scores, *right.scores),
            left.histogram + histogram + right.histogram,
        )

    def finish(self, found: UnitTotals) -> tuple[NDArray[np.float32], Histogram]:
        """Return scores and histogram of all units, once all rows have been seen."""
        first, first_histogram = self._score([found.edges[0][1]])
        last, last_histogram = self._score([totals for _, totals in found.edges[1:]])
        histogram = first_histogram + found.histogram + last_histogram
        return np.concatenate([first, *found.scores, last]), histogram

    def _score(self, edges: list[Vector]) -> tuple[NDArray[np.float32], Histogram]:
        totals = np.zeros((len(self.shifts), len(edges)))
        for column, edge in enumerate(edges):
            totals[:, column] = edge
        return score_units(totals, self.judging)


@dataclass(frozen=True)
class UnitScores:
    """Scores of all units, and the histogram of their totals."""

    scores: NDArray[np.float32]
    """(U,) scores of the units."""
    histogram: Histogram
    """Histogram by score of the totals of all units at the judging draws."""
    seconds: float

    def best(self, count: int) -> Index:
        """Return the ``count`` units of highest score, in order of their index."""
        if count == 0:
            return np.empty(0, np.int64)
        place = len(self.scores) - count
        return np.sort(np.argpartition(self.scores, place)[place:]).astype(np.int64)


def unit_scores(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    unit_rows: int,
    *,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> UnitScores:
    """Return the scores of all units, from one pass over the rows.

    RefusedError if the table of probabilities would take too much memory.
    """
    n = dataset.n_rows
    n_units = -(-n // unit_rows)
    if n_units * TABLE_BYTES > MEMORY_LIMIT:
        raise RefusedError(
            f"expected at most {MEMORY_LIMIT // TABLE_BYTES} units with probabilities='scores', "
            f"which keeps {TABLE_BYTES} bytes a unit, found {n_units}; sample runs of "
            f"{dataset.unit_name}s (--unit-rows {-(-n * TABLE_BYTES // MEMORY_LIMIT)} or more), or "
            "leave the option out"
        )
    scoring, judging = covering_draws(scoring_draws(n), cv.dim, 5), JUDGING_DRAWS
    xi = np.concatenate([scoring, covering_draws(judging, cv.dim, 6)])
    shifts = cv.newton_step + xi @ cv.factor.T
    where = coordinates(model, cv.theta_star, cv.noise)
    shifts = where.shifts(shifts)
    task = UnitScoreTask(where.model, where.centre, shifts, cv.order, unit_rows, judging)
    before = time.perf_counter()
    totals = dataset.reduce(task, scheduler=scheduler, progress=progress)
    scores, histogram = task.finish(totals)
    return UnitScores(scores, histogram, time.perf_counter() - before)
