"""Options of all samplers with an acceptance test, their problem, and facts of their runs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import require_rows, without_pass
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.row_norms import term_bound
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.diagnostics.text import number, percent
from streammc.errors import ConfigError
from streammc.likelihood.blocks import Block, allocate_block, block_bytes, load_block
from streammc.likelihood.drawn_units import leave_out
from streammc.likelihood.target import Base
from streammc.likelihood.temperature import IMPLIED, Schedule, schedule_of
from streammc.likelihood.unit_words import UNIFORM, unit_of_model
from streammc.models.responses import response_check
from streammc.numerics.summation import taylor
from streammc.protocols import Dataset, Matrix, Model, Vector
from streammc.samplers.common.chains import DISPERSED
from streammc.samplers.common.options import (
    LAPLACE,
    NONE,
    RANDOM_WALK,
    check_counts,
    check_number,
)
from streammc.samplers.common.preparation import control_variates, planned_or_few
from streammc.samplers.common.sampler import (
    APPROXIMATE,
    NAMED,
    Check,
    RunRequest,
    Sampler,
    Setup,
    at_most,
)
from streammc.samplers.common.statistics import METROPOLIS_STATISTICS, recorded
from streammc.samplers.metropolis.acceptance import Prepared
from streammc.samplers.metropolis.kernel import SCALING, MetropolisProblem
from streammc.samplers.metropolis.loop import Moves
from streammc.trace.run_directory import RunDirectory, finite_or_none

if TYPE_CHECKING:
    from streammc.samplers.common.chains import SharedProblem


LANGEVIN: Final = "langevin"
SGHMC: Final = "sghmc"
PROPOSALS: Final = (RANDOM_WALK, LANGEVIN, SGHMC)
DIAGONAL: Final = "diagonal"
FULL: Final = "full"


DECISION_WARNING: Final = 0.05
"""Mean error of a decision, in probability, above which a run warns."""
FORCED_WARNING: Final = 0.1
"""Share of forced decisions above which a run warns."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class MetropolisOptions(Sampler):
    """Options of every sampler with an acceptance test.

    ``unit_rows``, ``certainty`` and ``start`` are described in ``common.options``.

    Parameters
    ----------
    proposal
        ``random-walk``, ``langevin`` with its Hastings correction, or ``sghmc``, a trajectory with
        friction.
    covariance
        Shape of the steps: ``laplace``, that of the Laplace approximation; ``identity``, units of
        theta; or learnt in warm-up: ``diagonal``, ``full``. ``None``: ``laplace`` with control
        variates, ``identity`` without.
    step_size
        Standard deviation of a step, in units of ``covariance``: with ``laplace`` in posterior
        standard deviations. ``None``: warm-up tunes it to ``target_acceptance``.
    target_acceptance
        Mean acceptance probability, in (0, 1], to which warm-up tunes the step size. ``None``: the
        best in many dimensions, such as 0.234 for a random walk and 0.574 for ``langevin``, lower
        with Barker's acceptance function. A given ``step_size`` is not tuned.
    subsample_size
        Rows that a decision asks for first, m. ``None``: from the full pass; 100 without one.
    control_variate
        Order of the Taylor expansion that is subtracted from every row: 2, 1 or 0. ``none``, or
        ``None``: nothing is subtracted, and no full pass is made.
    gradient_size
        Rows of each gradient of a ``langevin`` or ``sghmc`` proposal. ``None``: none with control
        variates of order 1 or 2, whose expansion has a gradient; else as many as
        ``subsample_size``, or 100.
    n_steps
        Steps of an ``sghmc`` proposal.
    friction
        Friction alpha of a step of an ``sghmc`` proposal, in (0, 1].
    """

    proposal: Literal["random-walk", "langevin", "sghmc"] = RANDOM_WALK
    covariance: Literal["laplace", "identity", "diagonal", "full"] | None = None
    step_size: float | None = None
    target_acceptance: float | None = None
    subsample_size: int | None = None
    unit_rows: int | None = None
    control_variate: Literal[0, 1, 2, "none"] | None = 2
    certainty: bool = True
    gradient_size: int | None = None
    n_steps: int = 1
    friction: float = 0.1
    start: float | None = None

    target: ClassVar[str] = APPROXIMATE
    decide: ClassVar[Any]
    """The compiled acceptance test: see ``metropolis.acceptance``."""
    chooses_size: ClassVar[bool] = False
    """Whether :meth:`acceptance_test` chooses ``subsample_size`` where it is not given."""
    subsampled: ClassVar[bool] = True
    """Whether decisions rest on some of the rows."""
    follows_schedule: ClassVar[bool] = True
    statistics: ClassVar[tuple[str, ...]] = recorded(
        METROPOLIS_STATISTICS, "diverging", "subsample_accepted"
    )
    error_label: ClassVar[str] = "error per decision"
    """Label of the error of a decision on the receipt."""
    n_blocks: ClassVar[int | None] = None
    factor_units: ClassVar[int] = 0
    probabilities: ClassVar[str] = UNIFORM

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        if self.control_variate is None:  # `none` on a command line
            object.__setattr__(self, "control_variate", NONE)
        super().__post_init__()
        if self.covariance == LAPLACE and self.control_variate == NONE:
            raise ConfigError(
                "covariance='laplace' needs the pass of the control variates, found "
                "control_variate='none'; use 'identity', 'diagonal' or 'full'"
            )
        check_counts(self, "subsample_size", "unit_rows", "gradient_size", "n_steps")
        check_number("step_size", self.step_size, "(0, inf)")
        check_number("friction", self.friction, "(0, 1]")
        check_number("target_acceptance", self.target_acceptance, "(0, 1]")
        check_number("start", self.start)

    def rows_of(self, n_rows: int) -> int | None:
        """Return m for a data set of ``n_rows`` rows; ``None`` means chosen automatically."""
        return self.subsample_size

    @property
    def takes_bound(self) -> bool:
        """Whether the test takes the model's bound on a term, and all rows where there is none."""
        return False

    @abstractmethod
    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return settings and table of the acceptance test.

        Parameters
        ----------
        population
            Terms of the data set: units, U.
        m
            Terms of a request, ``subsample_size`` in units; ``None``: the default of the test.
        """

    def needs_pass(self, model: Model) -> bool:
        """Return whether control variates are asked for."""
        return self.control_variate != NONE

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates and the plan of the first rows, where they are asked for."""
        require_rows(request.model)
        if not self.needs_pass(request.model):
            cv = without_pass(Bound(request.dataset, request.model), self.start)
            return Setup(self, _bounded(cv, request, self, None), None, reason or NAMED)
        if not self.subsampled:
            return Setup(self, control_variates(request), None, reason or NAMED)
        cv = control_variates(request, 2)
        plan = planned_or_few(
            request,
            cv,
            self,
            subsample_size=self.rows_of(request.dataset.n_rows),
            certainty=self.certainty,
        )
        plan = replace(plan, n_blocks=1)  # every decision draws anew
        cv = _bounded(cv, request, self, plan)
        return Setup(self, cv, plan, "; ".join([reason] * bool(reason) + [*plan.reasons]))

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        return metropolis(
            request.dataset, request.model, setup.cv, setup.plan, self, request.schedule
        )

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return rows, errors and temperatures of the decisions of a run.

        Returns
        -------
        dict
            ``test_rows_mean``, ``test_rows_median`` and ``test_rows_largest``: rows of a decision;
            ``decision_error_mean``: its estimated error in probability, and
            ``decision_error_unknown``, the share of decisions without an estimate; ``forced``: the
            share that looked at all rows or was skipped; and :func:`temperature_facts`.
        """
        stats = run.statistics("test_rows", "decision_error", "forced")
        rows, error = stats["test_rows"], stats["decision_error"]
        known = error[np.isfinite(error)]
        return {
            **temperature_facts(run),
            "test_rows_mean": float(rows.mean()),
            "test_rows_median": float(np.median(rows)),
            "test_rows_largest": int(rows.max()),
            "decision_error_mean": float(known.mean()) if known.size else None,
            "decision_error_unknown": float(1.0 - known.size / error.size),
            "forced": float(stats["forced"].mean()),
        }

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of the temperature and of the decisions; see ``Sampler``."""
        facts = summary["sampling"]
        if "test_rows_mean" not in facts:  # an unfinished run
            return []
        error, unknown = facts["decision_error_mean"], facts["decision_error_unknown"]
        forced, name = facts["forced"], facts["sampler"]
        row = unit_of_model(summary.get("model"))
        return [
            *(Check(name="temperature", warning=line) for line in temperature_warnings(facts)),
            Check(
                name=f"{row}s of a decision",
                value=f"{number(facts['test_rows_mean'])} on average, "
                f"{facts['test_rows_largest']:,} at most",
                meaning=f"How many {row}s an accepted or rejected proposal rests on.",
                receipt={f"{row}s per decision": facts["test_rows_mean"]},
                figure="test_rows",
            ),
            at_most(
                "error of a decision, as a probability",
                error,
                DECISION_WARNING,
                f"A decision that looks at some of the {row}s may differ from that of all {row}s; "
                "this is the mean of its estimated error.",
                warning=f"{name} estimates that a decision is off by {error or 0.0:.2g} in "
                f"probability on average, above {DECISION_WARNING}: use more {row}s a decision, "
                "or hmc-ecs",
                receipt={self.error_label: error},
                figure="decision_error",
                line=DECISION_WARNING,
            ),
            at_most(
                "decisions of unknown error, share",
                unknown,
                0.0,
                warning=f"{name} could not tell the error of {percent(unknown)} of its decisions: "
                f"their terms are too few or too heavy-tailed; use more {row}s a decision, or "
                "hmc-ecs",
            ),
            at_most(
                "forced decisions, share",
                forced,
                FORCED_WARNING,
                f"Decisions that looked at all {row}s, or were skipped.",
                warning=f"{percent(forced)} of the decisions looked at all {row}s, or were "
                "skipped: use control variates, shorter steps or a higher temperature",
                receipt={"forced decisions": forced},
            ),
            Check(
                name="acceptance rate",
                value=number(facts.get("acceptance_rate"), 3),
                meaning="The share of proposals that is taken.",
            ),
        ]


