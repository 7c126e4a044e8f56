"""``mh``: Metropolis-Hastings on every row, the reference for the tests on some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.jit import jit
from streammc.samplers.common.options import builder
from streammc.samplers.common.statistics import METROPOLIS_STATISTICS, OF_ESTIMATES, recorded
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    ERROR,
    FORCED,
    KNOWN,
    POPULATION,
    REJECT,
    SWEEP,
    SWEPT,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    Prepared,
    accepts,
)
from streammc.samplers.metropolis.options import MetropolisOptions

METROPOLIS: Final = "metropolis"
BARKER: Final = "barker"
FUNCTIONS: Final = (METROPOLIS, BARKER)
"""In the order of ``acceptance.METROPOLIS`` and ``acceptance.BARKER``."""


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Sweep, and accept with the exact probability; ``settings``: the acceptance function."""
    if facts[SWEPT] == 0.0:
        return SWEEP
    reply[ERROR] = 0.0
    reply[FORCED] = 0.0
    reply[VARIANCE] = 0.0
    reply[USED] = facts[POPULATION]
    delta = facts[KNOWN] + facts[SWEPT_MEAN]
    return ACCEPT if accepts(delta, draws[UNIFORM], int(settings[0])) else REJECT


@dataclass(frozen=True, kw_only=True)
class Metropolis(MetropolisOptions):
    """Sampler ``mh``: Metropolis-Hastings on every row, the reference for the tests on some.

    Every decision evaluates every row: the posterior is what it leaves invariant
    (Metropolis et al. 1953, Hastings 1970; with ``acceptance='barker'`` Barker 1965).

    Parameters
    ----------
    subsample_size
        To be left out: ``mh`` evaluates all rows.
    unit_rows
        Rows of a unit, b: rows next to each other in the store, drawn together for the gradients
        of proposals. ``None``: 1.
    certainty
        Without effect: ``mh`` evaluates all rows.
    acceptance
        Probability of acceptance: ``metropolis``, min(1, exp(Delta)); ``barker``,
        1 / (1 + exp(-Delta)).

    Examples
    --------
    >>> from streammc.samplers import mh
    >>> mh(proposal="langevin").target
    'exact'
    """

    acceptance: Literal["metropolis", "barker"] = METROPOLIS

    name: ClassVar[str] = "mh"
    target: ClassVar[str] = "exact"
    subsampled: ClassVar[bool] = False
    statistics: ClassVar[tuple[str, ...]] = recorded(
        METROPOLIS_STATISTICS, *OF_ESTIMATES, "diverging"
    )
    decide: ClassVar[Any] = staticmethod(decide)
    paper: ClassVar[str] = "Hastings 1970, Monte Carlo sampling methods using Markov chains"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        if self.subsample_size is not None:
            raise ConfigError(
                f"mh must look at all rows, found subsample_size {self.subsample_size}; "
                "leave it out, or use mh-minibatch"
            )

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`. It has no use for ``m``."""
        barker = self.acceptance == BARKER
        settings = np.array([float(FUNCTIONS.index(self.acceptance))])
        return Prepared(settings, np.zeros((0, 0)), 0, False, sweeps=True, barker=barker)


mh = builder(Metropolis)
