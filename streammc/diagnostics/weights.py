"""The audit of draws by importance weights: corrections of means and standard deviations.

With weights w of a target relative to the sampled density and their sum S, the paired
correction of a mean is ``sum w x / S - mean x`` over the same draws: most of the Monte Carlo
error of the two means is common and cancels. To first order the error is that of the mean of

    h = v (x - sum w x / S) - (x - mean x),    v = w / mean w,

(the influence terms of the two means), sd(h) / sqrt(ESS(h)) with the effective sample size
of h over the chains. For the ratio of the standard deviations, with A and B the weighted and
the plain variance, the error of its logarithm is that of the mean of

    g = (v ((x - sum w x / S)^2 / A - 1) - ((x - mean x)^2 / B - 1)) / 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.convergence import mcse_mean, numbers
from streammc.docstrings import documented
from streammc.errors import ConfigError, StreammcError
from streammc.protocols import Matrix, Vector
from streammc.shown import Record

# Pareto-smoothed importance weights (PSIS; Vehtari et al. 2024, JMLR 25).
#
# The largest ``M`` of ``n`` weights are fitted by a generalised Pareto density above the next one,
# by the empirical Bayes estimate of Zhang and Stephens 2009 (Technometrics 51, 316-325) with a weak
# prior of the shape, ``k = (M k' + 5) / (M + 10)``; smoothing replaces them by the quantiles of the
# fit. The numbers are those of ArviZ, which takes 1 s of processor time to import, with SciPy's
# statistics and Matplotlib: half of a short run.


_SMALL_SAMPLE = 225
"""Up to here the tail has n / 5 draws, above 3 sqrt(n)."""
_ENTRIES = 2**18
"""Terms of the fits of a tile of rows: 2 MB."""


def tail_count(n: int, relative_size: float = 1.0) -> int:
    """Return the number of weights of the tail, of ``n`` weights.

    ``relative_size``: effective sample size of the draws over their number.
    """
    if n * relative_size <= _SMALL_SAMPLE:
        return n // 5
    return int(3.0 * np.sqrt(n / relative_size))


def smoothed_rows(
    log_weight: NDArray[np.float64], relative_size: float = 1.0
) -> tuple[Matrix, Vector]:
    """Return the smoothed logarithms of the weights of each row, and the shapes ``k`` (m,).

    ``log_weight`` (m, n) are up to a constant in each row; n is at least 25. The results are
    logarithms of weights whose sum is 1 in each row; a row whose ``k`` is not finite, such as one
    with a tail of equal weights, is not smoothed. ``relative_size``: see :func:`tail_count`.
    """
    m, n = log_weight.shape
    count = min(tail_count(n, relative_size), n - 1)
    out, shape = np.empty((m, n)), np.empty(m)
    step = max(_ENTRIES // (count * (30 + int(count**0.5))), 1)
    for low in range(0, m, step):
        here = slice(low, low + step)
        out[here], shape[here] = _smoothed_tile(log_weight[here], count)
    return out, shape


def _smoothed_tile(log_weight: NDArray[np.float64], count: int) -> tuple[Matrix, Vector]:
    from scipy.special import logsumexp

    relative: Matrix = log_weight - log_weight.max(axis=1, keepdims=True)
    last = np.argpartition(relative, relative.shape[1] - count - 1, axis=1)[:, -count - 1 :]
    values = np.take_along_axis(relative, last, axis=1)
    order = np.argsort(values[:, 1:], axis=1, kind="stable")
    place = np.take_along_axis(last[:, 1:], order, axis=1)
    largest = np.take_along_axis(values[:, 1:], order, axis=1)
    cutoff = np.exp(values[:, :1])
    k, sigma = _fit(np.exp(largest) - cutoff)
    share = np.arange(0.5, count) / count
    with np.errstate(all="ignore"):
        tail = np.log(cutoff + _quantile(share, k[:, None], sigma[:, None]))
        tail = np.where(tail > largest[:, -1:], largest[:, -1:], tail)
    smoothed = np.where(np.isfinite(k)[:, None], tail, largest)
    np.put_along_axis(relative, place, smoothed, axis=1)
    return relative - logsumexp(relative, axis=1, keepdims=True), k


def _fit(excess: Matrix) -> tuple[Vector, Vector]:
    """Return shapes and scales of generalised Pareto densities for sorted values (m, M)."""
    from scipy.special import logsumexp

    count = excess.shape[1]
    n_points = 30 + int(count**0.5)
    with np.errstate(all="ignore"):
        grid = 1 - np.sqrt(n_points / (np.arange(1, n_points + 1, dtype=np.float64) - 0.5))
        points = grid / (3 * excess[:, [int(count / 4 + 0.5) - 1]]) + 1 / excess[:, -1:]
        shapes = np.mean(np.log1p(-points[:, :, None] * excess[:, None, :]), axis=2)
        log_profile = count * (np.log(-points / shapes) - shapes - 1)
        weight = np.exp(log_profile - logsumexp(log_profile, axis=1, keepdims=True))
        counts = weight >= 10 * np.finfo(np.float64).eps
        weight, points = np.where(counts, weight, 0.0), np.where(counts, points, 0.0)
        point = np.sum(points * weight, axis=1) / np.sum(weight, axis=1)
        k = np.mean(np.log1p(-point[:, None] * excess), axis=1)
        sigma = -k / point
        return (count * k + 5.0) / (count + 10), sigma


def _quantile(share: Vector, k: NDArray[np.float64], sigma: NDArray[np.float64]) -> Matrix:
    """Return quantiles (m, M) of generalised Pareto densities, NaN without a positive scale."""
    steps = -np.log1p(-share)
    with np.errstate(all="ignore"):
        unit = np.where(k == 0, steps, np.expm1(k * steps) / k)
    return np.where(sigma > 0, sigma * unit, np.nan)


@dataclass(frozen=True, eq=False, kw_only=True)
class Correction(Record):
    """Corrections of one parameter by the weights; ``None`` for an unknown statistic."""

    mean: float | None
    """Weighted mean."""
    correction: float | None
    mcse: float | None
    """Weighted minus plain mean, and its Monte Carlo error."""
    correction_sd: float | None
    mcse_sd: float | None
    """``correction`` and ``mcse`` in units of the posterior standard deviation."""
    sd_ratio: float | None
    sd_ratio_mcse: float | None
    """Weighted over plain standard deviation, and its Monte Carlo error."""

    @property
    def size(self) -> float:
        """Absolute correction in posterior standard deviations; 0 if unknown."""
        return abs(self.correction_sd or 0.0)

    @property
    def z(self) -> float | None:
        """Absolute correction over its Monte Carlo error; ``None`` if one of them is unknown."""
        return self.size / self.mcse_sd if self.correction_sd is not None and self.mcse_sd else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(Record):
    """Audit of draws by importance weights: quality of the weights, and corrections."""

    draws: int
    """Number of weighted draws."""
    ess: float
    """Effective sample size (sum w)^2 / sum w^2 of the weights."""
    largest_weight: float | None = None
    """Largest weight over their mean; ``None`` in runs of an earlier version."""
    pareto_k: float | None
    """Shape of the right tail of the weights; ``None`` if all are equal or there are fewer than
    25."""
    largest_correction: float
    largest_z: float
    """Largest correction of a mean in posterior standard deviations, and in its Monte Carlo
    error."""
    parameters: Mapping[str, Correction]
    """Corrections by label."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``audit`` of a summary."""
        parameters = {label: entry.to_json() for label, entry in self.parameters.items()}
        return {**super().to_json(), "parameters": parameters}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Audit:
        """Return the audit from its JSON; runs of earlier versions lack some entries."""
        names = Correction.__dataclass_fields__
        parameters = {
            label: Correction(**{name: entry.get(name) for name in names})
            for label, entry in written["parameters"].items()
        }
        own = {name: written[name] for name in cls.__dataclass_fields__ if name in written}
        return cls(**{**own, "parameters": parameters})

    @property
    def worst(self) -> str:
        """Label of the parameter whose mean is corrected most."""
        return max(self.parameters, key=lambda label: self.parameters[label].size)


