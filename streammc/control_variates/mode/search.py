"""The search for ``theta_star``: full passes, and steps of Newton's method between them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from streammc.control_variates.bound import Bound
from streammc.control_variates.coordinates import best_coordinates, covering_draws
from streammc.control_variates.full_pass.block_pass import (
    EXTREME_ROWS,
    BlockSums,
    ExpansionPass,
    raise_fault,
)
from streammc.control_variates.mode.exact_fit import integrated_point
from streammc.control_variates.mode.factor_scales import (
    fewer_rows,
    given_scales,
    has_factors,
    refined_scales,
    softened,
)
from streammc.control_variates.mode.modes import Mode, comparable, concave, find_modes
from streammc.control_variates.mode.newton import (
    NotPositiveDefiniteError,
    Point,
    Spread,
    counted,
    damped_point,
    flat_message,
    in_memory,
    level_columns,
    maximise,
    posterior_point,
    surrogate,
)
from streammc.control_variates.mode.prior_influence import largest_move
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.data_views import counted_rows, draw_subset, fewer, gather
from streammc.likelihood.pass_cost import announce
from streammc.models.responses import invalid_responses, needs_response, trials_of_weight
from streammc.numerics.prior import FLAT, KIND, LOCATION, LOG_FLAT
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import (
    Dataset,
    Index,
    Matrix,
    Model,
    PassTask,
    Phases,
    PieceTask,
    RowBlock,
    Rows,
    Vector,
)

S = TypeVar("S")
T = TypeVar("T")


class Beside(Protocol):
    """What a sampler makes of the rows in the read that certifies theta_star."""

    def task(self, at: Point) -> PassTask[Any] | None:
        """Return what is to be made of the rows at a centre; ``None``: nothing."""

    def take(self, result: Any) -> None:
        """Take the result of the last task; that of the last pass counts."""


@dataclass(frozen=True)
class Both(PieceTask[tuple[S, T]], Generic[S, T]):
    """Two tasks in one read."""

    first: PieceTask[S]
    second: PassTask[T]

    def map(self, block: RowBlock) -> tuple[S, T]:
        """Return the results of a block given in one piece."""
        return self.map_pieces(iter([block]))

    def map_pieces(self, pieces: Iterator[RowBlock]) -> tuple[S, T]:
        """Return the results of a block."""
        others: list[T] = []

        def passed_on() -> Iterator[RowBlock]:
            for piece in pieces:
                others.append(self.second.map(piece))
                yield piece

        first = self.first.map_pieces(passed_on())
        return first, reduce(self.second.combine, others)

    def combine(self, left: tuple[S, T], right: tuple[S, T]) -> tuple[S, T]:
        """Merge the results of two neighbouring blocks."""
        return self.first.combine(left[0], right[0]), self.second.combine(left[1], right[1])

    def asked_next(self, result: tuple[S, T]) -> Index:
        """Return the rows that the first task asks for next."""
        return self.first.asked_next(result[0])


@dataclass(frozen=True, kw_only=True)
class PassRequest:
    """Settings of the search for ``theta_star``; see ``certify.compute``."""

    dataset: Dataset
    model: Model
    """The rows with their temperature, and the likelihood with its priors resolved."""
    order: int
    passes: int | None
    theta_star: Vector | None
    """(d,) given centre, or ``None``."""
    near: bool
    table: Matrix
    labels: tuple[str, ...]
    """Prior table (d, .) and names (d,) of the parameters."""
    candidate_rows: int
    memory_limit: int
    scheduler: Any
    progress: Callable[[int, int], None] | None
    phases: Phases | None
    beside: Beside | None = None


def check_request(
    bound: Bound, order: int, passes: int | None, theta_star: Vector | None
) -> Vector | None:
    """Return the first centre; raise if the request is not valid."""
    dataset, model = bound.dataset, bound.model
    if isinstance(order, bool) or order not in (0, 1, 2):
        raise ConfigError(f"expected order 0, 1 or 2, found {order!r}; choose 2 if in doubt")
    if passes is not None and not _whole(passes, 1):
        raise ConfigError(
            f"expected a whole number of passes >= 1, found {passes!r}; leave it out to certify"
        )
    if dataset.n_rows < 1:
        raise ModelError(f"expected rows, found none in {dataset.address}; ingest a table first")
    if dataset.response is None and needs_response(model):
        raise ModelError(
            f"{model.name}: expected a response in the data, found none in {dataset.address!r}; "
            "name its column with 'streammc ingest --response'"
        )
    _refuse_centred(dataset, model)
    labels, table = bound.labels, bound.prior_table
    free = int(np.count_nonzero(table[:, KIND] == FLAT))
    heat = dataset.temperature
    n_rows = counted_rows(dataset)
    if np.any(table[:, KIND] == LOG_FLAT) and n_rows / heat - free < 2:
        at = f" at temperature {heat:g}" if heat != 1.0 else ""
        raise ModelError(
            f"expected at least {math.ceil(heat * (free + 2))} rows for {free} coefficients and a "
            f"scale with flat priors{at}, found {n_rows}: the posterior is improper; give "
            "the scale a proper prior (--prior 'sigma=half_normal(10)')"
        )
    if theta_star is None:
        return None
    try:
        theta = np.array(theta_star, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected theta_star of {len(labels)} finite numbers, found "
            f"{type(theta_star).__name__}; give one number for each parameter"
        ) from None
    if theta.shape != (len(labels),) or not np.all(np.isfinite(theta)):
        raise ConfigError(
            f"expected theta_star of {len(labels)} finite numbers, found shape {theta.shape}; "
            f"the parameters are {', '.join(labels[:6])}{', ...' if len(labels) > 6 else ''}"
            "; give one number for each"
        )
    return theta


def _refuse_centred(dataset: Dataset, model: Model) -> None:
    """Raise ModelError for centred columns of a regression without intercept.

    Stores of earlier versions have such columns: their coefficients are those of another model.
    """
    attributes = dataset.table.attributes
    moved = any((attributes.get("standardization") or {}).get("mean", ()))
    if moved and not attributes.get("intercept") and model.n_linear > 0:
        raise ModelError(
            f"{model.name}: expected an intercept, or columns that are not centred, found centred "
            f"columns without intercept in {dataset.address!r}: ingest the table again, which then "
            "only scales them"
        )


def _whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_sizes(**sizes: object) -> None:
    """Raise ConfigError unless each size is a whole number of at least 1."""
    for name, value in sizes.items():
        if not _whole(value, 1):
            raise ConfigError(
                f"expected {name} as a whole number of at least 1, found {value!r}; leave it out "
                "for the default"
            )


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

    ModelError if a response is outside the support, or the posterior has no mode; OutOfMemoryError
    if the matrices of a pass do not fit in the memory that is available.
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
        centre_option = request.theta_star
        first = model.start(subset) if centre_option is None else centre_option
        columns = level_columns(request.dataset, model)
        few = in_memory(model, fewer_rows(subset), 1.0, columns)
        likelihood = counted(few, request.phases)
        with single_threaded():
            table = given_scales(table, likelihood, first, centre_option is not None)
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
        small = request.dataset.table.n_rows <= SMALL_ROWS
        n_draws = N_DRAWS_SMALL if small else N_DRAWS
        xi = covering_draws(n_draws, len(request.labels), 0)
        has_centre = request.theta_star is not None
        decisive = request.passes == 1 or has_centre or len(self._subset.y) == n_rows
        limit = 1 if centre.integrated else request.passes or MAX_PASSES
        for done in range(1, limit + 1):
            last = done == limit
            deltas = xi if decisive or last else xi[:2]
            deltas = centre.shift + centre.inflation * (deltas @ point.factor.T)
            sums = self._pass(point, deltas, check=done == 1, beside=decisive or last)
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

    def _pass(self, point: Point, deltas: Matrix, *, check: bool, beside: bool) -> BlockSums:
        """Return the sums and scores of one full pass at ``point``; ``beside``: it may be last."""
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
        other = None if request.beside is None or not beside else request.beside.task(point)
        before = time.perf_counter()
        options = {"scheduler": request.scheduler, "progress": request.progress}
        if request.beside is None or other is None:
            sums = dataset.reduce(task, **options)
        else:
            sums, result = dataset.reduce(Both(task, other), **options)
            request.beside.take(result)
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
            moved, _ = largest_move([self._subset, extreme], at.step, model)
            length = min(1.0, LARGEST_MOVE / max(moved, 1e-300))
            return replace(at, theta=at.theta + length * at.step)
        objective = counted(surrogate(dataset, model, sums, at.theta), request.phases)
        self.rows_read += len(sums.rows)
        return maximise(objective, at.theta, table)


@dataclass(frozen=True)
class Centre:
    """First centre of the full passes, with location and width of the draws that score rows.

    If there is no later centre, rows are scored at draws around the mode of the subset,
    widened by the uncertainty of that mode.
    """

    point: Point
    shift: Vector
    """(d,) from the centre to the mean of the scoring draws."""
    inflation: float = 1.0
    """Width of the scoring draws in Laplace standard deviations."""
    modes: list[Mode] = field(default_factory=list)
    """Modes of comparable evidence, the best first; empty if not searched."""
    integrated: bool = False
    """Whether there is no joint mode, and the centre is the mode with the scale integrated out."""


def first_centre(
    dataset: Dataset,
    model: Model,
    subset: Rows,
    spread: Spread,
    theta: Vector | None,
    table: Matrix,
    only: bool,
    phases: Phases | None = None,
) -> Centre:
    """Return the first centre: ``theta`` (d,), or the mode with most evidence.

    ``subset`` are the rows in memory, ``spread`` runs over the table; ``only``: there will be no
    later centre. ModelError if the posterior has no mode, or is improper.
    """
    dim = len(table)
    origin = np.zeros(dim)
    # The first pass finds all, and raises.
    if invalid_responses(model, subset.X, subset.y) is not None:
        return Centre(Point(origin, 0.0, np.zeros((dim, dim)), origin, np.inf), origin)
    scale, columns = dataset.n_rows / len(subset.y), level_columns(dataset, model)
    objective = counted(in_memory(model, subset, scale, columns), phases)
    if len(subset.y) < dataset.n_rows:
        table = softened(table)
    if theta is not None and not only:
        return Centre(damped_point(theta, objective(theta), table), origin)
    if theta is None and len(subset.y) == dataset.n_rows:
        labels = tuple(model.labels(dataset.feature_names))
        integrated = integrated_point(model, subset, table, objective, labels)
        if integrated is not None:
            return Centre(integrated, origin, integrated=True)
    modes = comparable(find_modes(model, subset, dataset.n_rows, table, objective))
    mode = modes[0].point
    if not only:
        if len(spread.starts) and np.isfinite(spread(mode.theta)[0]):
            mode = maximise(counted(spread, phases), mode.theta, table, max_iterations=2)
        return Centre(mode, origin, modes=modes)
    inflation = float(np.sqrt(dataset.n_rows / len(subset.y)))
    if theta is None:
        return Centre(mode, origin, inflation, modes)
    point = damped_point(theta, objective(theta), table)
    return Centre(point, mode.theta - theta, inflation)
