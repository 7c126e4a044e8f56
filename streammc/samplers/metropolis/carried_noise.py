"""Bias of ``mint``: how the noise of the carried log-likelihood estimate changes the density."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import percent
from streammc.likelihood.temperature import temperature_of
from streammc.samplers.common.evidence import Evidence, at_most
from streammc.samplers.metropolis.mint import NORMALITY, Mint
from streammc.trace.finite import finite_or_none
from streammc.trace.run_directory import RunDirectory

NOISE_WARNING: Final = 2.0
THIRD_ORDER_WARNING: Final = 0.1
UNKNOWN_WARNING: Final = 0.01
LEAST_SHARE: Final = 0.05
"""Effective share of the draws below which their weights tell nothing."""


def tempered_facts(
    run: RunDirectory, sampler: Mint, n_rows: int, labels: Sequence[str]
) -> dict[str, Any]:
    """Return exponents, temperature and noise of a run of ``mint``, as JSON.

    Returns
    -------
    dict
        ``tau``, ``lambda``, ``alpha``, ``subsample_size`` and ``temperature``;
        ``noise_variance``, the mean over the draws of ``v = n^(2 lambda - tau) var(l_i)`` times
        ``finite_factor``: 1 - m / n, or 1 with replacement; ``third_order``, the mean of
        ``|g| v^1.5 / 6``, what the logarithm of the marginal has beyond ``v / 2``;
        ``chains_that_never_moved``; and ``marginal``: see :func:`without_noise`.
    """
    tau, exponent = sampler.exponents(n_rows)
    m = sampler.rows_of(n_rows)
    stats = run.read_group("sample_stats")
    variance, moved = stats["log_lik_variance"], stats["acceptance_rate"].sum(axis=1) > 0.0
    third = stats["decision_error"] / (6.0 * NORMALITY) * variance**1.5
    known = third[np.isfinite(third)]
    return {
        "tau": tau,
        "lambda": exponent,
        "alpha": exponent / tau,
        "subsample_size": m,
        "temperature": temperature_of(run.identity, run.attributes),
        "finite_factor": 1.0 if sampler.replace else 1.0 - m / n_rows,
        "noise_variance": finite_or_none(float(variance.mean())),
        "third_order": float(known.mean()) if known.size else None,
        "chains_that_never_moved": int((~moved).sum()),
        "marginal": without_noise(run.draws_matrix(), variance, labels),
    }


def without_noise(
    draws: NDArray[np.float64], variance: NDArray[np.float64], labels: Sequence[str]
) -> dict[str, dict[str, float | None]] | None:
    """Return by parameter what the factor ``exp(v / 2)`` in the density of the draws does.

    Parameters
    ----------
    draws
        (chain, draw, d).
    variance
        (chain, draw) v of the estimate that each was accepted with.

    Returns
    -------
    dict or None
        ``variance_ratio``: the variance of the draws over that with weights ``exp(-v / 2)``,
        which take the factor away; ``shift``: what it adds to the mean, in standard deviations
        of the draws. ``None`` where the weights are too uneven to tell.
    """
    theta = draws.reshape(-1, draws.shape[-1])
    half = 0.5 * variance.ravel()
    if not np.isfinite(half).all():
        return None
    weight = np.exp(half.min() - half)
    weight /= weight.sum()
    if len(theta) < 2 or 1.0 / np.square(weight).sum() < LEAST_SHARE * len(theta):
        return None
    mean = weight @ theta
    spread = weight @ np.square(theta - mean)
    plain = theta.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, shift = plain / spread, (theta.mean(axis=0) - mean) / np.sqrt(plain)
    return {
        label: {"variance_ratio": finite_or_none(r), "shift": finite_or_none(s)}
        for label, r, s in zip(labels, ratio, shift, strict=True)
    }


def noise_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know about estimates that a chain carries along."""
    lines = []
    name, mint = facts["sampler"], facts["mint"]
    remedy = (
        "use control_variate=2, a smaller alpha, or a larger subsample_size with the same lambda"
    )
    if mint["chains_that_never_moved"]:
        lines.append(
            f"{mint['chains_that_never_moved']} of {facts['chains']} chains of {name} never "
            "moved in their draws, which are one point each: the estimate that one was accepted "
            f"with is too good to be left, or steps are too long; {remedy}"
        )
    variance = mint["noise_variance"]
    if variance is None or variance > NOISE_WARNING:
        found = "not finite" if variance is None else f"{variance:.3g}"
        lines.append(
            f"the estimates of {name} have a mean variance n^(2 lambda - tau) var(l_i) of {found}, "
            f"above {NOISE_WARNING:g}: the chain sticks, and its draws are far from the tempered "
            f"posterior; {remedy}"
        )
    third = mint["third_order"]
    if third is not None and third > THIRD_ORDER_WARNING:
        lines.append(
            f"the estimates of {name} are skewed: the logarithm of the density of the draws has "
            f"{third:.2g} on average beyond v / 2; {remedy}"
        )
    if facts["decision_error_unknown"] > UNKNOWN_WARNING:
        lines.append(
            f"{percent(facts['decision_error_unknown'])} of the draws rest on an estimate "
            "with one row that is most of its variance, which cannot be called normal; use "
            "control_variate=2 or a larger subsample_size"
        )
    return lines


def noise_text(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return temperature, minibatch and marginal of a run of ``mint``."""
    noise = facts["noise_variance"]
    finite = "" if facts["finite_factor"] == 1.0 else " (1 - m/n)"
    text = f"tempered posterior x exp(v / 2), v = n^(2 lambda - tau) var(l_i){finite}"
    if noise is not None:
        text += f" = {noise:.3g} on average"
    ratios = {
        label: entry["variance_ratio"]
        for label, entry in (facts["marginal"] or {}).items()
        if entry["variance_ratio"] is not None
    }
    if noise is not None and noise > NOISE_WARNING:
        text += ": far from the tempered posterior"
    elif ratios:
        worst = max(ratios, key=lambda label: abs(math.log(ratios[label])))
        text += f"; it makes a variance up to {ratios[worst]:.3g} times as large ({worst})"
    temperature = facts["temperature"]
    return {
        "tempered": f"posterior at temperature {temperature:.6g} = n^(1 - lambda): "
        f"likelihood^(1/{temperature:.6g}) x prior",
        "rows of an estimate": f"{facts['subsample_size']} = n^tau, tau {facts['tau']:.4g}, "
        f"lambda {facts['lambda']:.4g} = alpha tau, alpha {facts['alpha']:.4g}",
        "marginal of the draws": text,
    }


def noise_evidence(facts: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of estimates that a chain of ``mint`` carries along."""
    return [
        at_most(
            "variance of the carried estimates",
            facts["noise_variance"],
            NOISE_WARNING,
            "The noise v of the log-likelihood estimate multiplies the density by exp(v / 2); "
            "a chain sticks where it is large.",
            figure="log_lik_variance",
            line=NOISE_WARNING,
        ),
        at_most(
            "chains that never moved",
            facts["chains_that_never_moved"],
            0,
            "Such a chain is one point: its estimate was far above the true log-likelihood.",
        ),
    ]