HELD_BYTES: Final = 2**30
"""Rows that every decision looks at are held in memory up to this size."""
DEFAULT_ROWS: Final = 100
ACCEPTANCE: Final = {RANDOM_WALK: (0.234, 0.158), LANGEVIN: (0.574, 0.347)}
"""The best acceptance rates of Metropolis (Roberts and Rosenthal 2001) and of Barker
(Agrawal, Vats, Latuszynski and Roberts 2023) in many dimensions."""
_TRAJECTORY: Final = (0.7, 0.43)
"""The same for ``sghmc``."""


def metropolis(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    plan: Plan | None,
    sampler: MetropolisOptions,
    schedule: Schedule,
) -> MetropolisProblem:
    """Return the problem of a sampler with an acceptance test.

    Temperatures of ``schedule`` are relative to its last one, which ``dataset`` already has.
    """
    order = -1 if sampler.control_variate == NONE else int(sampler.control_variate or 0)
    b = plan.unit_rows if plan is not None else sampler.unit_rows or 1
    certain = plan.certainty_rows if plan is not None and order >= 0 else np.zeros(0, np.int64)
    population = -(-dataset.n_rows // b)
    rows = sampler.rows_of(dataset.n_rows)
    m = None if rows is None else max(rows // b, 1)
    if m is None and plan is not None and not sampler.chooses_size:
        m = plan.k
    prepared = sampler.acceptance_test(population, m)
    bound = finite_or_none(cv.certificate.term_bound)
    if sampler.takes_bound and bound is None:
        prepared = prepared._replace(sweeps=True)
    gradient = sampler.gradient_size
    if gradient is None and order < 1:
        gradient = (m or DEFAULT_ROWS) * b
    k = 0 if sampler.proposal == RANDOM_WALK or not gradient else max(gradient // b, 1)
    base = _base(model, cv, sampler, order, b, population / k if k else 0.0)
    target = sampler.target_acceptance
    if target is None:
        target = ACCEPTANCE.get(sampler.proposal, _TRAJECTORY)[int(prepared.barker)]
    start, spread, modes = _starts(sampler, cv, base)
    check = None if cv.certificate.passes else response_check(dataset, model)
    held = _held(dataset, model, cv, prepared, certain, b, order)
    if check is not None:
        used = held.weight > 0.0
        check(held.design[:, : len(used)].T[used], held.y[used], held.weight[used])
    return MetropolisProblem(
        link=model.link,
        sums=taylor,
        decide=sampler.decide,
        prepared=prepared,
        base=base,
        certain=load_block(dataset, model, certain, cv.theta_star, order),
        certainty_rows=certain,
        held=held,
        source=dataset.rows(),
        constrain=model.constrain,
        moves=Moves(
            kind=PROPOSALS.index(sampler.proposal),
            n_steps=sampler.n_steps,
            friction=float(sampler.friction),
            gradient_units=k,
            first_units=prepared.first if prepared.replace else min(prepared.first, population),
            population=population,
            bound=np.inf if bound is None else float(bound),
            learnt=int(sampler.covariance in (DIAGONAL, FULL)),
            finite=int(not prepared.replace),
            carried=int(prepared.carries),
            jump=float(4.0 * ndtri(target / 2.0) ** 2),
        ),
        step_size=sampler.step_size,
        target_acceptance=float(target),
        schedule=schedule,
        implied=sampler.implied_temperature(dataset.n_rows),
        shape=sampler.covariance if sampler.covariance in (DIAGONAL, FULL) else None,
        first=start,
        spread=spread,
        modes=modes,
        check=check,
    )


def _base(
    model: Model,
    cv: ControlVariates,
    sampler: MetropolisOptions,
    order: int,
    b: int,
    estimate_factor: float,
) -> Base:
    """Return Taylor sums to ``order``, prior and scale for units of ``b`` rows."""
    return Base(
        cv.theta_star,
        float(cv.log_lik + cv.log_lik_remainder) if order >= 0 else 0.0,
        cv.gradient if order >= 1 else np.zeros_like(cv.gradient),
        np.ascontiguousarray(cv.hessian) if order == 2 else np.zeros((0, 0)),
        np.ascontiguousarray(cv.factor) if _laplace(sampler) else np.zeros((0, 0)),
        prior=model.prior_table(cv.labels),
        constants=model.constants,
        n_linear=model.n_linear,
        order=order,
        unit_rows=b,
        estimate_factor=estimate_factor,
        variance_factor=0.0,
    )


def _starts(
    sampler: MetropolisOptions, cv: ControlVariates, base: Base
) -> tuple[Vector, float, Matrix | None]:
    """Return mean and standard deviation of the first positions, and other modes to start at."""
    if sampler.start is not None:
        first = sampler.start - cv.theta_star
        if _laplace(sampler):
            first = solve_triangular(base.factor, first, lower=True)
        return first, 0.0, None
    first = np.zeros(cv.dim)
    if not _laplace(sampler):
        c, power = SCALING[PROPOSALS.index(sampler.proposal)]
        return first, float(sampler.step_size or c * cv.dim**-power), None
    if sampler.subsampled:
        return first, 1.0, None
    return first, DISPERSED, cv.other_modes()  # no control variate that has to fit


def _laplace(sampler: MetropolisOptions) -> bool:
    """Whether steps have the shape of the Laplace approximation."""
    return sampler.covariance == LAPLACE or (
        sampler.covariance is None and sampler.control_variate != NONE
    )


def _held(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    prepared: Prepared,
    certain: Any,
    b: int,
    order: int,
) -> Block:
    """Return all rows, padded to whole units, or none."""
    p = model.n_linear + model.n_scalar
    padded = -(-dataset.n_rows // b) * b
    size = block_bytes(padded, dataset.n_features, p, order)
    if not prepared.sweeps or size > HELD_BYTES:
        return allocate_block(0, dataset.n_features, p, order)
    block = load_block(dataset, model, np.arange(padded), cv.theta_star, order)
    weight = block.weight.copy()
    leave_out(np.arange(0, padded, b), b, certain, weight)
    block.expansion[:, weight == 0.0] = 0.0
    block.weight[:] = weight
    return block


def _bounded(
    cv: ControlVariates, request: RunRequest, sampler: MetropolisOptions, plan: Plan | None
) -> ControlVariates:
    """Return ``cv`` with the model's bound on a term, where the sampler asks for it: one pass."""
    if not sampler.takes_bound:
        return cv
    dataset = request.dataset
    order = 0 if sampler.control_variate in (NONE, None) else int(sampler.control_variate)
    b = plan.unit_rows if plan is not None else sampler.unit_rows or 1
    begun = time.perf_counter()
    bound = term_bound(dataset, request.model, order, b, scheduler=request.scheduler)
    certificate = cv.certificate
    if certificate.term_bound is None:
        certificate = replace(certificate, term_bound=bound)
    if finite_or_none(certificate.term_bound) is not None:
        certificate = certificate.plus(
            rows_read=dataset.n_rows,
            bytes_read=dataset.n_rows * dataset.rows().row_bytes,
            seconds=time.perf_counter() - begun,
        )
    return replace(cv, certificate=certificate)


def temperature_facts(run: RunDirectory) -> dict[str, Any]:
    """Return the temperature of the draws, as the summary has it.

    Returns
    -------
    dict
        ``temperature``: that asked for, a number or a schedule. Where the remedy ``heat`` of
        ``mh-fixed`` raised it: the highest of the chains, with ``temperatures``, that of every
        chain in its last draw, and ``temperature_asked``.
    """
    schedule = schedule_of(run.identity)
    asked = schedule.describe()
    heat = run.statistics("temperature")["temperature"]
    last = heat[:, -1]
    iteration = run.warmup + heat.shape[1] - 1
    expected = schedule.at(iteration, 1)[0] * float(run.attributes.get(IMPLIED, 1.0))
    factor = last / expected
    if run.attributes.get("sampler", {}).get("remedy") != "heat" or factor.max() < 1 + _ROUNDING:
        return {"temperature": asked}
    return {
        "temperature": float(last.max()),
        "temperatures": [float(value) for value in last],
        "temperature_asked": asked,
    }


def temperature_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return warnings of temperatures that end late, or that a remedy has raised."""
    lines = []
    settled = Schedule.parse(facts.get("temperature_asked", facts["temperature"])).settled
    if settled > facts["warmup"]:
        lines.append(
            f"the temperature is 1 from iteration {settled} on, after the warm-up of "
            f"{facts['warmup']}: leave out the first {settled - facts['warmup']} draws of "
            "every chain, or use more --warmup"
        )
    if facts.get("temperatures"):
        low, high = min(facts["temperatures"]), max(facts["temperatures"])
        found = f"{high:.3g}" if low == high else f"{low:.3g} to {high:.3g}, by chain"
        lines.append(
            f"remedy=heat raised the temperature in the warm-up, to {found}: the draws are of a "
            "tempered posterior, which is wider; use remedy=grow, a larger --subsample-size, "
            "control variates, or hmc-ecs"
        )
    return lines
