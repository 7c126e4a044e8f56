"""Summary of a finished run: parameters, audit, cost, warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.mode.modes import ADVICE
from streammc.diagnostics.cost import cost
from streammc.diagnostics.derived import as_variables, derived, ratios
from streammc.diagnostics.stopping import missed_text
from streammc.diagnostics.summary import least_ess, least_size, negative_signs, summarize_draws
from streammc.diagnostics.weights import Audit, Correction, audit_weights, heavy_tailed
from streammc.likelihood.temperature import schedule_of
from streammc.likelihood.unit_words import unit_of_model
from streammc.models.table_scale import transform
from streammc.protocols import Dataset, Model
from streammc.runs.audit import audited_draws, log_weights, pass_seconds
from streammc.runs.record import REFERENCES, blocks_of_run, describe_priors, label_references
from streammc.runs.setup import CONTROL_VARIATES
from streammc.samplers.common.sampler import RunRequest, Sampler, Setup
from streammc.shown import Record
from streammc.trace.run_directory import RunDirectory, finite_or_none

if TYPE_CHECKING:
    from streammc.samplers.common.chains import Chains


CORRECTION_WARNING = 0.1
CORRECTION_Z = 4.5
"""Errors beyond which a correction above ``LEAST_CORRECTION`` warns."""
LEAST_CORRECTION = 0.01
"""Posterior sd. Smaller corrections warn at no z: a shift by 0.01 sd changes the coverage of a
95 % interval by 0.00001, and the mean of 10,000 independent draws is no more accurate."""
RATIO_LOW, RATIO_HIGH = 0.9, 1.1
"""Range of the sd by the audit over the sd of the draws; 3 errors off 1 and outside warns."""
RATIO_Z = 3.0
NOT_AUDITED = "not audited"
"""Beginning of the warning that a run is not audited; an audit removes it."""


def audit_warnings(audit: Audit | None) -> list[str]:
    """Return the warnings about the audit: corrections, changed sd, heavy-tailed weights."""
    lines: list[str] = []
    if audit is None:
        return lines
    if audit.largest_correction > CORRECTION_WARNING:
        lines.append(
            f"the audit corrects a mean by {audit.largest_correction:.2f} posterior sd, above "
            f"{CORRECTION_WARNING}: use the audit's weights, a larger --subsample-size, or hmc"
        )
    else:
        clear = {
            label: z
            for label, entry in audit.parameters.items()
            if entry.size > LEAST_CORRECTION and (z := entry.z) is not None and z > CORRECTION_Z
        }
        if clear:
            worst = max(clear, key=lambda label: audit.parameters[label].size)
            lines.append(
                f"the audit corrects the mean of {worst} by "
                f"{audit.parameters[worst].size:.2g} posterior sd, small but not "
                f"by chance (z = {clear[worst]:.1f}): use the audit's weights where it matters"
            )
    lines += _spread_warnings(audit.parameters)
    k = audit.pareto_k
    if k is not None and heavy_tailed(k, audit.ess, audit.draws, audit.largest_weight):
        lines.append(
            f"the audit's weights are heavy-tailed (Pareto k {k:.2f}): its "
            "correction cannot be trusted; use a larger --subsample-size or hmc"
        )
    return lines


def _spread_warnings(parameters: Mapping[str, Correction]) -> list[str]:
    """Return a warning if the audit changes a standard deviation significantly."""
    changed = {}
    for label, entry in parameters.items():
        ratio, error = entry.sd_ratio, entry.sd_ratio_mcse
        if ratio is None or error is None or RATIO_LOW <= ratio <= RATIO_HIGH:
            continue
        if abs(ratio - 1.0) > RATIO_Z * error:
            changed[label] = ratio
    if not changed:
        return []
    worst = max(changed, key=lambda label: max(changed[label], 1.0 / max(changed[label], 1e-9)))
    error = parameters[worst].sd_ratio_mcse
    return [
        f"by the audit the posterior sd of {worst} is {changed[worst]:.2f} +- {error:.2g} times "
        f"that of the draws, outside {RATIO_LOW} to {RATIO_HIGH}: use the audit's weights, a "
        "larger --subsample-size, or hmc"
    ]


def audited_again(lines: Sequence[str], before: Audit | None, after: Audit) -> list[str]:
    """Return the warnings of a run, with those of the audit ``before`` replaced by ``after``."""
    gone = audit_warnings(before)
    kept = [line for line in lines if line not in gone and not line.startswith(NOT_AUDITED)]
    return [*kept, *audit_warnings(after)]


DEFF_WARNING = 2.0
R_HAT_WARNING = 1.01
R_HAT_OF_ONE = 1.03
"""Limit for one chain: halves of 400 independent draws exceed 1.01 one time in ten by chance."""


def summary_warnings(
    sampler: Sampler,
    parameters: Mapping[str, Mapping[str, float | None]],
    sampling: Mapping[str, Any],
    audit: Audit | None,
    model: str,
) -> list[str]:
    """Return the warnings of the summary about mode, divergences, mixing, order and audit."""
    lines = []
    if sampling["theta_star_certified"] is False:
        lines.append(
            f"theta_star is {sampling['decrement']:.2g} posterior sd from the mode: trust the "
            "audit, or leave out the limit on passes"
        )
    if sampling["divergences"]:
        lines.append(f"{sampling['divergences']} divergent transitions: use a smaller step size")
    lines += mixing_warnings(parameters, sampling.get("chains", 1), sampler)
    checks = sampler.checks({"sampling": sampling, "model": model})
    lines += [check.warning for check in checks if check.warning]
    if sampling["deff"] is not None and sampling["deff"] > DEFF_WARNING:
        row = unit_of_model(model)
        lines.append(
            f"runs of {sampling['deff_rows']} {row}s have design effect {sampling['deff']:.1f}, "
            f"above {DEFF_WARNING:g}: the {row}s are ordered; ingest with --shuffle"
        )
    return lines + audit_warnings(audit)


def mixing_warnings(
    parameters: Mapping[str, Mapping[str, float | None]], chains: int, sampler: Sampler
) -> list[str]:
    """Return warnings on R-hat and effective sample size, each for the worst parameter.

    The limits are those of Vehtari et al. 2021: R-hat 1.01, and :func:`least_ess`. R-hat of one
    chain compares its halves, and its limit is 1.03. ``pt`` is advice where it may sample the
    model, and the sampler does not cross between modes itself.
    """
    lines = []
    sizes = {label: least_size(entry) for label, entry in parameters.items()}
    ess = {label: size for label, size in sizes.items() if size is not None}
    r_hats = {k: entry["r_hat"] for k, entry in parameters.items() if entry["r_hat"] is not None}
    unknown = [label for label in parameters if label not in ess or label not in r_hats]
    if unknown:
        lines.append(
            f"whether the draws of {listed(unknown)} have mixed is not known: they are constant, "
            "not finite, or fewer than 4 a chain; draw more, and look at acceptance_rate and "
            "divergences"
        )
    worst = max(r_hats, key=lambda label: r_hats[label], default=None)
    highest = R_HAT_OF_ONE if chains == 1 else R_HAT_WARNING
    if worst is not None and r_hats[worst] > highest:
        of = "the halves of the only chain" if chains == 1 else "the chains"
        compare = not (sampler.crosses_modes or sampler.draws_crossed)
        lines.append(
            f"largest r_hat is {r_hats[worst]:.3f} ({worst}), above {highest}: {of} do not "
            "agree; use more --warmup and --draws"
            + (", or look for several modes with pt" if compare else "")
        )
    limit = least_ess(chains)
    worst = min(ess, key=lambda label: ess[label], default=None)
    if worst is not None and ess[worst] < limit:
        lines.append(
            f"smallest ess is {ess[worst]:.3g} ({worst}), below {limit}: means, sds and quantiles "
            "are not yet sure; use more --draws"
        )
    return lines


def listed(labels: Sequence[str]) -> str:
    """Return the first three labels as text, and the number of the others."""
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{', '.join(labels[:3])}{more}"


def certificate_warnings(lines: Sequence[str], sampler: Sampler) -> list[str]:
    """Return the warnings of the control variates, without advice to use the ladder in use."""
    return [line for line in lines if not sampler.restarts or not line.endswith(ADVICE)]


def mode_warnings(model: Model, sampler: Sampler) -> list[str]:
    """Return a warning for models with several modes, unless the sampler crosses between them."""
    if not model.multimodal or sampler.crosses_modes:
        return []
    return [
        f"the posterior of a {model.name} may have several modes, and chains that agree may all "
        "have missed one: compare with --sampler pt"
    ]


Statistics = Mapping[str, Mapping[str, float | None]]
"""Label -> mean, sd, mcse_mean, ess_bulk, ess_tail, ess_sd, r_hat and quantiles."""

_FAMILY_FACTS = ("decay", "noise_clipped", "recalibration")


@dataclass(frozen=True, kw_only=True)
class Sampling(Record):
    """Work, settings and mean statistics of the draws of a finished run.

    ``own`` holds the facts of the sampler's family; in the JSON they are at the same level.
    """

    sampler: str
    target: str
    temperature: float | str
    reason: str
    chains: int
    draws: int
    warmup: int
    seconds: float
    warmup_seconds: float
    pass_seconds: float
    passes: int
    decrement: float | None
    theta_star_certified: bool | None
    iterations: int
    rows_read: int
    bytes_read: int
    log_lik_variance_mean: float | None
    acceptance_rate: float | None
    subsample_acceptance_rate: float | None
    divergences: int
    step_size: float | None
    n_steps: float | None
    rows_per_iteration: float | None
    certainty_rows: int
    evaluations: Mapping[str, int]
    laplace_gap: Mapping[str, float] | None
    subsample_size: int | None
    n_blocks: int | None
    unit_rows: int | None
    minibatch: int | None
    deff: float | None
    deff_rows: int | None
    remainder_kurtosis: float | None
    predicted_perturbation: float | None
    predicted_variance: float | None
    predicted_variance_bias: float | None
    predicted_variance_ratio: Mapping[str, float | None] | None
    own: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return all facts at one level; facts of other sampler families are null."""
        written = super().to_json()
        own = written.pop("own")
        return {**dict.fromkeys(_FAMILY_FACTS), **written, **own}


