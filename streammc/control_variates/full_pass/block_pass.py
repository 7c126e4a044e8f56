"""Full pass as a reduction: sums of a block of rows, and the merge of two neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streammc.control_variates.full_pass.level_sums import (
    expansion_of,
    takes_codes,
    wide_expansion,
)
from streammc.control_variates.full_pass.row_name import row_name
from streammc.control_variates.full_pass.row_sums import RowSums
from streammc.control_variates.full_pass.scores import HighScores, Histogram, top
from streammc.errors import ModelError
from streammc.likelihood.grouped import ungrouped
from streammc.likelihood.invalid_responses import invalid_responses
from streammc.models.mixed.recognise import is_table_model
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.numerics.summation import merge_compensated
from streammc.protocols import Dataset, Index, Matrix, Model, RowBlock, Vector

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
    histogram: Histogram
    rows: Index
    squares: Vector
    """Squared scores of ``rows``, highest first."""
    terms: Matrix
    tiles: int
    summaries: Matrix
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
class ExpansionPass:
    """Sums of the expansion at ``theta``, and scores at ``theta + shifts``."""

    model: Model
    theta: Vector
    shifts: Matrix
    order: int
    cap: int
    check_response: bool
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
                given = (self.model, self.theta, self.shifts, self.order, q)
                sums = RowSums(*given, coded=coded)
                start = piece.start
            m = len(piece.y)
            found = self._fault(piece) if self.check_response else None
            if found is None:
                squares = best.room(m)
                bad, unfit = sums.add(piece.X, piece.y, piece.offset, piece.weight, squares)
                if unfit:
                    response = f"response {piece.y[bad]:g}"
                    first = piece.start + bad
                    if is_table_model(self.model):
                        first, response = int(piece.X[bad, 0]), "a group"
                    found = Fault(first, unfit, response, _FINITE)
                elif len(self.shifts):
                    best.add(piece.start, squares)
            fault = Fault.merge(fault, found)
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
        trials = block.weight * self.trials_of_weight if self.trials_of_weight else None
        found = invalid_responses(self.model, block.X, block.y, trials)
        if found is None:
            return None
        at, values, expected = found
        first = int(np.argmin(at))
        start = 0 if is_table_model(self.model) else block.start
        return Fault(start + int(at[first]), len(at), f"{values[first]:g}", expected)


def raise_fault(fault: Fault, model: Model, dataset: Dataset) -> None:
    """Raise ModelError for the faulty rows of ``dataset``."""
    response = dataset.response
    column = f"column {response!r}" if response else "the response"
    row = row_name(ungrouped(dataset), fault.first)
    more = f" and {fault.count - 1} more row{'s' * (fault.count > 2)} like it"
    raise ModelError(
        f"{model.name}: expected {fault.expected} in {column}, found {fault.found} in "
        f"{row}{more * (fault.count > 1)}: correct the rows, or choose "
        "another model"
    )


def row_order(sums: BlockSums, rows: int) -> float:
    """Return Var(tile total) / (tile Var(row)) of second-order terms, the median over draws."""
    if sums.tiles < 30:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        one = sums.terms[2] / sums.n_rows - (sums.terms[1] / sums.n_rows) ** 2
        many = sums.terms[3] / sums.tiles - (rows * sums.terms[1] / sums.n_rows) ** 2
        return float(np.median(many / (rows * one)))
