"""A mixture in one column, all of it unknown: ``x_i ~ sum_k w_k Normal(mu_k, sigma_k)``.

Predictors of a row are the K means, or of two ordered ones the centre and the log of their
distance; then the logs of the K scales, where they are sampled; then K - 1 log odds ``u_k``.
Component k < K - 1 takes the share ``v_k = 1 / (1 + exp(-u_k))`` of what the components before it
have left of 1, and the last takes the rest: a stick is broken. ``r_k`` is the responsibility of
component k: its probability, given the row. Derivatives are taken in means, and turned into those
of centre and distance at the end. Loops run along the rows of a tile, and LLVM vectorises them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streammc.errors import ConfigError
from streammc.models.base import (
    ORDERED,
    POSITIVE,
    REAL,
    SIMPLEX,
    ColumnsModel,
    Parameter,
    dirichlet_rows,
    refuse_many_predictors,
)
from streammc.models.table_scale import DISTANCE, PLACE
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.prior import CONSTANT, FLAT, HALF_NORMAL, KIND, LOCATION, LOG_FLAT, NORMAL
from streammc.numerics.prior import SCALE as PRIOR_SCALE
from streammc.numerics.special import exp, log, log1p_unit, select, within
from streammc.priors import FamilyPrior, PriorOption, as_prior
from streammc.priors.scaled import WIDTH, Level, located, scale_prior, shares, spread
from streammc.protocols import Matrix, Rows, Vector

_TILE: Final = 64
"""Rows whose responsibilities stay in the first-level cache."""
_MOST: Final = 80.0
"""Logs of scales and distances beyond it are moved to it: no power of them overflows."""
_HALF_LOG_2PI: Final = 0.9189385332046728


class Form(NamedTuple):
    """Which parameters a mixture has."""

    K: Any
    free: Any
    """Whether scales are sampled; else ``known`` is the log of the known one."""
    ordered: Any
    known: Any
    first: Any
    """Place of the first log odds among the predictors."""


Z, INVERSE, R, V, REST = range(5)
"""Rows of the scratch (5, K, _TILE) of a tile: ``(x - mu_k) / s_k``, ``1 / s_k``, ``r_k``, ``v_k``
and ``sum_(j>=k) r_j``."""
HALF, TOP, TOTAL = range(3)
"""Rows of its lines (3, _TILE): half the distance of the means; largest log term; sum."""


@inline
def _components(eta, X, lo, w, form, scratch, lines):  # type: ignore[no-untyped-def]
    """Write ``(x - mu_k) / s_k`` and ``1 / s_k`` (K, w), and half the distance (w,)."""
    if lo < 0:  # never: tells the compiler that no index counts from the end
        return
    K, free, ordered, known, _ = form
    z, inverse, half = scratch[Z], scratch[INVERSE], lines[HALF]
    for i in range(w):
        half[i] = 0.5 * exp(within(eta[1, lo + i], _MOST)) if ordered else 0.0
    for k in range(K):
        for i in range(w):
            log_scale = within(eta[K + k, lo + i], _MOST) if free else known
            mean = eta[k, lo + i]
            if ordered:
                # NaN in the distance stays one, through half.
                mean = eta[0, lo + i] + (half[i] if k == 1 else -half[i])
            inverse[k, i] = exp(-log_scale)
            z[k, i] = (X[0, lo + i] - mean) * inverse[k, i]


@inline
def _values(eta, lo, w, form, scratch, lines, out):  # type: ignore[no-untyped-def]
    """Write ``out[0]``, the odds' probabilities ``v`` (K - 1, w) and responsibilities ``r``."""
    if lo < 0:
        return
    K, free, _, known, first = form
    z, r, v = scratch[Z], scratch[R], scratch[V]
    top, total = lines[TOP], lines[TOTAL]
    for i in range(w):
        top[i] = -math.inf
        total[i] = 0.0  # log of what is left of the stick
    for k in range(K):
        for i in range(w):
            log_weight = total[i]
            if k < K - 1:
                u = eta[first + k, lo + i]
                e = exp(-abs(u))
                soft = log1p_unit(e)
                h = 1.0 / (1.0 + e)
                v[k, i] = select(u < 0.0, e * h, h)
                log_weight += select(u < 0.0, u, 0.0) - soft
                total[i] += select(u < 0.0, 0.0, -u) - soft
            log_scale = within(eta[K + k, lo + i], _MOST) if free else known
            r[k, i] = log_weight - log_scale - 0.5 * z[k, i] * z[k, i]
            # A NaN must win, and stay.
            top[i] = top[i] if r[k, i] <= top[i] else r[k, i]
    for i in range(w):
        total[i] = 0.0
    for k in range(K):
        for i in range(w):
            r[k, i] = exp(r[k, i] - top[i])
            total[i] += r[k, i]
    for i in range(w):
        out[0, lo + i] = top[i] + log(total[i]) - _HALF_LOG_2PI
    for k in range(K):
        for i in range(w):
            r[k, i] /= total[i]


