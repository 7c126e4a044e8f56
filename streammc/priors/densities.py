"""Families of densities and their rows of the prior table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

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

Rows = Callable[..., Matrix]
"""``rows(labels, **settings)``: settings (k,) by name to rows (k, 5) of the table."""

ANY_SIGN: Final = 0
POSITIVE: Final = 1
"""Sampled as its logarithm."""
CORRELATION: Final = 2
"""Sampled as its artanh."""

_HALF_LOG_2PI: Final = 0.9189385332046728
_LOG_2: Final = math.log(2.0)


@dataclass(frozen=True)
class Family:
    """A family of densities; its builder is the function of that name in ``priors``."""

    name: str
    parameters: tuple[str, ...] = ()
    """In the order of the text form."""
    above_zero: tuple[str, ...] = ()
    coefficient: Rows | None = None
    """Rows for a parameter that is sampled as it is; ``None`` where it does not fit."""
    positive: Rows | None = None
    """Rows for a positive parameter, sampled as its log."""
    correlation: Rows | None = None
    """Rows for a correlation, sampled as its artanh."""
    rest: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What a mapping without ``"*"`` means for the labels that it does not name."""


def table_rows(
    kind: int,
    *,
    location: Vector | float = 0.0,
    scale: Vector | float = 0.0,
    shape: Vector | float = 0.0,
    constant: Vector | float = 0.0,
    size: int,
) -> Matrix:
    """Return ``size`` rows of the table."""
    out = np.zeros((size, COLUMNS))
    out[:, KIND] = kind
    for column, value in (
        (LOCATION, location),
        (SCALE, scale),
        (SHAPE, shape),
        (CONSTANT, constant),
    ):
        out[:, column] = value
    return out


def _normal_rows(labels: Sequence[str], location: Vector, scale: Vector) -> Matrix:
    """Return rows of normal densities of theta."""
    constant = -_HALF_LOG_2PI - np.log(scale)
    return table_rows(NORMAL, location=location, scale=scale, constant=constant, size=len(labels))


def _student_t_rows(labels: Sequence[str], df: Vector, location: Vector, scale: Vector) -> Matrix:
    constant = _log_t_constant(df, scale)
    size = len(labels)
    return table_rows(
        STUDENT_T, location=location, scale=scale, shape=df, constant=constant, size=size
    )


def _laplace_rows(labels: Sequence[str], location: Vector, scale: Vector) -> Matrix:
    constant = -np.log(2.0 * scale)
    return table_rows(LAPLACE, location=location, scale=scale, constant=constant, size=len(labels))


def _log_t_constant(df: Vector, scale: Vector) -> Vector:
    """Return the log density of a Student t at its location, (k,)."""
    constant: Vector = -betaln(0.5 * df, 0.5) - 0.5 * np.log(df) - np.log(scale)
    return constant


def _half_normal(labels: Sequence[str], scale: Vector) -> Matrix:
    location = np.log(scale)
    constant = _LOG_2 - _HALF_LOG_2PI - location
    return table_rows(
        HALF_NORMAL, location=location, scale=scale, constant=constant, size=len(labels)
    )


def _half_student_t(labels: Sequence[str], df: Vector, scale: Vector) -> Matrix:
    return table_rows(
        HALF_STUDENT_T,
        location=np.log(scale) + 0.5 * np.log(df),
        scale=scale,
        shape=df,
        constant=_LOG_2 + _log_t_constant(df, scale),
        size=len(labels),
    )


def _half_cauchy(labels: Sequence[str], scale: Vector) -> Matrix:
    return _half_student_t(labels, np.ones_like(scale), scale)


def _gamma(labels: Sequence[str], shape: Vector, rate: Vector) -> Matrix:
    log_rate = np.log(rate)
    return table_rows(
        GAMMA,
        location=-log_rate,
        scale=1.0 / rate,
        shape=shape,
        constant=shape * log_rate - gammaln(shape),
        size=len(labels),
    )


def _exponential(labels: Sequence[str], rate: Vector) -> Matrix:
    return _gamma(labels, np.ones_like(rate), rate)


def _inverse_gamma(labels: Sequence[str], shape: Vector, scale: Vector) -> Matrix:
    location = np.log(scale)
    return table_rows(
        INVERSE_GAMMA,
        location=location,
        scale=scale,
        shape=shape,
        constant=shape * location - gammaln(shape),
        size=len(labels),
    )


