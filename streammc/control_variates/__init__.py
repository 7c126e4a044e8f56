"""The full pass: control variates, certainty rows and the plan they allow.

The package is callable: ``streammc.control_variates(store, model)`` is
:func:`streammc.control_variates.certify.compute`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, dataset: Any, model: Any, **options: Any) -> Any:
        """Return the control variates of ``dataset``; see ``certify.compute``."""
        compute = import_module("streammc.control_variates.certify").compute
        return compute(dataset, model, **options)


sys.modules[__name__].__class__ = _CallableModule
