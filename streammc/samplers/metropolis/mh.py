"""``mh``: Metropolis-Hastings on every row, the reference for the tests on some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.metropolis.options import MetropolisOptions

METROPOLIS: Final = "metropolis"
BARKER: Final = "barker"


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
    test: ClassVar[str] = "full"
    paper: ClassVar[str] = "Hastings 1970, Monte Carlo sampling methods using Markov chains"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        if self.subsample_size is not None:
            raise ConfigError(
                f"mh must look at all rows, found subsample_size {self.subsample_size}; "
                "leave it out, or use mh-minibatch"
            )
        if self.acceptance not in (METROPOLIS, BARKER):
            raise ConfigError(
                f"acceptance must be 'metropolis' or 'barker', found {self.acceptance!r}"
                ": choose one of them"
            )

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {"barker": self.acceptance == BARKER}


mh = builder(Metropolis)
