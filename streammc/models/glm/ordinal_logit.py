"""Ordinal regression (cumulative logit): ``P(y_i <= k) = 1 / (1 + exp(eta_i - c_k))``.

The categories are 0 to K - 1, the cut points ``c_0 < ... < c_(K - 2)`` (McCullagh 1980). A constant
added to all cut points and to the predictor changes nothing, so that ``c_0 = 0``: the intercept of
the design stands for ``-c_0``, and the shared parameters are the K - 2 gaps between neighbouring
cut points, sampled as their logarithms ``u_1, ..., u_(K - 2)``:

    d_j = exp(u_j),    c_k = d_1 + ... + d_k

Gaps have no unit, and a shift of the columns moves the intercept alone, as in every regression. The
cut points of ``MASS::polr`` are ``zeta_k = c_k - beta[Intercept]``. Two categories are logistic
regression.

The log-likelihood is concave in coefficients and cut points (Pratt 1981), but not in ``u``: of a
row with y = 1 far above its category it is ``log(exp(d_1) - 1)`` up to a constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import MOST_LEVELS, POSITIVE, LinearModel, Parameter, predictor
from streammc.models.glm.bernoulli_logit import chances, logit_row
from streammc.models.glm.least_squares import least_squares
from streammc.models.responses import category_fault, check_levels
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, select, within
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import Level, logit_level
from streammc.protocols import Index, Matrix, Rows, Vector

_MOST: Final = 300.0
"""Log gaps are clipped to +-300, so that squares of gaps are finite."""
_SMALL: Final = 0.3
"""Gap below which the second derivative of its term is a series."""
_TILE: Final = 64
"""Rows whose slopes stay in the first-level cache."""


@inline
def _gap(u):  # type: ignore[no-untyped-def]
    """Return ``d = exp(u)``, ``w = log(1 - exp(-d))`` and the derivatives of w in u.

    ``w' = d / (exp(d) - 1)``; ``w''`` is the series of the Bernoulli numbers for small d.
    """
    d = exp(within(u, _MOST))
    gone = -math.expm1(-d)
    w = u + math.log(gone / d) if d < 0.7 else math.log1p(-math.exp(-d))
    slope = d / math.expm1(d)
    if d < _SMALL:
        s = d * d
        tail = 1.0 / 5040.0 - s * (1.0 / 151200.0 - s * (1.0 / 4790016.0 - s * 6.341200e-9))
        return d, w, slope, s * (1.0 / 6.0 - s * (1.0 / 180.0 - s * tail)) - 0.5 * d
    return d, w, slope, -slope * ((d - gone) / gone)


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log probability of a category and its derivatives in ``eta, u_1, ..., u_(K - 2)``.

    With F the logistic distribution function and ``a = c_(y - 1) - eta``, ``b = c_y - eta``:

        log(F(b) - F(a)) = log F(b) + log(1 - F(a)) + log(1 - exp(a - b)),

    whose terms have one sign: neither tails nor small gaps cancel. The first category has no ``a``,
    the last no ``b``. The value is NaN where y is none of the categories. See ``protocols.Model``.
    """
    p, m = eta.shape
    shared = np.zeros((6, p + 2))
    last = shared[0]  # log gaps of the cut points below
    last[:] = math.nan
    cut = shared[1]  # cut[k + 1] is c_k
    d = shared[2]  # gap of each category, and its term with two derivatives
    w = shared[3]
    w1 = shared[4]
    w2 = shared[5]
    tile = np.empty((7, min(m, _TILE)))
    level = tile[0]
    a = tile[1]  # c_(y - 1) - eta, then the derivative in eta
    b = tile[2]  # c_y - eta, then the derivative of log F(b) in b
    own = tile[3]  # log(1 - exp(a - b))
    curve = tile[4]  # second derivatives in eta, and of log F(b)
    curve_b = tile[5]
    known = tile[6]
    lo = 0
    while 0 <= lo < m:  # never below 0: tells the compiler that no index counts from the end
        hi = min(lo + _TILE, m)  # rows with the same gaps
        for j in range(1, p):
            i = lo + 1
            while i < hi and eta[j, i] == eta[j, lo]:
                i += 1
            hi = i
        for j in range(1, p):
            if eta[j, lo] != last[j]:
                last[j] = eta[j, lo]
                d[j], w[j], w1[j], w2[j] = _gap(last[j])
            cut[j + 1] = cut[j] + d[j]
        size = hi - lo
        for t in range(size):
            category = y[lo + t]
            level[t] = select((category >= 0.0) & (category <= p), category, 0.0)
            k = np.int64(level[t])
            known[t] = select(k == category, 0.0, math.nan)
            a[t] = cut[k]
            b[t] = cut[k + 1]
            own[t] = w[k]
        for t in range(size):
            x = eta[0, lo + t]
            lower = select(level[t] > 0.0, a[t] - x, -math.inf)
            upper = select(level[t] < p, b[t] - x, math.inf)
            below, slope_a, curve_a = logit_row(lower, 0.0)
            above, slope_b, bend_b = logit_row(upper, 1.0)
            # exp stops at exp(-708): terms that are none are not added
            below = select(level[t] > 0.0, below, 0.0)
            above = select(level[t] < p, above, 0.0)
            out[0, lo + t] = ((below + above) + own[t]) + known[t]
            a[t] = -(slope_a + slope_b)
            b[t] = slope_b
            curve[t] = curve_a + bend_b
            curve_b[t] = bend_b
        if order >= 1:
            for t in range(size):
                out[1, lo + t] = a[t]
            for j in range(1, p):
                for t in range(size):
                    at = select(level[t] == j, d[j] * b[t] + w1[j], 0.0)
                    out[1 + j, lo + t] = select(level[t] > j, -d[j] * a[t], at)
        if order == 2:
            for t in range(size):
                out[1 + p, lo + t] = curve[t]
            row = 1 + p
            for j in range(1, p):
                for t in range(size):
                    at = select(level[t] == j, curve_b[t], 0.0)
                    out[row + j, lo + t] = -d[j] * select(level[t] > j, curve[t], at)
            for j in range(1, p):
                row += p + 1 - j
                for t in range(size):
                    at = select(level[t] == j, d[j] * (b[t] + d[j] * curve_b[t]) + w2[j], 0.0)
                    out[row, lo + t] = select(level[t] > j, d[j] * (d[j] * curve[t] - a[t]), at)
                for n in range(j + 1, p):
                    both = d[j] * d[n]
                    for t in range(size):
                        at = select(level[t] == n, curve_b[t], 0.0)
                        out[row + n - j, lo + t] = both * select(level[t] > n, curve[t], at)
        lo = hi


