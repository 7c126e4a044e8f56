"""``mh``: Metropolis-Hastings on every row, the reference for the tests on some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streammc.errors import ConfigError
from streammc.samplers.metropolis_options import MetropolisOptions
from streammc.samplers.options import build

METROPOLIS: Final = "metropolis"
BARKER: Final = "barker"


@dataclass(frozen=True)
class Metropolis(MetropolisOptions):
    """Options of ``mh``; ``None`` means chosen automatically."""

    acceptance: str = METROPOLIS
    """``metropolis``: min(1, exp(Delta)); ``barker``: 1 / (1 + exp(-Delta))."""

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


def mh(**options: Any) -> Metropolis:
    """Return the ``mh`` sampler with the given options.

    Every decision looks at every row: the posterior is what it leaves invariant
    (Metropolis et al. 1953, Hastings 1970; with ``acceptance='barker'`` Barker 1965).

    Parameters
    ----------
    **options
        Fields of :class:`Metropolis` and of the options that it shares.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import mh
    >>> mh(proposal="langevin").target
    'exact'
    """
    return build(Metropolis, "mh", options)
