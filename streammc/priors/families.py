"""Priors of one family: normal, gamma and the others, and the table of several.

A number of a prior is one for all parameters, one each, or by name and pattern.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from types import MappingProxyType
from typing import Any, Final, TypeAlias, overload

import numpy as np

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.numerics.prior import COLUMNS, FLAT, KIND, LOG_FLAT
from streammc.priors.densities import ANY_SIGN, CORRELATION, FAMILIES, POSITIVE, Family
from streammc.protocols import Matrix, Vector
from streammc.shown import Shown

REST: Final = "*"
"""The name that stands for everything not named."""

_COEFFICIENT: Final = "beta["
_LISTED: Final = 8


def choose(what: str, names: Iterable[str], labels: Sequence[str]) -> dict[str, str]:
    """Return the name that decides for each label; labels without one are left out.

    ``distance`` stands for ``beta[distance]``. In a pattern ``*`` is any text and
    everything else is literal. A name wins over a pattern and a longer pattern over a
    shorter one; ``"*"`` alone is ignored here. ConfigError if a name or pattern fits no label, or
    two of the same rank fit one.
    """
    known = frozenset(labels)
    named: dict[str, str] = {}
    fitting: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        label = _label(name, known)
        if label is not None:
            if label in named:
                raise ConfigError(f"{what} must name {label!r} once, found it twice: keep one")
            named[label] = name
        elif REST not in name:
            raise ConfigError(
                f"{what} must name parameters, found {name!r}, which is none: {_hint(name, labels)}"
            )
        elif name != REST:
            length, fits = _fitting(name, labels)
            if not fits:
                raise ConfigError(
                    f"{what} must have patterns that fit a parameter, found {name!r}, which fits "
                    f"none: {_hint(name, labels)}"
                )
            for label in fits:
                fitting.setdefault(label, []).append((length, name))
    chosen = dict(named)
    for label, patterns in fitting.items():
        if label in named:
            continue
        length = max(patterns)[0]
        best = sorted(name for other, name in patterns if other == length)
        if len(best) > 1:
            raise ConfigError(
                f"{what} must have one longest pattern for {label!r}, found {best[0]!r} and "
                f"{best[1]!r} of the same length: make one longer, or name the parameter"
            )
        chosen[label] = best[0]
    return chosen


def list_labels(labels: Sequence[str]) -> str:
    """Join labels for a message, the first few."""
    shown = ", ".join(repr(label) for label in labels[:_LISTED])
    more = len(labels) - _LISTED
    return shown if more <= 0 else f"{shown} and {more} more"


def _label(name: str, labels: Collection[str]) -> str | None:
    """Return the label that a name is, or stands for."""
    if name in labels:
        return name
    full = f"{_COEFFICIENT}{name}]"
    return full if full in labels else None


def _fitting(pattern: str, labels: Sequence[str]) -> tuple[int, list[str]]:
    """Return the length of a pattern written in full, and the labels it fits."""
    for full in (pattern, f"{_COEFFICIENT}{pattern}]"):
        text = ".*".join(re.escape(part) for part in full.split(REST))
        fits = [label for label in labels if re.fullmatch(text, label, re.DOTALL)]
        if fits:
            return len(full), fits
    return 0, []


def _hint(name: str, labels: Sequence[str]) -> str:
    """Name the parameter whose own name is near; where none is, list the parameters.

    What is common to the labels of all coefficients makes no two of them similar.
    """
    own = {_own(label): label for label in labels}
    near = get_close_matches(_own(name).replace(REST, ""), own, n=1)
    if not near:
        return f"choose from {list_labels(labels)}"
    closest = own[near[0]] if name.startswith(_COEFFICIENT) else near[0]
    return f"did you mean {closest!r}?"


def _own(label: str) -> str:
    """Return the name of the column of a coefficient, and any other label as it is."""
    if not label.startswith(_COEFFICIENT):
        return label
    return label[len(_COEFFICIENT) :].removesuffix("]")


Setting: TypeAlias = float | tuple[float, ...] | tuple[tuple[str, float], ...]
"""A number, numbers in the order of the parameters, or (label, number) pairs."""

Option: TypeAlias = float | Sequence[float] | Mapping[str, float]
"""What a user may write: see :func:`freeze`."""


def _number(what: str, value: object, *, positive: bool) -> float:
    """Return ``value`` as a finite float."""
    expected = "a finite number above 0" if positive else "a finite number"
    if isinstance(value, bool) or not isinstance(value, Real):
        shown = " ".join(repr(value).split())[:60]  # an array's repr has many lines
        raise ConfigError(f"{what} must be {expected}, found {shown}: give a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond float64
        number = math.inf
    if not math.isfinite(number) or (positive and number <= 0.0):
        raise ConfigError(f"{what} must be {expected}, found {number!r}: give another number")
    return number


def freeze(what: str, value: Option, *, positive: bool = False) -> Setting:
    """Check an option and return it in a form that does not change.

    ``value`` is a number, a sequence with one per parameter, or a mapping from label or pattern
    (see :func:`choose`) to number; ``what`` names it in messages, such as ``"prior scale"``.
    ConfigError if a number is not finite, not ``positive`` where it must be, or there is none.
    """
    if isinstance(value, Mapping):
        pairs = [
            (str(label), _number(f"{what} of {label!r}", each, positive=positive))
            for label, each in value.items()
        ]
        if not pairs:
            raise ConfigError(
                f"{what} must name at least one label, found an empty mapping"
                ': name one, or "*" for all'
            )
        return tuple(sorted(pairs))
    if isinstance(value, str | bytes):
        raise ConfigError(
            f"{what} must be a number, a sequence or a mapping, found {value!r}: give numbers"
        )
    if isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim == 1):
        if not len(value):
            raise ConfigError(
                f"{what} must have one number per parameter, found none: give numbers"
            )
        return tuple(
            _number(f"{what} number {j}", each, positive=positive) for j, each in enumerate(value)
        )
    return _number(what, value, positive=positive)


def expand(what: str, setting: Setting, labels: Sequence[str], default: float | None) -> Vector:
    """Return the number of every label, (d,).

    ``default`` is used for labels that a mapping without ``"*"`` does not name; ``None``
    requires all of them. ConfigError if the setting does not fit the labels.
    """
    if isinstance(setting, float):
        return np.full(len(labels), setting)
    if not isinstance(setting[0], tuple):
        if len(setting) != len(labels):
            raise ConfigError(
                f"{what} must have {len(labels)} numbers, one for each of "
                f"{list_labels(labels)}, found {len(setting)}"
                ": give one for each, or one number for all"
            )
        return np.array(setting, dtype=np.float64)
    pairs: dict[str, float] = dict(setting)
    rest = pairs.pop(REST, default)
    chosen = choose(what, pairs, labels)
    missing = [label for label in labels if label not in chosen]
    if rest is None and missing:
        raise ConfigError(
            f"{what} must cover every parameter, found nothing for {list_labels(missing)}: "
            f'name them, or give "{REST}" for the rest'
        )
    return np.array(
        [pairs[chosen[label]] if label in chosen else rest for label in labels], dtype=np.float64
    )


def describe(setting: Setting) -> object:
    """Return the setting as JSON types."""
    if isinstance(setting, float):
        return setting
    if isinstance(setting[0], tuple):
        return dict(setting)
    return list(setting)


def brief(setting: Setting) -> str:
    """Return the setting for a person: numbers to six digits, at most four of them."""
    if isinstance(setting, float):
        return f"{setting:g}"
    shown = [f"{v[0]!r}: {v[1]:g}" if isinstance(v, tuple) else f"{v:g}" for v in setting[:4]]
    more = ", ..." if len(setting) > 4 else ""
    opening, closing = "{}" if isinstance(setting[0], tuple) else "[]"
    return f"{opening}{', '.join(shown)}{more}{closing}"


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
        if kind in (FLAT, LOG_FLAT) and instead.get(label):
            way = "grows" if kind == LOG_FLAT else "falls or grows"
            raise ConfigError(
                f"the prior of {label!r} must be proper, found flat: the likelihood tends to a "
                f"constant as it {way}, so that the posterior is improper: write {instead[label]}"
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
    control variates are computed; so is a flat prior on ``nu`` of Student-t, ``phi`` of negative
    binomial regression and the log odds of zeros. On ``sigma`` it has density 1 in ``sigma``, not
    in its log.

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
