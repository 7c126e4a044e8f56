"""Densities of positive parameters, which are sampled as ``theta = log v``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import gammaln

from streammc.docstrings import documented
from streammc.numerics.prior import GAMMA, HALF_NORMAL, HALF_STUDENT_T, INVERSE_GAMMA
from streammc.priors.coefficients import log_t_constant, normal_rows
from streammc.priors.family import HALF_LOG_2PI, Family, FamilyPrior, build, table_rows
from streammc.priors.per_coefficient import Option
from streammc.protocols import Matrix, Vector

_LOG_2: Final = math.log(2.0)


def _half_normal(labels: Sequence[str], scale: Vector) -> Matrix:
    location = np.log(scale)
    constant = _LOG_2 - HALF_LOG_2PI - location
    return table_rows(
        HALF_NORMAL, location=location, scale=scale, constant=constant, size=len(labels)
    )


def _half_student_t(labels: Sequence[str], df: Vector, scale: Vector) -> Matrix:
    return table_rows(
        HALF_STUDENT_T,
        location=np.log(scale) + 0.5 * np.log(df),
        scale=scale,
        shape=df,
        constant=_LOG_2 + log_t_constant(df, scale),
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
    "lognormal", ("location", "scale"), ("scale",), positive=normal_rows, rest={"location": 0.0}
)


@documented()
def half_normal(scale: Option) -> FamilyPrior:
    """Return half-normal priors, ``|Normal(0, scale)|``.

    Parameters
    ----------
    scale
        Standard deviation before the sign is dropped, above 0, in the unit of the parameter on
        the store's scale; in the forms of :func:`normal`.

    Raises
    ------
    ConfigError
        If a scale is not a finite number above 0.
    """
    return build(HALF_NORMAL_FAMILY, scale=scale)


@documented()
def half_cauchy(scale: Option) -> FamilyPrior:
    """Return half-Cauchy priors with median ``scale``.

    Parameters
    ----------
    scale
        Median, above 0, in the unit of the parameter; in the forms of :func:`normal`.

    Raises
    ------
    ConfigError
        If a number is not a finite number above 0.
    """
    return build(HALF_CAUCHY_FAMILY, scale=scale)


@documented()
def half_student_t(df: Option, scale: Option) -> FamilyPrior:
    """Return half-Student-t priors, ``|scale t(df)|``.

    Parameters
    ----------
    df
        Degrees of freedom, above 0, in the forms of :func:`normal`.
    scale
        Scale, above 0, in the unit of the parameter; in the same forms.

    Raises
    ------
    ConfigError
        If a number is not a finite number above 0.
    """
    return build(HALF_STUDENT_T_FAMILY, df=df, scale=scale)


@documented()
def gamma(shape: Option, rate: Option) -> FamilyPrior:
    """Return gamma priors with mean ``shape / rate``.

    Parameters
    ----------
    shape
        Shape, above 0, in the forms of :func:`normal`.
    rate
        Rate, above 0, in one over the unit of the parameter; in the same forms.

    Raises
    ------
    ConfigError
        If a number is not a finite number above 0.
    """
    return build(GAMMA_FAMILY, shape=shape, rate=rate)


@documented()
def inverse_gamma(shape: Option, scale: Option) -> FamilyPrior:
    """Return inverse gamma priors, ``1 / Gamma(shape, rate=scale)``.

    Parameters
    ----------
    shape
        Shape, above 0, in the forms of :func:`normal`; the mean is ``scale / (shape - 1)``.
    scale
        Scale, above 0, in the unit of the parameter; in the same forms.

    Raises
    ------
    ConfigError
        If a number is not a finite number above 0.
    """
    return build(INVERSE_GAMMA_FAMILY, shape=shape, scale=scale)


@documented()
def exponential(rate: Option) -> FamilyPrior:
    """Return exponential priors with mean ``1 / rate``.

    Parameters
    ----------
    rate
        Rate, above 0, in one over the unit of the parameter; in the forms of :func:`normal`.

    Raises
    ------
    ConfigError
        If a number is not a finite number above 0.
    """
    return build(EXPONENTIAL_FAMILY, rate=rate)


@documented()
def lognormal(location: Option = 0.0, scale: Option | None = None) -> FamilyPrior:
    """Return priors whose log is ``Normal(location, scale)``.

    Parameters
    ----------
    location
        Mean of the log, in the forms of :func:`normal`.
    scale
        Standard deviation of the log, above 0; it has to be given.

    Raises
    ------
    ConfigError
        If a location is not finite or a scale is not a finite number above 0.
    """
    return build(LOGNORMAL_FAMILY, location=location, scale=scale)
