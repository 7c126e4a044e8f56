"""What predictions refuse of a model, and what they warn of."""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.errors import ConfigError
from streammc.models.mixed.mixed_model import MixedModel
from streammc.prediction.label_index import UNKNOWN, label_text
from streammc.prediction.prediction_request import INTEGRATE, PredictionRequest
from streammc.prediction.row_effects import RowEffects
from streammc.protocols import Model

_SEARCHED: Final = 1 << 16
"""Rows in which an example of a new label is looked for."""


def require_predictable(model: Model, request: PredictionRequest) -> None:
    """Refuse a model that predicts no response from columns, and options that it does not have."""
    if isinstance(model, MixedModel):
        return
    if request.new_groups != INTEGRATE:
        raise ConfigError(
            f"expected new_groups with a run of a mixed model, found one of {model.name!r} without "
            "groups: leave new_groups out"
        )
    if not model.n_linear:
        raise ConfigError(
            f"expected a model with a linear predictor, found {model.name!r}: it predicts no "
            "response from columns; use a run of another model"
        )


def without_ids(address: str) -> str:
    """Return the warning of a store whose rows were moved without row ids."""
    return (
        f"the rows of {address} were moved when it was made, and no row ids kept: predictions "
        "cannot be joined with its table; ingest it again"
    )


def mostly_new_groups(effects: RowEffects | None, new_rows: int) -> list[str]:
    """Return a warning where more than half of the rows with labels are of new groups."""
    if effects is None or effects.index is None or 2 * new_rows <= effects.table.n_rows:
        return []
    table, known = effects.table, effects.index
    labels = table.row_groups(0, min(table.n_rows, _SEARCHED))
    new = np.flatnonzero(known.find(labels) == UNKNOWN)
    such = f", such as {label_text(labels[new[0]])!r}" if len(new) else ""
    return [
        f"{new_rows:,} of {table.n_rows:,} rows of {table.address!r} belong to groups that the "
        f"run has not seen{such}; one of the run is {known.example()!r}: if the groups are the "
        "same, write their labels alike"
    ]
