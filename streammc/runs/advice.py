"""Warnings of a run's summary, one line each, with the advice to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streammc.control_variates.mode.modes import ADVICE
from streammc.diagnostics.summary import least_ess, least_size
from streammc.diagnostics.weights import Audit, Correction, heavy_tailed
from streammc.likelihood.unit_words import unit_of_model
from streammc.protocols import Model
from streammc.samplers.common.sampler import Sampler

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
    lines += mixing_warnings(parameters, sampling.get("chains", 1))
    checks = sampler.checks({"sampling": sampling, "model": model})
    lines += [check.warning for check in checks if check.warning]
    if sampling["deff"] is not None and sampling["deff"] > DEFF_WARNING:
        row = unit_of_model(model)
        lines.append(
            f"runs of {sampling['deff_rows']} {row}s have design effect {sampling['deff']:.1f}, "
            f"above {DEFF_WARNING:g}: the {row}s are ordered; ingest with --shuffle"
        )
    return lines + audit_warnings(audit)


def mixing_warnings(parameters: Mapping[str, Mapping[str, float | None]], chains: int) -> list[str]:
    """Return warnings on R-hat and effective sample size, each for the worst parameter.

    The limits are those of Vehtari et al. 2021: R-hat 1.01, and :func:`least_ess`. R-hat of one
    chain compares its halves, and its limit is 1.03.
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
        lines.append(
            f"largest r_hat is {r_hats[worst]:.3f} ({worst}), above {highest}: {of} do not "
            "agree; use more --warmup and --draws, or look for several modes with pt"
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
