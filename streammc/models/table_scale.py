"""How the parameters of a model go to the scale of the table that was ingested.

A store may hold ``z_j = (x_j - mean_j) / scale_j``. A model states, block by block, what its
parameters are; what it does not state stays as it is. Names decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streammc.models.parameters import COEFFICIENT, Parameter
from streammc.protocols import Model

INTERCEPT: Final = "Intercept"
EFFECTS: Final = "effects"
"""Standard deviations of a group's intercept and slope, and their correlation if it is sampled:
``u_1 - u_2 mean_j / scale_j`` and ``u_2 / scale_j`` are the effects in the table's columns."""

FACTOR: Final = "factor"
"""Effects of the levels of factors and their scales, which stay as they are: their columns are
indicators. Exponentials of them are no ratios of one unit."""


class Block(NamedTuple):
    """Parameters that go to the table's scale together."""

    rule: str
    """One of ``models.parameters.RULES``, :data:`EFFECTS` or :data:`FACTOR`."""
    labels: tuple[str, ...]
    """One per feature, in their order; or a single one that all features share."""
    intercept: str = ""
    """Coefficients without an intercept: label of the one that a centred design implies.
    Effects: feature of the slope."""
    exponential: str = ""
    """What the exponential of a coefficient is, such as ``odds ratio``; empty: nothing."""


def parameter_blocks(parameters: Iterable[Parameter], features: Sequence[str]) -> tuple[Block, ...]:
    """Return a block per component of every parameter that a change of scale moves."""
    blocks = []
    for parameter in parameters:
        linear = parameter.table_scale == COEFFICIENT
        wider = parameter.labels((INTERCEPT, *features))
        for labels, (intercept, *_) in zip(parameter.labels(features), wider, strict=True):
            if parameter.table_scale and labels:
                implied = intercept if linear and INTERCEPT not in features else ""
                exponential = parameter.exponential or ""
                blocks.append(Block(parameter.table_scale, labels, implied, exponential))
    return tuple(blocks)


def stated(model: Model, features: Sequence[str]) -> tuple[Block, ...]:
    """Return the blocks of a model; without a statement its linear predictors alone."""
    statement = getattr(model, "table_scale", None)
    if statement is not None:
        return tuple(statement(features))
    q, labels = len(features), model.labels(features)
    wider = () if INTERCEPT in features else model.labels((INTERCEPT, *features))
    return tuple(
        Block(COEFFICIENT, labels[a * q : (a + 1) * q], wider[a * (q + 1)] if wider else "")
        for a in range(model.n_linear if q else 0)
    )


def describe(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return blocks as JSON."""
    return [{**block._asdict(), "labels": list(block.labels)} for block in blocks]


def from_description(described: Iterable[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Return the blocks that :func:`describe` described."""
    return tuple(Block(**{**entry, "labels": tuple(entry["labels"])}) for entry in described)