PARETO_K = 0.7
_EVEN_SHARE = 0.9  # of the draws: with a larger ESS of the weights their tail has no effect
_LARGE_WEIGHT = 5.0  # over the mean
_FEWEST_TAIL = 25  # the tail is a fifth of the draws, and its fit needs five
_UNDERFLOW = 600.0
_LARGEST_K = 1000.0
_FEWEST_DRAWS = 4
_ROUNDING = 1e-12  # in posterior sd: an error below this is rounding error


@documented()
def audit_weights(
    theta: NDArray[np.float64], log_weight: NDArray[np.float64], labels: Sequence[str]
) -> Audit:
    """Return the audit of draws by importance weights: corrections of the plain means.

    Parameters
    ----------
    theta
        (chain, draw, d) draws.
    log_weight
        (chain, draw) logarithms of the weights, up to a constant; ``-inf`` is weight 0.
    labels
        One label per column of theta.

    Returns
    -------
    Audit
        A record with the fields ``draws``; ``ess``, the effective sample size
        (sum w)^2 / sum w^2 of the weights; ``largest_weight``, relative to their mean;
        ``pareto_k`` of their right tail (``None`` if all are equal or there are fewer
        than 25); ``largest_correction`` in posterior sd and ``largest_z``; and
        ``parameters``: label -> ``mean`` (weighted), ``correction``, ``mcse``, both
        also in posterior sd as ``correction_sd`` and ``mcse_sd``, and ``sd_ratio``,
        the weighted over the plain sd, with its error ``sd_ratio_mcse``. Fields can be read
        by key.

    Raises
    ------
    StreammcError
        If a weight is NaN or infinite, or all are zero.
    """
    weight = _relative(numbers("log weights", log_weight, 2))
    theta = numbers("draws", theta, 3)
    parameters = {
        label: _correction(theta[:, :, column], weight) for column, label in enumerate(labels)
    }
    scores = [p.z for p in parameters.values() if (p.mcse_sd or 0.0) > _ROUNDING]
    return Audit(
        draws=int(weight.size),
        ess=float(weight.sum() ** 2 / (weight**2).sum()),
        largest_weight=float(weight.max()),
        pareto_k=pareto_k(log_weight),
        largest_correction=max((p.size for p in parameters.values()), default=0.0),
        largest_z=max((z for z in scores if z is not None), default=0.0),
        parameters=parameters,
    )


