"""Full pass as a reduction: sums of a block of rows, and the merge of two neighbours.

Rows with codes are summed by level (:class:`LevelSums`). A row of the design is ``x = B u + o``:
``u`` has the dense columns and the 0/1 indicators of levels, ``B`` is diagonal with ``on - off``,
and ``o`` has ``off`` in the columns of levels. With ``c`` the second derivative of a row in its
linear predictor,

    sum c x x' = B (sum c u u') B + (B s) o' + o (B s)' + (sum c) o o',    s = sum c u.

Sums over ``u`` cost by the number of factors and not of levels (``block_kernel.sum_levels``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.full_pass.block_kernel import (
    BINS_PER_OCTAVE,
    LOWEST_OCTAVE,
    N_BINS,
    PassPoints,
    PassRows,
    PassSums,
    keep_high,
    reduce_rows,
    tile_rows,
)
from streammc.errors import ModelError
from streammc.likelihood.pass_cost import takes_codes
from streammc.models.base import places, wide
from streammc.models.mixed.effect_terms import is_table_model
from streammc.models.responses import invalid_responses, row_name, unexpected_offset
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Index, Matrix, Model, PieceTask, RowBlock, Vector

EXTREME_ROWS = 1000
"""Number of highest-score rows whose linear predictors are checked for separation."""

# Scores of rows: the rows with the highest, and a histogram of the remainders by score.
#
# The score of a row is the root mean square of its remainder over the S shifts: the displacements
# from the expansion point of as many draws from the Laplace approximation. The
# histogram keeps, per bin of log2 score (four an octave), power sums of the
# remainders, so that everything below a threshold is a sum over the lower bins: no
# cancellation, however large the rows above it are.


@dataclass(frozen=True)
class Histogram:
    """Power sums of the remainders by score bin; S draws."""

    counts: Index
    """(bins,) rows."""
    moments: NDArray[np.float64]
    """(bins, S, 4) sums of r, r^2, r^3, r^4."""
    maxima: Matrix
    """(bins, S) largest abs(r)."""

    @staticmethod
    def empty(n_draws: int) -> Histogram:
        """Return a histogram without rows."""
        return Histogram(
            np.zeros(N_BINS, np.int64), np.zeros((N_BINS, n_draws, 4)), np.zeros((N_BINS, n_draws))
        )

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both sets of rows."""
        with np.errstate(invalid="ignore", over="ignore"):  # inf - inf in the top bin
            moments = self.moments + other.moments
        return Histogram(self.counts + other.counts, moments, np.maximum(self.maxima, other.maxima))

    def below(self) -> tuple[Index, NDArray[np.float64], Matrix]:
        """Return counts, moments and maxima of all bins below 0, 1, ..., n_bins.

        Entry ``t`` describes the sampled rows if the rows of bins ``t`` and above are certain.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            moments = np.concatenate([np.zeros_like(self.moments[:1]), self.moments.cumsum(0)])
        counts = np.concatenate([[0], self.counts.cumsum()])
        maxima = np.concatenate(
            [np.zeros_like(self.maxima[:1]), np.maximum.accumulate(self.maxima, axis=0)]
        )
        return counts, moments, maxima

    def below_weighted(self, uniform_share: float) -> tuple[Index, NDArray[np.float64], Matrix]:
        """Return :meth:`below` for rows drawn by score: sums of (r v)^p / v, v = 1 / (n omega).

        ``omega`` is a mixture of the uniform distribution, with weight ``uniform_share``, and of
        probabilities in proportion to the scores of the sampled rows. The score of a row is taken
        to be that of its bin.
        """
        counts = np.concatenate([[0], self.counts.cumsum()])
        moments = np.zeros((len(counts), *self.moments.shape[1:]))
        maxima = np.zeros((len(counts), self.maxima.shape[1]))
        score = np.exp2(LOWEST_OCTAVE + (np.arange(len(self.counts)) - 0.5) / BINS_PER_OCTAVE)
        score[0] = 0.0
        total = np.concatenate([[0.0], (self.counts * score).cumsum()])
        with np.errstate(invalid="ignore", over="ignore"):
            for t in range(1, len(counts)):
                if counts[t] == counts[t - 1]:
                    moments[t], maxima[t] = moments[t - 1], maxima[t - 1]
                    continue
                share = score[:t] * counts[-1] / total[t] if total[t] > 0.0 else np.ones(t)
                relative = uniform_share + (1.0 - uniform_share) * share
                powers = relative[:, None] ** -np.arange(4.0)
                moments[t] = np.sum(self.moments[:t] * powers[:, None, :], axis=0)
                maxima[t] = np.max(self.maxima[:t] / relative[:, None], axis=0)
        return counts, moments, maxima


def top(rows: Index, squares: Vector, cap: int) -> tuple[Index, Vector]:
    """Return the ``cap`` rows of highest square, best first, ties by row index.

    Rows with equal squares must be given in row order. The order is total, so merging block
    by block gives the same list for any blocks.
    """
    # The stable sort is fast here: it merges lists that are already in order.
    order = np.argsort(-squares, kind="stable")[:cap]
    return rows[order], squares[order]


class HighScores:
    """The ``cap`` rows with the highest positive scores so far.

    Scores are passed, compared and stored as their squares; ``total`` is the sum of all squares.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rows, self._kept = np.empty(0, np.int64), np.empty(0)
        self._count = 0
        self._above = 0.0
        self._squares = np.empty(0)
        self.total = 0.0

    def room(self, m: int) -> Vector:
        """Return an (m,) buffer for squared scores; every call returns the same memory."""
        if len(self._squares) < m:
            self._squares = np.empty(m)
        return self._squares[:m]

    def add(self, start: int, squares: Vector) -> None:
        """Add the squared scores of the rows from ``start`` on."""
        step = max(4096, self._cap)
        if not len(self._rows):
            self._rows = np.empty(2 * self._cap + step, np.int64)
            self._kept = np.empty(len(self._rows))
        for first in range(0, len(squares), step):
            part = squares[first : first + step]
            above = np.float64(self._above)
            self._count, total = keep_high(
                part,
                part.view(np.int64),
                start + first,
                above,
                above.view(np.int64),
                self._rows,
                self._kept,
                self._count,
            )
            self.total += total
            if self._count > 2 * self._cap:
                self._cut()

    def _cut(self) -> None:
        """Keep the ``cap`` best in row order; later rows must exceed the lowest of them."""
        rows, squares = self._rows[: self._count], self._kept[: self._count]
        place = self._count - self._cap
        last = float(np.partition(squares, place)[place]) if self._cap else np.inf
        higher = np.flatnonzero(squares > last)
        equal = np.flatnonzero(squares == last)[: self._cap - len(higher)]
        chosen = np.sort(np.concatenate([higher, equal]))
        self._count = len(chosen)
        self._rows[: self._count], self._kept[: self._count] = rows[chosen], squares[chosen]
        self._above = last

    def finish(self) -> tuple[Index, Vector]:
        """Return the rows and their squares, best first."""
        return top(self._rows[: self._count], self._kept[: self._count], self._cap)