@inline
def _slopes(lo, w, form, scratch, out):  # type: ignore[no-untyped-def]
    """Write the gradient in means, log scales and log odds; ``rest`` is ``sum_(k>=j) r_k``."""
    if lo < 0:
        return
    K, free, _, _, first = form
    z, inverse, r = scratch[Z], scratch[INVERSE], scratch[R]
    v, rest = scratch[V], scratch[REST]
    for i in range(w):
        rest[K - 1, i] = r[K - 1, i]
    for j in range(K - 2, -1, -1):
        for i in range(w):
            rest[j, i] = rest[j + 1, i] + r[j, i]
            # r_j (1 - v_j) - v_j sum_(k>j) r_k
            out[1 + first + j, lo + i] = r[j, i] - v[j, i] * rest[j, i]
    for k in range(K):
        for i in range(w):
            out[1 + k, lo + i] = r[k, i] * (z[k, i] * inverse[k, i])
        if free:
            for i in range(w):
                out[1 + K + k, lo + i] = r[k, i] * (z[k, i] * z[k, i] - 1.0)


@inline
def _same_component(s, t, K, lo, w, scratch, row):  # type: ignore[no-untyped-def]
    """Write the second derivatives in two parameters ``s <= t`` of the same component, ``k``.

    ``r ((1 - r) g_s g_t + h_st)``, g and h the derivatives of its log density.
    """
    if lo < 0:
        return
    k = s % K
    z, inverse, r = scratch[Z], scratch[INVERSE], scratch[R]
    if t < K:
        for i in range(w):
            g = z[k, i] * inverse[k, i]
            row[lo + i] = r[k, i] * ((1.0 - r[k, i]) * (g * g) - inverse[k, i] * inverse[k, i])
    elif s < K:
        for i in range(w):
            g = z[k, i] * inverse[k, i]
            other = z[k, i] * z[k, i] - 1.0
            row[lo + i] = r[k, i] * ((1.0 - r[k, i]) * (g * other) - 2.0 * g)
    else:
        for i in range(w):
            square = z[k, i] * z[k, i]
            g = square - 1.0
            row[lo + i] = r[k, i] * ((1.0 - r[k, i]) * (g * g) - 2.0 * square)


