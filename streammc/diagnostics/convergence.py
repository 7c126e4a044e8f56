"""Effective sample sizes and split R-hat of Vehtari et al. 2021 (Bayesian Analysis 16, 667-718).

With autocovariances averaged over the ``2 M`` halves of ``M`` chains, ``n`` draws each, and the
variance ``var+`` of the draws, between and within the halves,

    rho_t = 1 - (W - mean autocovariance at lag t) / var+,    ESS = 2 M n / (1 + 2 sum_t rho_t),

where the sum ends by Geyer's initial monotone sequence (section 3.2 of the paper). The numbers are
those of ArviZ, which takes 1.3 s of processor time to import, with SciPy's statistics and
Matplotlib, and 2.5 times as long per parameter.

R-hat compares the halves of all chains, as ArviZ does, which needs two or more chains; the two
halves of a single chain also differ if it drifts or has not mixed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streammc.errors import ConfigError


def numbers(name: str, values: ArrayLike, ndim: int | None = None) -> NDArray[np.float64]:
    """Return ``values`` as float64 with ``ndim`` dimensions, by default 1 or more.

    ConfigError if they are not numbers, or have another number of dimensions.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected an array of numbers as {name}, found {type(values).__name__}: pass one"
        ) from None
    fits = array.ndim >= 1 if ndim is None else array.ndim == ndim
    if not fits:
        wanted = "1 or more" if ndim is None else ndim
        raise ConfigError(
            f"expected {name} of {wanted} dimensions, found shape {array.shape}: pass an array"
        )
    return array


TAIL = 0.89
"""The tail is at this probability and at one minus it: ArviZ's default interval."""


def split(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the halves of all chains (..., 2 chain, draw // 2), without an odd middle draw."""
    half = draws.shape[-1] // 2
    return np.concatenate((draws[..., :half], draws[..., draws.shape[-1] - half :]), axis=-2)


def normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``Phi^-1((rank - 3/8) / (n + 1/4))`` of the n values; ties have their mean rank.

    Of values (..., m, k) ranks are those among the m k values of the last two axes.
    """
    flat = values.reshape(-1, values.shape[-2] * values.shape[-1])
    order = np.argsort(flat, axis=-1)
    return scores_in_order(np.take_along_axis(flat, order, -1), order).reshape(values.shape)


def scores_in_order(ordered: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the normal scores of ascending values (p, n), at their places (p, n)."""
    n = ordered.shape[-1]
    twice = np.arange(2, 2 * n + 1, 2)
    by_rank = _scores(twice, n)
    scores = np.empty(ordered.shape)
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(axis=-1)
    for k, places in enumerate(order):
        if tied[k]:
            starts = np.flatnonzero(np.concatenate(([True], ordered[k, 1:] != ordered[k, :-1])))
            counts = np.diff(np.append(starts, n))
            scores[k, places] = _scores(np.repeat(2 * starts + counts + 1, counts), n)
        else:
            scores[k, places] = by_rank
    return scores


def _scores(twice_rank: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Return the normal scores of ranks among n values."""
    from scipy.special import ndtri

    return np.asarray(ndtri((0.5 * twice_rank - 0.375) / (n + 0.25)))


def ess_mean(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effective sample size (...,) of the mean of (..., chain, draw), n > 3."""
    return ess(split(draws))


def ess_bulk(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effective sample size (...,) of the normal scores of (..., chain, draw)."""
    return ess(normal_scores(split(draws)))


def ess_tail(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smaller effective sample size (...,) of the two tail probabilities."""
    edges = np.quantile(draws, (1.0 - TAIL, TAIL), axis=(-2, -1))
    return ess_below(draws, edges)


def ess_below(draws: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least effective sample size (...,) of ``draws <= edge`` over edges (k, ...)."""
    below = (draws <= edges[..., None, None]).astype(np.float64)
    return np.asarray(ess(split(below)).min(axis=0))[()]


def ess_sd(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effective sample size (...,) of the squared deviations from the mean."""
    away = draws - draws.mean(axis=(-2, -1), keepdims=True)
    return ess(split(away * away))


def mcse_mean(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Monte Carlo standard error (...,) of the mean of (..., chain, draw)."""
    flat = draws.reshape(*draws.shape[:-2], -1)
    return np.asarray(flat.std(axis=-1, ddof=1) / np.sqrt(ess_mean(draws)))[()]


def ess(sequences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effective sample size (...,) of sequences (..., m, n), m > 1; eqs. 10 to 13."""
    m, n = sequences.shape[-2:]
    flat = sequences.reshape(-1, m, n)
    means = flat.mean(axis=-1)
    covariance = _autocovariance(flat - means[..., None])
    variance = covariance[:, 0] + means.var(axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):  # of constants, see below
        within = covariance[:, :1] * n / (n - 1.0)
        rho = 1.0 - (within - covariance) / variance[:, None]
    rho[:, 0] = 1.0
    tau = np.maximum(_sums_to_noise(rho), 1.0 / np.log10(m * n))
    constant = np.ptp(flat, axis=(-2, -1)) < np.finfo(np.float64).resolution
    size = np.where(constant, float(m * n), m * n / tau)
    return size.reshape(sequences.shape[:-2])[()]


def _autocovariance(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the autocovariances (p, n) at every lag, divisor n: means over sequences (p, m, n)."""
    n = centred.shape[-1]
    length = 1 << (2 * n - 1).bit_length()
    transform = np.fft.rfft(centred, length)
    power = (transform.real**2 + transform.imag**2).mean(axis=1)
    covariance: NDArray[np.float64] = np.fft.irfft(power, length)[:, :n] / n
    return covariance


def _sums_to_noise(rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``1 + 2 sum rho_t`` (p,) over Geyer's initial monotone sequence of rho (p, n).

    Pairs (2 k, 2 k + 1) enter until the first whose sum is not positive, each no larger than the
    pair before; after them the even autocorrelation of the next pair, if it or its pair is
    positive.
    """
    most = max((rho.shape[1] - 3) // 2, 0)  # pairs that are looked at
    pairs = rho[:, 0 : 2 * most : 2] + rho[:, 1 : 2 * most : 2]
    ends = np.concatenate((~(pairs > 0.0), np.ones((len(rho), 1), bool)), axis=1)
    sums = np.empty(len(rho))
    for k, last in enumerate(ends.argmax(axis=1)):
        total = float(np.minimum.accumulate(pairs[k, :last]).sum())
        even, odd = float(rho[k, 2 * last]), float(rho[k, 2 * last + 1])
        sums[k] = -1.0 + 2.0 * total + (even if even > 0.0 or even + odd >= 0.0 else 0.0)
    return sums


def r_hat(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the larger of the rank-normalised and the folded split R-hat of (..., chain, draw).

    NaN for fewer than four draws per chain.
    """
    if draws.shape[-1] < 4:
        return np.full(draws.shape[:-2], np.nan)[()]
    halves = split(draws)
    folded = np.abs(halves - np.median(halves, axis=(-2, -1), keepdims=True))
    return larger(ratio(normal_scores(halves)), ratio(normal_scores(folded)))


def larger(bulk: NDArray[np.float64], folded: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the larger R-hat; that of folded draws is NaN for draws of two values."""
    return np.where(folded > bulk, folded, bulk)[()]


def ratio(sequences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``sqrt((n - 1) / n + B / (n W))`` of sequences (..., m, n); eqs. 1 to 4."""
    n = sequences.shape[-1]
    between = sequences.mean(axis=-1).var(axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        within = sequences.var(axis=-1, ddof=1).mean(axis=-1)
        return np.asarray(np.sqrt((n - 1) / n + between / within))[()]