SUMMARY_COLUMNS = ("start", "rows", "mean_response", "mean_log_lik", "gradient", "mean_square")
"""Per block: first row, number of rows, mean response, mean log-likelihood, size of its
gradient in posterior sd, mean squared score."""
_FINITE = "a finite log-likelihood at the expansion point"


@dataclass(frozen=True)
class Fault:
    """Rows with a response outside the support, or without a finite log-likelihood."""

    first: int
    count: int
    found: str
    expected: str

    @staticmethod
    def merge(left: Fault | None, right: Fault | None) -> Fault | None:
        """Return the earlier fault with the sum of the counts."""
        if left is None or right is None:
            return left or right
        return Fault(left.first, left.count + right.count, left.found, left.expected)


@dataclass(frozen=True)
class BlockSums:
    """Result of a pass over some rows: sums of the expansion, scores, histogram, fault."""

    n_rows: int
    totals: Matrix
    """Sums of the expansion, high and low parts: see ``RowSums.totals``."""
    histogram: Histogram
    rows: Index
    """The rows with the highest scores."""
    squares: Vector
    """Squared scores of ``rows``, highest first."""
    terms: Matrix
    """(4, S) sums of terms of the expansion: see ``block_kernel.PassSums``."""
    tiles: int
    """Number of full tiles."""
    summaries: Matrix
    """(blocks, 6) by :data:`SUMMARY_COLUMNS`."""
    fault: Fault | None
    columns: CodedColumns | None = None
    """The columns of a design with codes: ``totals`` are sums by level then."""
    n_scalar: int = 0

    @property
    def scores(self) -> Vector:
        """Scores of ``rows``."""
        scores: Vector = np.sqrt(self.squares)
        return scores

    def expansion(self, dim: int) -> tuple[float, Vector, Matrix]:
        """Return the log-likelihood, its gradient and its Hessian."""
        if self.columns is not None:
            return wide_expansion(self.columns, self.n_scalar, self.totals)
        return expansion_of(self.totals, dim)

    def log_lik_remainder(self) -> float:
        """Return the part of the log-likelihood that rounding to float64 lost."""
        high, low = float(self.totals[0, 0]), float(self.totals[1, 0])
        return (high - (high + low)) + low


