"""The mean of Gaussian observations of known covariance: ``x_i ~ Normal(mu, Sigma)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from streammc.errors import ConfigError
from streammc.models.base import ColumnsModel, Parameter
from streammc.models.table_scale import PLACE
from streammc.numerics.jit import LINK_SIGNATURE, jit
from streammc.numerics.summation import taylor
from streammc.priors import FamilyPrior, PriorOption, as_prior
from streammc.priors.scaled import Level, means
from streammc.protocols import Rows, Vector


@jit(LINK_SIGNATURE, borrow=True)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write ``-r' P r / 2 + c`` with ``r = x - eta``; see ``protocols.Model``.

    ``constants`` holds the precision P (d, d), row by row, then c.
    """
    d, m = eta.shape
    pair = 1 + d
    for i in range(m):
        out[0, i] = constants[d * d]
    for a in range(d):
        if order >= 1:
            for i in range(m):
                out[1 + a, i] = 0.0
        for b in range(d):
            weight = constants[a * d + b]
            if weight == 0.0:  # a diagonal covariance takes d terms instead of d^2
                continue
            for i in range(m):
                pull = weight * (X[b, i] - eta[b, i])
                out[0, i] -= 0.5 * (X[a, i] - eta[a, i]) * pull
                if order >= 1:
                    out[1 + a, i] += pull
        if order == 2:
            for b in range(a, d):
                for i in range(m):
                    out[pair, i] = -constants[a * d + b]
                pair += 1


COVARIANCE_ADVICE: Final = (
    "ingest with --no-intercept, or give the covariance or dim of these columns"
)


def means_of_columns(
    covariance: tuple[tuple[float, ...], ...], components: tuple[int, ...] = ()
) -> Parameter:
    """Return the means of the columns, of rows of a known covariance (q, q)."""

    def default(rows: Rows, feature_names: Sequence[str], level: Level) -> list[FamilyPrior]:
        return means(rows, covariance)

    return Parameter(
        "mu", per_feature=True, components=components, default=default, table_scale=PLACE
    )


@dataclass(frozen=True)
class GaussianMean(ColumnsModel):
    """Gaussian observations of known covariance; build it with :func:`gaussian_mean`."""

    covariance: tuple[tuple[float, ...], ...] = ((1.0,),)

    name: ClassVar[str] = "gaussian-mean"
    log_concave: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link
    exact_sums: ClassVar[Any] = staticmethod(taylor)
    advice: ClassVar[str] = COVARIANCE_ADVICE

    @property
    def n_features(self) -> int:
        """Return the dimension of an observation."""
        return len(self.covariance)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the means of the columns."""
        return (means_of_columns(self.covariance),)

    @property
    def constants(self) -> Vector:
        """Return the precision (d, d), row by row, and the log normaliser."""
        covariance = np.array(self.covariance)
        _, log_determinant = np.linalg.slogdet(covariance)
        constant = -0.5 * (len(covariance) * math.log(2.0 * math.pi) + log_determinant)
        return np.append(np.linalg.inv(covariance).ravel(), constant)

    def start(self, rows: Rows) -> Vector:
        """Return the weighted mean of the rows (d,)."""
        mean: Vector = rows.weight @ rows.X / max(float(rows.weight.sum()), 1e-300)
        return mean

    def describe(self) -> dict[str, Any]:
        """Return name, covariance and prior as JSON types."""
        covariance = [list(row) for row in self.covariance]
        return {**super().describe(), "covariance": covariance}


def as_covariance(covariance: ArrayLike, dim: int | None = None) -> tuple[tuple[float, ...], ...]:
    """Return a covariance (d, d), by rows, of a matrix, (d,) variances, or one variance for all.

    ``dim`` is d, where ``covariance`` is one number; 1 by default. ConfigError if it is not
    symmetric and positive definite.
    """
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
        raise ConfigError(f"dim must be a whole number of at least 1, found {dim!r}: give one")
    try:
        matrix = np.asarray(covariance, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected numbers in the covariance, found {covariance!r}: give a number, variances, "
            "or a matrix"
        ) from None
    if matrix.ndim < 2:
        matrix = np.diag(np.broadcast_to(matrix, matrix.shape or (dim or 1,)))
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if not square or not np.isfinite(matrix).all() or not np.array_equal(matrix, matrix.T):
        raise ConfigError(
            f"expected a covariance (d, d) of finite numbers, symmetric, found "
            f"{matrix.tolist()!r:.80}: check it"
        )
    if dim is not None and dim != len(matrix):
        raise ConfigError(
            f"expected a covariance of dimension {dim}, found {len(matrix)}: leave dim out, or "
            "give the covariance of as many columns"
        )
    if np.linalg.eigvalsh(matrix)[0] <= 0.0:
        raise ConfigError(
            f"expected a positive definite covariance, found {matrix.tolist()!r:.80}: check it"
        )
    return tuple(tuple(float(value) for value in row) for row in matrix)


def gaussian_mean(
    covariance: ArrayLike = 1.0, dim: int | None = None, prior: PriorOption | None = None
) -> GaussianMean:
    """Return the model ``x_i ~ Normal(mu, Sigma)``, Sigma known; there is no response.

    The posterior is Gaussian; it is sampled from the sums of one pass, exactly.

    Parameters
    ----------
    covariance
        Sigma on the store's scale: (d, d), or (d,) variances, or one variance for all.
    dim
        d, where ``covariance`` is one number; 1 by default.
    prior
        Prior of ``mu``; ``None``, and what a mapping does not name, scales with the data: it
        is Normal(mean(x), 2.5 sd(x)) for the mean of column x.

    Raises
    ------
    ConfigError
        If the covariance is not symmetric and positive definite.

    Examples
    --------
    >>> from streammc.models import gaussian_mean
    >>> gaussian_mean([[1.0, 0.5], [0.5, 2.0]]).labels(["a", "b"])
    ('mu[a]', 'mu[b]')
    """
    rows = as_covariance(covariance, dim)
    return GaussianMean(as_prior(prior), rows)
