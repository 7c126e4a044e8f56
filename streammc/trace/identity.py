"""The check that an existing run belongs to the requested job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from streammc.errors import IdentityError
from streammc.trace.sealed import plain

_SHOWN: Final = 4
_PRIOR: Final = "model.prior."
_DEFAULTS: Final = {"temperature": 1.0}
"""Entries of an identity that lacks them."""


def check_identity(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    prior_texts: Callable[[Any], Mapping[str, str]] | None = None,
) -> None:
    """Refuse a run whose identity differs from that of the requested job in any entry.

    Parameters
    ----------
    stored, wanted
        Identities of the run and of the requested job.
    prior_texts
        Returns the prior of every parameter as text, from the ``prior`` of a model in an
        identity; empty if that does not fit the parameters.

    Raises
    ------
    IdentityError
        If they differ; names the entries, as ``sampler.step_size is 0.1, asked for 0.2``.
    """
    ours, requested = (_DEFAULTS | _flat(plain(identity)) for identity in (stored, wanted))
    keys = [
        key
        for key in {**ours, **requested}
        if ours.get(key, _ABSENT) != requested.get(key, _ABSENT)
    ]
    if not keys:
        return
    priors = [] if prior_texts is None else _prior_differences(stored, wanted, prior_texts)
    if priors:
        keys = [key for key in keys if not key.startswith(_PRIOR)]
    differences = [
        f"{key} is {_short(ours.get(key, _ABSENT))}, "
        f"asked for {_short(requested.get(key, _ABSENT))}"
        for key in keys
    ] + priors
    shown = "; ".join(differences[:_SHOWN])
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    raise IdentityError(
        f"expected a run of the same job, found another one: {shown}{more}: "
        "choose another output, or ask for the same",
        "; or replace the run with --overwrite (in Python overwrite=True)",
    )


def _prior_differences(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    prior_texts: Callable[[Any], Mapping[str, str]],
) -> list[str]:
    """Return a text for each parameter whose prior differs; empty if the texts are the same."""
    ours, requested = (
        prior_texts(identity.get("model", {}).get("prior")) for identity in (stored, wanted)
    )
    return [
        f"prior of {label} is {ours[label]} in the run, {text} asked for"
        for label, text in requested.items()
        if label in ours and ours[label] != text
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
