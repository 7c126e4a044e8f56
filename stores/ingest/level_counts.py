"""Statistics of the columns of coded factors, from counts of their codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streammc.protocols import Index, Matrix, Vector
from streammc.stores.formula.coded_factors import CodedFactor
from streammc.stores.ingest.scan import Scan


class LevelCounts:
    """Rows by code of each factor, in blocks whose last features are codes.

    Parameters
    ----------
    factors
        The factors, in the order of their columns.
    n_features
        Columns of the design, without the intercept.
    """

    def __init__(self, factors: Sequence[CodedFactor], n_features: int) -> None:
        self._factors = factors
        self._coded = np.zeros(n_features, np.bool_)
        for factor in factors:
            self._coded[factor.range] = True
        self.dense: Index = np.flatnonzero(~self._coded)
        """The features that are stored as they are."""
        self._counts = [np.zeros(factor.columns + 1, np.int64) for factor in factors]

    def add(self, values: Matrix) -> None:
        """Add the rows of a block (c, m)."""
        for index, count in enumerate(self._counts, len(self.dense)):
            count += np.bincount(values[index].astype(np.int64), minlength=len(count))

    def add_counts(self, factor: int, rows: Index) -> None:
        """Add the number of rows by code (columns + 1,) of the factor number ``factor``."""
        self._counts[factor][: len(rows)] += rows

    def widened(self, found: Scan) -> Scan:
        """Return the scan with an entry for every column of the design, and for all others.

        The mean of an indicator is its share of the rows.
        """
        if not self._factors:
            return found
        n_dense = len(self.dense)
        others = found.mean[n_dense + len(self._factors) :]
        shares = np.concatenate([count[1:] for count in self._counts]) / found.n_rows

        def wide(values: Vector, of_levels: Vector) -> Vector:
            features = np.empty(len(self._coded))
            features[self.dense], features[self._coded] = values[:n_dense], of_levels
            return np.concatenate([features, values[len(values) - len(others) :]])

        return replace(
            found,
            mean=wide(found.mean, shares),
            sd=wide(found.sd, np.sqrt(shares * (1.0 - shares))),
            minimum=wide(found.minimum, (shares == 1.0).astype(np.float64)),
            maximum=wide(found.maximum, (shares > 0.0).astype(np.float64)),
            rounding=wide(found.rounding, np.zeros(len(shares))),
        )
