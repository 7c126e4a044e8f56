"""What is decided from the data before the first draw, and kept with the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

from streammc.control_variates.certify import compute, require_rows
from streammc.control_variates.default_priors import resolved
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.full_pass.row_norms import term_bound
from streammc.control_variates.plan.subsample_plan import Plan
from streammc.control_variates.plan.units import plan_units
from streammc.control_variates.unexpanded import without_pass
from streammc.errors import IdentityError, RefusedError
from streammc.likelihood.expanded_rows import memory_limit, require_memory
from streammc.likelihood.temperature import (
    IMPLIED,
)
from streammc.protocols import Dataset, Model, Sampler, SubsamplingSampler
from streammc.registry import sampler as sampler_builder
from streammc.runs import design
from streammc.runs.identity import implied
from streammc.samplers.common.chains import Progress
from streammc.samplers.common.option_checks import (
    NONE,
)
from streammc.samplers.common.targets import (
    APPROXIMATE,
    BIASED,
    PERTURBED,
)
from streammc.samplers.equi_energy.options import EquiEnergy
from streammc.samplers.hamiltonian.energy_conserving import FEWEST_UNITS
from streammc.samplers.hamiltonian.full_data import Hmc
from streammc.samplers.hamiltonian.recalibrate import recalibrate
from streammc.samplers.metropolis.options import MetropolisOptions
from streammc.samplers.stochastic_gradient.options import StochasticGradient
from streammc.samplers.tempering.options import TemperedOptions
from streammc.trace.finite import (
    finite_or_none,
)
from streammc.trace.run_directory import RunDirectory

CONTROL_VARIATES: Final = "control-variates.zarr"
MODEL_BOUND: Final = "model"
NAMED: Final = "asked for by name"
_DTYPES: Final = {"diverging": "bool", "n_steps": "int64", "n_rows": "int64"}


@dataclass(frozen=True)
class Setup:
    """What is decided from the data before the first draw."""

    sampler: Sampler
    cv: ControlVariates
    plan: Plan | None
    reason: str


def decide(
    dataset: Dataset,
    model: Model,
    sampler: Sampler | None,
    cv: ControlVariates | None,
    *,
    seed: int = 0,
    chains: int = 4,
    threads: int | None = None,
    stop: Callable[[], bool] | None = None,
    scheduler: Any = None,
    progress: Progress | None = None,
    reason: str = "",
) -> Setup:
    """Compute what is missing and choose the sampler; the reason is in words.

    ``reason`` is why the sampler was asked for, where it was not by name. Seed, chains,
    threads and ``stop`` are those of a short run that moves theta_star.

    Raises
    ------
    ConfigError
        If the ladder of a tempered sampler ends at a prior that is no density.
    RefusedError
        If ``hmc-ecs`` was asked for by name and cannot be right on these data.
    StoppedError
        If ``stop()`` became true in the short run.
    """
    model = resolved(model, dataset)
    report = None
    if progress is not None:
        notify = progress

        def report(done: int, total: int) -> None:
            notify("pass", done, total, {})

    if sampler is None and model.joint is not None:
        sampler = cast(Sampler, sampler_builder("pt")())
        reason = "pt, because the likelihood is no product over rows: no subsample estimates it"
    if isinstance(sampler, TemperedOptions):
        # Imported where it is used: loading its compiled kernels takes time.
        from streammc.samplers.tempering.levels import ended

        ended(model, model.labels(dataset.feature_names), sampler)
    else:
        require_rows(model)
    if isinstance(sampler, TemperedOptions | EquiEnergy) and not sampler.needs_pass(model):
        found = without_pass(dataset, model, sampler.start)
        return _with_levels(dataset, model, found, sampler, reason or NAMED, seed, stop)
    if isinstance(sampler, MetropolisOptions) and sampler.control_variate == NONE:
        found = without_pass(dataset, model, sampler.start)
        found = _bounded(found, dataset, model, sampler, None, scheduler)
        return Setup(sampler, found, None, reason or NAMED)
    if isinstance(sampler, Hmc) and model.exact_sums is None:
        require_memory(dataset, model, dataset.n_rows, -1)  # before the pass
    wanted = _subsampling(sampler)
    order = wanted.order if wanted is not None else 2
    if cv is not None:
        cv.require(dataset, model)
        if wanted is not None and cv.order != order:
            raise IdentityError(
                f"expected control variates of order {order}, as the sampler has it, found order "
                f"{cv.order}; compute them again or set the order of the sampler"
            )
    if wanted is not None and wanted.recalibrate is not None:
        cv = recalibrate(
            dataset, model, wanted, cv, seed=seed, chains=chains, threads=threads, stop=stop,
            scheduler=scheduler, progress=progress,
        )  # fmt: skip
    elif cv is None:
        cv = compute(
            dataset, model, order=order, scheduler=scheduler, progress=report, phases=progress
        )
    if sampler is not None and wanted is None:
        return _with_levels(dataset, model, cv, sampler, reason or NAMED, seed, stop)
    if sampler is None and model.exact_sums is not None:
        reason = "hmc, because the sums of one pass are sufficient statistics: exact, no row read"
        return Setup(sampler_builder("hmc")(), cv, None, reason)
    if wanted is None:
        wanted = cast(SubsamplingSampler, sampler_builder("hmc-ecs")())
    planned = partial(
        plan_units,
        cv,
        dataset,
        model,
        memory=2 * memory_limit(),
        unit_rows=wanted.unit_rows,
        n_blocks=wanted.n_blocks,
        factor_units=wanted.factor_units,
        probabilities=wanted.probabilities,
        perturbed=wanted.target == PERTURBED,
        scheduler=scheduler,
        progress=report,
        phases=progress,
    )
    size = wanted.subsample_size
    if isinstance(wanted, MetropolisOptions):
        size = wanted.rows_of(dataset.n_rows)
    chosen = planned(subsample_size=size, certainty=wanted.certainty)
    if wanted.target in (BIASED, APPROXIMATE) and chosen.refused is not None:
        # Noise is paid for with shorter steps, or with more rows where a test asks for
        # them: a few rows do, and none is certain.
        few = min(max(-(-dataset.n_rows // 100), 30), dataset.n_rows)
        reason_few = f"{few} rows at a time, since {chosen.refused.split(';')[0]}"
        chosen = planned(subsample_size=few, certainty=False)
        chosen = replace(chosen, reasons=(chosen.reasons[0], reason_few))
    if isinstance(wanted, MetropolisOptions):
        chosen = replace(chosen, n_blocks=1)  # every decision draws anew
        cv = _bounded(cv, dataset, model, sampler, chosen, scheduler)
    if wanted.target == BIASED:
        from streammc.samplers.stochastic_gradient.problem import tune

        chosen = tune(dataset, model, cv, chosen, cast(StochasticGradient, wanted))
    if chosen.refused is None or wanted.forced:
        if wanted.target == PERTURBED and chosen.k < FEWEST_UNITS:
            raise RefusedError(
                f"expected a subsample of at least {FEWEST_UNITS} units, found {chosen.k} of "
                f"{chosen.unit_rows} rows in a table of {dataset.n_rows}: no variance can be "
                "estimated from one; use a smaller --unit-rows, a larger --subsample-size, or hmc"
            )
        return Setup(wanted, cv, chosen, "; ".join([reason] * bool(reason) + [*chosen.reasons]))
    if sampler is None:
        return Setup(sampler_builder("hmc")(), cv, None, f"hmc, because {chosen.refused}")
    raise RefusedError(chosen.refused)


def makes_passes(model: Model, sampler: Sampler | None) -> bool:
    """Return whether :func:`decide` makes full passes where it is given no control variates."""
    if model.joint is not None:
        return False
    if isinstance(sampler, TemperedOptions | EquiEnergy):
        return sampler.needs_pass(model)
    return not (isinstance(sampler, MetropolisOptions) and sampler.control_variate == NONE)


def instead(setup: Setup, error: RefusedError) -> Setup:
    """Return ``hmc`` for a run that was refused while it ran, with the reason."""
    reason = f"hmc, because {setup.sampler.name} was given up as it ran: {error}"
    return Setup(sampler_builder("hmc")(), setup.cv, None, reason.split("; use ")[0])


def _bounded(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    sampler: Sampler | None,
    plan: Plan | None,
    scheduler: Any,
) -> ControlVariates:
    """Return ``cv`` with the model's bound on a term, where the sampler asks for it: one pass."""
    if sampler is None or sampler.describe().get("bound") != MODEL_BOUND:
        return cv
    order = sampler.describe()["control_variate"]
    b = plan.unit_rows if plan is not None else sampler.describe()["unit_rows"] or 1
    begun = time.perf_counter()
    bound = term_bound(dataset, model, 0 if order == NONE else order, b, scheduler=scheduler)
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


