"""Densities on the whole line: normal, Student t, Laplace."""

from __future__ import annotations

from typing import Final, overload

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.priors.densities import LAPLACE_FAMILY, NORMAL_FAMILY, STUDENT_T_FAMILY
from streammc.priors.family import FamilyPrior, build
from streammc.priors.per_coefficient import Option

DEFAULT_SCALE: Final = 10.0
DEFAULT_LOCATION: Final = 0.0


@overload
def normal(
    scale: Option = DEFAULT_SCALE, *, location: Option = DEFAULT_LOCATION
) -> FamilyPrior: ...
@overload
def normal(location: Option, scale: Option, /) -> FamilyPrior: ...
@documented()
def normal(*given: Option, **named: Option) -> FamilyPrior:
    """Return independent normal priors, ``theta_j ~ Normal(location_j, scale_j)``.

    One number is the scale, ``normal(scale)``. Two numbers are ``normal(location, scale)``, as
    in the text form.

    Parameters
    ----------
    scale
        Standard deviation, above 0, on the store's scale (that of its standardised columns),
        intercept included: a number for all, a sequence with one per coefficient, or a mapping
        from label to number with ``"*"`` for the rest.
    location
        Mean, on the store's scale, in the same forms; a mapping without ``"*"`` means 0 for the
        rest.

    Raises
    ------
    ConfigError
        If a scale is not a finite number above 0 or a location is not finite.

    Examples
    --------
    >>> from streammc.priors import normal
    >>> prior = normal(scale={"beta[Intercept]": 20.0, "*": 2.5})
    >>> prior.table(["beta[Intercept]", "beta[age]"])[:, 2]
    array([20. ,  2.5])
    >>> normal(0, 5) == normal(scale=5.0) == normal(5)
    True
    """
    names = ("location", "scale") if len(given) == 2 else ("scale",)
    wrong = sorted({*named} - {"location", "scale"}) or [
        n for n in names[: len(given)] if n in named
    ]
    if len(given) > 2 or wrong:
        raise ConfigError(
            f"expected normal(scale), normal(location, scale) or names, found {len(given)} numbers"
            + (f" and {', '.join(wrong)}" if wrong else "")
            + ": give location and scale once"
        )
    options = {
        "scale": DEFAULT_SCALE,
        "location": DEFAULT_LOCATION,
        **dict(zip(names, given, strict=False)),
        **named,
    }
    return build(NORMAL_FAMILY, **options)


@documented(normal)
def student_t(df: Option, location: Option = 0.0, scale: Option | None = None) -> FamilyPrior:
    """Return Student t priors, ``(theta_j - location_j) / scale_j ~ t(df_j)``.

    Parameters
    ----------
    df
        Degrees of freedom, above 0; 1 is the Cauchy density. All options take the
        forms of :func:`normal`.
    location
        Median, on the store's scale; a mapping without ``"*"`` means 0 for the rest.
    scale
        Scale, above 0, on the store's scale; it has to be given.

    Raises
    ------
    ConfigError
        If a number is not finite, or ``df`` or ``scale`` not above 0.

    Examples
    --------
    >>> from streammc.priors import student_t
    >>> student_t(df=3, scale=2.5).describe()
    {'family': 'student_t', 'df': 3.0, 'location': 0.0, 'scale': 2.5}
    """
    return build(STUDENT_T_FAMILY, df=df, location=location, scale=scale)


@documented(normal)
def laplace(location: Option = 0.0, scale: Option | None = None) -> FamilyPrior:
    """Return Laplace priors, ``exp(-|theta_j - location_j| / scale_j) / (2 scale_j)``.

    ``theta_star`` is the mode with the kink smoothed, see ``numerics.prior.smooth``; the
    draws have the density as it is.

    Parameters
    ----------
    location
        Median and mode, on the store's scale, in the forms of :func:`normal`.
    scale
        Mean absolute deviation, above 0, on the store's scale; it has to be given.

    Raises
    ------
    ConfigError
        If a location is not finite or a scale is not a finite number above 0.
    """
    return build(LAPLACE_FAMILY, location=location, scale=scale)
