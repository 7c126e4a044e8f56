"""Regressions that have effects of groups, or of the levels of a factor, and their limits."""

from __future__ import annotations

from typing import Final

from streammc.models.mixed import group_constants

KINDS: Final = {
    "logistic": group_constants.LOGISTIC,
    "poisson": group_constants.POISSON,
    "negative-binomial": group_constants.NEGATIVE_BINOMIAL,
    "binomial": group_constants.BINOMIAL,
    "probit": group_constants.PROBIT,
    "gamma": group_constants.GAMMA,
    "student-t": group_constants.STUDENT_T,
    "gaussian": group_constants.GAUSSIAN,
}
"""Codes of their likelihoods, by name."""
MOST_NODES: Final = 61
"""Quadrature nodes of a group."""
_PACKAGE: Final = "streammc.models.glm."
"""Package of these models: another model of the same name has another likelihood."""


def of_family(model: object) -> bool:
    """Return whether a model is one of the package's regressions with one linear predictor."""
    known = getattr(model, "name", None) in KINDS
    return known and type(model).__module__.startswith(_PACKAGE)
