"""Error of the normal approximation to the mean of some terms, in the acceptance probability.

Tests with Barker's function (Seita et al. 2017) accept where ``Delta* + X_nc + X_corr`` is above
0: ``Delta*`` is the estimate of the log acceptance ratio Delta from ``n`` terms, ``s^2`` its
variance as estimated from the same terms, ``X_nc`` normal with variance ``sigma^2 - s^2``, so that
their sum W has variance ``sigma^2``, and ``X_corr`` a correction (``metropolis.correction``) with
which a normal variable of that variance becomes logistic, with the distribution function S. Let the
terms have variance ``tau^2``, skewness ``g`` and excess kurtosis ``k``, and ``v = tau / sqrt(n)``.
Then ``cov(Delta*, s^2) = g v^3 / sqrt(n)``, and
the third cumulant of ``W - Delta`` is that of ``Delta*`` less three times this covariance,
``-2 g v^3 / sqrt(n)``; its mean is 0 and its variance ``sigma^2``. With ``y = x / sigma``

    P(W - Delta <= x) = Phi(y) + g (v / sigma)^3 / (6 sqrt(n)) (2 y^2 - 2) phi(y) + O(1 / n).

The studentised mean, Seita et al. 2017, eq. 38, has ``2 y^2 + 1`` there: its mean is not 0.
Adding ``X_corr`` makes the term ``g v^3 / (3 sqrt(n)) S'''``, at most ``1 / 24`` of ``g v^3 /
sqrt(n)``, so that their ``0.126 g / sqrt(n)``, scaled with ``(v / sigma)^3``, bounds it.
"""

from __future__ import annotations

import math
from typing import Final

from streammc.numerics.jit import f8, jit, vector
from streammc.samplers.metropolis.acceptance import COUNT, KEPT, M2, M3, MEAN

SMALLEST: Final = 8.4
"""Smallest value of ``6.4 E|X|^3 + 2 E|X|`` where ``E X^2 = 1``: both moments are 1."""
STUDENTISED: Final = 4.0 / 6.0 * math.exp(-0.75) / math.sqrt(2.0 * math.pi)
"""``max_y (2 y^2 + 1) phi(y) / 6 = 0.1256``, at ``y^2 = 3 / 2``."""
DECISIONS, UNKNOWN = 2, 3
"""``carried``: decisions, up to a number; the share of them that could not tell their error."""
_REMEMBERED: Final = 500.0
"""The number up to which decisions are counted: about so many are remembered."""
_ENOUGH: Final = 20.0
"""Decisions from which on their share counts."""
_COMMON: Final = 0.1
"""Share of decisions without an error above which no decision has one."""
_DOMINATED: Final = 0.5
"""Share of the sum of squared deviations above which one term is most of it."""
_SECOND_DERIVATIVE: Final = 1.0 / 6.0 / math.sqrt(3.0)
"""``max |S''|``."""
_CRUDEST: Final = 0.01
"""Largest crude error that still says something."""
_THIRD: Final = 1.0 / 24.0
"""``max |S'''| / 3``."""
_SECOND: Final = 0.0075
"""``max |S''''| / 24 = 0.0053``, and two fifths more for what is of higher order."""


@jit(f8(vector), borrow=True)
def variance_of_mean(facts):  # type: ignore[no-untyped-def]
    """Return the estimated variance of the mean of the terms; infinite for fewer than two."""
    n = facts[COUNT]
    if n < 2.0:
        return math.inf
    return facts[M2] / (n - 1.0) / n


@jit(f8(vector), borrow=True)
def skewness(facts):  # type: ignore[no-untyped-def]
    """Return the third standardised moment of the terms; 0 where they are all equal."""
    n = facts[COUNT]
    if facts[M2] <= 0.0:
        return 0.0
    return math.sqrt(n) * facts[M3] / facts[M2] ** 1.5


@jit(f8(vector, vector), borrow=True)
def kurtosis(facts, terms):  # type: ignore[no-untyped-def]
    """Return the excess kurtosis of the terms kept, but at least what their skewness implies."""
    n = int(facts[KEPT])
    if facts[M2] <= 0.0 or n == 0:
        return 0.0
    second = facts[M2] / facts[COUNT]
    fourth = 0.0
    for j in range(n):
        square = (terms[j] - facts[MEAN]) ** 2
        fourth += square * square
    return max(fourth / n / (second * second), 1.0 + skewness(facts) ** 2) - 3.0


@jit(f8(vector, vector, f8, f8), borrow=True)
def unless_dominated(facts, terms, variance, error):  # type: ignore[no-untyped-def]
    """Return ``error``, but not where one term is most of the sum of squared deviations.

    No moment tells then how far a sum is from normal. Whatever it is, in place of a normal
    variable of the same variance it changes the mean of a function by at most ``variance``
    times the largest second derivative, 0.096 for the logistic function: that is returned
    where it says something, and NaN where it does not.
    """
    largest = 0.0
    for j in range(int(facts[KEPT])):
        largest = max(largest, abs(terms[j] - facts[MEAN]))
    if largest * largest <= _DOMINATED * facts[M2]:
        return error
    crude = _SECOND_DERIVATIVE * variance
    return crude if crude <= _CRUDEST else math.nan


