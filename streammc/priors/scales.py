"""Densities of positive parameters, which are sampled as ``theta = log v``."""

from __future__ import annotations

from streammc.docstrings import documented
from streammc.priors.densities import (
    EXPONENTIAL_FAMILY,
    GAMMA_FAMILY,
    HALF_CAUCHY_FAMILY,
    HALF_NORMAL_FAMILY,
    HALF_STUDENT_T_FAMILY,
    INVERSE_GAMMA_FAMILY,
    LOGNORMAL_FAMILY,
)
from streammc.priors.family import FamilyPrior, build
from streammc.priors.per_coefficient import Option


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
