"""What a reader of a summary should know and do, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streammc.control_variates.mode.mode_words import ADVICE
from streammc.control_variates.plan.tails import LARGEST_PERTURBATION
from streammc.diagnostics.audit_record import Audit
from streammc.diagnostics.text import percent
from streammc.likelihood.temperature import Schedule
from streammc.protocols import Model, Sampler
from streammc.runs.audit_advice import audit_warnings
from streammc.samplers.common.targets import (
    APPROXIMATE,
    BIASED,
    TEMPERED,
)

DEFF_WARNING = 2.0
R_HAT_WARNING = 1.01
R_HAT_OF_ONE = 1.03
"""Of one chain: two halves of 400 independent draws exceed 1.01 one time in ten by chance."""
ESS_IN_ALL = 400
ESS_PER_CHAIN = 100
VARIANCE_WARNING = 1.0
BIAS_WARNING = 0.05
DECISION_WARNING = 0.05
FORCED_WARNING = 0.1
NOISE_WARNING = 2.0
THIRD_ORDER_WARNING = 0.1
UNKNOWN_WARNING = 0.01
LADDERS = ("pt", "tt", "spt", "stt")
"""Samplers whose levels count how often states come to level 0 from the prior."""
CROSSING = (*LADDERS, "mint", "mintee")
"""Samplers made for posteriors with several modes."""
EDGE_WARNING = 0.001


def summary_warnings(
    parameters: dict[str, dict[str, float | None]],
    sampling: dict[str, Any],
    audit: Audit | None,
) -> list[str]:
    """Return what a reader of the summary should know, one line each."""
    lines = []
    # A subsample that every decision draws anew has no past.
    blocks = 0 if "test_rows_mean" in sampling else sampling["n_blocks"] or 0
    if sampling["warmup"] < 5 * blocks:
        lines.append(
            f"warmup of {sampling['warmup']} is shorter than 5 x {blocks} blocks: the first "
            "subsample may still be felt"
        )
    asked = sampling.get("temperature_asked", sampling.get("temperature", 1.0))
    settled = Schedule.parse(asked).settled
    if settled > sampling["warmup"]:
        lines.append(
            f"the temperature is 1 from iteration {settled} on, after the warm-up of "
            f"{sampling['warmup']}: leave out the first {settled - sampling['warmup']} draws of "
            "every chain, or use more --warmup"
        )
    if sampling.get("temperatures"):
        low, high = min(sampling["temperatures"]), max(sampling["temperatures"])
        found = f"{high:.3g}" if low == high else f"{low:.3g} to {high:.3g}, by chain"
        lines.append(
            f"remedy=heat raised the temperature in the warm-up, to {found}: the draws are of a "
            "tempered posterior, which is wider; use remedy=grow, a larger --subsample-size, "
            "control variates, or hmc-ecs"
        )
    if sampling["theta_star_certified"] is False:
        lines.append(
            f"theta_star is {sampling['decrement']:.2g} posterior sd from the mode: trust the "
            "audit, or leave out the limit on passes"
        )
    if sampling["divergences"]:
        lines.append(f"{sampling['divergences']} divergent transitions: use a smaller step size")
    lines += mixing_warnings(parameters, sampling.get("chains", 1))
    if sampling.get("target") == BIASED:
        lines += bias_warnings(sampling)
    elif (
        sampling.get("target") not in (APPROXIMATE, TEMPERED)
        and sampling["log_lik_variance_mean"] > VARIANCE_WARNING
    ):
        lines.append(
            f"mean log_lik_variance is {sampling['log_lik_variance_mean']:.2f}, above "
            f"{VARIANCE_WARNING}: use a larger --subsample-size"
        )
    lines += edge_warnings(sampling)
    if "decision_error_mean" in sampling:
        lines += decision_warnings(sampling)
    if sampling.get("target") == TEMPERED:
        lines += noise_warnings(sampling)
    if sampling.get("negative_signs"):
        lines.append(
            f"{percent(sampling['negative_signs'])} of the draws have a negative sign: weight "
            "them by it, as this summary does and ArviZ does not"
        )
    if sampling["deff"] is not None and sampling["deff"] > DEFF_WARNING:
        lines.append(
            f"runs of {sampling['deff_rows']} rows have design effect {sampling['deff']:.1f}, "
            f"above {DEFF_WARNING:g}: the rows are ordered; ingest with --shuffle"
        )
    return lines + audit_warnings(audit)


def mixing_warnings(parameters: Mapping[str, Mapping[str, float | None]], chains: int) -> list[str]:
    """Return what R-hat and the effective sample sizes say: a line each, for the worst parameter.

    The limits are those of Vehtari et al. 2021: R-hat 1.01, and 100 independent draws a chain,
    400 in all. R-hat of one chain compares its halves, and its limit is 1.03.
    """
    lines = []
    ess = {
        label: min(entry["ess_bulk"], entry["ess_tail"])
        for label, entry in parameters.items()
        if entry["ess_bulk"] is not None and entry["ess_tail"] is not None
    }
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
        lines.append(
            f"largest r_hat is {r_hats[worst]:.3f} ({worst}), above {highest}: {of} do not "
            "agree; use more --warmup and --draws, or look for several modes with pt"
        )
    limit = max(ESS_IN_ALL, ESS_PER_CHAIN * chains)
    worst = min(ess, key=lambda label: ess[label], default=None)
    if worst is not None and ess[worst] < limit:
        lines.append(
            f"smallest ess is {ess[worst]:.3g} ({worst}), below {limit}: means and quantiles are "
            "not yet sure; use more --draws"
        )
    return lines


def listed(labels: Sequence[str]) -> str:
    """Return up to three labels as text."""
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{', '.join(labels[:3])}{more}"


def certificate_warnings(lines: Sequence[str], sampler: Sampler) -> list[str]:
    """Return the warnings of the control variates; a ladder needs no advice to use one."""
    return [line for line in lines if sampler.name not in LADDERS or not line.endswith(ADVICE)]


def mode_warnings(model: Model, sampler: Sampler) -> list[str]:
    """Return a line for models with several modes, unless the sampler crosses between them."""
    if not getattr(model, "multimodal", False) or sampler.name in CROSSING:
        return []
    return [
        f"the posterior of a {model.name} may have several modes, and chains that agree may all "
        "have missed one: compare with --sampler pt"
    ]


def edge_warnings(sampling: dict[str, Any]) -> list[str]:
    """Return where a perturbed target differs from the posterior in its tails."""
    lines = []
    perturbation = sampling.get("predicted_perturbation")
    if perturbation is not None and perturbation > LARGEST_PERTURBATION:
        size = f"{perturbation:.2g}" if perturbation < 1e3 else "more than 1,000"
        lines.append(
            f"the sampled density is predicted to be off by {size} in the tails, above "
            f"{LARGEST_PERTURBATION}: use a larger --subsample-size, or hmc"
        )
    if sampling.get("beyond_edge", 0.0) > EDGE_WARNING:
        lines.append(
            f"{percent(sampling['beyond_edge'])} of the iterations came beyond the edge of "
            "the region on which hmc-ecs samples: the posterior may be wider than it; use hmc"
        )
    return lines


def bias_warnings(sampling: dict[str, Any]) -> list[str]:
    """Return what a reader should know about a sampler that does not target the posterior."""
    lines = []
    bias = sampling["predicted_variance_bias"]
    if bias is None or bias > BIAS_WARNING:
        size = "without bound" if bias is None else f"by {percent(bias)}"
        lines.append(
            f"{sampling['sampler']} is biased: at this step size the variances are predicted to "
            f"be off {size}; use a smaller --step-size, a larger --subsample-size, or hmc-ecs"
        )
    if sampling["decay"]:
        lines.append(
            "the steps decrease, and a draw counts as much as its step is long: weight the draws "
            "by step_size, which these means do not"
        )
    if sampling["noise_clipped"]:
        lines.append(
            f"the noise estimate exceeded the friction in {100.0 * sampling['noise_clipped']:.2g} "
            "% of the steps and was cut there: use more friction or a smaller --step-size"
        )
    return lines


def decision_warnings(sampling: dict[str, Any]) -> list[str]:
    """Return what a reader should know about the decisions of an acceptance test."""
    lines = []
    error = sampling["decision_error_mean"]
    if error is not None and error > DECISION_WARNING:
        lines.append(
            f"{sampling['sampler']} estimates that a decision is off by {error:.2g} in probability "
            f"on average, above {DECISION_WARNING}: use more rows a decision, or hmc-ecs"
        )
    if sampling["decision_error_unknown"]:
        lines.append(
            f"{sampling['sampler']} could not tell the error of "
            f"{percent(sampling['decision_error_unknown'])} of its decisions: their terms are "
            "too few or too heavy-tailed; use more rows a decision, or hmc-ecs"
        )
    if sampling["forced"] > FORCED_WARNING:
        lines.append(
            f"{percent(sampling['forced'])} of the decisions looked at all rows, or were "
            "skipped: use control variates, shorter steps or a higher temperature"
        )
    return lines


def noise_warnings(sampling: dict[str, Any]) -> list[str]:
    """Return what a reader should know about estimates that a chain carries along."""
    lines = []
    name, facts = sampling["sampler"], sampling["mint"]
    remedy = (
        "use control_variate=2, a smaller alpha, or a larger subsample_size with the same lambda"
    )
    if facts["chains_that_never_moved"]:
        lines.append(
            f"{facts['chains_that_never_moved']} of {sampling['chains']} chains of {name} never "
            "moved in their draws, which are one point each: the estimate that one was accepted "
            f"with is too good to be left, or steps are too long; {remedy}"
        )
    variance = facts["noise_variance"]
    if variance is None or variance > NOISE_WARNING:
        found = "not finite" if variance is None else f"{variance:.3g}"
        lines.append(
            f"the estimates of {name} have a mean variance n^(2 lambda - tau) var(l_i) of {found}, "
            f"above {NOISE_WARNING:g}: the chain sticks, and its draws are far from the tempered "
            f"posterior; {remedy}"
        )
    third = facts["third_order"]
    if third is not None and third > THIRD_ORDER_WARNING:
        lines.append(
            f"the estimates of {name} are skewed: the logarithm of the density of the draws has "
            f"{third:.2g} on average beyond v / 2; {remedy}"
        )
    if sampling["decision_error_unknown"] > UNKNOWN_WARNING:
        lines.append(
            f"{percent(sampling['decision_error_unknown'])} of the draws rest on an estimate "
            "with one row that is most of its variance, which cannot be called normal; use "
            "control_variate=2 or a larger subsample_size"
        )
    return lines
