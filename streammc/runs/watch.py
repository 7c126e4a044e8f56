"""Checks of a run while it runs: too noisy estimates and cancelling signs are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.errors import RefusedError
from streammc.samplers.common.sampler import Sampler
from streammc.trace.run_directory import RunDirectory


class Watch:
    """Check of mean variance and mean sign of the estimates against the sampler's limits.

    Parameters
    ----------
    run
        The run; its committed draws are checked first, so that a refused run is refused again.
    sampler
        Sampler, whose class has ``variance_limit`` and ``least_sign``.

    Raises
    ------
    RefusedError
        If a limit is exceeded; all methods raise it, too.
    """

    def __init__(self, run: RunDirectory, sampler: Sampler) -> None:
        self._run, self._sampler = run, sampler
        self._sum, self._count = 0.0, 0
        if run.phase == "warmup" or not (run.committed_draws or run.warmup):
            return
        drawn = run.committed_draws > 0
        if not drawn or run.committed_draws == run.draws:
            self._check_sign("draws" if drawn else "warmup")
        if not math.isfinite(sampler.variance_limit):
            return
        seen = run.read_group("sample_stats" if drawn else "warmup_sample_stats")
        variance = seen["log_lik_variance"]
        if not drawn:
            last = (run.warmup - 1) // run.interval * run.interval
            variance = variance[:, last:]
        if not drawn:
            check_variance(float(variance.mean()), self._sampler)
            return
        for first in range(0, variance.shape[1], run.interval):
            part = variance[:, first : first + run.interval]
            if run.next_length and first >= run.next_start:
                check_variance((self._sum + float(part.sum())) / (self._count + part.size), sampler)
                break  # a short last interval, which is drawn again
            self._look_at_variance("draws", part, False)

    def look(self, phase: str, statistics: Mapping[str, NDArray[Any]], ended: bool) -> None:
        """Check statistics (chain, iteration) of an interval; ``ended``: the last of its phase."""
        if math.isfinite(self._sampler.variance_limit):
            self._look_at_variance(phase, statistics["log_lik_variance"], ended)
        if ended:
            self._check_sign(phase)

    def _look_at_variance(self, phase: str, variance: NDArray[np.float64], ended: bool) -> None:
        if phase == "draws":
            self._sum, self._count = self._sum + float(variance.sum()), self._count + variance.size
            check_variance(self._sum / self._count, self._sampler)
        elif ended:
            check_variance(float(variance.mean()), self._sampler)

    def _check_sign(self, phase: str) -> None:
        """Raise RefusedError if signs cancel in the second half of ``phase``."""
        least = self._sampler.least_sign
        if least is None:
            return
        group = "warmup_sample_stats" if phase == "warmup" else "sample_stats"
        sign = self._run.read_group(group)["sign"]
        mean = float(sign[:, sign.shape[1] // 2 :].mean())
        if not mean >= least:
            raise RefusedError(
                f"expected a mean sign of the estimated likelihood near 1, found {mean:.2g}, "
                f"under {least:g}: errors grow with its reciprocal; use a larger "
                "--subsample-size, or hmc"
            )


def check_variance(mean: float, sampler: Sampler) -> None:
    """Raise RefusedError if the mean variance is so high that draws would be biased."""
    limit = sampler.variance_limit
    if limit < math.inf and not mean <= limit:
        raise RefusedError(
            f"expected log_lik_variance near 0.1, found a mean of {mean:.3g}: the draws would be "
            "biased; use --sampler hmc, a larger --subsample-size, or more passes for theta_star"
        )