@inline
def _curvatures(lo, w, p, form, scratch, out):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian in means, log scales and log odds."""
    if lo < 0:
        return
    K, _, _, _, first = form
    r, v, rest = scratch[R], scratch[V], scratch[REST]
    pair = 1 + p
    for s in range(p):
        for t in range(s, p):
            if s >= first:  # two log odds
                j, other = s - first, t - first
                if j == other:
                    for i in range(w):
                        # sum_k r_k D_kj^2 - (sum_k r_k D_kj)^2 - v (1 - v) sum_(k>=j) r_k
                        # with D_kj = d log w_k / d u_j: 0 for k < j, 1 - v_j at j, then -v_j
                        split = r[j, i] * rest[j + 1, i] + (1.0 - rest[j, i]) * (
                            r[j, i] * (1.0 - v[j, i]) ** 2 + rest[j + 1, i] * v[j, i] ** 2
                        )
                        # so far the variance of these three values
                        split -= v[j, i] * (1.0 - v[j, i]) * rest[j, i]
                        out[pair, lo + i] = split
                else:
                    for i in range(w):
                        slope = out[1 + t, lo + i]
                        out[pair, lo + i] = -slope * (v[j, i] + out[1 + s, lo + i])
            elif t >= first:  # a component and log odds
                k, j = s % K, t - first
                here = 1.0 if k == j else 0.0
                beyond = 1.0 if k >= j else 0.0
                for i in range(w):
                    at = here - beyond * v[j, i]  # 1 - v, -v, or 0 before it
                    out[pair, lo + i] = out[1 + s, lo + i] * (at - out[1 + t, lo + i])
            elif s % K == t % K:
                _same_component(s, t, K, lo, w, scratch, out[pair])
            else:
                for i in range(w):
                    out[pair, lo + i] = -out[1 + s, lo + i] * out[1 + t, lo + i]
            pair += 1


@inline
def _order_slopes(lo, w, half, out):  # type: ignore[no-untyped-def]
    """Turn derivatives in two means into those of their centre and log distance."""
    if lo < 0:
        return
    for i in range(w):
        first, second = out[1, lo + i], out[2, lo + i]
        out[1, lo + i] = first + second
        out[2, lo + i] = half[i] * (second - first)


@inline
def _order_curvatures(lo, w, p, half, out):  # type: ignore[no-untyped-def]
    """Turn the rows of two means in the triangle; before :func:`_order_slopes`."""
    if lo < 0:
        return
    one, two = 1 + p, 1 + 2 * p  # places of the diagonal entries of the first two rows
    for i in range(w):
        h = half[i]
        a, b, c = out[one, lo + i], out[one + 1, lo + i], out[two, lo + i]
        pull = out[2, lo + i] - out[1, lo + i]
        out[one, lo + i] = a + 2.0 * b + c
        out[one + 1, lo + i] = h * (c - a)
        out[two, lo + i] = h * (h * (a - 2.0 * b + c) + pull)
    for t in range(2, p):
        for i in range(w):
            a, b = out[one + t, lo + i], out[two + t - 1, lo + i]
            out[one + t, lo + i] = a + b
            out[two + t - 1, lo + i] = half[i] * (b - a)


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``log sum_k w_k N(x; mu_k, s_k)`` and its derivatives; see ``protocols.Model``.

    ``constants`` holds K, whether the means are ordered, whether the scales are sampled,
    and the log of the known one.
    """
    K, m, p = int(constants[0]), y.shape[0], eta.shape[0]
    ordered, free, known = constants[1] == 1.0, constants[2] == 1.0, constants[3]
    form = Form(K, free, ordered, known, 2 * K if free else K)
    scratch, lines = np.empty((5, K, _TILE)), np.empty((3, _TILE))
    for lo in range(0, m, _TILE):
        w = min(_TILE, m - lo)
        _components(eta, X, lo, w, form, scratch, lines)
        _values(eta, lo, w, form, scratch, lines, out)
        if order >= 1:
            _slopes(lo, w, form, scratch, out)
        if order == 2:
            _curvatures(lo, w, p, form, scratch, out)
            if ordered:
                _order_curvatures(lo, w, p, lines[HALF], out)
        if order >= 1 and ordered:
            _order_slopes(lo, w, lines[HALF], out)


_EM_STEPS: Final = 50
_LEAST_SHARE: Final = 0.01
"""Of the spread of all rows, and of all weights: EM may run into a single row."""


