"""A mixture in one column, all of it unknown: ``x_i ~ sum_k w_k Normal(mu_k, sigma_k)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from streammc.errors import ConfigError
from streammc.models.linear import refuse_many_predictors
from streammc.models.mixtures.columns_model import ColumnsModel
from streammc.models.mixtures.mixture_free_link import link
from streammc.models.parameters import DISTANCE, ORDERED, PLACE, POSITIVE, REAL, SIMPLEX, Parameter
from streammc.numerics.prior import CONSTANT, FLAT, HALF_NORMAL, KIND, LOCATION, LOG_FLAT, NORMAL
from streammc.numerics.prior import SCALE as PRIOR_SCALE
from streammc.numerics.simplex import dirichlet_rows
from streammc.priors import FamilyPrior, PriorOption, as_prior
from streammc.priors.scaled import WIDTH, Level, located, scale_prior, shares, spread
from streammc.protocols import Matrix, Rows, Vector

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

        Raises
        ------
        ConfigError
            If ordered means have a prior that is not one normal, or flat, for both; or a
            weight has a prior by name.
        """
        named = dict(getattr(self.prior, "priors", ()))
        weight = self.parameters[-1].name
        for name in named:
            if name.startswith(weight):
                raise ConfigError(
                    f"{self.name}: expected no prior of {name!r}, found one: weights have a "
                    "Dirichlet prior; give the option concentration"
                )
        flags = self.positive_flags(labels)
        table = self.prior.table(labels[: len(flags)], flags)
        if self.ordered:
            _order(table, self.name)
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


def _order(table: Matrix, name: str) -> None:
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
        given = np.asarray(concentration, dtype=np.float64)
        shares = np.broadcast_to(given, (components,))
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
