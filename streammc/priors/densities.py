"""Families of densities and their rows of the prior table.

What the columns of a row mean depends on its kind: see the kinds in ``numerics.prior``. Those of a
half-normal prior are the log of its scale, as location, and its scale, for example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import betaln, gammaln

from streammc.errors import ConfigError
from streammc.numerics.prior import (
    COLUMNS,
    CONSTANT,
    FLAT,
    GAMMA,
    HALF_NORMAL,
    HALF_STUDENT_T,
    INVERSE_GAMMA,
    JOINT_NORMAL,
    KIND,
    LAPLACE,
    LKJ,
    LOCATION,
    LOG_FLAT,
    LOG_UNIFORM,
    NORMAL,
    SCALE,
    SHAPE,
    STUDENT_T,
    UNIFORM,
)
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Matrix, Vector

Columns: TypeAlias = tuple[Vector | float, ...]
"""Kind, location, scale, shape and constant: the columns of a row of the prior table."""
ColumnsOf: TypeAlias = Callable[..., Columns]
"""``columns(labels, **settings)``: settings (k,) by name to the columns (k,) of these labels."""

ANY_SIGN: Final = 0
POSITIVE: Final = 1
"""Sampled as its logarithm."""
CORRELATION: Final = 2
"""Sampled as its artanh."""

_HALF_LOG_2PI: Final = 0.9189385332046728
_LOG_2: Final = math.log(2.0)


@dataclass(frozen=True)
class Family:
    """A family of densities."""

    name: str
    parameters: tuple[str, ...] = ()
    """Names of its settings, in the order of the text form."""
    above_zero: tuple[str, ...] = ()
    """Settings that must be above 0."""
    coefficient: ColumnsOf | None = None
    """Columns of a parameter that is sampled as it is; ``None`` where the family does not fit."""
    positive: ColumnsOf | None = None
    """Columns of a positive parameter, sampled as its log."""
    correlation: ColumnsOf | None = None
    """Columns of a correlation, sampled as its artanh."""
    rest: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Setting -> its value for labels that a mapping from labels to values does not name."""


def _normal(labels: Sequence[str], location: Vector, scale: Vector) -> Columns:
    return NORMAL, location, scale, 0.0, -_HALF_LOG_2PI - np.log(scale)


def _student_t(labels: Sequence[str], df: Vector, location: Vector, scale: Vector) -> Columns:
    return STUDENT_T, location, scale, df, _log_t_constant(df, scale)


def _laplace(labels: Sequence[str], location: Vector, scale: Vector) -> Columns:
    return LAPLACE, location, scale, 0.0, -np.log(2.0 * scale)


def _log_t_constant(df: Vector, scale: Vector) -> Vector:
    """Return the log density of a Student t at its location, (k,)."""
    constant: Vector = -betaln(0.5 * df, 0.5) - 0.5 * np.log(df) - np.log(scale)
    return constant


def _half_normal(labels: Sequence[str], scale: Vector) -> Columns:
    location = np.log(scale)
    return HALF_NORMAL, location, scale, 0.0, _LOG_2 - _HALF_LOG_2PI - location


def _half_student_t(labels: Sequence[str], df: Vector, scale: Vector) -> Columns:
    location = np.log(scale) + 0.5 * np.log(df)
    return HALF_STUDENT_T, location, scale, df, _LOG_2 + _log_t_constant(df, scale)


def _half_cauchy(labels: Sequence[str], scale: Vector) -> Columns:
    return _half_student_t(labels, np.ones_like(scale), scale)


def _gamma(labels: Sequence[str], shape: Vector, rate: Vector) -> Columns:
    log_rate = np.log(rate)
    return GAMMA, -log_rate, 1.0 / rate, shape, shape * log_rate - gammaln(shape)


def _exponential(labels: Sequence[str], rate: Vector) -> Columns:
    return _gamma(labels, np.ones_like(rate), rate)


def _inverse_gamma(labels: Sequence[str], shape: Vector, scale: Vector) -> Columns:
    location = np.log(scale)
    return INVERSE_GAMMA, location, scale, shape, shape * location - gammaln(shape)


def _lkj(labels: Sequence[str], shape: Vector) -> Columns:
    """Return ``(1 - v^2)^(shape - 1)`` with the Jacobian of ``theta = artanh v``."""
    return LKJ, 0.0, 1.0 / np.sqrt(2.0 * shape), shape, -betaln(0.5, shape)


def _uniform(labels: Sequence[str], low: Vector, high: Vector) -> Columns:
    for label, a, b in zip(labels, low, high, strict=True):
        if not a < b:
            raise ConfigError(
                f"the uniform prior of {label!r} must have low below high, found {a:g} and {b:g}"
                ": give a low below high"
            )
    width = high - low
    return UNIFORM, low, width, high, -np.log(width)