@dataclass(frozen=True)
class ExpansionPass(PieceTask[BlockSums]):
    """Sums of the expansion at ``theta``, and scores at ``theta + shifts``."""

    model: Model
    theta: Vector
    """(d,) expansion point."""
    shifts: Matrix
    """(S, d); without any there are no scores."""
    order: int
    """Order of the expansion whose remainders are scored."""
    cap: int
    """Number of rows with the highest scores that are kept."""
    check_response: bool
    """Whether to look for responses outside the support."""
    trials_of_weight: float = 0.0
    """Trials of a row of weight 1, to check shares of them; 0 where they are stated."""

    @property
    def takes_codes(self) -> bool:
        """Whether the model's sums by level are possible; see ``protocols.PassTask``."""
        return takes_codes(self.model)

    def map(self, block: RowBlock) -> BlockSums:
        """Return the sums of a block given in one piece."""
        return self.map_pieces(iter([block]))

    def map_pieces(self, pieces: Iterator[RowBlock]) -> BlockSums:
        """Return the sums of a block; a piece with a response outside the support is left out."""
        sums: RowSums | None = None
        coded: CodedColumns | None = None
        best = HighScores(self.cap)
        fault: Fault | None = None
        start = n = 0
        responses = 0.0
        for piece in pieces:
            if sums is None:
                q = piece.X.shape[1]
                coded = piece.X.columns if isinstance(piece.X, CodedMatrix) else None
                settings = (self.model, self.theta, self.shifts, self.order, q)
                sums = RowSums(*settings, coded=coded)
                start = piece.start
            m = len(piece.y)
            own_fault = self._fault(piece) if self.check_response else None
            if own_fault is None:
                squares = best.room(m)
                bad, unfit = sums.add(piece.X, piece.y, piece.offset, piece.weight, squares)
                if unfit:
                    response = f"response {piece.y[bad]:g}"
                    first = piece.start + bad
                    if is_table_model(self.model):
                        first, response = int(piece.X[bad, 0]), "a group"
                    own_fault = Fault(first, unfit, response, _FINITE)
                elif len(self.shifts):
                    best.add(piece.start, squares)
            fault = Fault.merge(fault, own_fault)
            responses += float(np.sum(piece.y))
            n += m
        if sums is None:
            raise ValueError("expected a block with rows, found none")
        some = len(self.shifts) > 0
        with np.errstate(invalid="ignore", over="ignore"):
            size = float(np.sqrt(np.mean(sums.terms[0] ** 2))) if some else 0.0
        totals = sums.totals
        log_lik = totals[0, 0] / n
        summary = [start, n, responses / n, log_lik, size, best.total / n]
        rows, highest = best.finish()
        return BlockSums(
            n_rows=n,
            totals=totals,
            histogram=sums.histogram(),
            rows=rows,
            squares=highest,
            terms=sums.terms,
            tiles=sums.tiles,
            summaries=np.array([summary], dtype=np.float64),
            fault=fault,
            columns=coded,
            n_scalar=self.model.n_scalar,
        )

    def asked_next(self, result: BlockSums) -> Index:
        """Return the rows of highest score; see ``protocols.PassTask``."""
        return result.rows[:EXTREME_ROWS]

    def combine(self, left: BlockSums, right: BlockSums) -> BlockSums:
        """Merge the sums of two neighbouring blocks."""
        rows, squares = top(
            np.concatenate([left.rows, right.rows]),
            np.concatenate([left.squares, right.squares]),
            self.cap,
        )
        with np.errstate(invalid="ignore", over="ignore"):
            terms = left.terms + right.terms
        return BlockSums(
            n_rows=left.n_rows + right.n_rows,
            totals=merge_compensated(left.totals, right.totals),
            histogram=left.histogram + right.histogram,
            rows=rows,
            squares=squares,
            terms=terms,
            tiles=left.tiles + right.tiles,
            summaries=np.concatenate([left.summaries, right.summaries]),
            fault=Fault.merge(left.fault, right.fault),
            columns=left.columns,
            n_scalar=left.n_scalar,
        )

    def _fault(self, block: RowBlock) -> Fault | None:
        """Return the invalid responses of a block; of groups the first is a row of the table."""
        if not self.model.of_a_row.takes_offset and block.offset.any():
            raise unexpected_offset(self.model)
        trials = block.weight * self.trials_of_weight if self.trials_of_weight else None
        invalid = invalid_responses(self.model, block.X, block.y, trials)
        if invalid is None:
            return None
        at, values, expected = invalid
        first = int(np.argmin(at))
        start = 0 if is_table_model(self.model) else block.start
        return Fault(start + int(at[first]), len(at), f"{values[first]:g}", expected)


