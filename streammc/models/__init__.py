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

__all__ = sorted([*(name.replace("-", "_") for name in MODELS), *_OTHERS])


def __getattr__(name: str) -> Any:
    """Return the builder of the model ``name``, importing it and completing its help."""
    if name in _OTHERS:
        found = getattr(import_module(_OTHERS[name]), name)
    elif name.replace("_", "-") in MODELS:
        from streammc.registry import model

        found = model(name.replace("_", "-"))
    else:
        raise AttributeError(
            f"module 'streammc.models' has no attribute {name!r}: it has {', '.join(__dir__())}",
            name=name,
            obj=sys.modules[__name__],
        )
    return globals().setdefault(name, documented()(found))


def __dir__() -> list[str]:
    """List the builders of models, and what is needed for one's own."""
    return __all__
