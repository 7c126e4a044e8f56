"""The full pass: control variates, certainty rows and the plan they allow.

The package is callable: ``streammc.control_variates(store, model)`` is
:func:`streammc.control_variates.certify.compute`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streammc.control_variates.certify import compute
    from streammc.control_variates.default_priors import resolved
    from streammc.control_variates.expansion import ControlVariates

_LAZY: Final[dict[str, str]] = {
    "compute": "certify",
    "ControlVariates": "expansion",
    "resolved": "default_priors",
}

__all__ = ["ControlVariates", "compute", "resolved"]


class _CallableModule(ModuleType):
    def __call__(self, dataset: Any, model: Any, **options: Any) -> Any:
        """Return the control variates of ``dataset``; see ``certify.compute``."""
        return __getattr__("compute")(dataset, model, **options)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


sys.modules[__name__].__class__ = _CallableModule
