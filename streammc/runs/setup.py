"""Setup of a run: the decisions before its first draw, saved in the run directory."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from streammc.control_variates.bound import resolved
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.errors import ConfigError, OutOfMemoryError, RefusedError
from streammc.likelihood.temperature import IMPLIED
from streammc.protocols import Dataset, Model
from streammc.registry import sampler as builder
from streammc.runs import record
from streammc.runs.record import VERSIONS, versions
from streammc.samplers.common.preparation import control_variates
from streammc.samplers.common.sampler import RunRequest, Sampler, Setup
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

# Predicted seconds of a run with ``hmc`` and with ``hmc-ecs``: what ``auto`` chooses by.
#
# Both make about as many effective draws of an iteration where the plan of the subsample holds
# (variance of the estimate at most 0.1), so that the costs decide. With n rows, q columns and r
# rows of an evaluation of ``hmc-ecs`` (certainty rows and subsample), in seconds:
#
#     iteration of hmc      h0 + n (h1 + h2 q + h3 q where the table exceeds the cache)
#     iteration of hmc-ecs  e0 + r e1 q
#     plan                  p0 + p1 min(n, 262144) + (p2 + p3 q) min(n, 16384)
#     audit                 a0 + 400 n (a1 + a2 q)
#
# ``bench/sampler_cost.py`` measures the constants; it found them within 1.8 of the measured seconds
# of logistic, Poisson and Student-t regressions of 1e3 to 1e6 rows and 10 or 50 columns (an audit:
# 4), and every choice within 1.1 of the faster sampler, on one core of an Intel Xeon. No clock is
# read: the choice is the same on every machine, and for every number of draws.

COSTS: Final[Mapping[str, Sequence[float]]] = {
    "hmc": (1e-6, 8.2e-9, 6.7e-10, 3.4e-10),  # h0 to h3
    "hmc-ecs": (2.5e-6, 1.1e-9),  # e0 and e1
    "plan": (0.087, 5.5e-6, 1.4e-5, 5.7e-7),  # p0 to p3
    "audit": (0.009, 3e-9, 9e-11),  # a0 to a2
}
CACHE_BYTES: Final = 2**25
"""Tables above this size are read from memory at every evaluation."""

WITHIN: Final = 1.2
"""The exact sampler is chosen up to this ratio."""
MANY_ROWS: Final = 10**6
"""Rows of a table from which on ``smh`` is named; its plan loads what it compiles."""
MORE_ROWS: Final = 8
"""``smh`` is named where ``hmc-ecs`` takes so many times its rows an iteration: it was faster at 11
times (norauto) and above, and slower at 4 times (htru2) and below."""
LEAST_ROWS: Final = 30
"""Rows of the smallest subsample that a plan chooses."""
ITERATIONS: Final = 8000
"""Iterations of the default run: 4 chains, 1,000 of warm-up and 1,000 draws each."""
EFFECTIVE: Final = 3500
"""Effective draws of that run: an iteration gives about 0.9."""


SECONDS: Final[Mapping[str, Callable[[Sequence[float], int, int, float], float]]] = {
    "hmc": lambda c, n, q, rows: (
        c[0] + n * (c[1] + q * (c[2] + (c[3] if 8 * n * q > CACHE_BYTES else 0.0)))
    ),
    "hmc-ecs": lambda c, n, q, rows: c[0] + rows * q * c[1],
    "plan": lambda c, n, q, rows: (
        c[0] + c[1] * min(n, 262_144) + (c[2] + c[3] * q) * min(n, 16_384)
    ),
    "audit": lambda c, n, q, rows: c[0] + 400 * n * (c[1] + c[2] * q),
}
"""Seconds by the constants and n, q and r above."""


@dataclass(frozen=True)
class RunCost:
    """Predicted processor seconds per 1,000 effective draws of a run of the default length.

    Attributes
    ----------
    hmc
        Of ``hmc``.
    hmc_ecs
        Of ``hmc-ecs``, with its plan and its audit.
    """

    hmc: float
    hmc_ecs: float

    @property
    def all_rows(self) -> bool:
        """Whether ``hmc``, which is exact, is the faster one, or within 20 % of it."""
        return self.hmc <= WITHIN * self.hmc_ecs

    def text(self) -> str:
        """Return both predictions in words."""
        return (
            f"predicted processor time for 1,000 effective draws: hmc {_short(self.hmc)} s, "
            f"hmc-ecs {_short(self.hmc_ecs)} s"
        )


def run_cost(dataset: Dataset, model: Model, plan: Plan | None = None) -> RunCost | None:
    """Return the predicted cost of both samplers, ``None`` for rows in groups.

    Parameters
    ----------
    dataset, model
        Data and model of the run.
    plan
        Plan of the subsample; ``None``: the smallest one, which any other exceeds.
    """
    if dataset.unit_offset is not None:  # the cost of a group is another one than that of its rows
        return None
    n, q = dataset.n_rows, dataset.n_features * max(model.n_linear, 1)
    rows = float(LEAST_ROWS)
    if plan is not None:
        rows = len(plan.certainty_rows) + plan.subsample_size
    return cost_from_sizes(n, q, rows)


def cost_from_sizes(n: int, q: int, rows: float) -> RunCost:
    """Return the predicted cost for n rows, q columns and the rows of a subsample."""
    hmc, ecs, plan, audit = (SECONDS[name](COSTS[name], n, q, rows) for name in COSTS)
    share = 1000.0 / EFFECTIVE
    return RunCost(share * ITERATIONS * hmc, share * (ITERATIONS * ecs + (plan + audit)))


def _short(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}" if math.isfinite(value) else "more than 1e9"


CONTROL_VARIATES: Final = "control-variates.zarr"
_AS_FAST: Final = "hmc, because it is exact and as fast; "
_DTYPES: Final = {"diverging": "bool", "n_steps": "int64", "n_rows": "int64"}


def decide(request: RunRequest) -> Setup:
    """Return the setup of a request whose model still has to be bound; see :func:`chosen`."""
    return chosen(replace(request, model=resolved(request.model, request.dataset)))


def chosen(request: RunRequest) -> Setup:
    """Return the setup of a run: control variates, plan and sampler, with the reason as text.

    Without a given sampler, it is ``pt`` for a likelihood that is not a product over rows,
    ``gibbs`` where factors cross, ``hmc`` if the sums of one pass are sufficient statistics or if
    it is predicted to take at most 1.2 times as long as ``hmc-ecs``, else ``hmc-ecs`` unless its
    plan is refused, else ``hmc``.
    ``request.sampler_options`` do not change this choice: those that the sampler lacks are refused.

    Raises
    ------
    ConfigError
        If model and options do not fit together.
    RefusedError
        If the sampler was given by name and cannot be accurate on these data; or an option was
        given that the sampler that is chosen does not have.
    StoppedError
        If ``request.interrupted()`` became true in a short run.
    """
    if request.sampler is not None:
        _refuse_coordinates(request.sampler, request.model)
        if request.dataset.sequential:
            refuse_in_order(request.model, request.sampler)
        return request.sampler.prepare(request, "")
    options = request.sampler_options
    shared = options
    if not _decided(request.model):
        shared = {name: each for name, each in options.items() if name in _options_of("hmc")}
    setup = _automatic_setup(replace(request, sampler_options=shared))
    taken = setup.sampler.name
    lacking = [name for name in options if name not in _options_of(taken)]
    if lacking:
        raise RefusedError(
            f"expected options of {taken}, which auto takes for these data, found {lacking[0]}: "
            f"name a sampler that has it, as --sampler hmc-ecs, or leave it out ({setup.reason})"
        )
    if len(shared) == len(options):
        return setup
    if not {"order", "recalibrate"} & {*options}:
        request = replace(request, control_variates=setup.cv)
    again = _automatic(taken, options).prepare(request, "")
    own = ", ".join(name for name in options if name not in shared)
    reason = f"{taken}, which auto takes for these data whatever its {own}; {again.reason}"
    return replace(again, reason=reason)


def _decided(model: Model) -> bool:
    """Return whether the model alone decides on its sampler."""
    return model.joint is not None or bool(model.crossed)


def _automatic_setup(request: RunRequest) -> Setup:
    """Return the setup with the sampler that is chosen automatically."""
    options = request.sampler_options
    if request.model.joint is not None:
        reason = "pt, because the likelihood is no product over rows: no subsample estimates it"
        return _automatic("pt", options).prepare(request, reason)
    if request.model.crossed:
        reason = "gibbs, because factors cross: exact, the effects are drawn with the parameters"
        return _automatic("gibbs", options).prepare(request, reason)
    sufficient = request.model.exact_sums is not None
    if request.dataset.sequential and not sufficient:
        refuse_in_order(request.model, None)
        smh = _automatic("smh", options)
        reason = "smh, because the table is only read in order: exact, from one more read"
        return smh.prepare(request, reason)
    request = replace(request, control_variates=control_variates(request))
    if request.model.exact_sums is not None:
        reason = "hmc, because the sums of one pass are sufficient statistics: exact, no row read"
        return _automatic("hmc", options).prepare(request, reason)
    # Where hmc is as fast as hmc-ecs with its smallest subsample, no plan is made.
    exact = _if_as_fast(request, run_cost(request.dataset, request.model))
    if exact is not None:
        return exact
    try:
        setup = _automatic("hmc-ecs", options).prepare(request, "")
    except RefusedError as error:
        return _automatic("hmc", options).prepare(request, f"hmc, because {error.cause}")
    cost = run_cost(request.dataset, request.model, setup.plan)
    if cost is None:
        return setup
    exact = _if_as_fast(request, cost)
    if exact is not None:
        return exact
    reason = f"{setup.reason}; {cost.text()}"
    plan = setup.plan
    assert plan is not None  # of hmc-ecs
    if request.dataset.n_rows >= MANY_ROWS:
        rows = builder("smh")().predicted_rows(request.dataset, request.model, setup.cv)
        taken = len(plan.certainty_rows) + plan.subsample_size
        if rows is not None and rows <= taken / MORE_ROWS:
            reason += f"; smh is exact and may be faster, with about {rows:.2g} rows an iteration"
    return replace(setup, reason=reason)


def _if_as_fast(request: RunRequest, cost: RunCost | None) -> Setup | None:
    """Return the setup of ``hmc`` if it costs at most 1.2 times ``hmc-ecs`` and its rows fit."""
    if cost is not None and cost.all_rows:
        with suppress(OutOfMemoryError):
            hmc = _automatic("hmc", request.sampler_options)
            return hmc.prepare(request, _AS_FAST + cost.text())
    return None


def _refuse_coordinates(sampler: Sampler, model: Model) -> None:
    """Raise RefusedError where the sampler has no coordinates for the parameters of a model.

    They are factors with a sampled scale, or that cross, and linear predictors with columns of
    their own.
    """
    if model.crossed and not sampler.draws_crossed:
        raise RefusedError(
            f"expected gibbs for factors that cross ({', '.join(model.crossed)}), found "
            f"{sampler.name}, which has no likelihood without their effects: use --sampler gibbs, "
            "or auto"
        )
    if model.designs and not sampler.own_designs:
        raise RefusedError(
            f"expected hmc-ecs or hmc for a table with --formula-for, found {sampler.name}, whose "
            "linear predictors all have the same columns: use --sampler hmc-ecs, or hmc; or the "
            "option varying without --formula-for"
        )
    factors = model.factors
    if factors and not sampler.samples_scales:
        raise RefusedError(
            f"expected hmc-ecs or hmc for {factors[0].label}, which is sampled with the effects of "
            f"the levels, found {sampler.name}: their joint density has no mode for it to start "
            "from; use --sampler hmc-ecs, or hmc"
        )


STORE: Final = "make one with --store NAME.zarr, in Python store="
"""Advice where rows are needed out of their order."""


def refuse_in_order(model: Model, sampler: Sampler | None) -> None:
    """Raise RefusedError where a model and sampler need the rows of a table out of their order."""
    if sampler is not None and sampler.needs_rows(model):
        raise RefusedError(
            f"expected smh for a table that is read in order, found {sampler.name}, which needs "
            f"rows at random: {STORE}, or use smh"
        )
    if sampler is None and model.joint is None and model.exact_sums is None:
        try:
            builder("smh")().check_model(model)
        except ConfigError as error:
            raise RefusedError(f"{error}; these need a store, {STORE}") from None


def makes_passes(model: Model, sampler: Sampler | None) -> bool:
    """Return whether :func:`decide` makes full passes if no control variates are given."""
    return model.joint is None and (sampler is None or sampler.needs_pass(model))


def instead(setup: Setup, error: RefusedError, options: Mapping[str, Any]) -> Setup:
    """Return the setup with ``hmc`` for a run that was refused while it ran, with the reason.

    Raises
    ------
    RefusedError
        The same, if ``options`` has some that ``hmc`` does not have.
    """
    if not {*options} <= {*_options_of("hmc")}:
        raise error
    reason = f"hmc, because {setup.sampler.name} was given up as it ran: {error.cause}"
    return Setup(_automatic("hmc", options), setup.cv, None, reason)


def check_automatic(options: Mapping[str, Any]) -> None:
    """Check the options of a sampler that will be chosen automatically.

    Raises
    ------
    ConfigError
        If one does not exist, is out of range, or asks for what ``auto`` never takes.
    """
    builder("hmc-ecs")(**options)  # it has those of hmc
    if options.get("allow_high_variance"):
        raise ConfigError(
            "expected --sampler hmc-ecs with allow_high_variance, which keeps a subsample that "
            "cannot be right, found auto: name the sampler"
        )


def _automatic(name: str, options: Mapping[str, Any]) -> Sampler:
    """Return a registered sampler with those of its options that were given."""
    own = _options_of(name)
    made: Sampler = builder(name)(**{key: each for key, each in options.items() if key in own})
    return made


def _options_of(name: str) -> Collection[str]:
    """Return the names of the options of a sampler."""
    return inspect.signature(builder(name)).parameters.keys()


def interval_length(n: int) -> int:
    """Return the iterations between commits of a phase: an eighth of it, from 50 to 1000."""
    return min(max(-(-n // 8), 50), 1000)


def contents(request: RunRequest, setup: Setup, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the initial contents of a new run directory, as arguments of ``hold``."""
    dataset, draws = request.dataset, request.draws
    stats = {name: _DTYPES.get(name, "float64") for name in setup.sampler.statistics}
    labels, features = setup.cv.labels, dataset.feature_names
    constant: dict[str, Any] = {"theta_star": setup.cv.theta_star}
    if setup.plan is not None:
        constant |= setup.plan.arrays()
    constant |= {name: (dims, setup.arrays[name]) for name, dims in setup.sampler.arrays.items()}
    heat = setup.sampler.implied_temperature(dataset.n_rows)
    interval, rule = interval_length(draws), request.stopping
    references = dataset.references()
    if rule is not None:
        draws = rule.next_check(interval, draws, 1)
    attributes = {
        **attributes,
        "store": dataset.address,
        "design": record.describe_design(dataset.attributes),
        **({record.REFERENCES: references} if references else {}),
        "sampler": setup.sampler.describe(),
        "sampler_reason": setup.reason,
        VERSIONS: [{"iteration": 0, **versions()}],
        "plan": setup.plan.describe() if setup.plan is not None else None,
        **({IMPLIED: heat} if heat != 1.0 else {}),
    }
    return {
        "layout": make_layout(labels, features, request.chains, interval, stats, attributes),
        "draws": draws,
        "warmup": request.warmup,
        "attributes": attributes,
        "constant_data": constant,
        "prepare": lambda folder: setup.cv.save(folder / CONTROL_VARIATES),
    }