@dataclass(frozen=True)
class GaussianMixtureFree(ColumnsModel):
    """A mixture, all of it unknown; build it with :func:`gaussian_mixture_free`."""

    components: int = 2
    ordered: bool = True
    scale: float | None = None
    concentration: tuple[float, ...] = (1.0, 1.0)

    name: ClassVar[str] = "gaussian-mixture-free"
    multimodal: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link
    n_features = 1

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return means, standard deviations where they are sampled, and all weights but the last.

        Means are places in the only column, standard deviations distances.
        """
        K, order = (self.components,), ORDERED if self.ordered else REAL
        mean, scale = self._mean_default, self._scale_default
        mu = Parameter("mu", False, K, order, mean, table_scale=PLACE)
        sigma = Parameter("sigma", False, K, POSITIVE, scale, table_scale=DISTANCE)
        weight = Parameter("weight", components=(self.components - 1,), support=SIMPLEX)
        return (mu, sigma, weight) if self.scale is None else (mu, weight)

    @property
    def constants(self) -> Vector:
        """Return K, whether means are ordered and scales sampled, and the log of a known scale."""
        known = 0.0 if self.scale is None else math.log(self.scale)
        return np.array([self.components, self.ordered, self.scale is None, known])

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior of theta, a row per label.

        Two means with one prior ``Normal(m, s)`` have an independent centre,
        ``Normal(m, s / sqrt(2))``, and distance, ``Normal(0, s sqrt(2))``: in order, half-normal.
        ConfigError if ordered means have another prior, but flat, or a weight has one by name.
        """
        named = dict(getattr(self.prior, "priors", ()))
        weight = self.parameters[-1].name
        for name in named:
            if name.startswith(weight):
                raise ConfigError(
                    f"{self.name}: expected no prior of {name!r}, found one: weights have a "
                    "Dirichlet prior; give the option concentration"
                )
        flags = self.support_flags(labels)
        table = self.prior.table(labels[: len(flags)], flags)
        if self.ordered:
            _order_priors(table, self.name)
        return np.vstack([table, dirichlet_rows(self.concentration)])

    def _mean_default(self, rows: Rows, names: Sequence[str], level: Level) -> list[FamilyPrior]:
        mean, unit = self._level(rows)
        return [located(mean, WIDTH * unit)]

    def _scale_default(self, rows: Rows, names: Sequence[str], level: Level) -> list[FamilyPrior]:
        return [scale_prior(self._level(rows)[1])]

    def _level(self, rows: Rows) -> tuple[float, float]:
        """Return the mean of the column and its standard deviation, or another unit above 0."""
        mean, sd, _ = spread(rows.X[:, 0], shares(rows))
        return mean, sd or self.scale or abs(mean) or 1.0

    def start(self, rows: Rows) -> Vector:
        """Return theta (d,): as many slices of the rows as components, then steps of EM."""
        K, x, weight = self.components, rows.X[:, 0], rows.weight
        total = max(float(weight.sum()), 1e-300)
        mean = float(weight @ x) / total
        spread = math.sqrt(float(weight @ (x - mean) ** 2) / total) or 1.0
        order = np.argsort(x, kind="stable")
        reached = (np.cumsum(weight[order]) - 0.5 * weight[order]) / total
        share = np.zeros((K, len(x)))
        share[np.clip((reached * K).astype(np.int64), 0, K - 1), order] = 1.0
        for _ in range(_EM_STEPS):
            mass = np.maximum(share @ weight, 1e-300)
            centres = share @ (weight * x) / mass
            away = x - centres[:, None]
            scales = np.sqrt(np.sum(share * weight * away**2, axis=1) / mass)
            scales = np.maximum(scales, _LEAST_SHARE * spread)
            if self.scale is not None:
                scales[:] = self.scale
            weights = np.maximum(mass / total, _LEAST_SHARE)
            weights /= weights.sum()
            share = np.log(weights / scales)[:, None] - 0.5 * (away / scales[:, None]) ** 2
            share = np.exp(share - np.logaddexp.reduce(share, axis=0))
        rank = np.argsort(centres, kind="stable")
        centres, scales, weights = centres[rank], scales[rank], weights[rank]
        if self.ordered:
            centres[1] = max(centres[1], centres[0] + _LEAST_SHARE * spread)
        free = scales if self.scale is None else scales[:0]
        return self.unconstrain(np.concatenate([centres, free, weights[:-1]]))

    def relabelled(self, theta: Vector) -> list[Vector]:
        """Return theta with the components in every other order, or in 23 of them."""
        if self.ordered:
            return []
        K, values = self.components, self.constrain(theta)
        weights = values[len(values) - K + 1 :]
        parts = [values[:K], *([values[K : 2 * K]] if self.scale is None else [])]
        parts.append(np.append(weights, 1.0 - weights.sum()))
        orders = (list(order) for order in islice(permutations(range(K)), 1, 24))
        return [
            self.unconstrain(np.concatenate([part[order] for part in parts])[:-1])
            for order in orders
        ]

    def describe(self) -> dict[str, Any]:
        """Return name, options and prior as JSON types."""
        return {
            **super().describe(),
            "components": self.components,
            "ordered": self.ordered,
            "scale": self.scale,
            "concentration": list(self.concentration),
        }


