"""Words for the units of a data set in texts for users, and the names of their probabilities."""

from __future__ import annotations

from typing import Final

ROW: Final = "row"
GROUP: Final = "group"


def unit_of_model(name: str | None) -> str:
    """Return the unit of the data of a model with this name."""
    return GROUP if name == "mixed" else ROW


UNIFORM: Final = "uniform"
SCORES: Final = "scores"
