"""Checks of a run while it runs: too noisy estimates and cancelling signs are refused."""

from __future__ import annotations

import math

from streammc.errors import RefusedError
from streammc.samplers.common.sampler import Sampler
from streammc.trace.run_directory import RunDirectory


def check_sign(run: RunDirectory, sampler: Sampler, phase: str) -> None:
    """Raise RefusedError if signs cancel in the second half of ``phase``."""
    if sampler.least_sign is None:
        return
    group = "warmup_sample_stats" if phase == "warmup" else "sample_stats"
    sign = run.read_group(group)["sign"]
    mean = float(sign[:, sign.shape[1] // 2 :].mean())
    if not mean >= sampler.least_sign:
        raise RefusedError(
            f"expected a mean sign of the estimated likelihood near 1, found {mean:.2g}, "
            f"under {sampler.least_sign:g}: errors grow with its reciprocal; use a larger "
            "--subsample-size, or hmc"
        )


def variance_so_far(run: RunDirectory, sampler: Sampler) -> tuple[float, int]:
    """Return sum and count of the variances of committed draws; repeat the past checks."""
    if run.phase == "warmup":
        return 0.0, 0
    if run.committed_draws:
        if run.committed_draws == run.draws:
            check_sign(run, sampler, "draws")
        seen = run.read_group("sample_stats")["log_lik_variance"]
        check_variance(float(seen.mean()), sampler)
        if run.next_length:
            seen = seen[:, : run.next_start]
        return float(seen.sum()), seen.size
    if run.warmup:
        check_sign(run, sampler, "warmup")
        last = (run.warmup - 1) // run.interval * run.interval
        seen = run.read_group("warmup_sample_stats")["log_lik_variance"]
        check_variance(float(seen[:, last:].mean()), sampler)
    return 0.0, 0


def check_variance(mean: float, sampler: Sampler) -> None:
    """Raise RefusedError if the mean variance is so high that draws would be biased."""
    limit = sampler.variance_limit
    if limit < math.inf and not mean <= limit:
        raise RefusedError(
            f"expected log_lik_variance near 0.1, found a mean of {mean:.3g}: the draws would be "
            "biased; use --sampler hmc, a larger --subsample-size, or more passes for theta_star"
        )