def _order_priors(table: Matrix, name: str) -> None:
    """Turn the priors of two means, the first rows, into those of centre and log distance."""
    if not np.array_equal(table[0], table[1]) or table[0, KIND] not in (NORMAL, FLAT):
        raise ConfigError(
            f"{name}: expected one normal prior, or flat, for both of two ordered means, found "
            "others: the prior of centre and distance is then no product; write mu*=normal(0, 2), "
            "or ordered=false"
        )
    if table[0, KIND] == FLAT:
        table[1, KIND] = LOG_FLAT
        return
    wide = table[0, PRIOR_SCALE] * math.sqrt(2.0)
    table[0, PRIOR_SCALE] *= math.sqrt(0.5)
    table[0, CONSTANT] += 0.5 * math.log(2.0)
    table[1] = 0.0
    table[1, KIND], table[1, LOCATION], table[1, PRIOR_SCALE] = HALF_NORMAL, math.log(wide), wide
    table[1, CONSTANT] = 0.5 * math.log(2.0 / math.pi) - math.log(wide)


def gaussian_mixture_free(
    components: int = 2,
    ordered: bool | None = None,
    scale: float | None = None,
    concentration: ArrayLike = 1.0,
    prior: PriorOption | None = None,
) -> GaussianMixtureFree:
    """Return the mixture ``x_i ~ sum_k w_k Normal(mu_k, sigma_k)``, all of it unknown.

    The observation is the only column; there is no response. Components may be exchanged, so
    that the posterior has up to ``K!`` modes. Two ordered means, ``mu[0] < mu[1]``, leave one
    of them: they are sampled as their centre and the log of their distance, whose priors are
    exactly those of the ordered means where both have one normal prior. A scale of its own that
    follows a single row makes the likelihood unbounded: its prior has to vanish at zero,
    or the rows have to be many.

    Parameters
    ----------
    components
        K, at least 1.
    ordered
        Whether ``mu[0] < mu[1]``; only of two components, where it is the default.
    scale
        A standard deviation that is known, of all components, on the store's scale; ``None``
        samples ``sigma[k]``.
    concentration
        Of the Dirichlet prior of the weights: a number for all, or K; 1 is uniform. Of two
        components ``[a, b]`` is Beta(a, b) of ``weight[0]``.
    prior
        Prior of the means, or a mapping by name; ``None``, and what a mapping does
        not name, scales with the data: Normal(mean(x), 2.5 sd(x)) on means and
        half-Student-t(3, 2.5 sd(x)) on scales.

    Raises
    ------
    ConfigError
        If an option is out of range, or ``prior`` is not a prior.

    Examples
    --------
    >>> from streammc.models import gaussian_mixture_free
    >>> gaussian_mixture_free().labels(["x"])
    ('mu[0]', 'mu[1]', 'sigma[0]', 'sigma[1]', 'weight[0]')
    """
    if isinstance(components, bool) or not isinstance(components, int) or components < 1:
        raise ConfigError(
            f"expected components of at least 1, found {components!r}"
            ": give a whole number such as 2"
        )
    if ordered is None:
        ordered = components == 2
    if not isinstance(ordered, bool) or (ordered and components != 2):
        raise ConfigError(
            f"expected ordered means of two components only, found ordered={ordered!r} of "
            f"{components}: leave it out"
        )
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if scale is not None and not (number and 1e-30 < scale < 1e30):
        raise ConfigError(
            f"expected a positive scale, found {scale!r}"
            ": give one, or leave it out to sample the scales"
        )
    try:
        numbers = np.asarray(concentration, dtype=np.float64)
        shares = np.broadcast_to(numbers, (components,))
    except (TypeError, ValueError):
        shares = np.zeros(1)
    if not ((shares > 0.0) & np.isfinite(shares)).all():
        raise ConfigError(
            f"expected a positive concentration, or {components}, found {concentration!r}"
            ": give positive numbers"
        )
    refuse_many_predictors(3 * components - 1, "parameters")
    return GaussianMixtureFree(
        as_prior(prior),
        components,
        ordered,
        None if scale is None else float(scale),
        tuple(shares.tolist()),
    )
