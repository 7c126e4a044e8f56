"""How the parameters of a model go to the scale of the table that was ingested.

A store may hold ``z_j = (x_j - mean_j) / scale_j``. A model states, block by block, what its
parameters are; what it does not state stays as it is. Names decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streammc.protocols import Model

COEFFICIENT: Final = "coefficient"
"""Of a linear predictor: ``beta_j / scale_j``; the intercept takes up the means."""
PLACE: Final = "place"
"""A place in the columns: ``mean_j + scale_j mu_j``."""
DISTANCE: Final = "distance"
"""A distance in the columns: ``scale_j`` times it."""
INTERCEPT: Final = "Intercept"


class Block(NamedTuple):
    """Parameters that go to the table's scale together."""

    rule: str
    labels: tuple[str, ...]
    """One per feature, in their order; or a single one that all features share."""
    intercept: str = ""
    """Coefficients without an intercept: label of the one that a centred design implies."""
    exponential: str = ""
    """What the exponential of a coefficient is, such as ``odds ratio``; empty: nothing."""


def coefficient_blocks(
    model: Model, features: Sequence[str], exponential: str = ""
) -> tuple[Block, ...]:
    """Return a block per linear predictor: the first ``n_linear q`` parameters."""
    q = len(features)
    if not model.n_linear or not q:
        return ()
    labels = model.labels(features)
    wider = () if INTERCEPT in features else model.labels((INTERCEPT, *features))
    return tuple(
        Block(
            COEFFICIENT,
            tuple(labels[a * q : (a + 1) * q]),
            wider[a * (q + 1)] if wider else "",
            exponential,
        )
        for a in range(model.n_linear)
    )


def stated(model: Model, features: Sequence[str]) -> tuple[Block, ...]:
    """Return the blocks of a model; without a statement its linear predictors alone."""
    statement = getattr(model, "table_scale", None)
    return coefficient_blocks(model, features) if statement is None else tuple(statement(features))


def describe(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return blocks as JSON."""
    return [{**block._asdict(), "labels": list(block.labels)} for block in blocks]


def from_description(described: Iterable[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Return the blocks that :func:`describe` described."""
    return tuple(Block(**{**entry, "labels": tuple(entry["labels"])}) for entry in described)
