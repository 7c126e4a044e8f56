"""``mh-fixed``: minibatches of one size, and the standard deviation of what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import (
    check_number,
)
from streammc.samplers.metropolis.options import MetropolisOptions

REMEDIES: Final = ("skip", "grow", "shrink", "heat")
FEWEST_BATCHES: Final = 2
MOST_BATCHES: Final = 50
LARGEST_LIMIT: Final = 1.8
"""Below pi / sqrt(3), the standard deviation of the logistic distribution."""


@dataclass(frozen=True, kw_only=True)
class FixedMetropolis(MetropolisOptions):
    """Sampler ``mh-fixed``: Metropolis-Hastings with minibatches of one size (Chen et al. 2016).

    A decision takes ``batches + 1`` minibatches of ``subsample_size`` rows, with replacement:
    all but the last for the standard deviation of what they estimate, the last for Barker's
    test with a correction for it (Algorithm 1). The posterior, but for the error of each decision,
    which is recorded.

    Parameters
    ----------
    subsample_size
        Rows of a minibatch, m. ``None``: from the full pass; 100 without one.
    batches
        Minibatches that estimate the standard deviation of Delta', K, from 2 to 50; one more
        decides.
    limit
        Standard deviation of Delta', a log-ratio, from which on it is too large, at most 1.8.
    remedy
        What is done then: ``skip`` the decision, ``grow`` its minibatches to twice their size, or
        skip and, in the warm-up, ``shrink`` the step size or ``heat`` the temperature from then on;
        the draws keep both.
    smoothing
        Weight of earlier decisions in a moving average of the standard deviation, in [0, 1).

    Examples
    --------
    >>> from streammc.samplers import mh_fixed
    >>> mh_fixed(remedy="grow").test_options["limit"]
    1.2
    """

    batches: int = 5
    limit: float = 1.2
    remedy: Literal["skip", "grow", "shrink", "heat"] = "skip"
    smoothing: float = 0.0

    name: ClassVar[str] = "mh-fixed"
    test: ClassVar[str] = "fixed"
    paper: ClassVar[str] = (
        "Chen, Seita, Pan, Canny 2016, A simple minibatch acceptance test for MCMC"
    )

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        whole = isinstance(self.batches, int) and not isinstance(self.batches, bool)
        if not whole or not FEWEST_BATCHES <= self.batches <= MOST_BATCHES:
            raise ConfigError(
                f"batches must be a whole number from {FEWEST_BATCHES} to {MOST_BATCHES}, "
                f"found {self.batches!r}: give one, or leave it out"
            )
        check_number("limit", self.limit, above=True, most=LARGEST_LIMIT)
        check_number("smoothing", self.smoothing)
        if self.limit is None:
            raise ConfigError("limit must be a number, found None: give one, or leave it out")
        if self.smoothing is None or self.smoothing >= 1.0:
            raise ConfigError(
                f"smoothing must be in [0, 1), found {self.smoothing!r}"
                ": give a number in this range"
            )
        if self.remedy not in REMEDIES:
            raise ConfigError(
                f"remedy must be one of {', '.join(REMEDIES)}, found {self.remedy!r}"
                ": choose one of them"
            )

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {
            "batches": self.batches,
            "limit": self.limit,
            "remedy": self.remedy,
            "smoothing": self.smoothing,
        }


mh_fixed = builder(FixedMetropolis)