@dataclass(frozen=True, kw_only=True)
class RunSummary(Record):
    """Parameters, audit, work and warnings of a finished run."""

    parameters: Statistics
    parameters_original: Statistics
    derived: Statistics | None = None
    """Quantities computed from the parameters: ``icc[g]``, cut points ``cut[k]``."""
    ratios: Mapping[str, Any] | None
    references: Mapping[str, list[str]] | None = None
    """Label -> reference levels that a coefficient of a level is compared with."""
    priors: Any
    audit: Audit | None
    not_audited: str | None = None
    """Reason why a run that needs an audit has none."""
    sampling: Sampling
    cost: Mapping[str, Any]
    tempering: Mapping[str, Any] | None = None
    """Summary of the levels of a ladder."""
    stop: Mapping[str, Any] | None = None
    """What ended the run, if it had a stopping rule: ``StopRule.verdict``."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know that is no reason for care."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that is kept with the run, and that ``sample --json`` prints."""
        audit = None if self.audit is None else self.audit.to_json()
        return {**super().to_json(), "audit": audit, "sampling": self.sampling.to_json()}


def run_cost(run: RunDirectory, cv: ControlVariates | None = None) -> dict[str, Any]:
    """Return :func:`streammc.diagnostics.cost.cost` of the committed draws of a run.

    Parameters
    ----------
    run
        A run with at least one draw.
    cv
        Control variates of the run; ``None``: read from the run.
    """
    if cv is None:
        cv = ControlVariates.open(run.path / CONTROL_VARIATES)
    stats = run.statistics("n_rows", "sign")
    warmup = 0
    if run.committed_warmup:
        warmup = int(run.statistics("n_rows", phase="warmup")["n_rows"].sum())
    planned = (run.attributes.get("plan") or {}).get("passes", 0)
    evaluations = {
        "passes": cv.certificate.rows_read + planned * cv.n_rows,
        "warmup": warmup + int((cv.certificate.recalibration or {}).get("evaluations", 0)),
        "draws": int(stats["n_rows"].sum()),
    }
    sign = stats.get("sign")
    if sign is not None and not (np.asarray(sign) < 0.0).any():
        sign = None
    return cost(run.draws_matrix(), run.labels, evaluations, sign)


