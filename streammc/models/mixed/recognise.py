"""Whether a model is a mixed one, without the import of the mixed models.

They import the kernels of every regression, a tenth of the imports of a run. A model is an
instance of their classes only if their modules are imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from streammc.models.mixed.mixed_model import MixedModel
    from streammc.models.mixed.table_model import TableModel

_PACKAGE = "streammc.models.mixed"


def is_table_model(model: object) -> TypeIs[TableModel]:
    """Return whether a model is a ``TableModel``: a mixed model whose rows are groups."""
    module = sys.modules.get(f"{_PACKAGE}.table_model")
    return module is not None and isinstance(model, module.TableModel)


def is_mixed_model(model: object) -> TypeIs[MixedModel]:
    """Return whether a model is a ``MixedModel``."""
    module = sys.modules.get(f"{_PACKAGE}.mixed_model")
    return module is not None and isinstance(model, module.MixedModel)
