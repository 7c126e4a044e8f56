"""Records of a chain of ``mintee``: rows, levels, their states and rings, and scratch."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from streammc.likelihood.contiguous_rows import Held
from streammc.likelihood.target import Base
from streammc.numerics.records import record_type
from streammc.protocols import Index, Matrix, Vector
from streammc.samplers.common.explorers import Trial
from streammc.samplers.equi_energy.rings import Rings

SUBSET, FULL, SHARED, CARRIED = range(4)
KINDS: Final = {"subset": SUBSET, "full": FULL, "shared": SHARED, "carried": CARRIED}


class Levels(NamedTuple):
    """The levels of one chain; ``step`` and ``reference`` are written in place."""

    kind: int
    """Rows of an energy: ``SUBSET``, ``FULL``, ``SHARED`` or ``CARRIED``."""
    rows: Index
    """(K,) number of rows of an energy, m_k."""
    scale: Vector
    """(K,) ``n / m_k``."""
    temperature: Vector
    """(K,)."""
    floor: Vector
    """(K,) H_k; minus infinity for level 0, which is not truncated."""
    bounds: Vector
    """(K + 1,) H_0 to H_K, from the energy of the reference."""
    reference: Vector
    """(K,) sums of ``r_i`` over the rows of a level that are always the same."""
    step: Vector
    """(K,)."""
    begin: Index
    """(K,) iteration in which a level starts."""
    opened: Index
    """(K,) iteration from which its states enter the rings."""
    jump_probability: float
    langevin: int
    """1 where steps follow the gradient, else 0."""
    inner_steps: int


LEVELS_TYPE: Any = record_type(Levels)


class States(NamedTuple):
    """Positions of the levels, their values and gradients; written in place."""

    z: Matrix
    """(K, d) whitened positions: ``theta = theta_star + S z``."""
    theta: Matrix
    """(K, d)."""
    slope: Matrix
    """(K, d) gradient of ``-h_k`` in theta."""
    prior_slope: Matrix
    """(K, d) gradient of the log prior in theta."""
    scalars: Matrix
    """(K, 5): V_k, V_(k + 1) of the same position, log prior, whether the level has started,
    and terms evaluated so far."""


STATES_TYPE: Any = record_type(States)
VALUE, ABOVE, PRIOR, STARTED, EVALUATED = range(5)


def allocate_states(levels: int, d: int) -> States:
    """Return states at 0, nothing computed."""
    z, theta, slope, prior_slope = (np.zeros((levels, d)) for _ in range(4))
    return States(z, theta, slope, prior_slope, np.zeros((levels, 5)))


class Counts(NamedTuple):
    """Counts of a chain since warm-up; written in place."""

    moves: Matrix
    """(K, 4) steps, the sum of their acceptance probabilities, jumps, and the sum of theirs."""
    rings: Matrix
    """(K, K) visits of a level's states to the energy rings."""


COUNTS_TYPE: Any = record_type(Counts)
STEPS, STEP_ACCEPTANCE, JUMPS, JUMP_ACCEPTANCE = range(4)
"""Columns of ``Counts.moves``."""


class Scratch(NamedTuple):
    """Scratch of a step or a jump."""

    trial: Trial
    """The position under evaluation."""
    pull: Matrix
    """(2, d) whitened gradients at both ends of a step."""
    noise: Vector
    """(d,)."""
    above: Vector
    """(1,) ``V_(k + 1)`` at the trial position."""
    chosen: Index
    """Rows that were drawn for an energy."""


SCRATCH_TYPE: Any = record_type(Scratch)


class Ensemble(NamedTuple):
    """Levels of one chain, their rows, states and rings; written in place."""

    base: Base
    full: Held
    """Every row."""
    own: Held
    """Rows of the levels above 0: always the same, or drawn anew."""
    terms: Vector
    """(n,) terms at the reference, ``r_i``."""
    levels: Levels
    states: States
    rings: Rings
    counts: Counts
    scratch: Scratch


ENSEMBLE_TYPE: Any = record_type(Ensemble)
