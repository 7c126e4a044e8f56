"""Priors of one family: normal, gamma and the others, and the table of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias, overload

import numpy as np

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.numerics.prior import COLUMNS, KIND, LOG_FLAT
from streammc.priors.densities import (
    ANY_SIGN,
    CORRELATION,
    FAMILIES,
    POSITIVE,
    Family,
)
from streammc.priors.per_coefficient import Option, Setting, brief, describe, expand, freeze
from streammc.protocols import Matrix
from streammc.shown import Shown


@dataclass(frozen=True, repr=False)
class FamilyPrior(Shown):
    """One family for every parameter it is given to; build it with ``streammc.priors``."""

    family: Family
    settings: tuple[tuple[str, Setting], ...]

    def rows(self, labels: Sequence[str], positive: Sequence[int]) -> Matrix:
        """Return the rows (k, 5) of these labels, each of which has this prior.

        ConfigError if the settings do not match the labels, or the family does not fit one.
        """
        family = self.family
        values = {
            name: expand(f"prior {name}", setting, labels, family.rest.get(name))
            for name, setting in self.settings
        }
        out = np.zeros((len(labels), COLUMNS))
        for flag, rows in (
            (ANY_SIGN, family.coefficient),
            (POSITIVE, family.positive),
            (CORRELATION, family.correlation),
        ):
            at = [j for j, each in enumerate(positive) if each == flag]
            if not at:
                continue
            if rows is None:
                raise ConfigError(_misfit(family.name, labels[at[0]], flag))
            columns = rows([labels[j] for j in at], **{k: v[at] for k, v in values.items()})
            for column, value in enumerate(columns):
                out[at, column] = value
        return out

    def table(
        self,
        labels: Sequence[str],
        positive: Sequence[int] = (),
        defaults: Mapping[str, FamilyPrior] = MappingProxyType({}),
    ) -> Matrix:
        """Return the (d, 5) table of a model whose coefficients have this prior.

        ``positive`` is true of a positive parameter, sampled as its log, and 2 of a correlation,
        sampled as its artanh; these take their ``defaults`` by label, or else half-Student-t(3, 10)
        and LKJ(2). Empty: none is. ConfigError if the settings do not match the labels.
        """
        flags = positive_flags(labels, positive)
        return assemble(labels, flags, [None if flag else self for flag in flags], defaults)

    def __repr__(self) -> str:
        """Return the call that makes it, long sequences cut."""
        order = self.family.parameters
        shown = sorted(self.settings, key=lambda pair: order.index(pair[0]))
        return f"{self.family.name}({', '.join(f'{name}={brief(v)}' for name, v in shown)})"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return the settings of the prior for a notebook."""
        return f"Prior {self.family.name}", {name: brief(value) for name, value in self.settings}

    def describe(self) -> dict[str, Any]:
        """Return the family and its settings as JSON types."""
        return {
            "family": self.family.name,
            **{name: describe(setting) for name, setting in self.settings},
        }


def build(family: str, **options: Option | None) -> FamilyPrior:
    """Return the prior of a family; ConfigError if an option is out of range."""
    known = FAMILIES[family]
    settings = tuple(
        (name, freeze(f"prior {name}", value, positive=name in known.above_zero))  # type: ignore[arg-type]
        for name, value in options.items()
    )
    return FamilyPrior(known, settings)


DEFAULT: Final = build("normal", scale=10.0, location=0.0)
"""Of a parameter of any sign whose default does not scale with the data."""
DEFAULT_POSITIVE: Final = build("half_student_t", df=3.0, scale=10.0)
"""Of a positive parameter whose default does not scale with the data, such as ``phi``."""
DEFAULT_CORRELATION: Final = build("lkj", shape=2.0)
_DEFAULTS: Final = {ANY_SIGN: DEFAULT, POSITIVE: DEFAULT_POSITIVE, CORRELATION: DEFAULT_CORRELATION}
Defaults: TypeAlias = Mapping[str, FamilyPrior]
"""Fixed defaults that a model gives to parameters of its own, by label."""
NO_DEFAULTS: Final[Defaults] = MappingProxyType({})


