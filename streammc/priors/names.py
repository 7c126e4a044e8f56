"""Which name or pattern decides for which parameter."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from streammc.errors import ConfigError

REST: Final = "*"
"""The name that stands for everything not named."""

_COEFFICIENT: Final = "beta["
_LISTED: Final = 8


def choose(what: str, names: Iterable[str], labels: Sequence[str]) -> dict[str, str]:
    """Return the name that decides for each label; labels without one are left out.

    ``distance`` stands for ``beta[distance]``. In a pattern ``*`` is any text and
    everything else is literal. A name wins over a pattern and a longer pattern over a
    shorter one; ``"*"`` alone is ignored here.

    Raises
    ------
    ConfigError
        If a name or pattern fits no label, two names mean the same, or two patterns of
        one length fit the same label.
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
            length, found = _fitting(name, labels)
            if not found:
                raise ConfigError(
                    f"{what} must have patterns that fit a parameter, found {name!r}, which fits "
                    f"none: {_hint(name, labels)}"
                )
            for label in found:
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
        found = [label for label in labels if re.fullmatch(text, label, re.DOTALL)]
        if found:
            return len(full), found
    return 0, []


def _hint(name: str, labels: Sequence[str]) -> str:
    """Name the parameter whose own name is near; where none is, list the parameters.

    What is common to the labels of all coefficients makes no two of them similar.
    """
    own = {_own(label): label for label in labels}
    near = get_close_matches(_own(name).replace(REST, ""), own, n=1)
    if not near:
        return f"choose from {list_labels(labels)}"
    found = own[near[0]] if name.startswith(_COEFFICIENT) else near[0]
    return f"did you mean {found!r}?"


def _own(label: str) -> str:
    """Return the name of the column of a coefficient, and any other label as it is."""
    if not label.startswith(_COEFFICIENT):
        return label
    return label[len(_COEFFICIENT) :].removesuffix("]")
