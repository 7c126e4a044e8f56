"""A number for every parameter: one for all, one each, or by label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TypeAlias

import numpy as np

from streammc.errors import ConfigError
from streammc.priors.names import REST, choose, list_labels
from streammc.protocols import Vector

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

    Parameters
    ----------
    what
        Name of the option, for messages: ``"prior scale"``.
    value
        A number; a sequence with one number per parameter; or a mapping from label
        (``"beta[distance]"``, ``"distance"``, or a pattern: see ``names.choose``) to
        number, where ``"*"`` stands for every other.
    positive
        Refuse numbers that are not above 0.

    Raises
    ------
    ConfigError
        If a number is not finite, not positive where it must be, or there is none.
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
    requires all of them.

    Raises
    ------
    ConfigError
        If a sequence has another length, a mapping does not fit the labels
        (``names.choose``), or a label is left without a number.
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