def follow_store(run: RunDirectory, dataset: Dataset) -> None:
    """Record the new address of the store of a run, if nothing exists at the recorded one.

    The caller has compared the fingerprints.
    """
    before, now = run.attributes.get("store"), dataset.address
    if before == now or "memory" in (before, now) or os.path.lexists(str(before)):
        return
    changed: dict[str, Any] = {"store": now}
    settings = run.attributes.get("settings")
    if isinstance(settings, dict) and "store" in settings:
        changed["settings"] = {**settings, "store": now}
    with run.lock():
        run.set_attributes(changed)


def load(run: RunDirectory, dataset: Dataset | None = None, model: Model | None = None) -> Setup:
    """Return the setup recorded in a run, checked against bound data and model if given."""
    cv = ControlVariates.open(run.path / CONTROL_VARIATES)
    cv.require_bound(dataset, model, f"control variates {str(run.path / CONTROL_VARIATES)!r}")
    options = dict(run.attributes["sampler"])
    sampler: Sampler = builder(options.pop("name"))(**options)
    described = run.attributes["plan"]
    kept = None
    if described is not None:
        kept = Plan.from_description(described, run.constant_data)
    arrays = {name: run.constant_data(name) for name in sampler.arrays}
    return Setup(sampler, cv, kept, run.attributes["sampler_reason"], arrays)
