"""The design that a run was sampled on, as it is kept with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KEYS: Final = ("features", "intercept", "standardization", "formula", "offset", "trials")


def describe(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a data set's attributes a prediction depends on."""
    return {key: attributes.get(key) for key in KEYS}
