"""A number for every parameter: one for all, one each, or by name and pattern."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Final, TypeAlias

import numpy as np

from streammc.errors import ConfigError
from streammc.protocols import Vector

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
