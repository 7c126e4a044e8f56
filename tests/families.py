"""What the tests know about each family, by its name in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np

from streammc.protocols import Vector


@dataclass(frozen=True)
class Family:
    """Support and exact log-likelihood of one family."""

    support: Vector
    """Carries all but 1e-12 of the probability for predictors up to 3."""
    responses: tuple[float, ...]
    """Responses at which accuracy is checked."""
    exact: Callable[[mpmath.mpf, mpmath.mpf], tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]]
    """``(eta, y) -> value, first, second derivative``."""
    size: Callable[[mpmath.mpf, mpmath.mpf], tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]]
    """What the error of each is relative to: the largest term of the sum."""
    bad: tuple[float, ...]
    """Responses outside the support."""


def logistic_exact(eta: mpmath.mpf, y: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    a = eta if y == 0 else -eta
    value = -mpmath.log1p(mpmath.exp(a))
    slope = 1 / (1 + mpmath.exp(-a))
    return value, -slope if y == 0 else slope, -slope / (1 + mpmath.exp(a))


def poisson_exact(eta: mpmath.mpf, y: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    rate = mpmath.exp(eta)
    return y * eta - rate - mpmath.loggamma(y + 1), y - rate, -rate


def poisson_size(eta: mpmath.mpf, y: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    rate = mpmath.exp(eta)
    return max(abs(y * eta), rate, abs(mpmath.loggamma(y + 1))), max(y, rate), rate


def logistic_size(eta: mpmath.mpf, y: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    value, slope, curve = logistic_exact(eta, y)
    return abs(value), abs(slope), abs(curve)


FAMILIES = {
    "logistic": Family(
        support=np.array([0.0, 1.0]),
        responses=(0.0, 1.0),
        exact=logistic_exact,
        size=logistic_size,
        bad=(2.0, -1.0, 0.5, np.nan, np.inf),
    ),
    "poisson": Family(
        support=np.arange(400.0),
        responses=(0.0, 1.0, 3.0, 255.0, 256.0, 1e4, 1e9, 2.0**53),
        exact=poisson_exact,
        size=poisson_size,
        bad=(-1.0, 0.5, np.nan, np.inf, -np.inf, 2.0**54),
    ),
}
