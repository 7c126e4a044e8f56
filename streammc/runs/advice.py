"""Warnings of a run's summary, one line each, with the advice to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streammc.control_variates.mode.modes import ADVICE
from streammc.diagnostics.audit_record import Audit
from streammc.diagnostics.summary import least_ess, least_size
from streammc.protocols import Model
from streammc.runs.audit_advice import audit_warnings
from streammc.samplers.common.sampler import Sampler

DEFF_WARNING = 2.0
R_HAT_WARNING = 1.01
R_HAT_OF_ONE = 1.03
"""Limit for one chain: halves of 400 independent draws exceed 1.01 one time in ten by chance."""


def summary_warnings(
    sampler: Sampler,
    parameters: Mapping[str, Mapping[str, float | None]],
    sampling: Mapping[str, Any],
    audit: Audit | None,
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
    lines += sampler.warnings(sampling)
    if sampling["deff"] is not None and sampling["deff"] > DEFF_WARNING:
        lines.append(
            f"runs of {sampling['deff_rows']} rows have design effect {sampling['deff']:.1f}, "
            f"above {DEFF_WARNING:g}: the rows are ordered; ingest with --shuffle"
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
    if not getattr(model, "multimodal", False) or sampler.crosses_modes:
        return []
    return [
        f"the posterior of a {model.name} may have several modes, and chains that agree may all "
        "have missed one: compare with --sampler pt"
    ]
