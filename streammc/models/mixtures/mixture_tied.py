"""Two Gaussians in tied position: ``x_i ~ (N(theta1, s) + N(theta1 + theta2, s)) / 2``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ConfigError
from streammc.models.base import ColumnsModel, Parameter
from streammc.models.table_scale import DISTANCE, PLACE
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log1p_unit
from streammc.priors import PriorOption, as_prior, fixed_priors, normal
from streammc.priors.families import REST, choose
from streammc.protocols import Prior, Rows, Vector

LABELS: Final = ("theta1", "theta2")
DEFAULTS: Final = {"theta1": normal(scale=math.sqrt(10.0)), "theta2": normal(scale=1.0)}
"""Priors of Welling and Teh (2011): variances 10 and 1."""


@inline
def _row(first, apart, x, precision):  # type: ignore[no-untyped-def]
    """Return ``l`` without its constant, both residuals, ``r`` and ``r (1 - r)``.

    ``r`` is the probability that the row is of the second component: the log odds
    ``u = (d1^2 - d2^2) / (2 s) = theta2 (d1 + d2) / (2 s)`` lose nothing to
    cancellation, and one exponential, of ``-|u|``, does not overflow.
    """
    d1 = x - first
    d2 = d1 - apart
    u = 0.5 * precision * apart * (d1 + d2)
    e = exp(-abs(u))
    nearest = d1 if u < 0.0 else d2
    value = log1p_unit(e) - 0.5 * precision * nearest * nearest
    h = 1.0 / (1.0 + e)
    return value, d1, d2, (e if u < 0.0 else 1.0) * h, e * h * h


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log density of the first column and its derivatives; see ``protocols.Model``.

    ``constants`` holds ``1 / s`` and ``-log(8 pi s) / 2``.
    """
    precision, constant = constants[0], constants[1]
    # One loop per order: each vectorises, and drops what it does not store.
    if order == 0:
        for i in range(y.shape[0]):
            value, _, _, _, _ = _row(eta[0, i], eta[1, i], X[0, i], precision)
            out[0, i] = value + constant
    elif order == 1:
        for i in range(y.shape[0]):
            value, d1, d2, r, _ = _row(eta[0, i], eta[1, i], X[0, i], precision)
            out[0, i] = value + constant
            out[1, i] = precision * (d1 - r * eta[1, i])
            out[2, i] = precision * (r * d2)
    else:
        for i in range(y.shape[0]):
            apart = eta[1, i]
            value, d1, d2, r, spread = _row(eta[0, i], apart, X[0, i], precision)
            out[0, i] = value + constant
            out[1, i] = precision * (d1 - r * apart)
            out[2, i] = precision * (r * d2)
            out[3, i] = precision * (spread * precision * apart * apart - 1.0)
            out[4, i] = -precision * (spread * precision * apart * d2 + r)
            out[5, i] = precision * (spread * precision * d2 * d2 - r)


@dataclass(frozen=True)
class GaussianMixtureTied(ColumnsModel):
    """Two Gaussians in tied position; build it with :func:`gaussian_mixture_tied`."""

    variance: float = 2.0

    name: ClassVar[str] = "gaussian-mixture-tied"
    multimodal: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link
    n_features = 1

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return ``theta1``, a place in the only column, and ``theta2``, a distance from it."""
        first, second = LABELS
        return (Parameter(first, table_scale=PLACE), Parameter(second, table_scale=DISTANCE))

    @property
    def constants(self) -> Vector:
        """Return ``1 / s`` and the log normaliser of half a component."""
        return np.array([1.0 / self.variance, -0.5 * math.log(8.0 * math.pi * self.variance)])

    def start(self, rows: Rows) -> Vector:
        """Return theta (2,) from mean and variance: ``s + theta2^2 / 4`` is that of a row.

        The other mode, the components exchanged, is as likely: ``theta2`` starts above 0.
        """
        total = max(float(rows.weight.sum()), 1e-300)
        x = rows.X[:, 0]
        mean = float(rows.weight @ x) / total
        excess = float(rows.weight @ (x - mean) ** 2) / total - self.variance
        apart = 2.0 * math.sqrt(max(excess, 0.01 * self.variance))
        return np.array([mean - 0.5 * apart, apart])

    def relabelled(self, theta: Vector) -> list[Vector]:
        """Return theta with the components exchanged."""
        return [np.array([theta[0] + theta[1], -theta[1]])]

    def describe(self) -> dict[str, Any]:
        """Return name, variance and prior as JSON types."""
        return {**super().describe(), "variance": self.variance}


def gaussian_mixture_tied(
    variance: float = 2.0, prior: PriorOption | None = None
) -> GaussianMixtureTied:
    """Return the mixture ``x_i ~ (Normal(theta1, s) + Normal(theta1 + theta2, s)) / 2``.

    Welling and Teh (2011), and Seita et al. (2017, eq. 23), with s the variance. The
    observation is the only column; there is no response. The components may be exchanged:
    ``(theta1 + theta2, -theta2)`` has the same likelihood as ``(theta1, theta2)``, so that
    there are two modes, whose heights differ by the prior alone, and a chain that does not
    cross between them has seen one.

    Parameters
    ----------
    variance
        s, on the store's scale: ingest with ``--no-standardize`` to keep the table's.
    prior
        Prior, or a mapping from ``theta1`` and ``theta2`` to priors; what it leaves out,
        and ``None``, is Normal(0, sqrt(10)) on ``theta1`` and Normal(0, 1) on ``theta2``.

    Raises
    ------
    ConfigError
        If the variance is not positive, or ``prior`` is not a prior.

    Examples
    --------
    >>> from streammc.models import gaussian_mixture_tied
    >>> gaussian_mixture_tied().labels(["x"])
    ('theta1', 'theta2')
    """
    number = isinstance(variance, int | float) and not isinstance(variance, bool)
    if not number or not 0.0 < variance < math.inf:
        raise ConfigError(
            f"expected a positive variance, found {variance!r}: give a number above 0"
        )
    return GaussianMixtureTied(_completed(prior), float(variance))


def _completed(option: PriorOption | None) -> Prior:
    """Return the prior, with the defaults of what a mapping does not name."""
    if option is None:
        return fixed_priors(DEFAULTS)
    if isinstance(option, Mapping) and option and REST not in option:
        named = choose("the prior", dict(option), LABELS)
        rest = {key: DEFAULTS[key] for key in LABELS if key not in named}
        return fixed_priors({**option, **rest})
    return as_prior(option)