def _uniform_positive(labels: Sequence[str], low: Vector, high: Vector) -> Columns:
    *_, constant = _uniform(labels, low, high)
    for label, a in zip(labels, low, strict=True):
        if a < 0.0:
            raise ConfigError(
                f"the uniform prior of {label!r}, a positive number, must have low of at least 0, "
                f"found {a:g}: raise low"
            )
    with np.errstate(divide="ignore"):
        lowest, highest = np.log(low), np.log(high)
    return LOG_UNIFORM, lowest, highest - lowest, highest, constant


def _flat(labels: Sequence[str]) -> Columns:
    return FLAT, 0.0, np.inf, 0.0, 0.0


def _flat_positive(labels: Sequence[str]) -> Columns:
    return LOG_FLAT, 0.0, np.inf, 0.0, 0.0


_AT_ZERO: Final = {"location": 0.0}
FAMILIES: Final = {
    each.name: each
    for each in (
        Family("normal", ("location", "scale"), ("scale",), coefficient=_normal, rest=_AT_ZERO),
        Family(
            "student_t",
            ("df", "location", "scale"),
            ("df", "scale"),
            coefficient=_student_t,
            rest=_AT_ZERO,
        ),
        Family("laplace", ("location", "scale"), ("scale",), coefficient=_laplace, rest=_AT_ZERO),
        Family("uniform", ("low", "high"), coefficient=_uniform, positive=_uniform_positive),
        Family("flat", coefficient=_flat, positive=_flat_positive),
        Family("half_normal", ("scale",), ("scale",), positive=_half_normal),
        Family("half_cauchy", ("scale",), ("scale",), positive=_half_cauchy),
        Family("half_student_t", ("df", "scale"), ("df", "scale"), positive=_half_student_t),
        Family("gamma", ("shape", "rate"), ("shape", "rate"), positive=_gamma),
        Family("inverse_gamma", ("shape", "scale"), ("shape", "scale"), positive=_inverse_gamma),
        Family("exponential", ("rate",), ("rate",), positive=_exponential),
        Family("lognormal", ("location", "scale"), ("scale",), positive=_normal, rest=_AT_ZERO),
        Family("lkj", ("shape",), ("shape",), correlation=_lkj),
    )
}
"""By name; the builder of each is the function of that name in ``priors``."""


@dataclass(frozen=True, eq=False)
class JointNormal:
    """Normal prior of several parameters together."""

    labels: tuple[str, ...]
    location: Vector
    """(k,) means."""
    covariance: Matrix | None
    """(k, k); ``None`` where a run is read: it follows from the rows, see
    ``control_variates.resolved``."""

    @classmethod
    def of_a_run(cls) -> JointNormal:
        """Return what a run records: that there are jointly normal parameters."""
        return cls((), np.zeros(0), None)

    @property
    def scale(self) -> Vector:
        """Return the standard deviation (k,) of each alone."""
        return np.sqrt(np.diag(self._known()))

    def _known(self) -> Matrix:
        if self.covariance is None:
            raise ConfigError(
                "expected the covariance of default priors, found the description of a run, which "
                "has none: call streammc.control_variates.resolved(model, dataset)"
            )
        return self.covariance

    def of(self, at: Sequence[int]) -> JointNormal:
        """Return the prior of the parameters at these places, whatever the others are."""
        part = np.ascontiguousarray(self._known()[np.ix_(at, at)])
        return JointNormal(tuple(self.labels[j] for j in at), self.location[list(at)], part)

    def write(self, table: Matrix, labels: Sequence[str]) -> None:
        """Write the rows of these parameters into a prior table with room for precisions.

        The precision matrix stands in the columns after the five of a row's own density, see
        ``numerics.prior``.
        """
        place = {label: j for j, label in enumerate(labels)}
        at = np.array([place[label] for label in self.labels])
        precision, log_norm = self._inverse
        table[at, KIND] = JOINT_NORMAL
        table[at, LOCATION] = self.location
        table[at, SCALE] = self.scale
        table[at, SHAPE] = precision @ self.location
        table[at, CONSTANT] = log_norm / len(at)
        table[np.ix_(at, COLUMNS + at)] = precision

    @cached_property
    def _inverse(self) -> tuple[Matrix, float]:
        """Return the precision matrix and the logarithm of the density at the location."""
        scale = self.scale
        with single_threaded():  # the same bits on any number of cores
            lower, fault = dpotrf(self._known() / scale / scale[:, None], lower=1)
            precision, other = dpotri(lower, lower=1)
        if fault or other:
            raise ConfigError(
                f"expected a prior covariance that is positive definite, found another of "
                f"{self.labels[0]!r} and {len(self.labels) - 1} more: give priors by name"
            )
        log_norm = -np.log(np.diag(lower)) - np.log(scale) - 0.5 * math.log(2.0 * math.pi)
        precision = np.tril(precision) + np.tril(precision, -1).T
        return precision / scale / scale[:, None], float(log_norm.sum())
