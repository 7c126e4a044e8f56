"""Whether a run is the one that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streammc.errors import IdentityError
from streammc.trace.sealed import plain

_SHOWN: Final = 4
_UNLESS_SAID: Final = {"temperature": 1.0}
"""What an identity that does not name it stands for."""


def check_identity(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise unless two identities agree in every entry.

    Raises
    ------
    IdentityError
        One line that names what differs, as ``sampler.step_size is 0.1, asked for 0.2``.
    """
    here, asked = (_UNLESS_SAID | _flat(plain(some)) for some in (stored, wanted))
    keys = [key for key in {**here, **asked} if here.get(key, _ABSENT) != asked.get(key, _ABSENT)]
    if not keys:
        return
    shown = "; ".join(
        f"{key} is {_short(here.get(key, _ABSENT))}, asked for {_short(asked.get(key, _ABSENT))}"
        for key in keys[:_SHOWN]
    )
    more = f"; and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    raise IdentityError(
        f"expected a run of the same job, found another one: {shown}{more}: "
        "choose another output, ask for the same, or replace the run with --overwrite "
        "(in Python overwrite=True)"
    )


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
