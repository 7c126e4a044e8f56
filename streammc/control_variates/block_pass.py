"""The full pass as (map, combine): what one block contributes, and how two merge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streammc.control_variates.block_kernel import reduce_block, tile_rows
from streammc.control_variates.scores import Histogram, top
from streammc.errors import ModelError
from streammc.numerics.blas import single_threaded
from streammc.protocols import Index, Matrix, Model, RowBlock, Vector

SUMMARY_COLUMNS = ("start", "rows", "mean_response", "mean_log_lik", "gradient", "mean_square")
"""Per block: first row, rows, mean response, mean log-likelihood, size of its gradient
in posterior sd, mean squared score."""


@dataclass(frozen=True)
class Fault:
    """Rows that the model cannot take."""

    first: int
    count: int
    found: str
    expected: str

    @staticmethod
    def merge(left: Fault | None, right: Fault | None) -> Fault | None:
        """Return the earlier fault with the count of both."""
        if left is None or right is None:
            return left or right
        return Fault(left.first, left.count + right.count, left.found, left.expected)


@dataclass(frozen=True)
class BlockSums:
    """Everything a pass learns from some rows."""

    n_rows: int
    high: Vector
    low: Vector
    histogram: Histogram
    rows: Index
    scores: Vector
    slopes: Matrix
    tiles: int
    summaries: Matrix
    fault: Fault | None

    def totals(self, dim: int) -> tuple[float, float, Vector, Matrix]:
        """Return log-likelihood (sum, what rounding left out), gradient, Hessian."""
        with np.errstate(invalid="ignore"):
            both = self.high + self.low
        hessian = both[1 + dim :].reshape(dim, dim)
        upper = np.triu(hessian)
        remainder = float(self.high[0] - both[0] + self.low[0])
        return float(both[0]), remainder, both[1 : 1 + dim], upper + np.triu(upper, 1).T


def columns_of(model: Model, theta: Vector, shifts: Matrix, n_features: int) -> np.ndarray:
    """Return (n_linear, q, 1 + S): theta and the shifts, per linear predictor."""
    n = model.n_linear * n_features
    stacked = np.concatenate([theta[None, :n], shifts[:, :n]])
    shaped = stacked.reshape(len(stacked), model.n_linear, n_features)
    return np.ascontiguousarray(shaped.transpose(1, 2, 0))


@dataclass(frozen=True)
class ExpansionPass:
    """Sums of the expansion at ``theta``, and scores at ``theta + shifts``."""

    model: Model
    theta: Vector
    shifts: Matrix
    order: int
    cap: int
    check_response: bool

    def map(self, block: RowBlock) -> BlockSums:
        """Reduce one block; a response outside the support is counted, not evaluated."""
        X = np.ascontiguousarray(block.X)
        rows, q = X.shape
        dim, n_shifts = len(self.theta), len(self.shifts)
        high_low = np.zeros((2, 1 + dim + dim * dim))
        histogram = Histogram.empty(n_shifts)
        slopes = np.zeros((4, n_shifts))
        flags = np.zeros(3, np.int64)
        scores = np.zeros(rows if n_shifts else 0)
        fault = self._fault(block) if self.check_response else None
        if fault is None:
            with single_threaded():
                reduce_block(
                    self.model.link,
                    X,
                    np.ascontiguousarray(block.y, dtype=np.float64),
                    np.ascontiguousarray(block.offset, dtype=np.float64),
                    np.ascontiguousarray(block.weight, dtype=np.float64),
                    self.theta,
                    columns_of(self.model, self.theta, self.shifts, q),
                    np.ascontiguousarray(self.shifts),
                    self.model.n_linear,
                    self.model.n_scalar,
                    self.order,
                    tile_rows(q),
                    high_low,
                    scores,
                    histogram.counts,
                    histogram.moments,
                    histogram.maxima,
                    slopes,
                    flags,
                )
            if flags[0]:
                first = int(flags[1])
                fault = Fault(
                    block.start + first,
                    int(flags[0]),
                    f"response {block.y[first]:g}",
                    "a finite log-likelihood at the expansion point",
                )
        found, best = top(np.flatnonzero(scores > 0.0), scores[scores > 0.0], self.cap)
        with np.errstate(invalid="ignore", over="ignore"):
            mean_square = float(np.mean(scores * scores)) if n_shifts else 0.0
            size = float(np.sqrt(np.mean(slopes[0] ** 2))) if n_shifts else 0.0
        summary = [block.start, rows, block.y.mean(), high_low[0, 0] / rows, size, mean_square]
        return BlockSums(
            rows, high_low[0], high_low[1], histogram, found + block.start, best,
            slopes, int(flags[2]), np.array([summary], dtype=np.float64), fault,
        )  # fmt: skip

    def combine(self, left: BlockSums, right: BlockSums) -> BlockSums:
        """Merge two neighbours."""
        with np.errstate(invalid="ignore", over="ignore"):
            high = left.high + right.high
            virtual = high - left.high
            error = (left.high - (high - virtual)) + (right.high - virtual)
            low = left.low + right.low + error
        rows, scores = top(
            np.concatenate([left.rows, right.rows]),
            np.concatenate([left.scores, right.scores]),
            self.cap,
        )
        return BlockSums(
            left.n_rows + right.n_rows, high, low, left.histogram + right.histogram, rows, scores,
            left.slopes + right.slopes, left.tiles + right.tiles,
            np.concatenate([left.summaries, right.summaries]),
            Fault.merge(left.fault, right.fault),
        )  # fmt: skip

    def _fault(self, block: RowBlock) -> Fault | None:
        found = self.model.response_fault(block.y)
        if found is None:
            return None
        at, expected = found
        first = int(np.min(at))
        return Fault(block.start + first, len(at), f"{block.y[first]:g}", expected)


def raise_fault(fault: Fault, model: Model, response: str | None) -> None:
    """Raise the error for rows that ``model`` cannot take."""
    column = f"column {response!r}" if response else "the response"
    raise ModelError(
        f"{model.name}: expected {fault.expected} in {column}, found {fault.found} "
        f"in row {fault.first} ({fault.count} rows like it); correct the rows or choose "
        "another model"
    )
