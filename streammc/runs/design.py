"""Description of the design of a run, as recorded in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streammc.models.parameters import Block

KEYS: Final = (
    *("features", "intercept", "standardization", "formula"),
    *("response", "offset", "trials"),
)


def describe(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a data set that predictions depend on."""
    return {key: attributes.get(key) for key in KEYS}


REFERENCES: Final = "references"
"""Attribute of a run with the reference levels of its columns; absent without any."""


def of_formula(dataset: Any, name: str) -> Any:
    """Return what a method of a data set says of its formula; ``None`` if it cannot say.

    A data set at another temperature, or of groups, has the one of its rows as ``dataset``.
    """
    while dataset is not None:
        if hasattr(dataset, name):
            return getattr(dataset, name)()
        dataset = getattr(dataset, "dataset", None)
    return None


def label_references(
    references: Mapping[str, Sequence[str]] | None, blocks: Sequence[Block], features: Sequence[str]
) -> dict[str, list[str]]:
    """Return the reference levels of parameters by label, from those of the columns.

    Parameters
    ----------
    references
        Attribute ``references`` of a run.
    blocks
        Blocks of its parameters; those of one parameter per column count.
    features
        Names of the columns.
    """
    return {
        label: list(references[name])
        for block in blocks
        if references and len(block.labels) == len(features)
        for name, label in zip(features, block.labels, strict=True)
        if name in references
    }
