"""Diagnostics of draws: summaries, the original scale, costs and importance weights.

Public names are imported on first use, because the import of ArviZ takes a second.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streammc.diagnostics.cost import inefficiency
    from streammc.diagnostics.derived import intraclass_correlation
    from streammc.diagnostics.summary import summarize
    from streammc.diagnostics.weights import audit_weights, pareto_k

__all__ = [
    "audit_weights",
    "inefficiency",
    "intraclass_correlation",
    "pareto_k",
    "summarize",
]

_LAZY: Final[dict[str, str]] = {
    "audit_weights": "streammc.diagnostics.weights",
    "inefficiency": "streammc.diagnostics.cost",
    "intraclass_correlation": "streammc.diagnostics.derived",
    "pareto_k": "streammc.diagnostics.weights",
    "summarize": "streammc.diagnostics.summary",
}


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on first use."""
    if name not in _LAZY:
        raise AttributeError(
            f"module 'streammc.diagnostics' has no attribute {name!r}",
            name=name,
            obj=sys.modules[__name__],
        )
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """Return the names of the module and the public names that are imported on first use."""
    return sorted({*globals(), *_LAZY})
