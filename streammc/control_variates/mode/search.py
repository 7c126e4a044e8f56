"""The search for ``theta_star``: full passes, and steps of Newton's method between them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from streammc.control_variates.coordinates import best_coordinates
from streammc.control_variates.draws import covering_draws
from streammc.control_variates.forecast import announce, counted
from streammc.control_variates.full_pass.block_pass import BlockSums, ExpansionPass, raise_fault
from streammc.control_variates.mode.factor_scales import (
    fewer_rows,
    given_scales,
    has_factors,
    refined_scales,
)
from streammc.control_variates.mode.first_centre import Centre, first_centre
from streammc.control_variates.mode.newton import (
    NotPositiveDefiniteError,
    Point,
    damped_point,
    flat_message,
    maximise,
    posterior_point,
)
from streammc.control_variates.mode.starts import concave
from streammc.control_variates.mode.weak_directions import largest_move
from streammc.control_variates.pass_request import PassRequest
from streammc.control_variates.subset import (
    Spread,
    draw_subset,
    gather,
    in_memory,
    level_columns,
    surrogate,
)
from streammc.errors import ModelError
from streammc.likelihood.grouped import fewer, ungrouped
from streammc.likelihood.invalid_responses import invalid_responses, trials_of_weight
from streammc.numerics.blas import single_threaded
from streammc.numerics.prior import LOCATION
from streammc.protocols import Matrix, Rows, Vector

N_DRAWS = 8
N_DRAWS_SMALL = 32
"""Scoring draws up to ``SMALL_ROWS`` rows, where a pass is cheap: with 32 draws instead of
8, covtype93k needs 2600 instead of 3100 rows an iteration, a9a 3800 instead of 5100."""
SMALL_ROWS = 2**18
CANDIDATE_GROUPS = 1000
"""Fewest groups of highest score that are kept."""
LARGEST_DECREMENT = 0.1
MAX_PASSES = 12
LARGEST_MOVE = 3.0
"""Largest change of a linear predictor between two passes that make Newton's steps."""
_SAME_SCALE = 0.01
"""Change of the log scale of a factor up to which log posteriors are compared."""
EXTREME_ROWS = 1000
"""Number of highest-score rows whose linear predictors are checked for separation."""


@dataclass(frozen=True)
class FoundMode:
    """Result of the search for the mode: the last centre, and the pass at it."""

    centre: Centre
    subset: Rows
    """Rows in memory that represent all rows."""
    by_passes: bool
    """Whether full passes made all Newton steps, without Newton's method on rows in memory."""
    at: Point
    """The last centre, with the curvature of all rows."""
    sums: BlockSums
    deltas: Matrix
    """(S, d) draws at which rows were scored, as shifts from the centre."""
    noise: Vector
    """(s,) of the coordinates in which rows were expanded, see ``coordinates.Coordinates``."""
    converged: bool
    passes: int
    pass_seconds: float
    rows_read: int
    table: Matrix
    """(d, 5) prior of the search: that of the model, but for the effects of factors."""


def find_mode(request: PassRequest) -> FoundMode:
    """Move the centre to the posterior mode, and make the pass that certifies it.

    Raises
    ------
    ModelError
        If a response is outside the support, or the posterior has no mode.
    OutOfMemoryError
        If the matrices of a pass do not fit in the memory that is available.
    """
    dataset, model, table = request.dataset, request.model, request.table
    cost = announce(
        dataset,
        model,
        passes=request.passes,
        scheduler=request.scheduler,
        phases=request.phases,
    )
    subset, exact = draw_subset(dataset, request.memory_limit), table
    if has_factors(table) and invalid_responses(model, subset.X, subset.y) is None:
        given = request.theta_star
        first = model.start(subset) if given is None else given
        columns = level_columns(request.dataset, model)
        few = in_memory(model, fewer_rows(subset), 1.0, columns)
        likelihood = counted(few, request.phases)
        with single_threaded():
            table = given_scales(table, likelihood, first, given is not None)
        request = replace(request, table=table)
    spread = Spread(dataset, model)
    only = request.passes == 1 and not request.near
    start = request.theta_star
    by_passes = start is None and cost.few_rows and concave(model, table)
    with single_threaded():
        if by_passes and invalid_responses(model, subset.X, subset.y) is None:
            start = model.start(subset)
        centre = first_centre(dataset, model, subset, spread, start, table, only, request.phases)
        search = _Search(request, subset, centre, by_passes, exact)
        search.rows_read += spread.rows_read
        return search.run()


