"""Multinomial regression (baseline-category logit): ``log(P(y_i = k) / P(y_i = 0)) = eta_ik``.

The categories are 0 to K - 1, in no order, and category 0 is the reference: each of the others has
a linear predictor of its own over the same columns,

    eta_ik = x_i . beta_k,    P(y_i = k) = exp(eta_ik) / (1 + exp(eta_i1) + ... + exp(eta_i(K-1)))

(Agresti 2013, section 8.1). The log-likelihood is concave. Two categories are logistic regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ModelError
from streammc.models.base import LinearModel, Parameter, predictor
from streammc.models.glm.least_squares import least_squares
from streammc.models.responses import category_fault, check_levels
from streammc.numerics.jit import LINK_SIGNATURE, jit
from streammc.numerics.special import exp, log, log1p_unit, select
from streammc.priors import PriorOption, as_prior
from streammc.priors.scaled import LINK_INTERCEPT, Level, logit_level
from streammc.protocols import Index, Matrix, Rows, Vector

MOST: Final = 50
"""Most categories: the expansion of a row is then 1,275 numbers."""
_TILE: Final = 64
"""Rows whose exponentials stay in the first-level cache."""


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the log probability of a category and its derivatives in the K - 1 predictors.

    They are ``1[y = a] - pi_a`` and ``pi_a pi_b - 1[a = b] pi_a``, ``pi`` the probabilities.
    With ``e_a = exp(eta_a - top)``, ``top`` the largest of the predictors and 0, the reference:

        log P(y) = eta_y - top - log(1 + rest),    rest the sum of e_a without that of the top,

    so that chances near 0 and near 1 keep their digits. ``1 - pi_a`` is a sum of the others. The
    value is NaN where y is none of the categories, or a predictor is. See ``protocols.Model``.
    """
    p, m = eta.shape
    e = np.empty((p + 1, min(m, _TILE)))  # the predictors of all categories, then e
    tile = np.empty((5, min(m, _TILE)))
    top = tile[0]
    place = tile[1]  # category of the top
    rest = tile[2]
    known = tile[3]
    at = tile[4]  # eta_y - top, then a chance
    lo = 0
    while 0 <= lo < m:  # never below 0: tells the compiler that no index counts from the end
        size = min(_TILE, m - lo)
        for t in range(size):
            category = y[lo + t]
            inside = (category >= 0.0) & (category <= p)
            level = select(inside, category, 0.5)  # of no whole number
            known[t] = select(np.int64(level) == level, 0.0, math.nan)
            e[0, t] = top[t] = place[t] = rest[t] = at[t] = 0.0
        for a in range(1, p + 1):
            for t in range(size):
                x = eta[a - 1, lo + t]
                e[a, t] = x
                known[t] = select(x == x, known[t], math.nan)
                place[t] = select(x > top[t], float(a), place[t])
                top[t] = select(x > top[t], x, top[t])
        for a in range(p + 1):
            for t in range(size):
                away = select(e[a, t] == top[t], 0.0, e[a, t] - top[t])  # of two infinite ones, too
                e[a, t] = exp(away)
                rest[t] += select(place[t] == a, 0.0, e[a, t])
                at[t] = select(y[lo + t] == a, away, at[t])
        for t in range(size):
            few = log1p_unit(select(rest[t] < 1.0, rest[t], 1.0))
            total = select(rest[t] < 1.0, few, log(1.0 + rest[t]))
            out[0, lo + t] = (at[t] - total) + known[t]
        if order >= 1:
            for t in range(size):
                rest[t] = select(known[t] == known[t], rest[t], math.nan)
                top[t] = 1.0 / (1.0 + rest[t])
            for a in range(1, p + 1):
                for t in range(size):
                    others = select(place[t] == a, rest[t], 1.0 + rest[t] - e[a, t])
                    out[a, lo + t] = top[t] * select(y[lo + t] == a, others, -e[a, t])
        if order == 2:
            row = 1 + p
            for a in range(1, p + 1):
                for t in range(size):
                    others = select(place[t] == a, rest[t], 1.0 + rest[t] - e[a, t])
                    at[t] = e[a, t] * top[t]
                    out[row, lo + t] = -at[t] * (others * top[t])
                for b in range(a + 1, p + 1):
                    for t in range(size):
                        out[row + b - a, lo + t] = at[t] * (e[b, t] * top[t])
                row += p + 1 - a
        lo += size


