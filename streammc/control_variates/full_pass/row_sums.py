"""Accumulators of the compiled pass, fed with rows of any dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.full_pass.block_kernel import reduce_rows, tile_rows
from streammc.control_variates.full_pass.level_sums import LevelSums
from streammc.control_variates.full_pass.pass_records import PassPoints, PassRows, PassSums
from streammc.control_variates.full_pass.score_kernel import N_BINS
from streammc.control_variates.full_pass.scores import Histogram
from streammc.numerics.coded_matrix import CodedColumns, CodedMatrix
from streammc.protocols import Matrix, Model, Vector

# A compiled call lasts at most about 0.2 s: signals and progress wait for its end.
_CALL_ENTRIES = 2**23


def columns_of(model: Model, theta: Vector, shifts: Matrix, n_features: int) -> Matrix:
    """Return theta and the shifts by predictor, padded: (n_linear R, q), R even, q in fours."""
    n = model.n_linear
    padded = np.zeros((n, (2 + len(shifts)) // 2 * 2, -(-n_features // 4) * 4))
    stacked = np.concatenate([theta[None], shifts])[:, : n * n_features]
    shaped = stacked.reshape(len(stacked), n, n_features)
    padded[:, : len(stacked), :n_features] = shaped.transpose(1, 0, 2)
    return padded.reshape(-1, padded.shape[2])


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to: rows of a mapped file are of that type."""
    view = array.view()
    view.flags.writeable = False
    return view


class RowSums:
    """Sums, histogram and squared scores of the rows given so far; see ``reduce_rows``.

    Parameters
    ----------
    model
        The likelihood.
    theta
        (d,) expansion point.
    shifts
        (S, d) shifts from ``theta`` at which remainders are evaluated; S may be 0.
    order
        Order of the control variates.
    n_features
        Columns of the design.
    with_sums
        Whether to add up the expansion, or only to evaluate remainders.
    coded
        The columns of a design with codes, of a model that ``takes_codes``.
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
        ``level_sums.wide_expansion``.
        """
        return self._levels.flat(self._totals)

    def expansion(self) -> tuple[float, Vector, Matrix]:
        """Return the log-likelihood, its gradient and its Hessian in all columns."""
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

        Returns
        -------
        tuple
            Index of the first row without a finite log-likelihood, or -1, and the number of them.
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