def _cut_points(log_gaps: Matrix) -> Matrix:
    """Return the cut points (K - 1, m) of log gaps (K - 2, m)."""
    gaps = np.exp(np.clip(log_gaps, -_MOST, _MOST))
    return np.concatenate([np.zeros((1, gaps.shape[1])), np.cumsum(gaps, axis=0)])


@dataclass(frozen=True)
class Ordinal(LinearModel):
    """Ordinal regression; build it with :func:`ordinal`."""

    levels: int | None = None
    """Number K of categories; ``None``: as the data have."""

    name: ClassVar[str] = "ordinal"
    takes_levels: ClassVar[bool] = True
    most_levels: ClassVar[int] = MOST_LEVELS
    mean_by_draw: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link

    def __post_init__(self) -> None:
        """Refuse a number of categories that is not a whole number from 2 to 20."""
        super().__post_init__()
        check_levels(self.levels, MOST_LEVELS)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return coefficients and the gaps, each named after the category between two cut points.

        Without ``levels`` there are no gaps yet.
        """
        inner = range(1, (self.levels or 2) - 1)
        gaps = (Parameter(f"gap[{k}]", support=POSITIVE) for k in inner)
        return (predictor(exponential="odds ratio"), *gaps)

    @staticmethod
    def level(rows: Rows) -> Level:
        """Return the level under a logit link: the log odds of a category above the first."""
        return logit_level(rows._replace(y=(rows.y > 0.0).astype(np.float64)))

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is none of the categories."""
        return category_fault(y, self.levels, MOST_LEVELS)

    def mean(self, eta: Matrix) -> Vector:
        """Return the expected number of the category, ``sum_k P(y > k)``, per column of ``eta``."""
        above = np.ascontiguousarray(eta[0] - _cut_points(eta[1:]))
        chance = np.empty_like(above)
        chances(above.ravel(), chance.ravel())
        total: Vector = chance.sum(axis=0)
        return total

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a category per column of ``eta`` (K - 1, m): cut points below a logistic variate."""
        latent = eta[0] + rng.logistic(size=eta.shape[1])
        y: Vector = (latent > _cut_points(eta[1:])).sum(axis=0).astype(np.float64)
        return y

    def start(self, rows: Rows) -> Vector:
        """Return the best of three starts, (q + K - 2,), with the gaps of the marginal shares.

        Each category counts half a row more than there are. The coefficients are least squares of
        the log odds of the middle of each category, those of a constant, and zeros.
        """
        used = rows.weight > 0.0
        X, offset, weight = rows.X[used], rows.offset[used], rows.weight[used]
        n, k = self.levels or 2, np.clip(rows.y[used], 0, (self.levels or 2) - 1).astype(np.int64)
        unit = float(weight.mean()) if len(k) else 1.0
        share = np.bincount(k, weight, minlength=n) + 0.5 * unit
        share /= share.sum()
        upto = np.cumsum(share)
        cut = np.log(upto[:-1]) - np.log(np.cumsum(share[::-1])[-2::-1])
        middle = upto - 0.5 * share
        score = np.log(middle) - np.log1p(-middle)
        gaps = np.log(np.diff(cut))
        targets = [score[k] - cut[0] - offset, -cut[0] - offset, np.zeros(len(k))]
        starts = [np.append(least_squares(X, each, weight), gaps) for each in targets]
        kept = Rows(np.ascontiguousarray(X), k.astype(np.float64), offset, weight)
        return max(starts, key=lambda theta: self._log_lik(kept, theta))

    def _log_lik(self, rows: Rows, theta: Vector) -> float:
        """Return the log-likelihood, -inf where it is not finite."""
        q, m = rows.X.shape[1], len(rows.y)
        eta = np.vstack([rows.X @ theta[:q] + rows.offset, np.tile(theta[q:, None], m)])
        out = np.empty((1 + len(eta) + len(eta) * (len(eta) + 1) // 2, m))
        self.link(eta, rows.X.T, rows.y, self.constants, 0, out)
        total = float(rows.weight @ out[0])
        return total if math.isfinite(total) else -math.inf

    def describe(self) -> dict[str, Any]:
        """Return the name, the number of categories and the prior as JSON types."""
        return {**super().describe(), "levels": self.levels}


def ordinal(prior: PriorOption | None = None, levels: int | None = None) -> Ordinal:
    """Return ordinal regression, ``P(y <= k) = 1 / (1 + exp(eta - c_k))``, y from 0 to K - 1.

    ``c_0 = 0``: the intercept stands for ``-c_0``. ``gap[k]`` is the distance of the cut points
    ``c_(k - 1)`` and ``c_k``, between which category k lies; its default prior is
    half-Student-t(3, 10). The mean response is the expected number of the category.

    Parameters
    ----------
    levels
        Number K of categories, 2 to 20; ``None``: as the data have.

    Raises
    ------
    ConfigError
        If ``prior`` is not a prior or ``levels`` is not a whole number from 2 to 20.

    Examples
    --------
    >>> from streammc.models import ordinal
    >>> ordinal(levels=4).labels(["Intercept", "age"])
    ('beta[Intercept]', 'beta[age]', 'gap[1]', 'gap[2]')
    """
    return Ordinal(as_prior(prior), levels)
