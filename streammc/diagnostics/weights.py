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
from streammc.diagnostics.pareto_tail import smoothed_rows, tail_count
from streammc.docstrings import documented
from streammc.errors import ConfigError, StreammcError
from streammc.shown import Record


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
    The fit is that of :mod:`streammc.diagnostics.pareto_tail`, except if the largest weight exceeds
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
