"""Names of the probabilities of units, for the options of samplers."""

from typing import Final

UNIFORM: Final = "uniform"
SCORES: Final = "scores"
PROBABILITIES: Final = (UNIFORM, SCORES)
"""Probabilities of units: the same for all, or by the scores of the units."""
