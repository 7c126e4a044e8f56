"""Newton's method for the posterior mode, and the log-likelihoods in memory that it maximises.

The objective returns the log-likelihood with its gradient and Hessian; the prior is
added here. ``table`` (d, 5) is the prior table, one row per component of theta; densities with
kinks or walls are made smooth (``numerics.prior``). Steps are damped until the log posterior rises
(Armijo), and minus the Hessian must be positive definite.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dtrtri

from streammc.control_variates.full_pass.block_pass import BlockSums, RowSums
from streammc.errors import ModelError
from streammc.likelihood.data_views import SPREAD_IN_ORDER, fewer, gather, spread_runs, together
from streammc.likelihood.pass_cost import takes_codes
from streammc.numerics.coded_matrix import CodedColumns, compressed
from streammc.numerics.prior import inside, log_prior, prior_precision, smooth
from streammc.protocols import Dataset, Index, Matrix, Model, Phases, Rows, Vector

Objective = Callable[[Vector], tuple[float, Vector, Matrix]]
"""theta -> log-likelihood, gradient (d,), Hessian (d, d)."""
NEWTON: Final = "newton"
PLAN: Final = "plan"
"""Phases whose steps are reported."""
_QUIET_SECONDS: Final = 1.0
"""Phases that end sooner report nothing."""

# Below this relative pivot a factorisation has lost all its digits.
_LOWEST_PIVOT = 1e-13
# From this dimension on a triangular inverse, d^3 / 3, saves more than a millisecond.
_LARGE = 256
# An eigenvalue below this, relative to a unit diagonal, is negative and not a rounded zero.
_UPWARDS = -1e-8


@dataclass(frozen=True)
class Point:
    """The log posterior and its expansion at one theta.

    ``factor`` S is lower triangular with S S' the inverse of minus the Hessian of the
    log posterior, ``step`` Newton's step S S' g and ``decrement`` its length in
    posterior standard deviations, sqrt(g' S S' g).
    """

    theta: Vector
    log_posterior: float
    factor: Matrix
    step: Vector
    decrement: float


class NotPositiveDefiniteError(ArithmeticError):
    """Minus the Hessian of the log posterior is not finite, singular, or indefinite."""

    def __init__(self, upwards: bool = False, scaled: Matrix | None = None) -> None:
        super().__init__()
        self._upwards, self._scaled = upwards, scaled

    @property
    def upwards(self) -> bool:
        """Whether the log posterior curves upwards in some direction.

        Computed on first use: the eigenvalues cost four times the factorisation.
        """
        if self._scaled is not None:
            self._upwards = bool(np.linalg.eigvalsh(self._scaled)[0] < _UPWARDS)
            self._scaled = None
        return self._upwards


def posterior_factor(precision: Matrix) -> Matrix:
    """Return S, lower triangular, with S S' = precision^-1.

    ``precision`` is scaled to a unit diagonal first, so that columns of very
    different sizes do not look singular.
    """
    diagonal = np.diag(precision)
    if not np.all(np.isfinite(precision)) or not np.all(diagonal > 0.0):
        raise NotPositiveDefiniteError(bool(np.any(diagonal < 0.0)))
    scale = 1.0 / np.sqrt(diagonal)
    scaled = precision * scale[:, None] * scale
    try:
        # Cholesky of the reversed matrix is U U' of the matrix; S = U^-T.
        reversed_factor = np.linalg.cholesky(scaled[::-1, ::-1])
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(scaled=scaled) from None
    if np.min(np.diag(reversed_factor)) ** 2 < _LOWEST_PIVOT:
        raise NotPositiveDefiniteError
    upper = reversed_factor[::-1, ::-1]
    if len(scale) < _LARGE:
        inverse = solve_triangular(upper, np.eye(len(scale)), lower=False)
    else:
        inverse, _ = dtrtri(upper)
    return np.ascontiguousarray(scale[:, None] * inverse.T)


def posterior_point(
    theta: Vector, sums: tuple[float, Vector, Matrix], table: Matrix, damping: float = 0.0
) -> Point:
    """Return the expansion of the log posterior at ``theta``: ``sums`` plus the smooth prior.

    ``sums`` are those of the objective. ``damping`` times its absolute diagonal is added to minus
    the Hessian.
    """
    log_lik, gradient, hessian = sums
    total = gradient.copy()
    table = smooth(table)
    value = log_lik + log_prior(theta, table, total)
    precision = prior_precision(theta, table) - hessian
    if damping > 0.0:
        precision += damping * np.diag(np.abs(np.diag(precision)) + 1e-300)
    factor = posterior_factor(precision)
    with np.errstate(over="ignore", invalid="ignore"):
        whitened = factor.T @ total
        step = factor @ whitened
    if not np.all(np.isfinite(step)):  # the precision is nearly 0, far from the mode
        raise NotPositiveDefiniteError
    return Point(theta, value, factor, step, float(np.linalg.norm(whitened)))


def damped_point(theta: Vector, sums: tuple[float, Vector, Matrix], table: Matrix) -> Point:
    """Return :func:`posterior_point` with the least damping that makes it positive definite.

    ModelError if no damping does.
    """
    for damping in (0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3):
        with suppress(NotPositiveDefiniteError):
            return posterior_point(theta, sums, table, damping)
    raise ModelError(
        "expected a log posterior with finite curvature, found none at the starting point; "
        "check the columns and the response for huge values, or give a tighter prior"
    )


_CRAWL: Final = 0.05
"""Part of Newton's step below which a step crawls."""
_CRAWLS: Final = 2
"""Crawling steps in succession, within a posterior sd of the mode, after which the search ends.
Steps crawl there if the derivatives are not exactly those of the values: a coarse quadrature."""


