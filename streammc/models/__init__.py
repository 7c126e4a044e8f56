"""Likelihood families, one per file, resolved by name on first use.

Importing a family compiles (or loads) its link, so nothing is imported before it is
asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

from streammc.docstrings import documented
from streammc.registry import MODELS

_OTHERS: Final = {
    "Parameter": "streammc.models.base",
    "check_model": "streammc.models.check",
    "user": "streammc.models.user_model",
}

_SHARED: Final = """
Parameters
----------
prior
    Prior of the coefficients, or a mapping from the names of parameters to priors; ``None``, and
    what a mapping does not name, scales with the data: a coefficient has Normal(0, 2.5 u / sd(x))
    with one column alone, jointly as in ``priors.scaled``. The unit u is sd(y) under an identity
    link, where the intercept is around mean(y), and else 1, where it is around the link of mean(y).

Raises
------
ConfigError
    If ``prior`` is not a prior.
"""
"""What the builders of regressions share."""

__all__ = sorted([*(name.replace("-", "_") for name in MODELS), *_OTHERS])


def __getattr__(name: str) -> Any:
    """Return the builder of the model ``name``, importing it and completing its help."""
    if name in _OTHERS:
        builder = getattr(import_module(_OTHERS[name]), name)
    elif name.replace("_", "-") in MODELS:
        from streammc.registry import model

        builder = model(name.replace("_", "-"))
    else:
        raise AttributeError(
            f"module 'streammc.models' has no attribute {name!r}: it has {', '.join(__dir__())}",
            name=name,
            obj=sys.modules[__name__],
        )
    return globals().setdefault(name, documented(_SHARED)(builder))


def __dir__() -> list[str]:
    """List the builders of models, and what is needed for one's own."""
    return __all__