def _with_levels(
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    sampler: Sampler,
    reason: str,
    seed: int,
    stop: Callable[[], bool] | None,
) -> Setup:
    """Return the setup of a sampler on all rows; a pilot decides the levels of a ladder."""
    if isinstance(sampler, TemperedOptions):
        from streammc.samplers.tempering.levels import settle

        settled, levels = settle(dataset, model, cv, sampler, seed=seed, stop=stop)
        sampler = cast(Sampler, settled)
        reason = "; ".join(filter(None, [reason, levels]))
    return Setup(sampler, cv, None, reason)


def _subsampling(sampler: Sampler | None) -> SubsamplingSampler | None:
    return cast(SubsamplingSampler, sampler) if sampler is not None and sampler.subsampled else None


def interval_length(n: int) -> int:
    """Return the iterations between commits: eight or more commits a phase, 50 to 1000 each."""
    return min(max(-(-n // 8), 50), 1000)


def contents(
    setup: Setup, dataset: Dataset, draws: int, attributes: dict[str, Any]
) -> dict[str, Any]:
    """Return what a new run directory starts with."""
    constant: dict[str, Any] = {"theta_star": setup.cv.theta_star}
    if setup.plan is not None:
        constant |= setup.plan.arrays()
    heat = implied(dataset, setup.sampler)
    return {
        "labels": list(setup.cv.labels),
        "feature_names": list(dataset.feature_names),
        "stat_dtypes": {name: _DTYPES.get(name, "float64") for name in setup.sampler.statistics},
        "interval": interval_length(draws),
        "attributes": {
            **attributes,
            "store": dataset.address,
            "design": design.describe(dataset.attributes),
            "sampler": setup.sampler.describe(),
            "sampler_reason": setup.reason,
            "plan": setup.plan.describe() if setup.plan is not None else None,
            **({IMPLIED: heat} if heat != 1.0 else {}),
        },
        "constant_data": constant,
        "prepare": lambda folder: setup.cv.save(folder / CONTROL_VARIATES),
    }


def follow_store(run: RunDirectory, dataset: Dataset) -> None:
    """Record where the store of a run is now, if nothing is left where the run has it.

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


def load(run: RunDirectory, dataset: Dataset, model: Model) -> Setup:
    """Read back what was decided when the run began."""
    cv = ControlVariates.open(run.path / CONTROL_VARIATES, dataset, model)
    options = dict(run.attributes["sampler"])
    sampler: Sampler = sampler_builder(options.pop("name"))(**options)
    described = run.attributes["plan"]
    kept = None
    if described is not None:
        kept = Plan.from_description(described, run.constant_data)
    return Setup(sampler, cv, kept, run.attributes["sampler_reason"])
