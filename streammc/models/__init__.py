"""Likelihood families, one per file, resolved by name on first use.

Importing a family compiles (or loads) its link, so nothing is imported before it is
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streammc.registry import MODELS

if TYPE_CHECKING:
    from streammc.models.bernoulli_logit import logistic
    from streammc.models.check import check_model
    from streammc.models.poisson_log import poisson

__all__ = ["check_model", "logistic", "poisson"]


def __getattr__(name: str) -> Any:
    """Return the builder of the model ``name``, importing it."""
    if name == "check_model":
        from streammc.models.check import check_model

        return check_model
    if name in MODELS:
        from streammc.registry import model

        return model(name)
    raise AttributeError(f"module 'streammc.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the models and :func:`check_model`."""
    return sorted([*MODELS, "check_model"])
