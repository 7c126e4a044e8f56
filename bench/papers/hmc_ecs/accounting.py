"""Tables 1 to 4: relative costs and efficiencies, beside the published figures.

The paper counts a likelihood beside the L gradients of an iteration; here one evaluation gives
both, and the subsample's proposal costs m / G rows. What its full passes cost is not said, but
its four ratios to full-data HMC imply the same number: see :func:`implied_passes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bench.papers.measures import Run, computational_time, inefficiency, relative, spread

PAPER_DRAWS, PAPER_WARMUP = 2026, 1000
PAPER_PASSES = 30.0
PERTURBED, SIGNED, FULL = "HMC-ECS, perturbed", "HMC-ECS, signed", "HMC"
AUTOMATIC, RECALIBRATED = "HMC-ECS, automatic", "HMC-ECS, recalibrated"
OURS = (AUTOMATIC, RECALIBRATED)
"""streammc's own settings, which the paper does not have."""


def implied_passes(ratio: float, inner: dict[str, float], hmc_if: float, n: int) -> float:
    """Return the passes that a published ratio of HMC to HMC-ECS implies.

    ``inner``: ``rows`` of one evaluation, ``if`` and the rows of earlier stages ``first``.
    With L + 1 = 7 evaluations an iteration, and R = 3026 iterations of both,
    ``ratio = IF_hmc 7 R n / (IF (7 R rows + first + K n))``.
    """
    iterations = PAPER_DRAWS + PAPER_WARMUP
    total = hmc_if * 7 * iterations * n / (inner["if"] * ratio)
    return (total - 7 * iterations * inner["rows"] - inner["first"]) / n


def as_published(run: Run, n: int, evaluations: int, rows: float, first: float = 0.0) -> Run:
    """Return the run with its evaluations counted as the paper counts.

    ``evaluations`` of ``rows`` rows an iteration, 30 passes, and 1000 iterations of burn-in
    to 2026 draws.
    """
    per_draw = evaluations * rows
    warmup = per_draw * run.draws.shape[1] * PAPER_WARMUP / PAPER_DRAWS
    scale = run.draws.shape[1] / PAPER_DRAWS
    return replace(
        run,
        rows_per_draw=per_draw,
        warmup_rows=warmup + first * scale,
        pass_rows=PAPER_PASSES * n * scale,
    )


def full_length(run: Run) -> Run:
    """Return full-data HMC with the paper's share of burn-in, which ours does not need."""
    warmup = run.rows_per_draw * run.draws.shape[1] * PAPER_WARMUP / PAPER_DRAWS
    scale = run.draws.shape[1] / PAPER_DRAWS
    return replace(run, warmup_rows=warmup, pass_rows=run.pass_rows * scale)


def costs(runs: dict[str, Run], n: int, lengths: dict[str, int], first: float) -> dict[str, Any]:
    """Return RCT of every method against perturbed HMC-ECS, in three ways of counting.

    ``measured``: whole runs of HMC-ECS and HMC, what came after burn-in of the others against
    what came after burn-in of HMC-ECS; ``caption``: the same but against the whole run of
    HMC-ECS, as the captions of tables 1 and 3 say; ``counted``: the first, with evaluations
    and passes counted as the paper counts them. ``lengths``: L of the stochastic-gradient
    methods; ``first``: rows of the first stage as the paper counts.
    """
    base = runs[PERTURBED]
    ours = _counted(runs, n, lengths, first)
    found: dict[str, Any] = {}
    for name, run in runs.items():
        if name in (PERTURBED, "first stage") or not np.isfinite(run.draws).all():
            continue
        whole = name not in lengths
        this = full_length(run) if name == FULL else run
        found[name] = {
            "measured": spread(relative(this, base, whole=whole)),
            "caption": spread(relative(this, base, whole=whole, whole_base=True)),
        }
        if name in ours:
            found[name]["counted"] = spread(relative(ours[name], ours[PERTURBED], whole=whole))
    if FULL in runs:
        of_hmc = np.median(computational_time(full_length(runs[FULL]), whole=True))
        for name in (PERTURBED, SIGNED, *OURS):
            if run := runs.get(name):
                ratio = {"measured": of_hmc / np.median(computational_time(run, whole=True))}
                if name in ours:
                    counted = np.median(computational_time(ours[FULL], whole=True))
                    of_run = np.median(computational_time(ours[name], whole=True))
                    ratio["counted"] = counted / of_run
                found.setdefault("HMC over", {})[name] = {k: float(v) for k, v in ratio.items()}
    return found


def _counted(runs: dict[str, Run], n: int, lengths: dict[str, int], first: float) -> dict[str, Run]:
    found = {}
    for name, run in runs.items():
        if name in (PERTURBED, SIGNED):
            rows = float(run.facts["sampling"]["subsample_size"])
            found[name] = as_published(run, n, 7, rows, first)
        elif name == FULL:
            found[name] = replace(as_published(run, n, 7, float(n)), pass_rows=0.0)
        elif name in lengths:
            rows = float(run.facts["sampling"]["subsample_size"])
            found[name] = replace(run, rows_per_draw=lengths[name] * rows)
    return found


def efficiencies(run: Run, n: int) -> dict[str, float]:
    """Return the rows of tables 2 and 4 of one run; ESS is that of R draws of one chain."""
    factor = inefficiency(run.draws)
    sampling = run.facts["sampling"]
    size = sampling["subsample_size"]
    return {
        "alpha_theta": float(run.stats["acceptance_rate"].mean()),
        "alpha_u": float(run.stats["subsample_accepted"].mean()),
        "L": float(run.stats["n_steps"].mean()),
        "IF": float(factor.mean()),
        "ESS": float(run.draws.shape[1] / factor.mean()),
        "tau": run.positive,
        "percent": float("nan") if size is None else 100.0 * size / n,
        "R": run.draws.shape[1],
        "chains": run.draws.shape[0],
        "variance": float(run.stats["log_lik_variance"].mean()),
    }


def against_full(run: Run, full: Run) -> dict[str, float]:
    """Return how far means and variances are from those of HMC, and what chance allows.

    ``shift``: largest difference of means in posterior sd; ``z``: over its standard error;
    ``ratio``: smallest and largest variance over that of HMC; ``noise``: the standard error of
    such a ratio in its median.
    """
    mean, variance = run.moments()
    other, truth = full.moments()
    sd = np.sqrt(truth)
    total, whole = (
        run.draws.shape[0] * run.draws.shape[1],
        full.draws.shape[0] * full.draws.shape[1],
    )
    ess, reference = total / inefficiency(run.draws), whole / inefficiency(full.draws)
    error = sd * np.sqrt(variance / truth / np.maximum(ess, 1e-300) + 1.0 / reference)
    ratio = variance / truth
    return {
        "shift": float(np.abs((mean - other) / sd).max()),
        "z": float(np.abs((mean - other) / error).max()),
        "lowest": float(ratio.min()),
        "median": float(np.median(ratio)),
        "highest": float(ratio.max()),
        "noise": float(np.median(np.sqrt(2.0 / np.maximum(ess, 1e-300) + 2.0 / reference))),
    }
