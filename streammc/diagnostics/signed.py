"""Summaries of draws with signs (Dang et al. 2019, eq. 17).

A signed run samples ``|L^| p(theta) p(u)``: ``L^`` is the likelihood estimated from the units
``u``, and ``s`` is its sign. The posterior mean of ``f`` is ``E[f s] / E[s]``. To first order
(delta method) the error of this ratio of means is the error of the mean of

    h = s (f - mean f) / mean s.

The Monte Carlo error of the mean of ``h`` is that over the chains; the effective sample
size is the posterior variance of ``f`` over the square of that error. It includes the cost of
the signs: a mean sign of 0.5 costs a factor of four or more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.effective_size import mcse_mean
from streammc.diagnostics.quantiles import quantiles
from streammc.diagnostics.r_hat import r_hat
from streammc.errors import StreammcError

TAIL = (0.05, 0.95)
_FEWEST_DRAWS = 4


def require_no_sign(sign: NDArray[np.float64]) -> None:
    """Refuse a plain summary of draws with negative signs.

    Raises
    ------
    StreammcError
        If a sign is negative; the message has the share of negative signs.
    """
    negative = float(np.mean(np.asarray(sign) < 0.0))
    if negative > 0.0:
        raise StreammcError(
            f"expected draws without a sign, found {negative:.2%} of them negative: a plain "
            "summary would be wrong; use the weighted one (streammc diagnose, or plain=False)"
        )


def ratio_terms(
    values: NDArray[np.float64], sign: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the sign-weighted mean of ``values`` (chain, draw), and the terms h of its error."""
    mean_sign = float(sign.mean())
    mean = float((sign * values).mean()) / mean_sign
    return mean, sign * (values - mean) / mean_sign


def signed_statistics(
    draws: NDArray[np.float64], sign: NDArray[np.float64]
) -> dict[str, float | None]:
    """Return mean, sd, quantiles, MCSE, ESS and R-hat of one parameter (chain, draw), weighted.

    Empty if a draw is not finite or the signs do not sum to more than 0; without MCSE, ESS and
    R-hat for constant draws or under four per chain. ``sd`` is ``None`` if the estimated
    variance is negative, because of too few draws.
    """
    found: dict[str, Any] = {}
    if draws.size and np.isfinite(draws).all() and sign.sum() > 0.0:
        mean, terms = ratio_terms(draws, sign)
        square, square_terms = ratio_terms((draws - mean) ** 2, sign)
        weights = sign.ravel()
        q5, median, q95 = quantiles(draws.ravel(), (TAIL[0], 0.5, TAIL[1]), weights)
        found = {"mean": mean, "median": median, "q5": q5, "q95": q95}
        found["sd"] = np.sqrt(square) if square > 0.0 else None
        if draws.shape[1] >= _FEWEST_DRAWS and draws.min() < draws.max():
            with np.errstate(all="ignore"):
                error = float(mcse_mean(terms))
                found["mcse_mean"] = error
                found["ess_bulk"] = square / error**2 if square > 0.0 else None
                tails = []
                for p, edge in zip(TAIL, (q5, q95), strict=True):
                    below = (draws <= edge).astype(np.float64)
                    _, below_terms = ratio_terms(below, sign)  # of variance p (1 - p)
                    tails.append(p * (1 - p) / float(mcse_mean(below_terms)) ** 2)
                found["ess_tail"] = min(tails)
                fourth, _ = ratio_terms((draws - mean) ** 4, sign)
                spread = fourth - square**2
                known = square > 0.0 and spread > 0.0
                found["ess_sd"] = spread / float(mcse_mean(square_terms)) ** 2 if known else None
                # R-hat of the sampled draws, and of the terms of their signed mean.
                found["r_hat"] = max(float(r_hat(draws)), float(r_hat(terms)))
    return found
