"""Record in a run of the transformation of its parameters to the table's scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from streammc import registry
from streammc.errors import StoreError
from streammc.models.parameters import (
    Block,
    describe,
    from_description,
    parameter_blocks,
    predictor,
    stated,
)
from streammc.protocols import Dataset, Model
from streammc.runs.identity import registered_model
from streammc.trace.run_view import RunView

TABLE_SCALE: Final = "table_scale"


def recorded(model: Model, dataset: Dataset) -> dict[str, Any]:
    """Return the attribute of a run that describes the transformation to the table's scale."""
    return {TABLE_SCALE: describe(stated(model, dataset.feature_names))}


def blocks_of_run(run: RunView, features: Sequence[str]) -> tuple[Block, ...]:
    """Return the parameter blocks recorded in a run; the model is not needed.

    A run of an earlier version has no record. Then a registered model gives its blocks again,
    and of a model of the user's own only the coefficients are known.

    Raises
    ------
    StoreError
        If such an old run has a model that is neither registered nor the user's own.
    """
    if TABLE_SCALE in run.attributes:
        return from_description(run.attributes[TABLE_SCALE])
    described = run.identity["model"]
    if "code" in described:
        predictors = (predictor(name) for name in described["predictors"])
        return parameter_blocks(predictors, features)
    if described["name"] not in registry.MODELS:
        raise StoreError(
            f"expected a run that records its parameters, found an old one of the model "
            f"{described['name']!r}: sample it again"
        )
    return stated(registered_model(described), features)