@dataclass(frozen=True)
class Multinomial(LinearModel):
    """Multinomial regression; build it with :func:`multinomial`."""

    levels: int | None = None
    """Number K of categories; ``None``: as the data have."""

    name: ClassVar[str] = "multinomial"
    log_concave: ClassVar[bool] = True
    takes_levels: ClassVar[bool] = True
    most_levels: ClassVar[int] = MOST
    nominal: ClassVar[bool] = True
    takes_offset: ClassVar[bool] = False
    link_kernel: ClassVar[Any] = link

    def __post_init__(self) -> None:
        """Refuse a number of categories that is not a whole number from 2 to 50."""
        super().__post_init__()
        check_levels(self.levels, MOST)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the coefficients of each category but the reference; of two without ``levels``."""
        each = predictor(exponential="relative risk ratio", components=((self.levels or 2) - 1,))
        return (replace(each, first=1),)

    def predictor_level(self, rows: Rows, component: int) -> Level:
        """Return the level under a logit link among the rows of two categories.

        They are the reference and that of the predictor.
        """
        category = component + 1.0
        both = (rows.y == 0.0) | (rows.y == category)
        if not (rows.weight[both] > 0.0).any():
            return Level(width=LINK_INTERCEPT)
        kept = Rows(*(each[both] for each in rows))
        return logit_level(kept._replace(y=(kept.y == category).astype(np.float64)))

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is none of the categories."""
        return category_fault(y, self.levels, MOST)

    def mean(self, eta: Matrix) -> Vector:
        """Raise ModelError: the numbers of categories without an order have no mean."""
        raise ModelError(
            f"expected the model {self.name!r} to have a mean response, found none, since its "
            "categories have no order: ask for their probabilities, by streammc.predict"
        )

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw a category per column of ``eta`` (K - 1, m): the largest of the utilities.

        These are the predictors, 0 of the reference, plus standard Gumbel variates (McFadden 1974).
        """
        utility = rng.gumbel(size=(len(eta) + 1, eta.shape[1]))
        utility[1:] += eta
        y: Vector = utility.argmax(axis=0).astype(np.float64)
        return y

    def start(self, rows: Rows) -> Vector:
        """Return the marginal log odds against the reference as constant predictors.

        (q (K - 1),), as far as the columns can express a constant; each category counts half a row
        more than there are.
        """
        used = rows.weight > 0.0
        X, weight, n = rows.X[used], rows.weight[used], self.levels or 2
        k = np.clip(rows.y[used], 0, n - 1).astype(np.int64)
        unit = float(weight.mean()) if len(k) else 1.0
        count = np.bincount(k, weight, minlength=n) + 0.5 * unit
        constant = least_squares(X, np.ones(len(k)), weight)
        return np.outer(np.log(count[1:] / count[0]), constant).ravel()

    def describe(self) -> dict[str, Any]:
        """Return the name, the number of categories and the prior as JSON types."""
        return {**super().describe(), "levels": self.levels}


def multinomial(prior: PriorOption | None = None, levels: int | None = None) -> Multinomial:
    """Return multinomial regression, ``log(P(y = k) / P(y = 0)) = eta_k``, y from 0 to K - 1.

    Each category k but 0, the reference, has coefficients ``beta[k, x]`` of its own. The intercept
    of their default prior is around the log odds of k against 0.

    Parameters
    ----------
    levels
        Number K of categories, 2 to 50; ``None``: as the data have.

    Raises
    ------
    ConfigError
        If ``prior`` is not a prior or ``levels`` is not a whole number from 2 to 50.

    Examples
    --------
    >>> from streammc.models import multinomial
    >>> multinomial(levels=3).labels(["Intercept", "age"])
    ('beta[1, Intercept]', 'beta[1, age]', 'beta[2, Intercept]', 'beta[2, age]')
    """
    return Multinomial(as_prior(prior), levels)
