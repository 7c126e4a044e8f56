"""Facts, warnings and texts of runs of ``hmc-ecs`` and ``hmc-ecs-signed``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from streammc.diagnostics.text import number, percent
from streammc.samplers.common.evidence import Evidence, at_most
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    from streammc.samplers.common.request import Setup

VARIANCE_WARNING: Final = 1.0
EDGE_WARNING: Final = 0.001


def subsample_facts(run: RunDirectory, setup: Setup) -> dict[str, Any]:
    """Return the facts in the summary of samplers with a subsample.

    Returns
    -------
    dict
        ``recalibration``: its two stages; ``beyond_edge``: share of the draws whose trajectory
        left the region; ``mean_sign`` and ``negative_signs`` (a share) of signed runs.
    """
    from streammc.samplers.hamiltonian.recalibrate import described

    stats = run.read_group("sample_stats")
    facts: dict[str, Any] = {"recalibration": described(setup.cv, setup.plan)}
    if "sign" in stats:
        facts["mean_sign"] = float(stats["sign"].mean())
        facts["negative_signs"] = float((stats["sign"] < 0.0).mean())
    if "beyond_edge" in stats:
        facts["beyond_edge"] = float(stats["beyond_edge"].mean())
    return facts


def subsample_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return warnings about a short warm-up, noisy estimates, the tails and negative signs."""
    lines = []
    blocks = facts["n_blocks"] or 0
    if facts["warmup"] < 5 * blocks:
        lines.append(
            f"warmup of {facts['warmup']} is shorter than 5 x {blocks} blocks: the first "
            "subsample may still be felt"
        )
    if facts["log_lik_variance_mean"] > VARIANCE_WARNING:
        lines.append(
            f"mean log_lik_variance is {facts['log_lik_variance_mean']:.2f}, above "
            f"{VARIANCE_WARNING}: use a larger --subsample-size"
        )
    lines += edge_warnings(facts)
    if facts.get("negative_signs"):
        lines.append(
            f"{percent(facts['negative_signs'])} of the draws have a negative sign: weight "
            "them by it, as this summary does and ArviZ does not"
        )
    return lines


def edge_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return warnings about a perturbed target that differs from the posterior in its tails."""
    from streammc.control_variates.plan.tails import LARGEST_PERTURBATION

    lines = []
    perturbation = facts.get("predicted_perturbation")
    if perturbation is not None and perturbation > LARGEST_PERTURBATION:
        size = f"{perturbation:.2g}" if perturbation < 1e3 else "more than 1,000"
        lines.append(
            f"the sampled density is predicted to be off by {size} in the tails, above "
            f"{LARGEST_PERTURBATION}: use a larger --subsample-size, or hmc"
        )
    if facts.get("beyond_edge", 0.0) > EDGE_WARNING:
        lines.append(
            f"{percent(facts['beyond_edge'])} of the iterations came beyond the edge of "
            "the region on which hmc-ecs samples: the posterior may be wider than it; use hmc"
        )
    return lines


def subsample_text(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return lines for the receipt of a run, as label -> value."""
    variance = facts["log_lik_variance_mean"]
    return {
        "blocks": facts.get("n_blocks"),
        "log_lik_variance": f"{variance:.4g}: variance of the log-likelihood estimated from the "
        "subsample",
        "mean sign": facts.get("mean_sign"),
    }


def trajectory_evidence(facts: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of trajectories: divergences and acceptance."""
    return [
        at_most(
            "divergent transitions",
            facts.get("divergences"),
            0,
            "A trajectory that leaves its energy level marks a place that the steps are too "
            "long for, where the posterior is not explored.",
        ),
        Evidence(
            check="acceptance rate",
            found=number(facts.get("acceptance_rate"), 3),
            meaning="The share of proposals that is taken; warm-up tunes the step size to it.",
        ),
    ]


def subsample_evidence(facts: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of estimates from a subsample: their variance, the edge, the signs."""
    found = [
        at_most(
            "variance of the log-likelihood estimate",
            facts.get("log_lik_variance_mean"),
            VARIANCE_WARNING,
            "An iteration estimates the log-likelihood of all rows from a few; the sampled "
            "density is close to the posterior where the variance of that estimate is small.",
            figure="log_lik_variance",
            line=VARIANCE_WARNING,
        )
    ]
    if facts.get("subsample_acceptance_rate") is not None:
        found.append(
            Evidence(
                check="acceptance rate of new subsamples",
                found=number(facts["subsample_acceptance_rate"], 3),
                meaning="How often a block of the subsample is exchanged for a new one.",
            )
        )
    if facts.get("beyond_edge") is not None:
        found.append(
            at_most(
                "iterations beyond the edge, share",
                facts["beyond_edge"],
                EDGE_WARNING,
                "Subsampling is cut where its error would be large, at a millionth of the "
                "posterior's mass; a chain that often comes there is in a wider posterior.",
            )
        )
    if facts.get("mean_sign") is not None:
        found.append(
            Evidence(
                check="mean sign",
                found=number(facts["mean_sign"], 4),
                meaning="Draws are weighted by the sign of an unbiased estimate of the "
                "likelihood; the closer the mean sign is to 1, the more each draw is worth.",
                figure="sign",
            )
        )
    return found
