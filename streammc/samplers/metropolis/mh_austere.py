"""``mh-austere``: Metropolis-Hastings with sequential t-tests, Korattikara et al. 2014."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import (
    check_number,
)
from streammc.samplers.metropolis.options import MetropolisOptions

LEAST_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class AustereMetropolis(MetropolisOptions):
    """Sampler ``mh-austere``: Metropolis-Hastings with sequential t-tests.

    After every ``subsample_size`` more rows, drawn without replacement, a t-test at level
    ``epsilon`` asks whether the log-ratio of the rows so far decides; a decision that no
    test makes takes all rows (Korattikara, Chen and Welling 2014). The error of the whole
    sequence, not of one test, is recorded as ``decision_error``; where terms are skewed it says
    so.

    Parameters
    ----------
    subsample_size
        Rows that each look adds, m. ``None``: chosen together with ``epsilon``.
    conservative
        ``True``: choose ``subsample_size`` and ``epsilon`` once, for the worst case; ``False``: at
        every decision, for the mean and variance of all rows, which it evaluates.
    epsilon
        Threshold of each t-test, a probability from 1e-6 up to 0.5. ``None``: chosen. With
        ``subsample_size`` given too, nothing is chosen.
    max_error
        Bound within which the cheapest pair is chosen, in (0, 0.5]: on the probability of a wrong
        decision in the worst case, or, not conservative, on the error in the probability of
        acceptance.
    given_uniform
        Not conservative: choose for the uniform number that was drawn, not on average over it.

    Examples
    --------
    >>> from streammc.samplers import mh_austere
    >>> mh_austere(max_error=0.05).target
    'approximate'
    """

    conservative: bool = True
    epsilon: float | None = None
    max_error: float = 0.1
    given_uniform: bool = False

    name: ClassVar[str] = "mh-austere"
    test: ClassVar[str] = "austere"
    barker: ClassVar[bool] = False
    paper: ClassVar[str] = "Korattikara, Chen and Welling 2014, Austerity in MCMC land"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        for option in ("conservative", "given_uniform"):
            if not isinstance(getattr(self, option), bool):
                raise ConfigError(
                    f"{option} must be true or false, found {getattr(self, option)!r}"
                    ": use True or False"
                )
        check_number("epsilon", self.epsilon)
        check_number("max_error", self.max_error)
        if self.max_error is None or not 0.0 < self.max_error <= 0.5:
            raise ConfigError(
                f"max_error must be above 0 and at most 0.5, found {self.max_error!r}"
                ": give a number in this range"
            )
        if self.epsilon is not None and not LEAST_EPSILON <= self.epsilon < 0.5:
            raise ConfigError(
                f"epsilon must be at least {LEAST_EPSILON:g} and below 0.5, found {self.epsilon!r}"
                ": give a number in this range"
            )
        fixed = self.subsample_size is not None and self.epsilon is not None
        if fixed and not self.conservative:
            raise ConfigError(
                "conservative=False needs subsample_size or epsilon to choose at every decision, "
                "found both given; leave one of them out"
            )
        if self.given_uniform and self.conservative:
            raise ConfigError(
                "given_uniform=True needs conservative=False, found conservative=True: change one"
            )

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {
            "conservative": self.conservative,
            "epsilon": self.epsilon,
            "max_error": self.max_error,
            "given_uniform": self.given_uniform,
        }


mh_austere = builder(AustereMetropolis)
