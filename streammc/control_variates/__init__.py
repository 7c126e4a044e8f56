"""The full pass: control variates, certainty rows and the plan they allow.

The package is callable: ``streammc.control_variates(store, model)`` is
:func:`streammc.control_variates.certify.compute`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streammc.control_variates.appended import update
    from streammc.control_variates.certify import compute
    from streammc.control_variates.default_priors import resolved
    from streammc.control_variates.expansion import ControlVariates

_LAZY: Final[dict[str, str]] = {
    "compute": "certify",
    "ControlVariates": "expansion",
    "resolved": "default_priors",
    "update": "appended",
}

__all__ = ["ControlVariates", "compute", "resolved", "update"]


class _CallableModule(ModuleType):
    """Module that can be called like ``compute``, with its signature and docstring.

    Each property imports ``compute`` on first use.
    """

    @property
    def __call__(self) -> Any:
        return self.compute

    @property
    def __signature__(self) -> Any:
        return signature(self.compute)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.compute.__doc__


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, imported or not, and the other names of the module."""
    return sorted({*globals(), *_LAZY})


sys.modules[__name__].__class__ = _CallableModule
