"""Diagnostics of draws: summaries, the original scale, costs and importance weights.

Public names are imported on first use, because the import of ArviZ takes a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammc.registry import on_first_use

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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "audit_weights": "weights",
        "inefficiency": "cost",
        "intraclass_correlation": "derived",
        "pareto_k": "weights",
        "summarize": "summary",
    },
)
