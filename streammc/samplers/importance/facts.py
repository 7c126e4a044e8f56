"""Evidence of runs of ``laplace``: the importance weights of its proposals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streammc.diagnostics.summary import least_ess
from streammc.diagnostics.text import number
from streammc.diagnostics.weights import PARETO_K, heavy_tailed
from streammc.samplers.common.evidence import Evidence


def weight_evidence(facts: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of the weights: their tail, and how many draws they are worth."""
    if "weights_ess" not in facts:  # an unfinished run
        return []
    k, least = facts["pareto_k"], least_ess(facts["chains"])
    return [
        Evidence(
            check="Pareto k of the weights",
            found=number(k, 2),
            limit=f"at most {PARETO_K:g}",
            passed=None
            if k is None
            else not heavy_tailed(
                k, facts["weights_ess"], facts["proposals"], facts["largest_weight"]
            ),
            meaning="Draws of a Gaussian approximation are weighed by the exact density; with a "
            "heavy tail a few of them decide everything.",
        ),
        Evidence(
            check="effective draws by the weights",
            found=f"{number(facts['weights_ess'])} of {facts['proposals']:,}",
            limit=f"at least {least}",
            passed=facts["weights_ess"] >= least,
            meaning="How many independent draws of the posterior the weighted ones are worth.",
        ),
    ]
