"""Verdict on a run: one sentence that says whether its draws can be trusted, and why.

It follows from the summary of the run alone: its warnings, whose limits are those of the samplers
and of Vehtari et al. 2021, the worst R-hat and effective sample size, and the audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TRUSTED: Final = "trusted"
CARE: Final = "care"
UNFINISHED: Final = "unfinished"

_COMPARISONS: Final = {
    "approximate": "the sampler is approximate: each of its decisions has an error",
    "biased": "the sampler is biased: it rejects no step, so its draws are for comparisons",
    "tempered": "the draws are of a posterior at another temperature",
}
"""Reasons for care that lie in the target of a sampler, whatever its draws are."""
_UNBIASED: Final = {
    "exact": "the sampler targets the posterior itself",
    "exact, by weights": "the draws are weighed by the exact posterior",
    "signed": "means weighted by the signs are those of the posterior",
}
_NOT_AUDITED: Final = (
    "what subsampling changed was not measured; run 'streammc audit' on the run to measure it"
)
_UNKNOWN: Final = "R-hat and effective sample size are unknown; use more draws"


_PLAIN: Final = {
    TRUSTED: "These numbers are right for this model: the chains agree with each other, there are "
    "enough draws, and every check is within its limit.",
    CARE: "Use these numbers with care: a check found something, or the method is approximate.",
    UNFINISHED: "Do not use these numbers yet: the run is not finished.",
}


@dataclass(frozen=True)
class Verdict:
    """Level, sentence and reasons; the level is ``trusted``, ``care`` or ``unfinished``."""

    level: str
    sentence: str
    reasons: tuple[str, ...]
    """Reasons for trust, or for care: every warning of the summary, in full."""

    @property
    def plain(self) -> str:
        """The verdict for a reader who does not know the terms of its sentence."""
        return _PLAIN[self.level]


def verdict(summary: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a run from its summary.

    Parameters
    ----------
    summary
        As ``diagnose`` prints it: ``parameters``, ``sampling``, ``audit``, ``warnings``.
    """
    warnings = tuple(summary.get("warnings", ()))
    sampling = summary.get("sampling", {})
    target = str(sampling.get("target"))
    if "target" not in sampling:  # only the last draw completes the summary
        why = warnings[0] if warnings else "the run has no summary"
        return Verdict(UNFINISHED, f"No verdict yet: {_finding(why)}.", warnings)
    reasons, parameters, audit = warnings, summary.get("parameters", {}), summary.get("audit")
    if target in _COMPARISONS:
        reasons = (_COMPARISONS[target], *warnings)
    elif sampling.get("temperature", 1.0) not in (1, 1.0):
        reasons = (_COMPARISONS["tempered"], *warnings)
    elif target not in _UNBIASED and audit is None:
        said = any(line.startswith("not audited") for line in warnings)
        reasons = warnings if said else (*warnings, _NOT_AUDITED)
    elif not warnings and not _mixing(parameters):
        reasons = (_UNKNOWN,)
    if reasons:
        count = "one reason" if len(reasons) == 1 else f"{len(reasons)} reasons, the first"
        return Verdict(
            CARE, f"Take these draws with care, for {count}: {_finding(reasons[0])}.", reasons
        )
    grounds = [*_mixing(parameters), _accuracy(target, audit)]
    return Verdict(TRUSTED, f"These draws can be trusted: {'; '.join(grounds)}.", tuple(grounds))


def _mixing(parameters: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """Return the worst R-hat and effective sample size in words; nothing if one is unknown."""
    r_hats = [entry.get("r_hat") for entry in parameters.values()]
    names = ("ess_bulk", "ess_tail")
    sizes = [entry.get(name) for entry in parameters.values() for name in names]
    # A run of an earlier version does not have it.
    sizes += [entry["ess_sd"] for entry in parameters.values() if "ess_sd" in entry]
    known = [value for value in (*r_hats, *sizes) if value is not None]
    if not parameters or len(known) < len(r_hats) + len(sizes):
        return []
    worst, least = max(known[: len(r_hats)]), min(known[len(r_hats) :])
    one = len(parameters) == 1
    of = "the only parameter" if one else f"all {len(parameters)} parameters"
    return [
        f"R-hat is at most {worst:.3f} and the effective sample size at least {least:.0f}, {of}"
    ]


def _accuracy(target: str, audit: Mapping[str, Any] | None) -> str:
    """Return in words how far the sampled density is from the posterior."""
    if target in _UNBIASED:
        return _UNBIASED[target]
    assert audit is not None
    return (
        f"the audit against all rows moves no mean by more than "
        f"{audit['largest_correction']:.2g} posterior sd"
    )


def _finding(line: str) -> str:
    """Return the finding of a warning, without what it means and the remedy."""
    head = line.partition("; ")[0]
    first, separator, rest = head.partition(": ")
    # A short head such as "interrupted" says nothing alone.
    found = first if len(first.split()) > 2 or not separator else f"{first}: {rest}"
    return found.strip().rstrip(".")