def assemble(
    labels: Sequence[str],
    positive: Sequence[int],
    priors: Sequence[FamilyPrior | None],
    defaults: Defaults = NO_DEFAULTS,
) -> Matrix:
    """Return the (d, 5) table of one prior per label; ``None`` is the fixed default.

    Labels with the same prior object share its settings: a sequence has one number for
    each of them.
    """
    out = np.zeros((len(labels), COLUMNS))
    for prior, at in grouped(labels, positive, priors, defaults):
        out[at] = prior.rows([labels[j] for j in at], [positive[j] for j in at])
    return out


def grouped(
    labels: Sequence[str],
    positive: Sequence[int],
    priors: Sequence[FamilyPrior | None],
    defaults: Defaults = NO_DEFAULTS,
) -> list[tuple[FamilyPrior, list[int]]]:
    """Return each prior object with the places of its labels; ``None`` is the fixed default."""
    groups: dict[int, tuple[FamilyPrior, list[int]]] = {}
    for j, prior in enumerate(priors):
        if prior is None:
            prior = defaults.get(labels[j], _DEFAULTS[int(positive[j])])
        groups.setdefault(id(prior), (prior, []))[1].append(j)
    return list(groups.values())


def positive_flags(labels: Sequence[str], positive: Sequence[int]) -> list[int]:
    """Return a flag per label."""
    flags = [int(flag) for flag in positive] or [ANY_SIGN] * len(labels)
    if len(flags) != len(labels):
        raise ConfigError(
            f"expected positive to have a flag for each of {len(labels)} labels, found {len(flags)}"
            ": give one for each label"
        )
    return flags


def _misfit(name: str, label: str, flag: int) -> str:
    if flag == CORRELATION:
        return (
            f"the prior of {label!r} must be a density of a correlation, found {name}: "
            "write lkj(2), or lkj(1) for a uniform one"
        )
    if flag == POSITIVE:
        return (
            f"the prior of {label!r} must be a density of a positive number, found {name}: "
            "write half_normal, half_student_t, half_cauchy, lognormal, gamma, inverse_gamma, "
            "exponential or uniform"
        )
    return (
        f"the prior of {label!r} must be a density on the whole line, found {name}: "
        "write normal, student_t, laplace, uniform or flat"
    )


_NUMBERS: Final = """
Raises
------
ConfigError
    If a number is not finite, or not above 0 where it has to be.
"""
"""``Raises`` of the builders."""
DEFAULT_SCALE: Final = 10.0
DEFAULT_LOCATION: Final = 0.0


@overload
def normal(
    scale: Option = DEFAULT_SCALE, *, location: Option = DEFAULT_LOCATION
) -> FamilyPrior: ...
@overload
def normal(location: Option, scale: Option, /) -> FamilyPrior: ...
@documented(_NUMBERS)
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
    return build("normal", **options)


@documented(normal, _NUMBERS)
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

    Examples
    --------
    >>> from streammc.priors import student_t
    >>> student_t(df=3, scale=2.5).describe()
    {'family': 'student_t', 'df': 3.0, 'location': 0.0, 'scale': 2.5}
    """
    return build("student_t", df=df, location=location, scale=scale)


@documented(normal, _NUMBERS)
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
    """
    return build("laplace", location=location, scale=scale)


@documented(_NUMBERS)
def half_normal(scale: Option) -> FamilyPrior:
    """Return half-normal priors, ``|Normal(0, scale)|``.

    Parameters
    ----------
    scale
        Standard deviation before the sign is dropped, above 0, in the unit of the parameter on
        the store's scale; in the forms of :func:`normal`.
    """
    return build("half_normal", scale=scale)


@documented(_NUMBERS)
def half_cauchy(scale: Option) -> FamilyPrior:
    """Return half-Cauchy priors with median ``scale``.

    Parameters
    ----------
    scale
        Median, above 0, in the unit of the parameter; in the forms of :func:`normal`.
    """
    return build("half_cauchy", scale=scale)


@documented(_NUMBERS)
def half_student_t(df: Option, scale: Option) -> FamilyPrior:
    """Return half-Student-t priors, ``|scale t(df)|``.

    Parameters
    ----------
    df
        Degrees of freedom, above 0, in the forms of :func:`normal`.
    scale
        Scale, above 0, in the unit of the parameter; in the same forms.
    """
    return build("half_student_t", df=df, scale=scale)


