"""Accumulators of the compiled pass, fed with rows of any dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.block_kernel import N_BINS, reduce_rows, tile_rows, widen
from streammc.numerics.blas import single_threaded
from streammc.protocols import Matrix, Model, Vector

# Rows are converted to float64 this many bytes at a time: entering compiled code with a
# link takes 0.25 ms.
_BUFFER_BYTES = 2**24


def columns_of(model: Model, theta: Vector, shifts: Matrix, n_features: int) -> NDArray[np.float64]:
    """Return (n_linear, q, 1 + S): theta and the shifts, per linear predictor."""
    n = model.n_linear * n_features
    stacked = np.concatenate([theta[None, :n], shifts[:, :n]])
    shaped = stacked.reshape(len(stacked), model.n_linear, n_features)
    return np.ascontiguousarray(shaped.transpose(1, 2, 0))


class RowSums:
    """Sums, histogram and scores of the rows given so far; see ``reduce_rows``.

    Parameters
    ----------
    model
        The likelihood.
    theta
        (d,) expansion point.
    shifts
        (S, d) where remainders are evaluated; S may be 0.
    order
        Order of the control variates whose remainders these are.
    n_features
        Columns of the design.
    with_sums
        Whether to add up the expansion, or only to evaluate remainders.
    """

    def __init__(
        self,
        model: Model,
        theta: Vector,
        shifts: Matrix,
        order: int,
        n_features: int,
        with_sums: bool = True,
    ) -> None:
        d, n_shifts = len(theta), len(shifts)
        self._model = model
        self._theta = np.ascontiguousarray(theta, dtype=np.float64)
        self._shifts = np.ascontiguousarray(shifts, dtype=np.float64)
        self._columns = columns_of(model, self._theta, self._shifts, n_features)
        self._order = order
        self._tile = tile_rows(n_features)
        self._with_sums = with_sums
        self.totals = np.zeros((2, 1 + d + d * d))
        self.counts = np.zeros(N_BINS, np.int64)
        self.moments = np.zeros((N_BINS, n_shifts, 4))
        self.maxima = np.zeros((N_BINS, n_shifts))
        self.terms = np.zeros((4, n_shifts))
        self.flags = np.zeros(3, np.int64)

    def add(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        offset: NDArray[Any],
        weight: NDArray[Any],
        scores: Vector,
        remainders: Matrix | None = None,
    ) -> int:
        """Add rows; write their ``scores`` (m,) and ``remainders`` (m, S).

        Returns
        -------
        int
            The first row without a finite log-likelihood, or -1.
        """
        n, q = X.shape
        X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
        first_bad = -1
        tiles = max(1, _BUFFER_BYTES // (8 * self._tile * max(q, 1)))
        step = min(tiles * self._tile, n)
        dense = np.empty((step, q))
        side = np.empty((3, step))
        scratch = np.empty((step, len(self._shifts))) if remainders is None else remainders
        with single_threaded():
            for start in range(0, n, step):
                m = min(step, n - start)
                here = slice(start, start + m)
                if m < step:
                    side = np.empty((3, m))
                widen(X[here], dense[:m])
                for part, values in zip(side, (y, offset, weight), strict=True):
                    part[:] = values[here]
                reduce_rows(
                    self._model.link,
                    self._model.constants,
                    dense[:m],
                    side,
                    self._theta,
                    self._columns,
                    self._shifts,
                    self._model.n_linear,
                    self._model.n_scalar,
                    self._order,
                    self._tile,
                    self._with_sums,
                    self.totals,
                    scratch[:m] if remainders is None else remainders[here],
                    scores[here],
                    self.counts,
                    self.moments,
                    self.maxima,
                    self.terms,
                    self.flags,
                )
                if first_bad < 0 and self.flags[2] >= 0:
                    first_bad = start + int(self.flags[2])
        return first_bad
