"""``mh-minibatch``: a minibatch that grows until its noise fits into Barker's function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import (
    check_number,
)
from streammc.samplers.metropolis.options import MetropolisOptions

CLT: Final = "clt"
EDGEWORTH: Final = "edgeworth"
OPTIMAL: Final = "optimal"
PAPER: Final = "paper"
LARGEST_SIGMA: Final = 1.8
"""Below pi / sqrt(3), the standard deviation of the logistic distribution."""
LARGEST_SKEWED: Final = 1.2
"""Of ``sigma`` with ``skew_corrected``, which needs a variance beyond it."""


@dataclass(frozen=True, kw_only=True)
class MinibatchMetropolis(MetropolisOptions):
    """Sampler ``mh-minibatch``: Metropolis-Hastings with minibatches that grow (Seita et al. 2017).

    A decision draws ``subsample_size`` rows at a time, with replacement, until the noise of
    the estimate of Delta has a variance below ``sigma^2``, and replaces with it a part of
    the logistic variable of Barker's test (Algorithm 1). The posterior, but for the error of each
    decision, which is recorded.

    Parameters
    ----------
    subsample_size
        Rows drawn at a time, m. ``None``: from the full pass; 100 without one.
    delta
        Largest error of the normal approximation, as a probability in (0, 1]. ``None``: it is not
        looked at.
    bound
        What that error is: ``edgeworth``, the first term of the expansion, from the skewness of
        the terms; ``clt``, the bound of the paper, which takes (8.4 / delta)^2 terms or more.
    skew_corrected
        Whether skewness is taken out of the noise, as far as the terms tell it.
    sigma
        Standard deviation of the estimate of Delta, a log-ratio, below which there are enough
        terms; at most 1.8.
    correction
        ``optimal``: the correction with the smallest error; ``paper``: as in the paper.

    Examples
    --------
    >>> from streammc.samplers import mh_minibatch
    >>> mh_minibatch(delta=0.1).test_options["bound"]
    'edgeworth'
    """

    delta: float | None = 0.05
    bound: Literal["edgeworth", "clt"] = EDGEWORTH
    skew_corrected: bool = False
    sigma: float = 1.0
    correction: Literal["optimal", "paper"] = OPTIMAL

    name: ClassVar[str] = "mh-minibatch"
    test: ClassVar[str] = "minibatch"
    paper: ClassVar[str] = (
        "Seita, Pan, Chen, Canny 2017, An efficient minibatch acceptance test for "
        "Metropolis-Hastings"
    )

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_number("delta", self.delta, above=True, most=1.0)
        check_number("sigma", self.sigma, above=True, most=LARGEST_SIGMA)
        if self.sigma is None:
            raise ConfigError("sigma must be a number, found None: give one, or leave it out")
        if self.bound not in (CLT, EDGEWORTH):
            raise ConfigError(
                f"bound must be 'edgeworth' or 'clt', found {self.bound!r}: choose one of them"
            )
        if self.correction not in (OPTIMAL, PAPER):
            raise ConfigError(
                f"correction must be 'optimal' or 'paper', found {self.correction!r}"
                ": choose one of them"
            )
        if not isinstance(self.skew_corrected, bool):
            raise ConfigError(
                f"skew_corrected must be true or false, found {self.skew_corrected!r}"
                ": use True or False"
            )
        if self.skew_corrected and (self.sigma > LARGEST_SKEWED or self.correction == PAPER):
            raise ConfigError(
                f"skew_corrected needs variance beyond that of the estimate: a sigma of at most "
                f"{LARGEST_SKEWED} and correction='optimal'; found sigma={self.sigma!r}, "
                f"correction={self.correction!r}; change them, or leave skew_corrected out"
            )

    @property
    def test_options(self) -> dict[str, Any]:
        """Return what ``prepare`` of the test takes, by name."""
        return {
            "delta": self.delta,
            "bound": self.bound,
            "skew_corrected": self.skew_corrected,
            "sigma": self.sigma,
            "kind": self.correction,
        }


mh_minibatch = builder(MinibatchMetropolis)