def raise_fault(fault: Fault, model: Model, dataset: Dataset) -> None:
    """Raise ModelError for the faulty rows of ``dataset``."""
    response = dataset.response
    column = f"column {response!r}" if response else "the response"
    row = row_name(dataset.table, fault.first)
    more = f" and {fault.count - 1} more row{'s' * (fault.count > 2)} like it"
    raise ModelError(
        f"{model.name}: expected {fault.expected} in {column}, found {fault.found} in "
        f"{row}{more * (fault.count > 1)}: correct the rows, or choose "
        "another model"
    )


def row_order(sums: BlockSums, rows: int) -> float:
    """Return how much neighbours are alike: 1 where rows are in random order.

    It is ``Var(tile total) / (rows Var(row))`` of the second-order terms of the expansion, the
    median over the shifts, with ``rows`` of a tile; NaN for fewer than 30 tiles.
    """
    if sums.tiles < 30:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        one = sums.terms[2] / sums.n_rows - (sums.terms[1] / sums.n_rows) ** 2
        many = sums.terms[3] / sums.tiles - (rows * sums.terms[1] / sums.n_rows) ** 2
        return float(np.median(many / (rows * one)))


# A compiled call lasts at most about 0.2 s: signals and progress wait for its end.
_CALL_ENTRIES = 2**23


