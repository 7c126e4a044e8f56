"""Gaussian-process regression: ``y ~ Normal(0, K + v I)``, K of the rows' columns, v the noise.

With ``K_ij = f^2 exp(-sum_d (x_id - x_jd)^2 / (2 l_d^2))``, ``C = K + v I`` and
``z = C^-1 y``, the gradient in a parameter t is ``tr(M dC/dt) / 2``, ``M = z z' - C^-1``:
one inverse, then ``D n^2`` operations for the length scales of D columns. Everything is computed
tile by tile, on and below the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from streammc.errors import ConfigError, ModelError
from streammc.models.base import POSITIVE, Parameter, StatedModel
from streammc.models.responses import real_fault
from streammc.models.table_scale import DISTANCE
from streammc.numerics.cholesky import factor, invert, solve, tile_shape
from streammc.numerics.jit import JOINT_SIGNATURE, inline, jit
from streammc.numerics.special import exp
from streammc.priors import (
    FamilyPrior,
    NamedPriors,
    PriorOption,
    as_prior,
    fixed_priors,
    gamma,
    lognormal,
)
from streammc.priors.families import REST
from streammc.protocols import Matrix, Prior, Rows, Vector

_shape = inline(tile_shape)
_LARGEST = 300.0
"""Logarithms beyond it are moved to it: ``exp(600)`` is still a number."""
_FAR = 280.0
"""Squared distance from which rows have nothing in common: 1e-61 changes no sum, but products of
such numbers are subnormal, and take ten times as long."""


@inline
def _positive(log_value):  # type: ignore[no-untyped-def]
    """Return ``exp(log_value)``, far from overflow; NaN stays NaN."""
    if log_value > _LARGEST:
        return math.exp(_LARGEST)
    if log_value < -_LARGEST:
        return math.exp(-_LARGEST)
    return math.exp(log_value)


@jit(reassociate=True)
def _squares(Z, i, j, b, out):  # type: ignore[no-untyped-def]
    """Write ``sum_d (z_dr - z_dc)^2`` of tile (i, j) into ``out`` (b, b); ``Z`` (D, t b)."""
    for r in range(b):
        for c in range(b):
            out[r, c] = 0.0
        for d in range(Z.shape[0]):
            at = Z[d, i * b + r]
            for c in range(b):
                away = at - Z[d, j * b + c]
                out[r, c] += away * away


@jit(reassociate=True)
def _pull(Z, i, j, b, Q, lengths):  # type: ignore[no-untyped-def]
    """Add ``sum_rc Q_rc (z_dr - z_dc)^2`` of tile (i, j) to ``lengths`` (D,); ``Z`` (D, t b)."""
    for r in range(b):
        for d in range(Z.shape[0]):
            at = Z[d, i * b + r]
            total = 0.0
            for c in range(b):
                away = at - Z[d, j * b + c]
                total += Q[r, c] * away * away
            lengths[d] += total


@jit(JOINT_SIGNATURE)
def joint(X, y, theta, constants, order, gradient):  # type: ignore[no-untyped-def]
    """Return ``log N(y; 0, K + v I)`` and write its gradient; see ``protocols.Model``.

    ``theta`` holds the logarithms of the length scales (D or 1), of ``f``, and of the noise;
    ``constants`` the power p in ``v = noise^p``. Minus infinity where ``K + v I`` is not
    positive definite in float64; the gradient is then zero.

    Matrices are tiles (t, t, b, b), see ``numerics.cholesky``: ``a`` is C, then its factor L, then
    C^-1, and ``z`` is y, then ``L^-1 y``, then ``C^-1 y``. ``Z`` (D, t b) has the columns over
    their length scales.
    """
    q, n = X.shape
    D = theta.shape[0] - 2
    gradient[:] = 0.0
    if n == 0:
        return 0.0
    height = _positive(theta[D])
    height *= height
    noise = _positive(theta[D + 1])
    if constants[0] == 2.0:
        noise *= noise
    t, b = _shape(n)
    Z = np.zeros((q, t * b))
    for d in range(q):
        inverse = 1.0 / _positive(theta[d if D > 1 else 0])
        for i in range(n):
            Z[d, i] = X[d, i] * inverse
    a = np.empty((t, t, b, b))
    w = np.empty((t, t, b, b))
    K = np.empty((t, t, b, b))
    for i in range(t):
        for j in range(i + 1):
            tile, kept = a[i, j], K[i, j]
            _squares(Z, i, j, b, kept)
            for r in range(b):
                for c in range(b):
                    far = kept[r, c] > _FAR  # NaN is not
                    kept[r, c] = 0.0 if far else height * exp(-0.5 * kept[r, c])
                    tile[r, c] = kept[r, c]
            if i == j:
                for r in range(b):
                    tile[r, r] += noise
            if (i + 1) * b > n:  # padding: rows of the identity in C, zeros in K
                for r in range(n - i * b, b):
                    tile[r] = 0.0
                    kept[r] = 0.0
                    if i == j:
                        tile[:, r] = 0.0
                        kept[:, r] = 0.0
                        tile[r, r] = 1.0
    half_log_det = factor(a, w)
    z = np.zeros(t * b)
    z[:n] = y
    if not math.isnan(half_log_det):
        solve(a, w, z)
    square = 0.0
    for i in range(n):
        square += z[i] * z[i]
    value = -0.5 * square - half_log_det - 0.9189385332046728 * n
    if not abs(value) < math.inf:  # NaN too
        return -math.inf
    if order == 0:
        return value
    invert(a, w, z)
    trace = 0.0
    lengths = np.zeros(q)
    total = 0.0
    for i in range(n):
        trace += z[i] * z[i] - a[i // b, i // b, i % b, i % b]
    for i in range(t):
        for j in range(i + 1):
            tile, weight = K[i, j], 0.5 if i == j else 1.0
            for r in range(b):
                for c in range(b):
                    tile[r, c] *= weight * (z[i * b + r] * z[j * b + c] - a[i, j, r, c])
                    total += tile[r, c]
            _pull(Z, i, j, b, tile, lengths)
    for d in range(q):
        gradient[d if D > 1 else 0] += lengths[d]
    gradient[D] = 2.0 * total
    gradient[D + 1] = 0.5 * constants[0] * noise * trace
    return value


LENGTH: Final = "length_scale"
HEIGHT: Final = "sigma_f"
NOISES: Final = {"sd": "sigma_n", "variance": "variance_n"}
"""What the noise parameter is, and its name."""
DEFAULTS: Final[Mapping[str, FamilyPrior]] = {
    "length_scale": lognormal(location=0.5, scale=1.0),
    "sigma_f": gamma(shape=4.0, rate=1.0),
    "sigma_n": gamma(shape=2.0, rate=2.0),
    "variance_n": gamma(shape=2.0, rate=2.0),
}
"""Priors of van de Meent, Paige and Wood (2014)."""
MOST_ROWS: Final = 8192
"""An evaluation then takes 8 s, and three matrices of 0.5 GB."""


def default_priors(noise: str = "sd") -> Prior:
    """Return the priors of van de Meent, Paige and Wood (2014)."""
    last = NOISES["variance" if noise == "variance" else "sd"]
    names = {f"{LENGTH}*": LENGTH, HEIGHT: HEIGHT, last: last}
    return fixed_priors({key: DEFAULTS[name] for key, name in names.items()})


@dataclass(frozen=True)
class GaussianProcess(StatedModel):
    """Gaussian-process regression; build it with :func:`gaussian_process`."""

    prior: Prior = field(default_factory=default_priors)
    noise: str = "sd"
    ard: bool = True

    name: ClassVar[str] = "gaussian-process"
    n_scalar = 0
    exact_sums: ClassVar[Any] = None
    joint: ClassVar[Any] = staticmethod(joint)
    response_fault = staticmethod(real_fault)

    def __post_init__(self) -> None:
        """Refuse options that are none, and priors of coefficients: there are none."""
        if not isinstance(self.noise, str) or self.noise not in NOISES:
            raise ConfigError(
                f"noise must be one of {', '.join(NOISES)}, what is sampled, found {self.noise!r}"
                ": choose one of them"
            )
        if not isinstance(self.ard, bool):
            raise ConfigError(f"ard must be true or false, found {self.ard!r}: use True or False")
        prior = as_prior(self.prior)
        if not isinstance(prior, NamedPriors) or REST in dict(prior.priors):
            raise ConfigError(
                f"{self.name}: expected priors by name, found one for all coefficients, of which "
                f"there are none: write {HEIGHT}=gamma(4, 1), for example"
            )
        object.__setattr__(self, "prior", NamedPriors(prior.priors))

    @property
    def link(self) -> Any:
        """Raise ModelError: a row has no likelihood of its own."""
        raise ModelError(
            f"{self.name}: expected a likelihood of single rows, found one of all rows together; "
            "evaluate joint, or sample with pt, tt, spt or stt"
        )

    @property
    def constants(self) -> Vector:
        """Return the power of the noise parameter in the variance (1,)."""
        return np.array([2.0 if self.noise == "sd" else 1.0])

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the length scales, or the one that all columns share, height and noise.

        A length scale is a distance in its column.
        """

        def positive(name: str, **options: Any) -> Parameter:
            return Parameter(name, support=POSITIVE, default=DEFAULTS[name], **options)

        length = positive(LENGTH, per_feature=self.ard, table_scale=DISTANCE)
        return (length, positive(HEIGHT), positive(NOISES[self.noise]))

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return ``length_scale[feature]`` or ``length_scale``, ``sigma_f`` and the noise.

        ConfigError if there is no column, or one is the intercept.
        """
        if not feature_names or "Intercept" in feature_names:
            what = "an intercept" if feature_names else "none"
            raise ConfigError(
                f"{self.name}: expected columns that tell rows apart, found {what}: ingest with "
                "--no-intercept"
            )
        return super().labels(feature_names)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Raise ModelError: there is no predictor; ``streammc simulate gaussian-process``."""
        raise ModelError(
            f"{self.name}: expected a predictor of single rows, found none; simulate a store "
            "with 'streammc simulate gaussian-process'"
        )

    def start(self, rows: Rows) -> Vector:
        """Return theta (d,) where rows a standard deviation apart are alike, a fifth noise.

        ModelError if there are too many rows: an evaluation takes ``n^3`` operations.
        """
        n, q = rows.X.shape
        if n > MOST_ROWS:
            raise ModelError(
                f"{self.name}: expected at most {MOST_ROWS} rows, found {n} or more: an evaluation "
                "takes n^3 operations; ingest fewer"
            )
        spread = np.var(rows.X, axis=0) if n else np.ones(q)
        spread = np.where(spread > 0.0, spread, 1.0)
        lengths = np.full(q, 0.5 * math.log(q)) + 0.5 * np.log(spread)
        if not self.ard:
            lengths = np.array([0.5 * math.log(spread.sum())])
        power = float(np.mean(rows.y**2)) if n else 0.0
        height = 0.5 * math.log(power) if power > 0.0 else 0.0
        noise = 2.0 * (height - math.log(2.0)) / self.constants[0]
        return np.append(lengths, [height, noise])

    def describe(self) -> dict[str, Any]:
        """Return name, options and prior as JSON types."""
        prior = self.prior.describe()
        return {"name": self.name, "prior": prior, "noise": self.noise, "ard": self.ard}