@jit(f8(vector, f8), borrow=True)
def unless_often_unknown(carried, error):  # type: ignore[no-untyped-def]
    """Return ``error`` and keep count of NaN; NaN where a tenth of the decisions had it.

    Where rare terms are most of the variance, a decision that met none sees nothing wrong:
    it has only the others to learn from.
    """
    unknown = 1.0 if math.isnan(error) else 0.0
    carried[DECISIONS] = min(carried[DECISIONS] + 1.0, _REMEMBERED)
    carried[UNKNOWN] += (unknown - carried[UNKNOWN]) / carried[DECISIONS]
    if carried[DECISIONS] >= _ENOUGH and carried[UNKNOWN] > _COMMON:
        return math.nan
    return error


@jit(f8(vector, vector), borrow=True)
def corollary_1(facts, terms):  # type: ignore[no-untyped-def]
    """Return ``(6.4 E|X|^3 + 2 E|X|) / sqrt(n)`` of standardised terms.

    Seita et al. 2017, Corollary 1, from the bound of Novak (2005) for ``E X^2 = 1``: it is
    never below ``8.4 / sqrt(n)``. The moments are those of the terms kept.
    """
    n = int(facts[KEPT])
    if facts[M2] <= 0.0:
        return SMALLEST / math.sqrt(facts[COUNT])
    scale = 1.0 / math.sqrt(facts[M2] / facts[COUNT])
    first = third = 0.0
    for j in range(n):
        x = abs(terms[j] - facts[MEAN]) * scale
        first += x
        third += x * x * x
    return max(SMALLEST, (6.4 * third + 2.0 * first) / n) / math.sqrt(facts[COUNT])


@jit(f8(vector, f8, f8), borrow=True)
def edgeworth(facts, variance, sigma):  # type: ignore[no-untyped-def]
    """Return a bound on the first term of the expansion: ``0.126 |g| / sqrt(n)`` at ``v = sigma``.

    Where ``X_nc`` is most of the variance, the sum is that much closer to normal.
    """
    scale = max(STUDENTISED, _THIRD * sigma**3)
    share = math.sqrt(variance) / sigma
    return scale * abs(skewness(facts)) * share**3 / math.sqrt(facts[COUNT])


@jit(f8(vector, vector, f8), borrow=True)
def second_order(facts, terms, variance):  # type: ignore[no-untyped-def]
    """Return the size of the terms of order ``1 / n``: fourth cumulant and squared skewness."""
    moments = 6.0 + 2.0 * abs(kurtosis(facts, terms)) + 6.0 * skewness(facts) ** 2
    return _SECOND * moments * variance * variance / facts[COUNT]


@jit(f8(vector, vector), borrow=True)
def coupling(facts, terms):  # type: ignore[no-untyped-def]
    """Return ``c = g / sqrt(k + 2)``: the correlation of the mean with ``s^2``."""
    spread = kurtosis(facts, terms) + 2.0
    return skewness(facts) / math.sqrt(spread) if spread > 0.0 else 0.0


@jit(f8(vector, vector, f8, f8, f8), borrow=True)
def stopping(facts, terms, variance, sigma, step):  # type: ignore[no-untyped-def]
    """Return the error from stopping at the first check where ``s^2 < sigma^2``.

    With skewed terms to stop where ``s^2`` is small moves the mean. The sum of ``n`` terms
    less ``n`` means is a martingale; for checks at ``n_1 < n_2 < ...`` that gives

        E(Delta* - Delta) = -c sum_i v_i (1 - n_i / n_(i+1)) phi(z_i),

    where ``z_i`` is how far ``sigma^2`` is from ``v_i^2`` in standard deviations of ``s^2``,
    ``v_i^2 sqrt((k + 2) / n_i)``. It is of order 1 where one check alone is near, and ``-g
    sigma / sqrt(n)`` where many are. The acceptance probability moves by up to a quarter of
    it. What is returned is three fifths larger, for where ``s^2`` is small the terms look less
    skewed than they are, and takes the nearest check to be up to one standard deviation nearer.

    ``variance`` is ``s^2``, and ``step`` the terms between two checks.
    """
    n = facts[COUNT]
    if not variance > 0.0:
        return 0.0
    relative = math.sqrt(max(kurtosis(facts, terms) + 2.0, 0.0) / n)
    near = (sigma * sigma / variance - 1.0) / relative
    if n > step:
        near = min(near, abs((n - step) / n * sigma * sigma / variance - 1.0) / relative)
    weight = math.exp(-0.5 * max(0.0, near - 1.0) ** 2)
    moved = max(0.4 * step, relative * n) / (n + step)  # 0.4: phi(0)
    # 0.4: a quarter, and three fifths more
    return 0.4 * abs(coupling(facts, terms)) * math.sqrt(variance) * moved * weight


@jit(f8(vector, vector, f8, f8, f8), borrow=True)
def moved_by_stopping(facts, terms, variance, sigma, step):  # type: ignore[no-untyped-def]
    """Return an estimate of ``E(Delta* - Delta)``: see ``stopping``.

    ``phi(z_i)`` has the nearly unbiased estimate 1/2 where the estimated ``z_i`` is within
    one of 0, and 0 elsewhere: its error is about normal with variance 1.
    """
    n = facts[COUNT]
    if not variance > 0.0:
        return 0.0
    spread = max(kurtosis(facts, terms) + 2.0, 0.0)
    crossing = n * variance / (sigma * sigma)  # where s^2 falls to sigma^2
    reach = math.sqrt(spread / crossing) * crossing
    check = max(1.0, math.ceil((crossing - reach) / step))
    total = 0.0
    while check * step <= crossing + reach:
        total += 0.5 * math.sqrt(n * variance / (check * step)) / (check + 1.0)
        check += 1.0
    return -coupling(facts, terms) * total