@documented()
def pareto_k(log_weight: NDArray[np.float64]) -> float | None:
    """Return the shape of a generalised Pareto fit to the largest weights.

    Above 0.7, averages with these weights are unreliable (Vehtari et al. 2024, JMLR 25).
    The fit is that of :mod:`streammc.diagnostics.weights`, except if the largest weight exceeds
    the cutoff of the tail by a factor over e^600: the fit then underflows and gives a value near 0
    (0.025 for a shape of 100). In this case the result is Hill's estimate, the mean excess of the
    log weights, at most 1000.

    Parameters
    ----------
    log_weight
        Logarithms of the weights, up to a constant, in any shape.

    Returns
    -------
    float or None
        The shape; ``None`` without a tail: equal weights, or fewer than 25.
    """
    flat = np.sort(numbers("log weights", log_weight), axis=None)
    if np.isnan(flat).any():
        raise ConfigError(
            "expected log weights without NaN, found some: check the draws that they are of"
        )
    n = len(flat)
    if n < _FEWEST_TAIL:
        return None
    count = tail_count(n)
    cutoff, tail = flat[-count - 1], flat[-count:]
    if np.exp(tail[0] - tail[-1]) == 1.0:
        return None
    if tail[-1] - cutoff > _UNDERFLOW:
        return float(min(tail.mean() - cutoff, _LARGEST_K)) if cutoff > -np.inf else _LARGEST_K
    _, (k,) = smoothed_rows(flat[None, :])
    return float(k) if np.isfinite(k) else None


def heavy_tailed(k: float, ess: float, draws: int, largest_weight: float | None) -> bool:
    """Return whether averages with such weights are unreliable: Pareto ``k`` above 0.7.

    The shape compares the largest weights with each other, even if all weights are near 1.
    Weights whose effective sample size ``ess`` is near ``draws``, and none of which is large,
    have no effect on averages: they are not heavy-tailed here.
    """
    large = largest_weight is None or largest_weight > _LARGE_WEIGHT
    return k > PARETO_K and (large or ess < _EVEN_SHARE * draws)


def _relative(log_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights (chain, draw) scaled to mean 1."""
    highest = log_weight.max(initial=-np.inf)
    if not np.isfinite(highest):
        raise StreammcError(
            f"expected finite log weights, found a largest of {highest}: check the arrays"
        )
    weight = np.exp(log_weight - highest)
    return np.asarray(weight / weight.mean())


def _correction(draws: NDArray[np.float64], weight: NDArray[np.float64]) -> Correction:
    """Return the paired correction of one parameter (chain, draw)."""
    names = tuple(field.name for field in fields(Correction))
    center, sd = draws.mean(), draws.std(ddof=1) if draws.size > 1 else 0.0
    if not (np.isfinite(sd) and sd > 0):
        return Correction(**dict.fromkeys(names))
    x = (draws - center) / sd  # centred and in posterior sd: no cancellation
    shift = float((weight * x).mean())
    error = _error(weight * (x - shift) - x)
    square, plain = (x - shift) ** 2, x**2
    weighted = (weight * square).mean()
    spread = np.sqrt(weighted / plain.mean())
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = 0.5 * (weight * (square / weighted - 1.0) - (plain / plain.mean() - 1.0))
    ratio_error = spread * _error(relative)
    values = (center + sd * shift, sd * shift, sd * error, shift, error, spread, ratio_error)
    known = (float(value) if np.isfinite(value) else None for value in values)
    return Correction(**dict(zip(names, known, strict=True)))


def _error(terms: NDArray[np.float64]) -> float:
    """Return the Monte Carlo error of the mean of terms (chain, draw)."""
    if terms.shape[1] < _FEWEST_DRAWS:
        return float(terms.std(ddof=1) / np.sqrt(terms.size))
    with np.errstate(all="ignore"):
        return float(mcse_mean(terms))