def _lkj(labels: Sequence[str], shape: Vector) -> Matrix:
    """Return rows of ``(1 - v^2)^(shape - 1)`` with the Jacobian of ``theta = artanh v``."""
    return table_rows(
        LKJ,
        scale=1.0 / np.sqrt(2.0 * shape),
        shape=shape,
        constant=-betaln(0.5, shape),
        size=len(labels),
    )


def _check(labels: Sequence[str], low: Vector, high: Vector) -> None:
    for label, a, b in zip(labels, low, high, strict=True):
        if not a < b:
            raise ConfigError(
                f"the uniform prior of {label!r} must have low below high, found {a:g} and {b:g}"
                ": give a low below high"
            )


def _uniform(labels: Sequence[str], low: Vector, high: Vector) -> Matrix:
    _check(labels, low, high)
    width = high - low
    return table_rows(
        UNIFORM, location=low, scale=width, shape=high, constant=-np.log(width), size=len(labels)
    )


def _uniform_positive(labels: Sequence[str], low: Vector, high: Vector) -> Matrix:
    _check(labels, low, high)
    for label, a in zip(labels, low, strict=True):
        if a < 0.0:
            raise ConfigError(
                f"the uniform prior of {label!r}, a positive number, must have low of at least 0, "
                f"found {a:g}: raise low"
            )
    with np.errstate(divide="ignore"):
        lowest, highest = np.log(low), np.log(high)
    return table_rows(
        LOG_UNIFORM,
        location=lowest,
        scale=highest - lowest,
        shape=highest,
        constant=-np.log(high - low),
        size=len(labels),
    )


def _flat(labels: Sequence[str]) -> Matrix:
    return table_rows(FLAT, scale=np.inf, size=len(labels))


def _flat_positive(labels: Sequence[str]) -> Matrix:
    return table_rows(LOG_FLAT, scale=np.inf, size=len(labels))


NORMAL_FAMILY: Final = Family(
    "normal", ("location", "scale"), ("scale",), coefficient=_normal_rows, rest={"location": 0.0}
)
STUDENT_T_FAMILY: Final = Family(
    "student_t",
    ("df", "location", "scale"),
    ("df", "scale"),
    coefficient=_student_t_rows,
    rest={"location": 0.0},
)
LAPLACE_FAMILY: Final = Family(
    "laplace", ("location", "scale"), ("scale",), coefficient=_laplace_rows, rest={"location": 0.0}
)
UNIFORM_FAMILY: Final = Family(
    "uniform", ("low", "high"), coefficient=_uniform, positive=_uniform_positive
)
FLAT_FAMILY: Final = Family("flat", coefficient=_flat, positive=_flat_positive)
HALF_NORMAL_FAMILY: Final = Family("half_normal", ("scale",), ("scale",), positive=_half_normal)
HALF_CAUCHY_FAMILY: Final = Family("half_cauchy", ("scale",), ("scale",), positive=_half_cauchy)
HALF_STUDENT_T_FAMILY: Final = Family(
    "half_student_t", ("df", "scale"), ("df", "scale"), positive=_half_student_t
)
GAMMA_FAMILY: Final = Family("gamma", ("shape", "rate"), ("shape", "rate"), positive=_gamma)
INVERSE_GAMMA_FAMILY: Final = Family(
    "inverse_gamma", ("shape", "scale"), ("shape", "scale"), positive=_inverse_gamma
)
EXPONENTIAL_FAMILY: Final = Family("exponential", ("rate",), ("rate",), positive=_exponential)
LOGNORMAL_FAMILY: Final = Family(
    "lognormal", ("location", "scale"), ("scale",), positive=_normal_rows, rest={"location": 0.0}
)
LKJ_FAMILY: Final = Family("lkj", ("shape",), ("shape",), correlation=_lkj)

FAMILIES: Final = {each.name: each for each in tuple(vars().values()) if isinstance(each, Family)}
"""By name: ``normal``, ``student_t``, ..."""


@dataclass(frozen=True, eq=False)
class JointNormal:
    """Normal prior of several parameters together.

    Attributes
    ----------
    labels
        Names of the k parameters.
    location
        (k,) means.
    covariance
        (k, k); ``None`` where a run is read: it follows from the rows, see
        ``control_variates.resolved``.
    """

    labels: tuple[str, ...]
    location: Vector
    covariance: Matrix | None

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