class _Search:
    """The state of the search between passes."""

    def __init__(
        self, request: PassRequest, subset: Rows, centre: Centre, by_passes: bool, exact: Matrix
    ) -> None:
        self._request, self._subset, self._centre = request, subset, centre
        self._by_passes, self._exact = by_passes, exact
        self._best: Point | None = None
        self._noise: Vector = np.zeros(0)
        self._pass_seconds = 0.0
        self.rows_read = len(subset.y)

    def run(self) -> FoundMode:
        """Make full passes until one certifies its centre, or their number reaches the limit."""
        request, centre = self._request, self._centre
        n_rows, point = request.dataset.n_rows, centre.point
        small = ungrouped(request.dataset).n_rows <= SMALL_ROWS
        n_draws = N_DRAWS_SMALL if small else N_DRAWS
        xi = covering_draws(n_draws, len(request.labels), 0)
        given = request.theta_star is not None
        decisive = request.passes == 1 or given or len(self._subset.y) == n_rows
        limit = 1 if centre.integrated else request.passes or MAX_PASSES
        for done in range(1, limit + 1):
            last = done == limit
            deltas = xi if decisive or last else xi[:2]
            deltas = centre.shift + centre.inflation * (deltas @ point.factor.T)
            sums = self._pass(point, deltas, check=done == 1)
            at = point if centre.integrated else self._of_all_rows(sums, point.theta)
            converged = at.decrement < LARGEST_DECREMENT
            if last or (converged and len(deltas) == n_draws):
                break
            decisive = True
            # Converged at a few scoring draws: the next pass has the same centre and all draws.
            point = at if converged else self._next_point(point, at, sums)
        return FoundMode(
            centre=centre,
            subset=self._subset,
            by_passes=self._by_passes,
            at=at,
            sums=sums,
            deltas=deltas,
            noise=self._noise,
            converged=bool(converged),
            passes=done,
            pass_seconds=self._pass_seconds,
            rows_read=self.rows_read,
            table=self._request.table,
        )

    def _of_all_rows(self, sums: BlockSums, theta: Vector) -> Point:
        """Return the expansion of the log posterior at ``theta``, scales of factors renewed."""
        request, expansion = self._request, sums.expansion(len(theta))
        if has_factors(self._exact) and request.theta_star is None:
            table, scales = refined_scales(self._exact, request.table, expansion, theta)
            theta = theta.copy()
            theta[scales] = table[scales, LOCATION]
            if np.abs(theta[scales] - request.table[scales, LOCATION]).max() > _SAME_SCALE:
                self._best = None  # the log posterior is that given other scales
            self._request = replace(request, table=table)
        try:
            return posterior_point(theta, expansion, self._request.table)
        except NotPositiveDefiniteError as error:
            raise ModelError(flat_message(self._request.table, error.upwards)) from None

    def _pass(self, point: Point, deltas: Matrix, check: bool) -> BlockSums:
        """Return the sums and scores of one full pass at ``point``."""
        request = self._request
        dataset = request.dataset
        fit = request.memory_limit // (8 * (dataset.n_features + 3))
        wanted = max(fewer(request.candidate_rows, dataset), CANDIDATE_GROUPS)
        cap = max(0, min(wanted, request.candidate_rows, fit))
        where = best_coordinates(request.model, self._subset, point.theta, deltas, request.order)
        self._noise = where.noise
        shifts = where.shifts(deltas)
        per_weight = trials_of_weight(dataset)
        task = ExpansionPass(
            where.model, where.centre, shifts, request.order, cap, check, per_weight
        )
        before = time.perf_counter()
        sums = dataset.reduce(task, scheduler=request.scheduler, progress=request.progress)
        self._pass_seconds += time.perf_counter() - before
        self.rows_read += dataset.n_rows
        if sums.fault is not None:
            raise_fault(sums.fault, request.model, dataset)
        return replace(sums, totals=where.to_theta(sums.totals))

    def _next_point(self, point: Point, at: Point, sums: BlockSums) -> Point:
        """Return the centre of the next pass; ``at`` is ``point`` with the sums of all rows."""
        request, best = self._request, self._best
        dataset, model, table = request.dataset, request.model, request.table
        if best is not None and at.log_posterior < best.log_posterior - 1e-9 * abs(
            best.log_posterior
        ):
            back = best.theta + 0.25 * (point.theta - best.theta)
            return damped_point(back, sums.expansion(len(request.labels)), table)
        self._best = at
        if self._by_passes:
            extreme = gather(dataset, np.sort(sums.rows[:EXTREME_ROWS]))
            self.rows_read += len(extreme.y)
            moved, _ = largest_move([self._subset, extreme], at.step, model.n_linear)
            length = min(1.0, LARGEST_MOVE / max(moved, 1e-300))
            return replace(at, theta=at.theta + length * at.step)
        objective = counted(surrogate(dataset, model, sums, at.theta), request.phases)
        self.rows_read += len(sums.rows)
        return maximise(objective, at.theta, table)