def columns_of(model: Model, theta: Vector, shifts: Matrix, n_features: int) -> Matrix:
    """Return theta and the S shifts by predictor: (n_linear R, q), see ``PassPoints.columns``.

    Padded with zeros for the compiled loops: R is 1 + S made even, q a multiple of four.
    """
    n = model.n_linear
    padded = np.zeros((n, (2 + len(shifts)) // 2 * 2, -(-n_features // 4) * 4))
    stacked = np.concatenate([theta[None], shifts])[:, : n * n_features]
    shaped = stacked.reshape(len(stacked), n, n_features)
    padded[:, : len(stacked), :n_features] = shaped.transpose(1, 0, 2)
    return padded.reshape(-1, padded.shape[2])


def _sums_of_theta(model: Model, n_features: int) -> Index | None:
    """Return where the sums of theta stand among those of ``models.base.wide``; ``None``: there."""
    at = places(model, n_features)
    if at is None:
        return None
    D = model.n_linear * n_features + model.n_scalar
    return np.concatenate([[0], 1 + at, (1 + D + at[:, None] * D + at).ravel()])


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to: rows of a mapped file are of that type."""
    view = array.view()
    view.flags.writeable = False
    return view


class RowSums:
    """Sums, histogram and squared scores of the rows so far; see ``reduce_rows``.

    Remainders are those at ``theta + shifts`` (S, d), S may be 0, and of the given order. Without
    ``with_sums`` only they are evaluated. ``coded``: the columns of a design with codes, of a model
    that ``takes_codes``.
    """

    def __init__(
        self,
        model: Model,
        theta: Vector,
        shifts: Matrix,
        order: int,
        n_features: int,
        with_sums: bool = True,
        coded: CodedColumns | None = None,
    ) -> None:
        n_shifts = len(shifts)
        self._model = model
        points = np.concatenate([theta[None], shifts]).astype(np.float64)
        self._of_theta = _sums_of_theta(model, n_features)
        points = wide(model, points, n_features)
        self._levels = LevelSums(coded, points, model.n_scalar)
        theta, self._shifts = self._levels.dense(points[0]), self._levels.dense(points[1:])
        d = len(theta)
        self._tile = tile_rows(n_features)
        dense = n_features if coded is None else len(coded.place)
        self._points = PassPoints(
            theta,
            columns_of(model, theta, self._shifts, dense),
            self._shifts,
            model.n_linear,
            model.n_scalar,
            dense,
            order,
            self._tile,
            self._levels.first,
            self._levels.cross,
            self._levels.products,
            int(with_sums),
        )
        self._power_sums = np.zeros((N_BINS, -(-n_shifts // 4), 5, 4))
        self._counts = np.zeros(N_BINS, np.int64)
        self._totals = np.zeros((2, 1 + d + d * d))
        self.terms = np.zeros((4, n_shifts))
        self._flags = np.zeros(3, np.int64)

    @property
    def totals(self) -> Matrix:
        """Log-likelihood, gradient, upper half of the Hessian (2, 1 + d + d d).

        Of a design with codes they are those of the dense columns, followed by sums by level; see
        :func:`wide_expansion`.
        """
        totals = self._levels.flat(self._totals)
        return totals if self._of_theta is None else totals[:, self._of_theta]

    def expansion(self) -> tuple[float, Vector, Matrix]:
        """Return the log-likelihood, its gradient and its Hessian in all columns."""
        if self._of_theta is not None:
            return expansion_of(self.totals, self._model.dim(self._points.n_features))
        return self._levels.expansion(self.totals, len(self._points.theta))

    @property
    def tiles(self) -> int:
        """Number of full tiles so far."""
        return int(self._flags[1])

    def histogram(self) -> Histogram:
        """Return the histogram of the rows given so far."""
        n_shifts = len(self._shifts)
        by_draw = self._power_sums.transpose(0, 1, 3, 2).reshape(N_BINS, -1, 5)[:, :n_shifts]
        return Histogram(self._counts.copy(), by_draw[..., :4].copy(), by_draw[..., 4].copy())

    def add(
        self,
        X: NDArray[Any] | CodedMatrix,
        y: NDArray[Any],
        offset: NDArray[Any],
        weight: NDArray[Any],
        squares: Vector,
        remainders: Matrix | None = None,
    ) -> tuple[int, int]:
        """Add rows; write their squared scores ``squares`` (m,) and ``remainders`` (S, m).

        Returns the index of the first row without a finite log-likelihood, or -1, and their number.
        """
        codes = self._levels.codes(X)
        if isinstance(X, CodedMatrix):
            X = X.dense
        n, q = X.shape
        single = X.dtype == np.float32
        X = np.ascontiguousarray(X, dtype=np.float32 if single else np.float64)
        sides = [np.ascontiguousarray(part, dtype=np.float64) for part in (y, offset, weight)]
        none = np.empty((len(self._shifts), 0))
        first_bad, bad_before = -1, int(self._flags[0])
        step = max(1, _CALL_ENTRIES // (self._tile * max(q, 16))) * self._tile
        for start in range(0, n, step):
            here = slice(start, start + step)
            part = none if remainders is None else np.empty((len(none), len(squares[here])))
            rows = PassRows(
                _read_only(X[here] if single else np.empty((0, q), np.float32)),
                _read_only(np.empty((0, q)) if single else X[here]),
                codes[here],
                *(side[here] for side in sides),
            )
            sums = PassSums(
                self._totals,
                part,
                squares[here],
                self._counts,
                self._power_sums,
                self.terms,
                self._levels.sums,
                self._levels.crosses,
                self._flags,
            )
            reduce_rows(self._model.link, self._model.constants, rows, self._points, sums)
            if remainders is not None:
                remainders[:, here] = part
            if first_bad < 0 and self._flags[2] >= 0:
                first_bad = start + int(self._flags[2])
        return first_bad, int(self._flags[0]) - bad_before


class LevelSums:
    """Sums by level, of a model with one linear predictor.

    ``points`` (1 + S, d) are the parameters at which rows are evaluated: theta, and the S shifts.
    ``columns`` are ``None`` for a design without codes, which has no sums here.
    """

    def __init__(self, columns: CodedColumns | None, points: Matrix, n_scalar: int) -> None:
        self.columns = columns
        width = np.zeros(0, np.int64) if columns is None else columns.width
        self.first, self.cross = _places(width)
        self._n_scalar = n_scalar
        self._half = 0 if columns is None else _sums_of_level(columns, n_scalar)
        self.sums = np.zeros((int((width + 1).sum()), 2 * self._half))
        self.crosses = np.zeros((2, int(np.triu(np.outer(width + 1, width + 1), 1).sum())))
        self.products = self._products(points)

    def dense(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the components (.., dense + scalars) of ``vectors`` (.., d) without levels."""
        if self.columns is None:
            return vectors
        q = len(self.columns.on)
        parts = [vectors[..., self.columns.place], vectors[..., q:]]
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))

    def codes(self, X: NDArray[np.float64] | CodedMatrix) -> NDArray[np.uint16]:
        """Return the codes (m, K) of rows, read-only."""
        codes = X.codes if isinstance(X, CodedMatrix) else np.empty((0, 0), np.uint16)
        return _read_only(np.ascontiguousarray(codes))

    def flat(self, dense: Matrix) -> Matrix:
        """Return the sums of dense columns (2, ..), of levels and of pairs as one (2, N)."""
        if self.columns is None:
            return dense
        parts = [self.sums[:, : self._half], self.sums[:, self._half :]]
        levels = np.stack([part.reshape(-1) for part in parts])
        return np.concatenate([dense, levels, self.crosses], axis=1)

    def expansion(self, totals: Matrix, dim: int) -> tuple[float, Vector, Matrix]:
        """Return log-likelihood, gradient and Hessian in all columns; ``dim`` without levels."""
        if self.columns is None:
            return expansion_of(totals, dim)
        return wide_expansion(self.columns, self._n_scalar, totals)

    def _products(self, points: Matrix) -> Matrix:
        """Return what each code adds to the linear predictor at each point, (levels, R)."""
        R = (1 + len(points)) // 2 * 2
        products = np.zeros((len(self.sums), R))
        if self.columns is None:
            return products
        for row, here in zip(self.first, _slices(self.columns), strict=True):
            on, off = self.columns.on[here], self.columns.off[here]
            block = products[row : row + len(on) + 1, : len(points)]
            block[:] = points[:, here] @ off
            block[1:] += (points[:, here] * (on - off)).T
        return products


