"""Description of the design of a run, as recorded in the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KEYS: Final = (
    *("features", "intercept", "standardization", "formula"),
    *("response", "offset", "trials"),
)


def describe(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a data set that predictions depend on."""
    return {key: attributes.get(key) for key in KEYS}
