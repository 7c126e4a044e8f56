"""Facts and warnings of runs of ``sgld`` and ``sghmc``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from streammc.diagnostics.text import percent
from streammc.samplers.common.evidence import Evidence, at_most
from streammc.trace.run_directory import RunDirectory

BIAS_WARNING: Final = 0.05


def gradient_facts(run: RunDirectory, decay: float) -> dict[str, Any]:
    """Return ``decay``, and ``noise_clipped``: the share of steps with a clipped noise estimate."""
    clipped = run.read_group("sample_stats").get("noise_clipped")
    return {
        "decay": decay,
        "noise_clipped": None if clipped is None else float(clipped.mean()),
    }


def bias_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return warnings about bias, weights of draws and clipped noise estimates."""
    lines = []
    bias = facts["predicted_variance_bias"]
    if bias is None or bias > BIAS_WARNING:
        size = "without bound" if bias is None else f"by {percent(bias)}"
        lines.append(
            f"{facts['sampler']} is biased: at this step size the variances are predicted to "
            f"be off {size}; use a smaller --step-size, a larger --subsample-size, or hmc-ecs"
        )
    if facts["decay"]:
        lines.append(
            "the steps decrease, and a draw counts as much as its step is long: weight the draws "
            "by step_size, which these means do not"
        )
    if facts["noise_clipped"]:
        lines.append(
            f"the noise estimate exceeded the friction in {100.0 * facts['noise_clipped']:.2g} "
            "% of the steps and was cut there: use more friction or a smaller --step-size"
        )
    return lines


def bias_evidence(facts: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of bias: the predicted bias of variances, and clipped noise estimates."""
    if "predicted_variance_bias" not in facts:  # an unfinished run
        return []
    bias = facts["predicted_variance_bias"]
    found = [
        at_most(
            "predicted bias of the variances, share",
            math.inf if bias is None else bias,  # without bound
            BIAS_WARNING,
            "No step is rejected, so the draws are wider than the posterior; this is by how much "
            "at the step size of the run.",
            figure="log_lik_variance",
        )
    ]
    if facts.get("noise_clipped") is not None:
        found.append(
            at_most(
                "steps with a clipped noise estimate, share",
                facts["noise_clipped"],
                0.0,
                "The friction cannot take up more noise than itself.",
                figure="noise_clipped",
            )
        )
    return found