def gaussian_process(
    prior: PriorOption | Mapping[str, FamilyPrior] | None = None,
    noise: str = "sd",
    ard: bool = True,
) -> GaussianProcess:
    """Return Gaussian-process regression, ``y ~ Normal(0, K + sigma_n^2 I)``.

    ``K_ij = sigma_f^2 exp(-sum_d (x_id - x_jd)^2 / (2 l_d^2))``, the squared-exponential
    kernel with a length scale per column (van de Meent, Paige and Wood 2014, eqs. 21-25).
    The likelihood is that of all rows together, ``n^3`` operations: it can be sampled by
    ``pt``, ``tt``, ``spt`` and ``stt``, whose levels are sets of rows, and by no sampler that
    adds up rows. The process has mean zero: centre the response. Where K is singular
    in float64 and the noise too small, the density counts as zero.

    Parameters
    ----------
    prior : mapping from names to priors, or None
        Priors by name, on the store's scale; what is left out is lognormal(0.5, 1) on
        length scales, Gamma(4, 1) on ``sigma_f`` and Gamma(2, 2) on the noise parameter.
    noise : {'sd', 'variance'}
        ``sd``: the parameter is ``sigma_n``; ``variance``: it is ``variance_n``, added to the
        diagonal as it is.
    ard
        Whether every column has a length scale of its own.

    Raises
    ------
    ConfigError
        If an option is none of these, or ``prior`` is not a mapping from names to priors.

    Examples
    --------
    >>> from streammc.models import gaussian_process
    >>> gaussian_process().labels(["a", "b"])
    ('length_scale[a]', 'length_scale[b]', 'sigma_f', 'sigma_n')
    >>> gaussian_process(noise="variance", ard=False).labels(["a", "b"])
    ('length_scale', 'sigma_f', 'variance_n')
    """
    return GaussianProcess(default_priors(noise) if prior is None else as_prior(prior), noise, ard)