def expansion_of(totals: NDArray[np.float64], dim: int) -> tuple[float, Vector, Matrix]:
    """Return log-likelihood, gradient and Hessian from compensated totals."""
    with np.errstate(invalid="ignore"):
        both = totals[0] + totals[1]
    upper = np.triu(both[1 + dim :].reshape(dim, dim))
    return float(both[0]), both[1 : 1 + dim], upper + np.triu(upper, 1).T


def wide_expansion(
    columns: CodedColumns, n_scalar: int, totals: Matrix
) -> tuple[float, Vector, Matrix]:
    """Return log-likelihood, gradient and Hessian in all columns, from ``LevelSums.flat``."""
    with np.errstate(invalid="ignore"):
        both = totals[0] + totals[1]
    p, q, at = 1 + n_scalar, len(columns.on), columns.place
    d, n_dense = q + n_scalar, len(at)
    d_dense = n_dense + n_scalar
    end = 1 + d_dense + d_dense**2
    first, cross = _places(columns.width)
    shape = (int((columns.width + 1).sum()), _sums_of_level(columns, n_scalar))
    levels = both[end : end + shape[0] * shape[1]].reshape(shape)
    pairs = both[end + shape[0] * shape[1] :]
    dense = np.concatenate([at, np.arange(q, d)])
    slope, hessian, s = np.zeros(d), np.zeros((d, d)), np.zeros(q)
    slope[dense] = both[1 : 1 + d_dense]
    upper = np.triu(both[1 + d_dense : end].reshape(d_dense, d_dense))
    hessian[np.ix_(dense, dense)] = upper + np.triu(upper, 1).T
    whole = levels[: columns.width[0] + 1].sum(axis=0)
    s[at] = whole[:n_dense]
    own = _PlacesOfSums(-(-n_dense // 4) * 4, p)
    for row, here in zip(first, _slices(columns), strict=True):
        block = levels[row + 1 : row + 1 + here.stop - here.start]
        hessian[here, at] = block[:, :n_dense]
        hessian[at, here] = block[:, :n_dense].T
        np.fill_diagonal(hessian[here, here], block[:, own.bend])
        s[here] = block[:, own.bend]
        slope[here] = block[:, own.slope]
        hessian[here, q:] = block[:, own.mixed]
    _add_pairs(columns, cross, pairs, hessian)
    scale, off = columns.on - columns.off, columns.off
    linear = hessian[:q, :q]
    linear *= scale[:, None]
    linear *= scale
    linear += np.outer(scale * s, off)
    linear += np.outer(off, scale * s + whole[own.bend] * off)
    slope[:q] = scale * slope[:q] + whole[own.slope] * off
    hessian[:q, q:] = scale[:, None] * hessian[:q, q:] + np.outer(off, whole[own.mixed])
    hessian[q:, :q] = hessian[:q, q:].T
    lower = np.tril_indices(q, -1)
    linear[lower] = linear.T[lower]
    return float(both[0]), slope, hessian


class _PlacesOfSums:
    """Places of the sums of a level after those of c z: of c, of the slope, of mixed derivatives.

    See ``block_kernel.sum_levels``, argument ``levels``.
    """

    def __init__(self, start: int, p: int) -> None:
        self.bend, self.slope = start, start + 1
        self.mixed = slice(start + 2, start + 1 + p)


def _places(width: Index) -> tuple[Index, Index]:
    """Return the arrays ``first`` and ``cross`` of ``block_kernel.sum_levels``."""
    widths = width + 1
    sizes = np.triu(np.outer(widths, widths), 1).reshape(-1)
    starts = np.cumsum(sizes) - sizes
    return np.cumsum(widths) - widths, np.concatenate([starts, widths]).astype(np.int64)


def _sums_of_level(columns: CodedColumns, n_scalar: int) -> int:
    """Return the number of sums of a level, without low parts."""
    return -(-len(columns.place) // 4) * 4 + 2 + n_scalar


def _slices(columns: CodedColumns) -> list[slice]:
    """Return the columns of each factor."""
    return [slice(a, a + n) for a, n in zip(columns.first, columns.width, strict=True)]


def _add_pairs(columns: CodedColumns, cross: Index, pairs: Vector, hessian: Any) -> None:
    """Write the entries of pairs of levels of different factors."""
    blocks, K = _slices(columns), len(columns.first)
    for k in range(K):
        for l in range(k + 1, K):
            shape = (columns.width[k] + 1, columns.width[l] + 1)
            start = cross[k * K + l]
            table = pairs[start : start + shape[0] * shape[1]].reshape(shape)[1:, 1:]
            hessian[blocks[k], blocks[l]] = table
            hessian[blocks[l], blocks[k]] = table.T
