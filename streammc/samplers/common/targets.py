"""Targets of samplers: names of the densities of their draws, with texts."""

from __future__ import annotations

from typing import Final

EXACT: Final = "exact"
WEIGHTED: Final = "exact, by weights"
PERTURBED: Final = "perturbed"
SIGNED: Final = "signed"
APPROXIMATE: Final = "approximate"
TEMPERED: Final = "tempered"
BIASED: Final = "biased"

TARGETS: Final = {
    EXACT: "the posterior",
    WEIGHTED: "the posterior, by exact importance weights of an approximation",
    PERTURBED: "close to the posterior; an audit measures how close",
    SIGNED: "the posterior, where draws are weighted by their sign",
    APPROXIMATE: "the posterior, but for the error of each decision",
    TEMPERED: "the posterior",
    BIASED: "no step is rejected, so the draws are not the posterior's",
}
"""Text of each target for the receipt of a run."""
NOT_AUDITED: Final = {
    EXACT: "{name} targets the posterior itself",
    WEIGHTED: "{name} weighs its draws by the exact posterior before it keeps any",
    SIGNED: "weighted by their signs the draws are of the posterior itself",
}
"""Reason why runs with this target have no audit; for other targets no weights exist."""
