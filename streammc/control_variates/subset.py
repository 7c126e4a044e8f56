"""Rows in memory, and their log-likelihood as a function of theta.

For a mixed model a unit of the data set is a group. ``fewer`` and ``together`` turn a number of
rows into the number of groups that have about so many.
"""

from __future__ import annotations

import numpy as np

from streammc import rng
from streammc.control_variates.full_pass.block_pass import BlockSums, RowSums
from streammc.control_variates.mode.newton import Objective
from streammc.likelihood.data_views import fewer, together
from streammc.likelihood.pass_cost import SUBSET_ROWS, takes_codes
from streammc.numerics.coded_matrix import CodedColumns, compressed
from streammc.protocols import Dataset, Index, Matrix, Model, Rows, Vector

SPREAD_ROWS = 2**22
"""Most rows of :class:`Spread`."""
SPREAD_BYTES = 2**28
"""Most bytes of :class:`Spread`."""
RUN_ROWS = 4096
"""Rows of a run of :class:`Spread`."""
SUBSET_GROUPS = 1000
"""Fewest groups in memory, unless these have many more rows than a subset of single rows."""
EXACT_ROWS = 2**18
"""Most rows of the groups whose remainders :func:`surrogate` evaluates."""
_SLICE_ENTRIES = 2**21
"""Entries of the design that :class:`Spread` has in memory at a time."""


def gather(dataset: Dataset, starts: Index, unit_rows: int = 1) -> Rows:
    """Return the rows of the runs of ``unit_rows`` rows that begin at ``starts``."""
    m = len(starts) * unit_rows
    out = Rows(np.empty((m, dataset.n_features)), np.empty(m), np.empty(m), np.empty(m))
    source = dataset.rows()
    source.will_need(starts, unit_rows)
    source.gather(starts, unit_rows, out)
    return out


def draw_subset(dataset: Dataset, memory_limit: int) -> Rows:
    """Return all rows, or a sample that fits, drawn without replacement, in row order."""
    fit = memory_limit // (8 * (dataset.n_features + 3))
    m = min(dataset.n_rows, fewer(SUBSET_ROWS, dataset, SUBSET_GROUPS), max(fit, 1))
    if m == dataset.n_rows:
        return gather(dataset, np.arange(m, dtype=np.int64))
    generator = rng.stream(0, 1, rng.Role.PLAN)  # 1: the number of this purpose
    rows = generator.choice(dataset.n_rows, size=m, replace=False, shuffle=False)
    return gather(dataset, np.sort(rows).astype(np.int64))


def in_memory(
    model: Model, rows: Rows, scale: float, columns: CodedColumns | None = None
) -> Objective:
    """Return the function theta -> log-likelihood of ``rows`` times ``scale``, two derivatives.

    ``columns`` are those that :func:`level_columns` returned for the data set of the rows.
    """
    weight = rows.weight * scale
    squares = np.empty(len(rows.y))  # scores, which the sums write and nobody reads
    design = rows.X if columns is None else compressed(rows.X, columns)

    def objective(theta: Vector) -> tuple[float, Vector, Matrix]:
        no_shifts = np.empty((0, len(theta)))  # sums alone, no remainders
        sums = RowSums(model, theta, no_shifts, 2, rows.X.shape[1], coded=columns)
        sums.add(design, rows.y, rows.offset, weight, squares)
        return sums.expansion()

    return objective


def level_columns(dataset: Dataset, model: Model) -> CodedColumns | None:
    """Return the columns of a design with codes, if the model can sum by level; else ``None``."""
    return dataset.rows().columns if takes_codes(model) else None


class Spread:
    """Log-likelihood of runs spread evenly over a large table, scaled to all rows.

    The mode of a subset in memory is sqrt(n / 65,536) posterior standard deviations off,
    123 at a billion rows: too far for one Newton step of a full pass. Four million rows
    are read again at every evaluation, and save a pass.

    ``starts`` are the first rows of the runs, empty unless the table is at least eight times
    larger; ``rows_read`` counts the rows of all evaluations.
    """

    def __init__(self, dataset: Dataset, model: Model) -> None:
        self._dataset, self._model = dataset, model
        # A row with codes has all its columns while it is evaluated.
        row_bytes = max(dataset.rows().row_bytes, 4 * dataset.n_features, 1)
        self._run = run = fewer(RUN_ROWS, dataset, 1)
        runs = min(fewer(SPREAD_ROWS, dataset), SPREAD_BYTES // row_bytes) // run
        if 8 * runs * run > dataset.n_rows:
            runs = 0
        apart = dataset.n_rows // max(runs, 1)
        self.starts: Index = np.arange(runs, dtype=np.int64) * apart + (apart - run) // 2
        self.rows_read = 0

    def __call__(self, theta: Vector) -> tuple[float, Vector, Matrix]:
        """Return the scaled log-likelihood at ``theta`` with two derivatives."""
        q = self._dataset.n_features
        step = max(1, _SLICE_ENTRIES // (self._run * q))
        columns = level_columns(self._dataset, self._model)
        no_shifts = np.empty((0, len(theta)))
        sums = RowSums(self._model, theta, no_shifts, 2, q, coded=columns)
        for first in range(0, len(self.starts), step):
            rows = gather(self._dataset, self.starts[first : first + step], self._run)
            design = rows.X if columns is None else compressed(rows.X, columns)
            sums.add(design, rows.y, rows.offset, rows.weight, np.empty(len(rows.y)))
        read = len(self.starts) * self._run
        self.rows_read += read
        log_lik, gradient, hessian = sums.expansion()
        scale = self._dataset.n_rows / read
        return log_lik * scale, gradient * scale, hessian * scale


def surrogate(dataset: Dataset, model: Model, sums: BlockSums, centre: Vector) -> Objective:
    """Return an approximate log-likelihood of all rows that needs no pass.

    It is the expansion at ``centre`` plus the exact remainders of the candidates: the rows of
    highest score, ``sums.rows`` of a pass at ``centre``. If these are groups, as many as have at
    most ``EXACT_ROWS`` rows together.
    """
    log_lik, gradient, hessian = sums.expansion(len(centre))
    candidates = np.sort(sums.rows[: together(sums.rows, dataset, EXACT_ROWS)])
    if len(candidates) == 0:
        base, exact = (0.0, np.zeros_like(gradient), np.zeros_like(hessian)), None
    else:
        columns = level_columns(dataset, model)
        exact = in_memory(model, gather(dataset, candidates), 1.0, columns)
        base = exact(centre)

    def objective(theta: Vector) -> tuple[float, Vector, Matrix]:
        shift = theta - centre
        bend = (hessian - base[2]) @ shift
        value = log_lik - base[0] + (gradient - base[1]) @ shift + 0.5 * shift @ bend
        slope = gradient - base[1] + bend
        if exact is None:
            return float(value), slope, hessian
        own = exact(theta)
        return float(value + own[0]), slope + own[1], hessian - base[2] + own[2]

    return objective
