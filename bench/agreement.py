"""Whether a sampler agrees with full-data HMC, coefficient by coefficient.

Bounds, in posterior standard deviations of the reference: a mean differs by at most
``max(0.1, 4.5 MCSE of the difference)``, that MCSE is small enough for the test to mean
something, an sd is within 10 % plus 4 of its own standard errors ``1 / sqrt(2 ESS)``
(the smaller ESS of the two runs), R-hat is low in both, and the audit corrects little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """What has to hold of every coefficient."""

    mcse: float = 0.025
    r_hat: float = 1.01
    mean: float = 0.1
    sd: float = 0.1
    correction: float = 0.1
    z: float = 4.5


def difference_mcse(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the largest MCSE of a difference of means, in sd of ``other``."""
    return max(
        float(math.hypot(one[label]["mcse_mean"], b["mcse_mean"]) / b["sd"])
        for label, b in other.items()
    )


def own_mcse(parameters: Mapping[str, Any]) -> float:
    """Return the largest MCSE of a mean, in posterior sd."""
    return max(float(p["mcse_mean"] / p["sd"]) for p in parameters.values())


def compare(
    summary: Mapping[str, Any], reference: Mapping[str, Any], bounds: Bounds
) -> dict[str, Any]:
    """Compare two summaries of runs; the second is the reference.

    Returns
    -------
    dict
        Per criterion the measured maximum, whether it holds, and the coefficient at
        fault; ``passed`` is whether all of them hold.
    """
    parameters, truth = summary["parameters"], reference["parameters"]
    if list(parameters) != list(truth):
        raise ValueError(f"expected coefficients {list(truth)}, found {list(parameters)}")
    mean = z = sd = sd_excess = 0.0
    means_hold = True
    worst = ""
    for label, b in truth.items():
        a = parameters[label]
        error = math.hypot(a["mcse_mean"], b["mcse_mean"]) / b["sd"]
        shift = abs(a["mean"] - b["mean"]) / b["sd"]
        if shift > mean:
            worst = label
        mean, z = max(mean, shift), max(z, shift / error)
        means_hold &= shift <= max(bounds.mean, bounds.z * error)
        ratio = abs(a["sd"] / b["sd"] - 1)
        noise = 4 / math.sqrt(2 * min(a["ess_bulk"], b["ess_bulk"]))
        sd, sd_excess = max(sd, ratio), max(sd_excess, ratio / (bounds.sd + noise))
    mcse = difference_mcse(parameters, truth)
    r_hat = max(p["r_hat"] for p in [*parameters.values(), *truth.values()])
    audit = summary["audit"]
    correction = audit["largest_correction"] if audit else math.nan
    holds = {
        "mean": bool(means_hold),
        "mcse": mcse <= bounds.mcse,
        "sd": sd_excess <= 1,
        "r_hat": r_hat < bounds.r_hat,
        "correction": correction < bounds.correction,
    }
    return {
        "mean": mean,
        "mean_z": z,
        "mean_at": worst,
        "mcse": mcse,
        "sd": sd,
        "sd_of_bound": sd_excess,
        "r_hat": r_hat,
        "correction": correction,
        "pareto_k": audit["pareto_k"] if audit else None,
        "holds": holds,
        "passed": all(holds.values()),
    }