def maximise(
    objective: Objective, theta: Vector, table: Matrix, *, max_iterations: int = 200
) -> Point:
    """Return the mode by damped Newton steps.

    ModelError if the log posterior is not finite at the start, or flat in some direction at the end
    (separation or collinear columns under a flat prior).
    """
    theta = inside(theta, table)
    sums = objective(theta)
    point = damped_point(theta, sums, table)
    if not np.isfinite(point.log_posterior):
        raise ModelError(
            f"expected a finite log posterior at the starting point, found {point.log_posterior}; "
            "check the response, or give theta_star"
        )
    crawls = 0
    for _ in range(max_iterations):
        gain = 0.5 * point.decrement**2
        if gain <= 1e-14 * (1.0 + abs(point.log_posterior)):
            break
        length = 1.0
        while True:
            trial = point.theta + length * point.step
            new = objective(trial)
            if np.isfinite(new[0]) and all(np.all(np.isfinite(part)) for part in new[1:]):
                least = point.log_posterior + 1e-4 * length * gain
                slack = 1e-12 * abs(point.log_posterior)
                # Far out, as at a scale of e^-12, no damping helps: shorten the step instead.
                with suppress(ModelError):
                    after = damped_point(trial, new, table)
                    if after.log_posterior >= least - slack:
                        break
            length *= 0.5
            if length < 1e-10:
                return _undamped(point, sums, table)
        crawls = crawls + 1 if length < _CRAWL and point.decrement < 1.0 else 0
        point, sums = after, new
        if crawls == _CRAWLS:
            break
    return _undamped(point, sums, table)


def _undamped(point: Point, sums: tuple[float, Vector, Matrix], table: Matrix) -> Point:
    try:
        return posterior_point(point.theta, sums, table)
    except NotPositiveDefiniteError as error:
        raise ModelError(flat_message(table, error.upwards)) from None


def flat_message(table: Matrix, upwards: bool = False) -> str:
    """Return the message for a posterior without a mode, or for a point that is not a mode."""
    if upwards:
        return (
            "expected a mode of the posterior, found a point where its logarithm curves upwards in "
            "some direction: the response is fitted without error, or the point lies between the "
            "modes of a mixture or a network; give a tighter prior (--prior-scale 1), fewer "
            "components or units, or sample without a pass (--sampler mh-minibatch --option "
            "control_variate=none)"
        )
    if np.any(table[:, 0] == 0.0):
        return (
            "expected a posterior with a mode, found none: under a flat prior the response is "
            "separated by the columns or fitted without error, or columns are collinear; give a "
            "proper prior (--prior-scale 10)"
        )
    return (
        "expected a log posterior of positive definite curvature, found a singular one: columns "
        "are too large or too collinear for float64 (standardise them: ingest --standardize), or "
        "the response is fitted without error"
    )


class Counter:
    """Counter of the steps of a phase, which reports them after the first second."""

    def __init__(self, phase: str, phases: Phases | None) -> None:
        self._phase, self._phases = phase, phases
        self._done = 0
        self._began = time.monotonic()

    def __call__(self, steps: int = 1) -> None:
        """Add ``steps`` completed steps."""
        self._done += steps
        if self._phases is not None and time.monotonic() - self._began >= _QUIET_SECONDS:
            self._phases(self._phase, self._done, None, {})


def counted(objective: Objective, phases: Phases | None) -> Objective:
    """Return ``objective`` with every evaluation reported to ``phases`` as a Newton step."""
    count = Counter(NEWTON, phases)

    def evaluate(theta: Vector) -> tuple[float, Vector, Matrix]:
        sums = objective(theta)
        count()
        return sums

    return evaluate


SPREAD_ROWS = 2**22
"""Most rows of :class:`Spread`."""
SPREAD_BYTES = 2**28
"""Most bytes of :class:`Spread`."""
RUN_ROWS = 4096
"""Rows of a run of :class:`Spread`."""
EXACT_ROWS = 2**18
"""Most rows of the groups whose remainders :func:`surrogate` evaluates."""
_SLICE_ENTRIES = 2**21
"""Entries of the design that :class:`Spread` has in memory at a time."""


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
        most = SPREAD_IN_ORDER if dataset.sequential else fewer(SPREAD_ROWS, dataset)
        self.starts: Index = spread_runs(dataset.n_rows, run, min(most, SPREAD_BYTES // row_bytes))
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
    most ``EXACT_ROWS`` rows together; none of a table that is only read in order.
    """
    log_lik, gradient, hessian = sums.expansion(len(centre))
    count = 0 if dataset.sequential else together(sums.rows, dataset, EXACT_ROWS)
    candidates = np.sort(sums.rows[:count])
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
