"""Records of a chain with a ladder: rows, levels, replicas and scratch."""

from __future__ import annotations

from typing import Any, NamedTuple

from streammc.likelihood.contiguous_rows import Held
from streammc.likelihood.target import Base
from streammc.numerics.jit import inline
from streammc.numerics.records import record_type
from streammc.protocols import Matrix
from streammc.samplers.common.explorers import Trial
from streammc.samplers.common.ladder import Ladder, Replicas


class Ensemble(NamedTuple):
    """Levels and replicas of one chain with the rows that they evaluate; written in place."""

    base: Base
    full: Held
    """Every row: those of level 0, and of every level of a ladder of powers."""
    own: Held
    """Rows of the levels above 0 where these have rows of their own."""
    ladder: Ladder
    replicas: Replicas
    trial: Trial
    adapt: Matrix
    """(L, 7) state of ``common.tuning`` of every level."""


ENSEMBLE_TYPE: Any = record_type(Ensemble)


@inline
def rows_of(ensemble, m):  # type: ignore[no-untyped-def]
    """Return the table that holds the rows of level ``m``."""
    return ensemble.own if ensemble.ladder.own != 0 and m > 0 else ensemble.full
