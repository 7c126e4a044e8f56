"""Warnings about the audit of a run, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streammc.diagnostics.audit_record import Audit, Correction
from streammc.diagnostics.weights import heavy_tailed

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
