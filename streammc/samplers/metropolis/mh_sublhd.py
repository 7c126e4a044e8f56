"""``mh-sublhd``: Metropolis-Hastings with a concentration bound, Bardenet et al. 2014."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import (
    check_number,
)
from streammc.samplers.metropolis.options import MetropolisOptions

BOUNDS: Final = ("pass", "model")
BERNSTEIN_SERFLING: Final = "bernstein-serfling"
INEQUALITIES: Final = (BERNSTEIN_SERFLING, "bernstein")


@dataclass(frozen=True, kw_only=True)
class BoundedMetropolis(MetropolisOptions):
    """Sampler ``mh-sublhd``: Metropolis-Hastings with a concentration bound (Bardenet et al. 2014).

    Rows are drawn without replacement, ``gamma`` times as many at each look, until an
    empirical Bernstein-Serfling interval around the log-ratio excludes the threshold, or
    all rows are used. A decision differs from that on all rows with probability at most ``delta``,
    whatever the rows are, as long as no term exceeds its bound; ``bound='pass'`` evaluates all rows
    to make sure.

    Parameters
    ----------
    subsample_size
        Rows of the first look, m. ``None``: from the full pass; 100 without one.
    gamma
        How many times as many rows the next look has; above 1.
    p
        Look t has a share (p - 1) / (p t^p) of ``delta``; above 1.
    delta
        Bound on the probability that a decision is not that on all rows, in (0, 0.5].
    bound
        On the size of a term: ``pass`` evaluates all rows at every decision; ``model`` takes
        what the model says, and a pass where it says nothing.
    inequality
        ``bernstein-serfling``, or ``bernstein``, as published experiments had it.

    Examples
    --------
    >>> from streammc.samplers import mh_sublhd
    >>> mh_sublhd(delta=0.05).test_options["delta"]
    0.05
    """

    gamma: float = 2.0
    p: float = 2.0
    delta: float = 0.01
    bound: Literal["pass", "model"] = "pass"
    inequality: Literal["bernstein-serfling", "bernstein"] = BERNSTEIN_SERFLING

    name: ClassVar[str] = "mh-sublhd"
    test: ClassVar[str] = "sublhd"
    barker: ClassVar[bool] = False
    paper: ClassVar[str] = "Bardenet, Doucet and Holmes 2014, Towards scaling up MCMC"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        for option in ("gamma", "p"):
            value = getattr(self, option)
            check_number(option, value)
            if value is None or not value > 1.0:
                raise ConfigError(
                    f"{option} must be above 1, found {value!r}: give a larger number"
                )
        check_number("delta", self.delta)
        if self.delta is None or not 0.0 < self.delta <= 0.5:
            raise ConfigError(
                f"delta must be above 0 and at most 0.5, found {self.delta!r}"
                ": give a number in this range"
            )
        for option, known in (("bound", BOUNDS), ("inequality", INEQUALITIES)):
            if getattr(self, option) not in known:
                raise ConfigError(
                    f"{option} must be {' or '.join(map(repr, known))}, "
                    f"found {getattr(self, option)!r}: choose one of them"
                )

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {
            "gamma": self.gamma,
            "p": self.p,
            "delta": self.delta,
            "bound": self.bound,
            "inequality": self.inequality,
        }


mh_sublhd = builder(BoundedMetropolis)