_MEANS: Final = {
    "log_lik_variance_mean": "log_lik_variance",
    "acceptance_rate": "acceptance_rate",
    "subsample_acceptance_rate": "subsample_accepted",
    "step_size": "step_size",
    "n_steps": "n_steps",
    "rows_per_iteration": "n_rows",
}
"""Entries of a summary that are means of a statistic."""


def run_audit(
    run: RunDirectory,
    dataset: Dataset,
    model: Model,
    cv: ControlVariates,
    *,
    draws: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Audit a run, store the weights in it and return the result."""
    stats = run.statistics("log_lik_remainder", "log_lik_variance")
    kept, theta = audited_draws(run, dataset, model, draws)
    reported = run.draws_matrix()[:, kept]

    def column(name: str) -> np.ndarray:
        return np.asarray(stats[name][:, kept], dtype=np.float64)

    logw = log_weights(
        dataset,
        model,
        cv,
        theta,
        column("log_lik_remainder"),
        column("log_lik_variance"),
        scheduler=scheduler,
        progress=progress,
    )
    result = audit_weights(reported, logw, list(cv.labels))
    run.add_group(
        "audit",
        {"log_weight": (("chain", "draw"), logw), "draw_index": (("draw",), kept)},
    )
    return result


def _cells(dataset: Dataset) -> list[str]:
    """Return a note if the rows of a data set are cells."""
    cells = dataset.table.attributes.get("cells")
    if not cells:
        return []
    what = "rows with the same sums of responses" if "statistics" in cells else "cells"
    return [f"the {cells['rows']:,} rows of the table are {dataset.table.n_rows:,} {what}"]


def _derived(
    run: RunDirectory, theta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws of what follows from the parameters, and labels; see ``derived``."""
    table, names = run.state.layout.table, list(run.labels)
    if table is not None:
        theta, names = transform(theta, names, table.design, table.blocks)
    return derived(theta, names, run.identity["model"])


def draw_statistics(
    run: RunDirectory, theta: NDArray[np.float64], dataset: Dataset | None
) -> dict[str, Any]:
    """Return the statistics of the draws ``theta`` (chain, draw, d) of a run, as in its summary.

    ``parameters``, on the scale of the store; ``parameters_original``, ``ratios`` and
    ``references``, ``None`` without the data set; and ``derived``.
    """
    names, sign = list(run.labels), negative_signs(run.statistics("sign").get("sign"))
    parameters = summarize_draws(theta, names, sign)
    more = summarize_draws(*_derived(run, theta), sign)
    found: dict[str, Any] = {
        "parameters": parameters,
        "parameters_original": None,
        "derived": more or None,
        "ratios": None,
        "references": None,
    }
    if dataset is None:
        return found
    features, references = dataset.feature_names, run.attributes.get(REFERENCES)
    blocks = blocks_of_run(run, features)
    original, labels = transform(theta, names, dict(dataset.attributes), blocks)
    same = original is theta
    found["parameters_original"] = parameters if same else summarize_draws(original, labels, sign)
    found["ratios"] = ratios(
        original,
        labels,
        blocks,
        features,
        sign,
        formula=bool(dataset.attributes.get("formula")),
        together=dataset.only_together(),
        references=references,
    )
    found["references"] = label_references(references, blocks, features) or None
    return found


def finish_report(
    run: RunDirectory,
    request: RunRequest,
    setup: Setup,
    team: Chains,
    audit: bool,
    not_audited: str | None = None,
) -> dict[str, Any]:
    """Audit if due, summarise, record the summary in the run and return its JSON.

    ``not_audited`` is the reason why a run that needs an audit gets none.
    """
    dataset, model, sampler = request.dataset, request.model, setup.sampler
    # From the arrays: opening the run as a tree takes longer than all of this for a small table.
    theta, names = run.draws_matrix(), list(run.labels)
    statistics = draw_statistics(run, theta, dataset)
    parameters = statistics["parameters"]
    if request.on_draws is not None:
        request.on_draws(statistics)
    verdict = None
    if audit:
        verdict = run_audit(
            run,
            dataset,
            model,
            setup.cv,
            scheduler=request.scheduler,
            progress=request.blocks_of("audit"),
        )
    earlier = run.state.layout.table is None
    if earlier and dataset.attributes.get("standardization") is not None:
        # Of a run that an earlier version began, whose group posterior is on the store's scale.
        features = dataset.attributes["features"]
        blocks = blocks_of_run(run, dataset.feature_names)
        moved = transform(theta, names, dict(dataset.attributes), blocks)
        run.add_group("posterior_original", as_variables(*moved, features))
    more, more_names = _derived(run, theta)
    if more_names:
        run.add_group("posterior_derived", as_variables(more, more_names, ()))
    tempering = _levels(run, team)
    levels = tempering.pop("warnings", [])
    stop, missed = _stop(run, request, parameters)
    spent = run_cost(run, setup.cv)
    sampling = _sampling(run, request, setup, team, spent["evaluations"])
    summary = RunSummary(
        **statistics,
        priors=describe_priors(model, setup.cv.labels),
        audit=verdict,
        not_audited=not_audited,
        sampling=sampling,
        cost=spent,
        tempering=tempering or None,
        stop=stop,
        notes=(*setup.cv.certificate.notes, *_cells(dataset)),
        warnings=(
            *certificate_warnings(setup.cv.certificate.warnings, sampler),
            *mode_warnings(model, sampler),
            *summary_warnings(sampler, parameters, sampling, verdict, model.name),
            *levels,
            *([not_audited] if not_audited else []),
            *missed,
        ),
    ).to_json()
    run.set_attributes({"summary": summary})
    return summary


def _sampling(
    run: RunDirectory,
    request: RunRequest,
    setup: Setup,
    team: Chains,
    evaluations: Mapping[str, int],
) -> Sampling:
    """Return the ``sampling`` part of the summary."""
    dataset, sampler, cv, plan = request.dataset, setup.sampler, setup.cv, setup.plan
    certificate = cv.certificate
    gathered = sum(kernel.rows_gathered for kernel in team.kernels)
    gathered += (certificate.recalibration or {}).get("rows_gathered", 0)
    kept = len(team.problem.certain.y)
    passes = planned = plan.passes if plan is not None else 0
    if not sampler.needs_rows(request.model):  # chains read all rows, or none
        passes += -(-gathered // dataset.n_rows)
    rows_read = certificate.rows_read + planned * dataset.n_rows + gathered + kept
    gap = None
    if certificate.decrement is not None:
        gap = _laplace_gap(request.model.unconstrain(run.draws_matrix()), cv)
    predicted = plan.predicted if plan is not None else {}
    return Sampling(
        sampler=sampler.name,
        target=sampler.target,
        temperature=schedule_of(run.identity).describe(),
        reason=setup.reason,
        chains=run.chains,
        draws=run.draws,
        warmup=run.warmup,
        seconds=team.clock["draws"],
        warmup_seconds=team.clock["warmup"],
        pass_seconds=pass_seconds(setup),
        passes=certificate.passes + passes,
        decrement=finite_or_none(certificate.decrement),
        theta_star_certified=certificate.converged if plan is not None else None,
        rows_read=rows_read,
        bytes_read=rows_read * dataset.rows().row_bytes,
        **mean_statistics(run),
        certainty_rows=kept if plan is not None else 0,
        evaluations=evaluations,
        laplace_gap=gap,
        subsample_size=None if plan is None else plan.k * plan.unit_rows,
        n_blocks=None if plan is None else plan.n_blocks,
        unit_rows=None if plan is None else plan.unit_rows,
        minibatch=None if plan is None else plan.factor_units or None,
        deff=None if plan is None else plan.deff,
        deff_rows=None if plan is None else plan.deff_rows,
        remainder_kurtosis=predicted.get("remainder_kurtosis"),
        predicted_perturbation=predicted.get("perturbation"),
        predicted_variance=predicted.get("variance"),
        predicted_variance_bias=finite_or_none(predicted.get("variance_bias")),
        predicted_variance_ratio=_by_label(cv, predicted.get("variance_ratio")),
        own=sampler.facts(run, setup),
    )


def _stop(
    run: RunDirectory, request: RunRequest, parameters: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what ended a run with a stopping rule, and the warning if the rule is not met."""
    rule, done = request.stopping, run.committed_draws
    if rule is None:
        return None, []
    found = rule.verdict(parameters, done, interval=run.interval, first=request.draws)
    return found, [] if found["passed"] else [missed_text(found)]


def mean_statistics(run: RunDirectory) -> dict[str, Any]:
    """Return means and counts of the statistics of a run; None for a statistic not recorded."""
    stats = run.statistics("lp", "diverging", *_MEANS.values())

    def mean(name: str) -> float | None:
        return float(stats[name].mean()) if name in stats else None

    return {
        "iterations": int(stats["lp"].size),
        **{entry: mean(name) for entry, name in _MEANS.items()},
        "divergences": int(stats["diverging"].sum()) if "diverging" in stats else 0,
    }


def _levels(run: RunDirectory, team: Chains) -> dict[str, Any]:
    """Record the counts per level of a ladder; return their summary, empty without levels."""
    tallies = [kernel.tallies() for kernel in team.kernels]
    if not tallies[0]:
        return {}
    levels = len(tallies[0]["beta"])
    arrays = {}
    for name in tallies[0]:
        values = np.stack([np.asarray(tally[name]) for tally in tallies])
        dims = ["chain"]
        if values.ndim > 1:
            dims.append("level" if values.shape[1] == levels else "pair")
        arrays[name] = ((*dims, *["ring"] * (values.ndim - 2)), values)
    run.add_group("tempering", arrays)
    return team.kernels[0].described(tallies)


def _by_label(cv: ControlVariates, values: list[float | None] | None) -> dict[str, Any] | None:
    """Return values by parameter label as JSON: numbers that are not finite become null."""
    if values is None:
        return None
    return {label: finite_or_none(v) for label, v in zip(cv.labels, values, strict=True)}


def _laplace_gap(draws: NDArray[np.float64], cv: ControlVariates) -> dict[str, float]:
    """Return the distance of draws of theta from the Laplace approximation at theta_star.

    ``mean`` is the largest ``|mean - theta_star|`` in Laplace sd, ``log_sd`` the
    largest ``|log(sd / Laplace sd)|``.
    """
    theta = draws.reshape(-1, len(cv.theta_star))
    laplace = np.sqrt((cv.factor**2).sum(axis=1))
    if len(theta) < 2:
        return {"mean": 0.0, "log_sd": 0.0}
    shift = np.abs(theta.mean(axis=0) - cv.theta_star) / laplace
    spread = np.abs(np.log(np.maximum(theta.std(axis=0, ddof=1), 1e-300) / laplace))
    return {"mean": float(shift.max()), "log_sd": float(spread.max())}
