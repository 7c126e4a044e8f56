"""``mint``: a minibatch for the proposal, and the estimate that the position was accepted with.

Li and Wong 2017, Algorithm 1. With ``m`` of ``n`` rows, ``tau = log m / log n`` and
``lambda < tau`` the log-likelihood is replaced by ``n^lambda mu^(theta) = (n / m) sum_j l_j / T``,
``T = n^(1 - lambda)``: an unbiased estimate of the log-likelihood at temperature ``T``, which the
data set has (``likelihood.temperature``). A proposal gets one from rows of its own; the position
keeps the one that it was accepted with. So the chain lives on theta and the minibatch together,
where it is exact, and theta alone has the density

    p(theta) E exp(n^lambda mu^(theta)) = p(theta) exp(n^lambda mu + v / 2 + g v^1.5 / 6 + ...)

with the variance ``v`` and the skewness ``g`` of the estimate. For rows with replacement
``v = n^(2 lambda - tau) var(l_i)``, ``g = skew(l_i) / sqrt(m)``, and the expectation is
``((1 / n) sum_i exp(n^(lambda - tau) l_i))^m`` without any expansion. Without replacement ``v``
has the factor ``1 - m / n``, and ``g`` has ``(1 - 2 m / n) / sqrt(1 - m / n)``. With control
variates ``l_i`` is what they leave.

What would be wrong is to estimate again where the chain is: that is no Metropolis chain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import percent
from streammc.errors import ConfigError
from streammc.likelihood.temperature import temperature_of
from streammc.likelihood.unit_words import unit_of_model
from streammc.numerics.jit import f8, inline, jit, vector
from streammc.samplers.common.options import NONE, builder, check_number
from streammc.samplers.common.sampler import TEMPERED, Check, at_most
from streammc.samplers.metropolis.acceptance import (
    ACCEPT,
    COUNT,
    ERROR,
    ESTIMATED,
    FORCED,
    KNOWN,
    MEAN,
    MORE,
    POPULATION,
    REJECT,
    TEST_SIGNATURE,
    UNIFORM,
    USED,
    VARIANCE,
    WANTED,
    Prepared,
)
from streammc.samplers.metropolis.clt import skewness, unless_dominated, variance_of_mean
from streammc.samplers.metropolis.options import MetropolisOptions
from streammc.trace.run_directory import RunDirectory, finite_or_none

if TYPE_CHECKING:
    from streammc.samplers.common.sampler import Setup


DEFAULT_ALPHA: Final = 0.5
DEFAULT_ROWS: Final = 1000
FEWEST_ROWS: Final = 2
SHARE: Final = 0.1
"""Largest share of the rows that an automatic ``subsample_size`` takes."""
NORMALITY: Final = 1.0 / 6.0 / math.sqrt(2.0 * math.pi)
"""``max_y |1 - y^2| phi(y) / 6 = 0.0665``."""

_SIZE, _FINITE = range(2)
_VARIANCE, _ERROR = 2, 3
"""``carried``, after those of the loop: of the estimate at the position."""


@jit(f8(vector, vector, f8, f8), borrow=True)
def distance_from_normal(facts, terms, variance, part):  # type: ignore[no-untyped-def]
    """Return how far ``P(sqrt(m) (mu^ - mu) <= x)`` is from normal, by the first Edgeworth term.

    ``0.0665 |g|`` with the skewness ``g`` of the mean of terms that are ``part`` of all there
    are (0: with replacement); the mean is not studentised (``metropolis.clt``), so that it is
    half as far as theirs. NaN where one term is most of a variance that is not small.
    """
    if part >= 1.0 or facts[COUNT] < 2.0:
        return 0.0
    skewed = abs(skewness(facts) * (1.0 - 2.0 * part)) / math.sqrt(facts[COUNT] * (1.0 - part))
    return unless_dominated(facts, terms, variance, NORMALITY * skewed)


@inline
def stay(carried, reply):  # type: ignore[no-untyped-def]
    """Write variance and error of the estimate at the position."""
    reply[FORCED] = 0.0
    reply[VARIANCE] = carried[_VARIANCE]
    reply[ERROR] = carried[_ERROR]


@jit(TEST_SIGNATURE, borrow=True)
def decide(settings, facts, terms, draws, memory, carried, reply, table):  # type: ignore[no-untyped-def]
    """Ask for ``m`` terms, once; accept with ``min(1, exp(known + their mean))``."""
    reply[USED] = facts[COUNT]
    if not math.isfinite(facts[KNOWN]):
        stay(carried, reply)
        return REJECT
    if facts[COUNT] < settings[_SIZE]:
        reply[WANTED] = settings[_SIZE] - facts[COUNT]
        return MORE
    delta = facts[KNOWN] + facts[MEAN]
    verdict = REJECT
    if math.isfinite(delta) and (carried[ESTIMATED] == 0.0 or math.log(draws[UNIFORM]) < delta):
        part = facts[COUNT] / facts[POPULATION] if settings[_FINITE] == 1.0 else 0.0
        carried[ESTIMATED] = 1.0
        carried[_VARIANCE] = variance_of_mean(facts) * (1.0 - part)
        carried[_ERROR] = distance_from_normal(facts, terms, carried[_VARIANCE], part)
        verdict = ACCEPT
    stay(carried, reply)
    return verdict


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
    decide: ClassVar[Any] = staticmethod(decide)
    crosses_modes: ClassVar[bool] = True
    error_label: ClassVar[str] = "estimates off normal"
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
            check_number(option, getattr(self, option), "(0, 1]")
        if self.alpha == 1.0:
            raise ConfigError(
                "lambda < tau is needed: alpha must be below 1, found 1.0: give a smaller alpha"
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

    def acceptance_test(self, population: int, m: int | None) -> Prepared:
        """Return the acceptance test; see :class:`MetropolisOptions`."""
        size = DEFAULT_ROWS if m is None else m
        if not self.replace:
            size = min(size, population)
        settings = np.array([size, float(not self.replace)])
        table = np.zeros((0, 0))
        return Prepared(settings, table, size, self.replace, carries=True, barker=False)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return those of every acceptance test, and under ``mint`` exponents and noise."""
        found = tempered_facts(run, self, setup.cv.n_rows, setup.cv.labels)
        return {**super().facts(run, setup), "mint": found}

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of the noise, and of the decisions; see ``Sampler``."""
        noise = noise_checks(summary) if "mint" in summary["sampling"] else []
        return [*noise, *super().checks(summary)]


mint = builder(Mint, {"lambda": "exponent"})


NOISE_WARNING: Final = 2.0
THIRD_ORDER_WARNING: Final = 0.1
UNKNOWN_WARNING: Final = 0.01
LEAST_SHARE: Final = 0.05
"""Effective share of the draws below which their weights tell nothing."""


def tempered_facts(
    run: RunDirectory, sampler: Mint, n_rows: int, labels: Sequence[str]
) -> dict[str, Any]:
    """Return exponents, temperature and noise of a run of ``mint``, as JSON.

    Returns
    -------
    dict
        ``tau``, ``lambda``, ``alpha``, ``subsample_size`` and ``temperature``;
        ``noise_variance``, the mean over the draws of ``v = n^(2 lambda - tau) var(l_i)`` times
        ``finite_factor``: 1 - m / n, or 1 with replacement; ``third_order``, the mean of
        ``|g| v^1.5 / 6``, what the logarithm of the marginal has beyond ``v / 2``;
        ``chains_that_never_moved``; and ``marginal``: see :func:`without_noise`.
    """
    tau, exponent = sampler.exponents(n_rows)
    m = sampler.rows_of(n_rows)
    stats = run.statistics("log_lik_variance", "acceptance_rate", "decision_error")
    variance, moved = stats["log_lik_variance"], stats["acceptance_rate"].sum(axis=1) > 0.0
    third = stats["decision_error"] / (6.0 * NORMALITY) * variance**1.5
    known = third[np.isfinite(third)]
    return {
        "tau": tau,
        "lambda": exponent,
        "alpha": exponent / tau,
        "subsample_size": m,
        "temperature": temperature_of(run.identity, run.attributes),
        "finite_factor": 1.0 if sampler.replace else 1.0 - m / n_rows,
        "noise_variance": finite_or_none(float(variance.mean())),
        "third_order": float(known.mean()) if known.size else None,
        "chains_that_never_moved": int((~moved).sum()),
        "marginal": without_noise(run.draws_matrix(), variance, labels),
    }


def without_noise(
    draws: NDArray[np.float64], variance: NDArray[np.float64], labels: Sequence[str]
) -> dict[str, dict[str, float | None]] | None:
    """Return by parameter what the factor ``exp(v / 2)`` in the density of the draws does.

    Parameters
    ----------
    draws
        (chain, draw, d).
    variance
        (chain, draw) v of the estimate that each was accepted with.

    Returns
    -------
    dict or None
        ``variance_ratio``: the variance of the draws over that with weights ``exp(-v / 2)``,
        which take the factor away; ``shift``: what it adds to the mean, in standard deviations
        of the draws. ``None`` where the weights are too uneven to tell.
    """
    theta = draws.reshape(-1, draws.shape[-1])
    half = 0.5 * variance.ravel()
    if not np.isfinite(half).all():
        return None
    weight = np.exp(half.min() - half)
    weight /= weight.sum()
    if len(theta) < 2 or 1.0 / np.square(weight).sum() < LEAST_SHARE * len(theta):
        return None
    mean = weight @ theta
    spread = weight @ np.square(theta - mean)
    plain = theta.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, shift = plain / spread, (theta.mean(axis=0) - mean) / np.sqrt(plain)
    return {
        label: {"variance_ratio": finite_or_none(r), "shift": finite_or_none(s)}
        for label, r, s in zip(labels, ratio, shift, strict=True)
    }


def noise_checks(summary: Mapping[str, Any]) -> list[Check]:
    """Return the checks of the estimates that a chain of ``mint`` carries along."""
    facts, row = summary["sampling"], unit_of_model(summary.get("model"))
    mint, still = facts["mint"], facts["mint"]["chains_that_never_moved"]
    variance, third = mint["noise_variance"], mint["third_order"]
    unknown, temperature = facts["decision_error_unknown"], mint["temperature"]
    size = "not finite" if variance is None else f"{variance:.3g}"
    remedy = (
        "use control_variate=2, a smaller alpha, or a larger subsample_size with the same lambda"
    )
    return [
        Check(
            name="temperature and minibatch",
            receipt={
                "tempered": f"posterior at temperature {temperature:.6g} = n^(1 - lambda): "
                f"likelihood^(1/{temperature:.6g}) x prior",
                f"{row}s of an estimate": f"{mint['subsample_size']} = n^tau, "
                f"tau {mint['tau']:.4g}, lambda {mint['lambda']:.4g} = alpha tau, "
                f"alpha {mint['alpha']:.4g}",
                "marginal of the draws": marginal_text(mint),
            },
        ),
        at_most(
            "chains that never moved",
            still,
            0,
            "Such a chain is one point: its estimate was far above the true log-likelihood.",
            warning=f"{still} of {facts['chains']} chains of {facts['sampler']} are stuck, each at "
            "one point: they accepted an estimate far above the true log-likelihood, or steps are "
            f"too long; {remedy}",
        ),
        at_most(
            "variance of the carried estimates",
            math.inf if variance is None else variance,
            NOISE_WARNING,
            "The noise v of the log-likelihood estimate multiplies the density by exp(v / 2); "
            "a chain sticks where it is large.",
            warning=f"the estimates of {facts['sampler']} have a mean variance "
            f"n^(2 lambda - tau) var(l_i) of {size}, above {NOISE_WARNING:g}: the chain sticks, "
            f"and its draws are far from the tempered posterior; {remedy}",
            figure="log_lik_variance",
            line=NOISE_WARNING,
        ),
        at_most(
            "skewness of the carried estimates",
            third,
            THIRD_ORDER_WARNING,
            warning=f"the estimates of {facts['sampler']} are skewed: the logarithm of the density "
            f"of the draws has {third or 0.0:.2g} on average beyond v / 2; {remedy}",
        ),
        at_most(
            "estimates of unknown error, share",
            unknown,
            UNKNOWN_WARNING,
            warning=f"{percent(unknown)} of the draws rest on an estimate with one {row} that is "
            "most of its variance, which cannot be called normal; use control_variate=2 or a "
            "larger subsample_size",
        ),
    ]


def marginal_text(facts: Mapping[str, Any]) -> str:
    """Return the density of the draws of ``mint`` beside the tempered posterior, as text."""
    noise = facts["noise_variance"]
    finite = "" if facts["finite_factor"] == 1.0 else " (1 - m/n)"
    text = f"tempered posterior x exp(v / 2), v = n^(2 lambda - tau) var(l_i){finite}"
    if noise is not None:
        text += f" = {noise:.3g} on average"
    ratios = {
        label: entry["variance_ratio"]
        for label, entry in (facts["marginal"] or {}).items()
        if entry["variance_ratio"] is not None
    }
    if noise is not None and noise > NOISE_WARNING:
        text += ": far from the tempered posterior"
    elif ratios:
        worst = max(ratios, key=lambda label: abs(math.log(ratios[label])))
        text += f"; it makes a variance up to {ratios[worst]:.3g} times as large ({worst})"
    return text
