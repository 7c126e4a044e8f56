"""A mixture of Gaussians with free means: ``x_i ~ sum_k w_k Normal(mu_k, Sigma)``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from streammc.errors import ConfigError
from streammc.models.base import ColumnsModel, Parameter, refuse_many_predictors
from streammc.models.mixtures.known_covariance import (
    COVARIANCE_ADVICE,
    as_covariance,
    means_of_columns,
)
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, log
from streammc.priors import PriorOption, as_prior
from streammc.protocols import Rows, Vector

_TILE: Final = 64
"""Rows whose responsibilities stay in the first-level cache."""
_EM_STEPS: Final = 20


@inline
def _responsibilities(eta, X, constants, lo, w, order, scratch, out):  # type: ignore[no-untyped-def]
    """Write ``out[0]``, and for order >= 1 ``g_k`` of :func:`link` into ``out[1 + k q :]``.

    The first K rows of ``scratch`` (K + 3, w) become ``r_k``, the probability of each component,
    given its row.
    """
    if lo < 0:  # never: tells the compiler that no index counts from the end
        return
    K, q = int(constants[0]), int(constants[1])
    r, top, total, x = scratch[:K], scratch[K], scratch[K + 1], scratch[K + 2]
    weights = 2 + q * q
    for i in range(w):
        top[i] = -math.inf
        total[i] = 0.0
    for k in range(K if q > 1 else 0):
        for i in range(w):
            r[k, i] = 0.0
        for a in range(q):
            for i in range(w):
                x[i] = 0.0
            for b in range(q):  # outside the loop over rows, which is then vectorised
                precision = constants[2 + a * q + b]
                if precision != 0.0:
                    for i in range(w):
                        x[i] += precision * (X[b, lo + i] - eta[k * q + b, lo + i])
            for i in range(w):
                r[k, i] += (X[a, lo + i] - eta[k * q + a, lo + i]) * x[i]
            if order >= 1:
                for i in range(w):
                    out[1 + k * q + a, lo + i] = x[i]
        for i in range(w):
            r[k, i] = constants[weights + k] - 0.5 * r[k, i]
            # A NaN must win, and stay.
            top[i] = top[i] if r[k, i] <= top[i] else r[k, i]
    if q == 1:  # a loop over one column within that over rows is not vectorised
        for i in range(w):
            x[i] = X[0, lo + i]
        for k in range(K):
            for i in range(w):
                away = x[i] - eta[k, lo + i]
                r[k, i] = constants[weights + k] - 0.5 * away * (constants[2] * away)
                top[i] = top[i] if r[k, i] <= top[i] else r[k, i]
            if order >= 1:
                for i in range(w):
                    out[1 + k, lo + i] = constants[2] * (x[i] - eta[k, lo + i])
    for k in range(K):
        for i in range(w):
            r[k, i] = exp(r[k, i] - top[i])
            total[i] += r[k, i]
    for i in range(w):
        out[0, lo + i] = constants[weights + K] + (top[i] + log(total[i]))
    if order >= 1:
        for i in range(w):
            total[i] = 1.0 / total[i]
        for k in range(K):
            for i in range(w):
                r[k, i] *= total[i]


@inline
def _curvature(constants, K, q, lo, w, r, out):  # type: ignore[no-untyped-def]
    """Write the upper triangle of the Hessian, from ``g_k`` in ``out[1 + k q :]``."""
    if lo < 0:
        return
    p = K * q
    pair = 1 + p
    for s in range(p):
        k, a = s // q, s % q
        for t in range(s, p):
            other, b = t // q, t % q
            own = constants[2 + a * q + b]
            if k == other:
                for i in range(w):
                    product = out[1 + s, lo + i] * out[1 + t, lo + i]
                    out[pair, lo + i] = r[k, i] * ((1.0 - r[k, i]) * product - own)
            else:
                for i in range(w):
                    product = out[1 + s, lo + i] * out[1 + t, lo + i]
                    out[pair, lo + i] = -(r[k, i] * r[other, i]) * product
            pair += 1


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``log sum_k w_k N(x; mu_k, Sigma)`` and its derivatives; see ``protocols.Model``.

    ``constants`` holds K, q, the precision P (q, q) by rows, the K log weights, and the
    log normaliser. With ``r_k`` the probability of component k and ``g_k = P (x - mu_k)``,
    the gradient is ``r_k g_k`` and the Hessian
    ``r_k (1 - r_k) g_k g_k' - r_k P`` and ``-r_k r_l g_k g_l'``.
    """
    K, q, m = int(constants[0]), int(constants[1]), y.shape[0]
    scratch = np.empty((K + 3, _TILE))
    r = scratch[:K]
    for lo in range(0, m, _TILE):
        w = min(_TILE, m - lo)
        _responsibilities(eta, X, constants, lo, w, order, scratch, out)
        if order == 2:
            _curvature(constants, K, q, lo, w, r, out)
        if order >= 1:  # g_k becomes the gradient, r_k g_k
            for s in range(K * q):
                for i in range(w):
                    out[1 + s, lo + i] *= r[s // q, i]


@dataclass(frozen=True)
class GaussianMixture(ColumnsModel):
    """Gaussians with free means; build it with :func:`gaussian_mixture`."""

    weights: tuple[float, ...] = (0.5, 0.5)
    covariance: tuple[tuple[float, ...], ...] = ((1.0,),)

    name: ClassVar[str] = "gaussian-mixture"
    multimodal: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link
    advice: ClassVar[str] = COVARIANCE_ADVICE

    @property
    def n_features(self) -> int:
        """Return the number of columns that the covariance has."""
        return len(self.covariance)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the means of every component."""
        return (means_of_columns(self.covariance, (len(self.weights),)),)

    @property
    def constants(self) -> Vector:
        """Return K, q, the precision (q, q), the log weights (K,) and the log normaliser."""
        covariance = np.array(self.covariance)
        q = len(covariance)
        _, log_determinant = np.linalg.slogdet(covariance)
        constant = -0.5 * (q * math.log(2.0 * math.pi) + log_determinant)
        precision = np.linalg.inv(covariance).ravel()
        return np.concatenate(
            [[len(self.weights), q], precision, np.log(self.weights), [constant]], dtype=np.float64
        )

    def start(self, rows: Rows) -> Vector:
        """Return means (K q,): slices along the widest direction, then some steps of EM.

        Which component is which is arbitrary; here the first lies where the widest
        direction begins.
        """
        X, weight = rows.X, rows.weight
        total = max(float(weight.sum()), 1e-300)
        centred = X - weight @ X / total
        _, directions = np.linalg.eigh((weight[:, None] * centred).T @ centred)
        widest = directions[:, -1] * np.sign(directions[np.argmax(abs(directions[:, -1])), -1])
        order = np.argsort(centred @ widest, kind="stable")
        reached = (np.cumsum(weight[order]) - 0.5 * weight[order]) / total
        slices = np.searchsorted(np.cumsum(self.weights)[:-1], reached)
        share = np.zeros((len(self.weights), len(X)))
        share[slices, order] = 1.0
        precision = np.linalg.inv(np.array(self.covariance))
        centres = np.zeros((len(self.weights), X.shape[1]))
        for _ in range(_EM_STEPS):
            share *= weight
            mass = share.sum(axis=1, keepdims=True)
            centres = np.where(mass > 0.0, share @ X / np.maximum(mass, 1e-300), centres)
            for k, centre in enumerate(centres):
                away = X - centre
                share[k] = math.log(self.weights[k]) - 0.5 * np.sum(away @ precision * away, axis=1)
            share = np.exp(share - np.logaddexp.reduce(share, axis=0))
        return centres.ravel()

    def relabelled(self, theta: Vector) -> list[Vector]:
        """Return theta with the components in every other order, or in 23 of them."""
        means = theta.reshape(len(self.weights), -1)
        orders = islice(permutations(range(len(means))), 1, 24)
        return [means[list(order)].ravel() for order in orders]

    def describe(self) -> dict[str, Any]:
        """Return name, number of components, weights, covariance and prior as JSON types."""
        return {
            **super().describe(),
            "components": len(self.weights),
            "weights": list(self.weights),
            "covariance": [list(row) for row in self.covariance],
        }


def gaussian_mixture(
    components: int = 2,
    covariance: ArrayLike = 1.0,
    weights: ArrayLike | None = None,
    dim: int | None = None,
    prior: PriorOption | None = None,
) -> GaussianMixture:
    """Return the mixture ``x_i ~ sum_k w_k Normal(mu_k, Sigma)``, weights and Sigma known.

    There is no response. Equal weights leave it open which component is which: the
    posterior has ``K!`` modes of one height under a prior that is the same for all, and
    the mean of ``mu[0, x]`` over a chain that has crossed between them says nothing. Break the
    symmetry by priors (``{"mu[0, x]": normal(1.0, location=-3.0)}``) or by unequal weights, or look
    only at what does not depend on the labels.

    Parameters
    ----------
    components
        K, at least 1.
    covariance
        Sigma on the store's scale: (q, q), or (q,) variances, or one variance for all.
    weights
        (K,) positive numbers, used as they are after division by their sum; equal by
        default.
    dim
        q, where ``covariance`` is one number; 1 by default.
    prior
        Prior of the means, or a mapping by name; ``None``, and what a mapping does not name,
        scales with the data: it is Normal(mean(x), 2.5 sd(x)) for column x.

    Raises
    ------
    ConfigError
        If the covariance is not symmetric and positive definite, the weights are not
        K positive numbers, or ``prior`` is not a prior.

    Examples
    --------
    >>> from streammc.models import gaussian_mixture
    >>> gaussian_mixture(2, [1.0, 1.0]).labels(["a", "b"])
    ('mu[0, a]', 'mu[0, b]', 'mu[1, a]', 'mu[1, b]')
    """
    if isinstance(components, bool) or not isinstance(components, int) or components < 1:
        raise ConfigError(
            f"expected components of at least 1, found {components!r}: give a whole number"
        )
    rows = as_covariance(covariance, dim)
    try:
        shares = np.array([1.0] * components if weights is None else weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected numbers as weights, found {weights!r}: give one for each component"
        ) from None
    if shares.shape != (components,) or not ((shares > 0.0) & np.isfinite(shares)).all():
        raise ConfigError(
            f"expected {components} positive weights, found {weights!r}: give one for each"
        )
    refuse_many_predictors(components * len(rows), "components times columns")
    if weights is None or abs(shares.sum() - 1.0) > 1e-12:
        shares = shares / shares.sum()
    return GaussianMixture(as_prior(prior), tuple(shares.tolist()), rows)
