"""The full pass: control variates, certainty rows and the plan they allow.

The package is callable: ``streammc.control_variates(store, model)`` is
:func:`streammc.control_variates.certify.compute`.
"""

from __future__ import annotations

import sys
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

from streammc.registry import on_first_use

if TYPE_CHECKING:
    from streammc.control_variates.appended import update
    from streammc.control_variates.bound import resolved
    from streammc.control_variates.certify import compute
    from streammc.control_variates.expansion import ControlVariates

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


__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "compute": "certify",
        "ControlVariates": "expansion",
        "resolved": "bound",
        "update": "appended",
    },
)

sys.modules[__name__].__class__ = _CallableModule
