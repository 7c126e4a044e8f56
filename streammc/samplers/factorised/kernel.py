"""Setup and chains of ``smh``: the plan of its reads, what all chains share, one chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.certify import require_rows
from streammc.control_variates.mode.modes import ADVICE
from streammc.control_variates.plan.reach import lines_of, more_than_normal
from streammc.errors import ModelError, RefusedError
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.target import Base
from streammc.numerics.process_limits import single_threaded
from streammc.numerics.summation import taylor
from streammc.protocols import Dataset, Index, Model, RowSource
from streammc.samplers.common.chains import (
    BATCH_SECONDS,
    DISPERSED,
    Chain,
    StoppedError,
    first_position,
)
from streammc.samplers.common.preparation import control_variates
from streammc.samplers.common.sampler import NAMED, RunRequest, Setup
from streammc.samplers.factorised.loop import (
    AVERAGE,
    CURRENT_ANGLE,
    DONE,
    NEEDS_ROWS,
    TOO_MANY,
    VALUE,
    PoolRows,
    Target,
    allocate_state,
    place,
    run,
)
from streammc.samplers.factorised.pool import (
    Ahead,
    Pool,
    PoolPlan,
    Whitening,
    first_read,
    joined,
    most_rows,
    needed_radius,
    offset_of,
    planned,
    some,
)

if TYPE_CHECKING:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.samplers.factorised.options import ScalableMetropolis

_STARTS: Final = 100
_MOST_MISSED: Final = 0.05
"""Of mass and variance, more than a normal density misses itself."""
_LINE_ROWS: Final = 16_384
_LINE_POINTS: Final = 101
_FEW_ROWS: Final = 1000
_SHARE: Final = 0.1
"""Rows an iteration, and share of all rows, up to which ``auto`` takes ``smh``."""


def prepare(sampler: ScalableMetropolis, request: RunRequest, reason: str) -> Setup:
    """Return control variates and the plan of the reads.

    Raises
    ------
    ConfigError
        If no bound on the remainders of the model is known.
    RefusedError
        If there are other modes, or tails, which no proposal reaches; or an iteration would
        evaluate too many rows, and nobody asked for ``smh`` by name.
    """
    model: Any = request.model
    require_rows(model)
    sampler.check_model(model)
    most = math.inf
    if request.sampler is None:
        most = max(_FEW_ROWS, _SHARE * request.dataset.n_rows)
    ahead = None if model.exact_sums is not None else Ahead(request, most)
    cv = control_variates(_stoppable(request), 2, ahead)
    if cv.other_modes() is not None:
        raise RefusedError(
            "expected one mode for smh, found others of comparable evidence, which no proposal "
            f"around theta_star reaches: use --sampler hmc, and {ADVICE}"
        )
    _require_normal_tails(request, cv)
    made = None if ahead is None else ahead.around(cv)
    if made is not None:
        at, plan = made[0].at, made[0].plan
    else:
        at, plan = planned_around(request.dataset, model, cv)
    text = "no row is read again: the sums of one pass are sufficient statistics"
    if model.exact_sums is None:
        rows, n = plan.drawn + plan.certain, request.dataset.n_rows
        if rows > most:
            raise RefusedError(
                f"expected smh to evaluate at most {_SHARE:.0%} of the rows in an iteration, found "
                f"about {rows:,.0f} of {n:,}, since there are few rows or events for "
                f"{cv.dim} parameters: hmc-ecs needs fewer, from a store, --store NAME.zarr, in "
                "Python store=; or name smh"
            )
        text = (
            f"about {plan.drawn:.2g} rows an iteration are drawn ahead, and {plan.certain:,.0f} "
            "are always evaluated"
        )
        if made is None:
            first_read(at, plan, request)  # refused before the run is made
            read = {"rows_read": n, "bytes_read": n * request.dataset.rows().row_bytes}
            cv = replace(cv, certificate=cv.certificate.plus(passes=1, **read))
    arrays = {"pool_plan": np.array(plan), "pool_factor": at.factor}
    return Setup(sampler, cv, None, f"{reason or NAMED}; {text}", arrays, made)


def planned_around(
    dataset: Dataset, model: Model, cv: ControlVariates
) -> tuple[Whitening, PoolPlan]:
    """Return the plan of a read around theta_star in the coordinates of the chains."""
    at = Whitening(model, cv.theta_star, np.ascontiguousarray(cv.factor))
    if model.exact_sums is not None:
        return at, PoolPlan(np.inf, 0.0, 0.0, 0.0, 0.0, 0.0)
    return at, planned(at, needed_radius(offset_of(cv)), dataset)


def _stoppable(request: RunRequest) -> RunRequest:
    """Return the request; each block of a table that is read in order asks whether to go on.

    Such a read takes minutes where a table has 1e9 rows. The blocks of a cluster are heard of in
    another thread, whose errors end nothing.
    """
    here = request.scheduler in (None, "sync") or isinstance(request.scheduler, int)

    def heard(phase: str, done: int, total: int | None, facts: Mapping[str, Any]) -> None:
        if request.interrupted():
            raise StoppedError
        request.notify(phase, done, total, facts)

    return replace(request, progress=heard) if here and request.dataset.sequential else request


def _require_normal_tails(request: RunRequest, cv: ControlVariates) -> None:
    """Raise RefusedError where proposals do not reach the tails of the posterior.

    A chain that comes there stays for thousands of iterations, and one that does not shows nothing.
    """
    count = request.chains * request.draws
    with single_threaded():  # the bits of a product depend on its threads
        lines = lines_of(
            request.dataset, request.model, cv, most_rows=_LINE_ROWS, per_line=_LINE_POINTS
        )
    missed = more_than_normal(lines, count, cv.dim)
    worst = int(np.argmax(missed))
    if not missed[worst] <= _MOST_MISSED:
        size = f"{missed[worst]:.0%}" if missed[worst] < 1.0 else "more"
        where = f"the tail of {lines.names[worst]}" if lines.names[worst] else "its tails"
        raise RefusedError(
            f"expected at most {_MOST_MISSED:.0%} of the posterior's mass and variance where none "
            f"of {count} normal draws comes, found {size} in {where}: the posterior "
            "is too far from normal for smh; use hmc-ecs, or hmc"
        )


def problem(sampler: ScalableMetropolis, request: RunRequest, setup: Setup) -> FactorisedProblem:
    """Return what all chains share; reads the rows once, unless the certifying pass did."""
    model: Any = request.model
    cv, plan = setup.cv, PoolPlan(*(float(each) for each in setup.arrays["pool_plan"]))
    factor = np.ascontiguousarray(cv.factor)
    pool = None
    if model.exact_sums is None:
        at = Whitening(model, cv.theta_star, np.ascontiguousarray(setup.arrays["pool_factor"]))
        task, read = setup.ahead or (first_read(at, plan, request), None)
        pool = Pool(
            request.dataset,
            task,
            read,
            factor,
            scheduler=request.scheduler,
            progress=_stoppable(request).blocks_of("pass"),
        )
    total = pool.total if pool else 0.0
    radius = pool.radius if pool else plan.radius
    target = Target(
        cv.theta_star,
        cv.log_lik,
        cv.gradient,
        np.ascontiguousarray(cv.hessian),
        factor,
        offset_of(cv),
        model.prior_table(cv.labels),
        model.constants,
        radius,
        total,
        most_rows(total, radius) if pool else 0,
    )
    d = cv.dim
    base = Base(
        cv.theta_star, 0.0, np.zeros(d), np.zeros((d, d)), factor, target.prior,
        model.constants, model.n_linear, -1, 1, 0.0, 0.0,
    )  # fmt: skip
    return FactorisedProblem(
        link=model.link,
        sums=model.exact_sums or taylor,
        target=target,
        pool=pool,
        rows=pool.certain if pool else joined([], d),
        aim=sampler.acceptance,
        statistics=sampler.statistics,
        base=base,
        source=request.dataset.rows(),
        certain=allocate_block(0, request.dataset.n_features, model.n_linear + model.n_scalar),
        certainty_rows=np.zeros(0, np.int64),
        constrain=model.constrain,
    )


@dataclass(frozen=True)
class FactorisedProblem:
    """What all chains share; see ``chains.SharedProblem``."""

    link: Any
    sums: Any
    target: Target
    pool: Pool | None
    """``None``: no row is drawn."""
    rows: PoolRows
    """Rows that are always evaluated."""
    aim: float
    """Share of proposals to accept."""
    statistics: tuple[str, ...]
    base: Base
    source: RowSource
    certain: Block
    certainty_rows: Index
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    design: None = None

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> FactorisedChain:
        """Return chain ``chain`` of the run with this seed."""
        return FactorisedChain(self, seed, chain, batch_iterations=batch_iterations)


class FactorisedChain(Chain):
    """One chain: its state, and the sheets that it has taken."""

    def __init__(
        self, problem: FactorisedProblem, seed: int, chain: int, *, batch_iterations: int
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.problem, self.chain = problem, chain
        self.statistics = problem.statistics
        d = len(problem.target.theta_star)
        self._state = allocate_state(d, problem.aim)
        self._sheet = 0
        """The next sheet to take."""
        self._rows = joined([], d)
        self._frozen = False

    def initialise(self) -> None:
        """Draw a start around theta_star, wider than the posterior.

        Raises
        ------
        ModelError
            If the log density is not finite at any of 100 starts.
        """
        problem, state = self.problem, self._state
        for attempt in range(_STARTS):
            state.u[:] = first_position(
                self._kernel_rng, len(state.u), self.chain, attempt, DISPERSED
            )
            place(problem.link, problem.sums, problem.target, problem.rows, state)
            inside = np.sqrt(np.sum(state.eps[0] ** 2)) < problem.target.radius
            if inside and np.isfinite(state.scalars[VALUE]):
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            f"{_STARTS} tries; check the prior and the response, or rescale the features"
        )

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``."""
        arrays = {"u": self._state.u.copy(), "tuning": self._state.tuning.copy()}
        meta = {
            "iteration": self.iteration,
            "rows_gathered": self.rows_gathered,
            "kernel_rng": streams.get_state(self._kernel_rng),
            "sheet": self._sheet,
            "left": len(self._rows.y) - int(self._state.at[0]),
            "frozen": self._frozen,
        }
        return arrays, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        problem, state = self.problem, self._state
        state.u[:], state.tuning[:] = arrays["u"], arrays["tuning"]
        self.iteration, self.rows_gathered = int(meta["iteration"]), int(meta["rows_gathered"])
        self._kernel_rng = streams.from_state(meta["kernel_rng"])
        self._frozen = bool(meta["frozen"])
        if (self._sheet, len(self._rows.y) - int(state.at[0])) != (meta["sheet"], meta["left"]):
            self._sheet, left = int(meta["sheet"]), int(meta["left"])
            parts: list[PoolRows] = []
            first = self._sheet
            while sum(len(part.y) for part in parts) < left and problem.pool:
                first -= 1
                parts.insert(0, problem.pool.sheet(self.chain, first))
            rows = joined(parts, len(state.u))
            self._rows, state.at[0] = rows, len(rows.y) - left
        place(problem.link, problem.sums, problem.target, problem.rows, state)

    def _batch(self) -> int:
        if self._seconds_per_iteration == 0.0:
            return min(self.batch_iterations, 64)
        return max(min(self.batch_iterations, int(BATCH_SECONDS / self._seconds_per_iteration)), 1)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows, taking sheets where they need them."""
        problem, state = self.problem, self._state
        if not warmup and not self._frozen:
            self._frozen = True
            if state.tuning[AVERAGE] > 0.0:
                state.tuning[CURRENT_ANGLE] = state.tuning[AVERAGE]
        done = 0
        while done < len(theta):
            code, count = run(
                problem.link,
                problem.sums,
                problem.target,
                problem.rows,
                self._rows,
                state,
                int(warmup),
                self._kernel_rng,
                (theta[done:], statistics[done:]),
            )
            done += count
            if code == NEEDS_ROWS:
                self._take()
            elif code != DONE:
                what = "remainders of rows within their bounds, found one beyond"
                if code == TOO_MANY:
                    what = f"at most {problem.target.most:,} rows, found more wanted"
                raise RefusedError(
                    f"expected {what} in iteration {self.iteration + done + 1} of chain "
                    f"{self.chain}: use hmc-ecs, and report it"
                )
        self.iteration += len(theta)

    def _take(self) -> None:
        """Put the next sheet behind the rows that are left."""
        at = int(self._state.at[0])
        left = some(self._rows, slice(at, None))
        pool = self.problem.pool
        assert pool is not None
        taken = pool.sheet(self.chain, self._sheet)
        if self._sheet and self._sheet % pool.sheets_of_a_read == 0:  # the first read is counted
            self.rows_gathered += pool.n_rows // pool.chains
        self._rows = joined([left, taken], len(self._state.u))
        self._state.at[0] = 0
        self._sheet += 1
