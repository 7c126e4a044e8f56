"""``mint``: Metropolis-Hastings at the temperature that a minibatch can carry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import (
    NONE,
    check_number,
)
from streammc.samplers.common.targets import TEMPERED
from streammc.samplers.metropolis.options import MetropolisOptions

if TYPE_CHECKING:
    from streammc.samplers.common.request import Setup
    from streammc.trace.run_directory import RunDirectory

DEFAULT_ALPHA: Final = 0.5
DEFAULT_ROWS: Final = 1000
FEWEST_ROWS: Final = 2
SHARE: Final = 0.1
"""Of the rows, that ``subsample_size`` is at most where it is chosen automatically."""


@dataclass(frozen=True, kw_only=True)
class Mint(MetropolisOptions):
    """Sampler ``mint``: Metropolis-Hastings at the temperature that a minibatch can carry.

    A proposal is accepted by an estimate of its log-likelihood from ``m = n^tau`` rows, scaled
    with ``n^lambda`` instead of ``n``, against the estimate that the position was accepted with
    (Li and Wong 2017, Algorithm 1). The target is the posterior at temperature
    ``n^(1 - lambda)``, but for a factor ``exp(v / 2)`` with the variance ``v`` of the estimate.

    Parameters
    ----------
    subsample_size
        Rows of a minibatch, m, at least 2. ``None``: ``n^tau``; without ``tau`` 1000, or 10 % of
        all rows where that is less.
    tau
        Sets ``m = n^tau``, in place of ``subsample_size``; in (0, 1].
    alpha
        Sets ``lambda = alpha tau``, in (0, 1). ``None``: 0.5, unless ``exponent`` is given.
    exponent
        ``lambda`` itself, in place of ``alpha``; in (0, 1] and below ``tau``. The command line also
        takes it as ``lambda``.
    replace
        Whether the rows of a minibatch are drawn with replacement, which is faster.

    Examples
    --------
    >>> from streammc.samplers import mint
    >>> round(mint(subsample_size=1000, alpha=0.5).implied_temperature(10**6), 6)
    31622.776602
    """

    control_variate: Literal[0, 1, 2, "none"] | None = NONE
    unit_rows: int | None = 1
    tau: float | None = None
    alpha: float | None = None
    exponent: float | None = None
    replace: bool = True

    name: ClassVar[str] = "mint"
    target: ClassVar[str] = TEMPERED
    crosses_modes: ClassVar[bool] = True
    test: ClassVar[str] = "carried"
    barker: ClassVar[bool] = False
    paper: ClassVar[str] = "Li, Wong 2017, Mini-batch tempered MCMC"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        for first, second in (("tau", "subsample_size"), ("alpha", "exponent")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ConfigError(
                    f"expected {first} or {second}, which say the same, found "
                    f"{first}={getattr(self, first)!r} and {second}={getattr(self, second)!r}; "
                    "leave one out"
                )
        for option in ("tau", "alpha", "exponent"):
            check_number(option, getattr(self, option), above=True, most=1.0)
        if self.alpha == 1.0:
            raise ConfigError(
                "lambda < tau is needed: alpha must be below 1, found 1.0: give a smaller alpha"
            )
        if not isinstance(self.replace, bool):
            raise ConfigError(
                f"replace must be true or false, found {self.replace!r}: use True or False"
            )
        if self.subsample_size is not None and self.subsample_size < FEWEST_ROWS:
            raise ConfigError(
                f"subsample_size must be {FEWEST_ROWS} or more, found {self.subsample_size}"
                ": give a larger one"
            )

    def rows_of(self, n_rows: int) -> int:
        """Return m for a data set of ``n_rows`` rows: a whole number of units.

        Raises
        ------
        ConfigError
            If the data set has fewer rows than a minibatch.
        """
        m = self.subsample_size
        if self.tau is not None:
            m = round(n_rows**self.tau)
        if m is None:
            m = min(DEFAULT_ROWS, round(SHARE * n_rows))
        b = self.unit_rows or 1
        m = max(m // b, FEWEST_ROWS) * b
        if m > n_rows:
            raise ConfigError(
                f"expected a minibatch of at most the {n_rows} rows of the data set, found {m}: "
                "use a smaller subsample_size"
            )
        return m

    def exponents(self, n_rows: int) -> tuple[float, float]:
        """Return ``tau = log m / log n`` and ``lambda``.

        Raises
        ------
        ConfigError
            Unless ``lambda < tau``.
        """
        tau = math.log(self.rows_of(n_rows)) / math.log(n_rows)
        if self.exponent is None:
            return tau, (DEFAULT_ALPHA if self.alpha is None else self.alpha) * tau
        if self.exponent >= tau:
            raise ConfigError(
                f"expected lambda < tau = {tau:.4g} ({self.rows_of(n_rows)} of {n_rows} rows), "
                f"found lambda={self.exponent:g}: use a smaller lambda or a larger subsample_size"
            )
        return tau, self.exponent

    def implied_temperature(self, n_rows: int) -> float:
        """Return ``T = n^(1 - lambda)``."""
        temperature: float = n_rows ** (1.0 - self.exponents(n_rows)[1])
        return temperature

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {"replace": self.replace}

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return those of every acceptance test, and under ``mint`` exponents and noise."""
        from streammc.samplers.metropolis.carried_noise import tempered_facts

        found = tempered_facts(run, self, setup.cv.n_rows, setup.cv.labels)
        return {**super().facts(run, setup), "mint": found}

    def warnings(self, facts: Mapping[str, Any]) -> list[str]:
        """Return those of every acceptance test, and of noisy estimates."""
        from streammc.samplers.metropolis.carried_noise import noise_warnings

        return [*super().warnings(facts), *noise_warnings(facts)]

    def text(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return temperature, minibatch and marginal of the draws."""
        from streammc.samplers.metropolis.carried_noise import noise_text

        lines = super().text(facts)
        error = lines.pop("error per decision")
        return {**noise_text(facts["mint"]), **lines, "estimates off normal": error}


mint = builder(Mint, {"lambda": "exponent"})
