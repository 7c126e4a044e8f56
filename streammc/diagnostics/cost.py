"""Cost of an independent draw, in evaluations of rows (Dang et al. 2019, section 6.2).

One evaluation is the log-likelihood of one row with its gradient. The inefficiency factor
of a parameter is the number of draws that are worth one independent draw,

    IF = draws / ESS,

with the effective sample size of the mean over all chains (Vehtari et al. 2021). The computational
time (eq. 2, and 18 for signed draws) is given per draw, so that runs of different lengths can be
compared,

    CT = IF evaluations / (draws (mean sign)^2).

The relative computational time of two runs is the ratio of their CT (eq. 19). The paper takes
IF from CODA, by the spectral density of an autoregression at zero, chain by chain; here
autocorrelations are summed, which includes differences between the chains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.convergence import ess_mean, numbers
from streammc.docstrings import documented

_FEWEST_DRAWS = 4
_TOGETHER = 2**17
"""Draws of parameters that are computed together."""


@documented()
def inefficiency(draws: NDArray[np.float64]) -> float | None:
    """Return the inefficiency factor IF of one parameter: draws per independent draw.

    Parameters
    ----------
    draws
        (chain, draw) values of the parameter, at least 4 per chain.

    Returns
    -------
    float or None
        Draws over the effective sample size of the mean; ``None`` if that is unknown.
    """
    draws = numbers("draws", draws, 2)
    return _inefficiencies(draws[:, :, None])[0]


def _inefficiencies(theta: NDArray[np.float64]) -> list[float | None]:
    """Return the inefficiency factors of parameters (chain, draw, d), at least one."""
    chains, n, dim = theta.shape
    if n < _FEWEST_DRAWS:
        return [None] * dim
    factors: list[float | None] = []
    together = max(1, _TOGETHER // (chains * n))
    for first in range(0, dim, together):
        draws = np.ascontiguousarray(np.moveaxis(theta[:, :, first : first + together], -1, 0))
        with np.errstate(all="ignore"):
            factor = chains * n / ess_mean(draws)
        known = np.isfinite(draws).all(axis=(1, 2)) & np.isfinite(factor)
        known &= draws.min(axis=(1, 2)) < draws.max(axis=(1, 2))
        factors += [float(f) if k else None for f, k in zip(factor, known, strict=True)]
    return factors


def cost(
    theta: NDArray[np.float64],
    labels: Sequence[str],
    evaluations: Mapping[str, int],
    sign: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Return the inefficiency and the computational time of every parameter of a run.

    ``theta`` (chain, draw, d) has the signs ``sign`` (chain, draw), ``None``: all positive.
    ``evaluations`` are the rows evaluated in the ``passes``, the ``warmup`` and the ``draws``. The
    result has these with their ``total``; ``mean_sign``; ``if``, ``ct`` (for all evaluations) and
    ``ct_draws`` (for those of the draws only), each with ``min``, ``median`` and ``max``; and
    ``parameters``: label -> ``if``, ``ct``, ``ct_draws``, ``None`` for a constant, or fewer than
    four draws.
    """
    counted = {**evaluations, "total": int(sum(evaluations.values()))}
    mean_sign = 1.0 if sign is None else float(sign.mean())
    per_draw = 1.0 / (theta.shape[0] * theta.shape[1] * mean_sign**2) if mean_sign > 0.0 else np.nan
    parameters = {}
    for label, factor in zip(labels, _inefficiencies(theta), strict=True):
        parameters[label] = {
            "if": factor,
            "ct": _times(factor, counted["total"] * per_draw),
            "ct_draws": _times(factor, counted["draws"] * per_draw),
        }
    document: dict[str, Any] = {"evaluations": counted, "mean_sign": mean_sign}
    for name in ("if", "ct", "ct_draws"):
        document[name] = spread([entry[name] for entry in parameters.values()])
    return {**document, "parameters": parameters}


def relative(base: Mapping[str, Any], other: Mapping[str, Any], name: str = "ct") -> dict[str, Any]:
    """Return ``name`` (``ct`` or ``ct_draws``) of ``other`` over that of ``base`` (eq. 19).

    Both are results of :func:`cost` with the same parameters; above 1, ``base`` is cheaper. The
    result has ``min``, ``median`` and ``max`` over the parameters, and ``parameters``.
    """
    ratios = {}
    for label, entry in other["parameters"].items():
        mine, theirs = base["parameters"][label][name], entry[name]
        ratios[label] = theirs / mine if mine and theirs is not None else None
    return {**spread(list(ratios.values())), "parameters": ratios}


def spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """Return the smallest, median and largest of the values that are not ``None``."""
    known = [value for value in values if value is not None]
    if not known:
        return dict.fromkeys(("min", "median", "max"))
    return {"min": min(known), "median": float(np.median(known)), "max": max(known)}


def _times(factor: float | None, number: float) -> float | None:
    return factor * number if factor is not None and np.isfinite(number) else None
