"""Whether a run is the one that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from streammc.errors import IdentityError
from streammc.trace.sealed import plain

_SHOWN: Final = 4
_PRIOR: Final = "model.prior."
_UNLESS_SAID: Final = {"temperature": 1.0}
"""What an identity that does not name it stands for."""


def check_identity(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    prior_texts: Callable[[Any], Mapping[str, str]] | None = None,
) -> None:
    """Raise unless two identities agree in every entry.

    Parameters
    ----------
    stored, wanted
        Identities: of the run, and of the job that is asked for.
    prior_texts
        Returns the prior of every parameter as text, from the description of the priors of
        a model; empty where it fits no parameters.

    Raises
    ------
    IdentityError
        One line that names what differs, as ``sampler.step_size is 0.1, asked for 0.2``.
    """
    here, asked = (_UNLESS_SAID | _flat(plain(some)) for some in (stored, wanted))
    keys = [key for key in {**here, **asked} if here.get(key, _ABSENT) != asked.get(key, _ABSENT)]
    if not keys:
        return
    priors = [] if prior_texts is None else _prior_differences(stored, wanted, prior_texts)
    if priors:
        keys = [key for key in keys if not key.startswith(_PRIOR)]
    found = [
        f"{key} is {_short(here.get(key, _ABSENT))}, asked for {_short(asked.get(key, _ABSENT))}"
        for key in keys
    ] + priors
    shown = "; ".join(found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise IdentityError(
        f"expected a run of the same job, found another one: {shown}{more}: "
        "choose another output, ask for the same, or replace the run with --overwrite "
        "(in Python overwrite=True)"
    )


def _prior_differences(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    prior_texts: Callable[[Any], Mapping[str, str]],
) -> list[str]:
    """Return a line per parameter with another prior; empty where texts show no difference."""
    here, asked = (prior_texts(some.get("model", {}).get("prior")) for some in (stored, wanted))
    return [
        f"prior of {label} is {here[label]} in the run, {text} asked for"
        for label, text in asked.items()
        if label in here and here[label] != text
    ]


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT: Final = _Absent()


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            flat.update(_flat(item, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
