"""``mh-minibatch``: grow a minibatch until its noise fits into Barker's acceptance function.

Seita, Pan, Chen and Canny 2017, Algorithm 1. A decision draws ``m`` terms at a time until
the estimated variance ``s^2`` of ``Delta*`` is below ``sigma^2`` and the estimated error of
its normal approximation at most ``delta``, and accepts where

    Delta* + X_nc + X_corr > 0,   X_nc ~ N(0, sigma^2 - s^2),

so that the noise of the minibatch is part of the logistic variable of the test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.jit import jit
from streammc.samplers.common.options import builder, check_number
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    FORCED,
    KNOWN,
    M3,
    MEAN,
    MORE,
    NORMAL,
    POPULATION,
    REJECT,
    SWEEP,
    SWEPT,
    SWEPT_MEAN,
    TEST_SIGNATURE,
    UNIFORM,
    UNIFORM2,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
    accepts,
)
from streammc.samplers.metropolis.clt import (
    SMALLEST,
    corollary_1,
    edgeworth,
    moved_by_stopping,
    second_order,
    stopping,
    unless_dominated,
    unless_often_unknown,
    variance_of_mean,
)
from streammc.samplers.metropolis.correction import OPTIMAL, PAPER, correction, draw_correction
from streammc.samplers.metropolis.options import MetropolisOptions

LARGEST_SIGMA: Final = 1.8
"""Below pi / sqrt(3), the standard deviation of the logistic distribution."""
LARGEST_SKEWED: Final = 1.2
"""Largest ``sigma`` with ``skew_corrected``, which needs a variance beyond it."""
DEFAULT_SIZE: Final = 100
FEWEST: Final = 10
"""Terms below which no moment of theirs means anything."""

_FIRST, _STEP, _SIGMA, _DELTA, _CLT, _SKEWED, _TOTAL, _TABLE = range(8)
_LOOKED, _CANNOT_TELL = range(2)
"""``memory``: whether terms have been looked at; whether other decisions make an estimate void."""
_SKEWEST: Final = 1.0
"""Skewness that ``X_nc`` is given at most: the expansion is not good for more."""
_ROOMY: Final = 1.4
"""Standard deviation corrected for where ``X_nc`` has to carry skewness and needs variance."""
_LEFT: Final = 0.35
"""Share of the error from stopping that is left where its estimate is taken away."""


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Ask for ``m`` more terms until the noise fits; then decide."""
    n = facts[COUNT]
    sigma = settings[_SIGMA]
    if facts[SWEPT] != 0.0:
        reply[ERROR] = 0.0
        reply[FORCED] = 1.0
        reply[VARIANCE] = 0.0
        reply[USED] = facts[POPULATION]
        exact = facts[KNOWN] + facts[SWEPT_MEAN]
        return ACCEPT if accepts(exact, draws[UNIFORM], 1) else REJECT
    wanted = settings[_STEP]
    if n < settings[_FIRST]:
        wanted = settings[_FIRST] - n
    else:
        variance = variance_of_mean(facts)
        if settings[_CLT] == 1.0:
            error = corollary_1(facts, terms)
        else:
            error = edgeworth(facts, variance, sigma)
        error = unless_dominated(facts, terms, variance, error)
        if memory[_LOOKED] == 0.0:
            # Of the first look: later ones are at what the first has chosen to look at again.
            memory[_LOOKED] = 1.0
            memory[_CANNOT_TELL] = math.isnan(unless_often_unknown(carried, error))
        if variance < sigma * sigma and (settings[_DELTA] == 0.0 or error <= settings[_DELTA]):
            stopped = stopping(facts, terms, variance, sigma, settings[_STEP])
            room = settings[_TOTAL] - variance
            z = draws[NORMAL]
            moved = 0.0
            if settings[_SKEWED] == 1.0:
                # The third cumulant that W lacks (acceptance.clt), from X_nc by the
                # expansion of Cornish and Fisher.
                lacking = 2.0 * facts[M3] / n / (n * n) / room**1.5
                skew = max(-_SKEWEST, min(_SKEWEST, lacking))
                z = (z + skew / 6.0 * (z * z - 1.0)) / math.sqrt(1.0 + skew * skew / 18.0)
                moved = moved_by_stopping(facts, terms, variance, sigma, settings[_STEP])
                stopped *= _LEFT
                if not math.isnan(error):
                    left = 1.0 - skew / lacking if lacking != 0.0 else 0.0
                    error = left * error + second_order(facts, terms, variance)
            if memory[_CANNOT_TELL] == 1.0:
                error = math.nan
            reply[ERROR] = max(error, settings[_TABLE]) + stopped
            reply[FORCED] = 0.0
            reply[VARIANCE] = variance
            reply[USED] = n
            total = facts[KNOWN] + facts[MEAN] - moved + math.sqrt(room) * z
            total += draw_correction(table, draws[UNIFORM2])
            return ACCEPT if total > 0.0 else REJECT
    if n + wanted >= facts[POPULATION]:
        return SWEEP  # as many rows again as there are, or more: each once is exact
    reply[WANTED] = wanted
    return MORE


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
    >>> mh_minibatch(delta=0.1).bound
    'edgeworth'
    """

    delta: float | None = 0.05
    bound: Literal["edgeworth", "clt"] = "edgeworth"
    skew_corrected: bool = False
    sigma: float = 1.0
    correction: Literal["optimal", "paper"] = OPTIMAL

    name: ClassVar[str] = "mh-minibatch"
    decide: ClassVar[Any] = staticmethod(decide)
    paper: ClassVar[str] = (
        "Seita, Pan, Chen, Canny 2017, An efficient minibatch acceptance test for "
        "Metropolis-Hastings"
    )

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_number("delta", self.delta, "(0, 1]")
        check_number("sigma", self.sigma, f"(0, {LARGEST_SIGMA}]")
        if self.skew_corrected and (self.sigma > LARGEST_SKEWED or self.correction == PAPER):
            raise ConfigError(
                f"skew_corrected needs variance beyond that of the estimate: a sigma of at most "
                f"{LARGEST_SKEWED} and correction='optimal'; found sigma={self.sigma!r}, "
                f"correction={self.correction!r}; change them, or leave skew_corrected out"
            )

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`.

        A decision begins with at least 10 terms, and with the ``8.4^2 / delta^2`` without which
        the bound of Corollary 1 cannot be met.
        """
        step = DEFAULT_SIZE if m is None else m
        fewest = float(FEWEST)
        if self.bound == "clt" and self.delta is not None:
            fewest = max(fewest, (SMALLEST / self.delta) ** 2)
        first = step * math.ceil(fewest / step)
        made = correction(_ROOMY if self.skew_corrected else self.sigma, self.correction)
        settings = np.zeros(8)
        settings[_FIRST], settings[_STEP], settings[_SIGMA] = first, step, self.sigma
        settings[_DELTA] = 0.0 if self.delta is None else self.delta
        settings[_CLT] = self.bound == "clt"
        settings[_SKEWED] = self.skew_corrected
        settings[_TOTAL] = made.sigma**2
        settings[_TABLE] = made.error
        return Prepared(settings, made.table, first if first < population else 0, True)


mh_minibatch = builder(MinibatchMetropolis)