@documented(_NUMBERS)
def gamma(shape: Option, rate: Option) -> FamilyPrior:
    """Return gamma priors with mean ``shape / rate``.

    Parameters
    ----------
    shape
        Shape, above 0, in the forms of :func:`normal`.
    rate
        Rate, above 0, in one over the unit of the parameter; in the same forms.
    """
    return build("gamma", shape=shape, rate=rate)


@documented(_NUMBERS)
def inverse_gamma(shape: Option, scale: Option) -> FamilyPrior:
    """Return inverse gamma priors, ``1 / Gamma(shape, rate=scale)``.

    Parameters
    ----------
    shape
        Shape, above 0, in the forms of :func:`normal`; the mean is ``scale / (shape - 1)``.
    scale
        Scale, above 0, in the unit of the parameter; in the same forms.
    """
    return build("inverse_gamma", shape=shape, scale=scale)


@documented(_NUMBERS)
def exponential(rate: Option) -> FamilyPrior:
    """Return exponential priors with mean ``1 / rate``.

    Parameters
    ----------
    rate
        Rate, above 0, in one over the unit of the parameter; in the forms of :func:`normal`.
    """
    return build("exponential", rate=rate)


@documented(_NUMBERS)
def lognormal(location: Option = 0.0, scale: Option | None = None) -> FamilyPrior:
    """Return priors whose log is ``Normal(location, scale)``.

    Parameters
    ----------
    location
        Mean of the log, in the forms of :func:`normal`.
    scale
        Standard deviation of the log, above 0; it has to be given.
    """
    return build("lognormal", location=location, scale=scale)


def refuse_flat(labels: Sequence[str], table: Matrix, instead: Mapping[str, str]) -> None:
    """Refuse a flat prior where the likelihood tends to a constant above 0.

    ``table`` (d, 5) is that of ``labels``; ``instead`` is what to write for each parameter of this
    kind, by its label. ConfigError: the posterior would be improper.
    """
    for label, kind in zip(labels, table[:, KIND], strict=True):
        if kind == LOG_FLAT and label in instead:
            raise ConfigError(
                f"the prior of {label!r} must be proper, found flat: the likelihood tends to a "
                f"constant as it grows, so that the posterior is improper: write {instead[label]}"
            )


@documented()
def uniform(low: Option, high: Option) -> FamilyPrior:
    """Return uniform priors, density ``1 / (high - low)`` between and 0 outside.

    A trajectory that ends outside is rejected. ``theta_star`` is the mode with the walls
    smoothed, see ``numerics.prior.smooth``.

    Parameters
    ----------
    low, high
        Ends, on the store's scale, in the forms of :func:`normal`. For a scale parameter the
        density is uniform in its value, and ``low`` at least 0.

    Raises
    ------
    ConfigError
        If an end is not finite, or (when the table is made) ``low`` is not below ``high``.
    """
    prior = build("uniform", low=low, high=high)
    (_, a), (_, b) = prior.settings
    if isinstance(a, float) and isinstance(b, float) and not a < b:
        raise ConfigError(
            f"a uniform prior must have low below high, found {a:g} and {b:g}"
            ": give a low below high"
        )
    return prior


@documented()
def flat() -> FamilyPrior:
    """Return the improper prior with density 1.

    The posterior may then not exist: separated or collinear data are refused when
    control variates are computed; so is a flat prior on ``nu`` of Student-t and ``phi`` of
    negative binomial regression. On ``sigma`` it has density 1 in ``sigma``, not in its log.

    Examples
    --------
    >>> from streammc.priors import flat
    >>> flat().describe()
    {'family': 'flat'}
    """
    return build("flat")


@documented(_NUMBERS)
def lkj(shape: Option) -> FamilyPrior:
    """Return priors of a correlation, density proportional to ``(1 - v^2)^(shape - 1)``.

    Of two effects, the prior of Lewandowski, Kurowicka and Joe (2009): uniform for a shape of 1,
    concentrated at 0 for a larger one.

    Parameters
    ----------
    shape
        Shape, above 0, in the forms of :func:`normal`.
    """
    return build("lkj", shape=shape)
