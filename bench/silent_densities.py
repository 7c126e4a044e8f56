"""Log densities of small posteriors in plain NumPy and SciPy; nothing of streammc is imported.

Theta holds coefficients and means as they are, positive parameters as their logs and
weights of a mixture as log odds: run and reference are compared on this scale.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special
from silent_priors import kind_of, prior_of, prior_text, transformed

Array = np.ndarray
AT_ONCE = 4_000_000
"""Positions times rows that are evaluated together."""


@dataclass(frozen=True)
class Rows:
    """Observations; rows that agree are one row with the sum of their weights."""

    X: Array
    y: Array
    offset: Array
    weight: Array
    group: Array
    """Number of the group with an intercept of its own; zeros without groups."""


def rows_of(data: dict[str, Any], merge: bool = True) -> Rows:
    """Return the rows of the arguments of ``from_arrays``; trials become weights."""
    X = np.asarray(data["X"], dtype=float)
    n = len(X)
    y = np.asarray(data.get("y", np.zeros(n)), dtype=float)
    offset = np.asarray(data.get("offset", np.zeros(n)), dtype=float)
    weight = np.asarray(data.get("weight", np.ones(n)), dtype=float)
    if "trials" in data:
        trials = np.asarray(data["trials"], dtype=float)
        y, weight = y / trials, weight * trials
    if not merge:
        return Rows(X, y, offset, weight, np.zeros(n))
    group = np.asarray(data.get("groups", np.zeros(n)), dtype=float)
    table, inverse = np.unique(np.column_stack([X, y, offset, group]), axis=0, return_inverse=True)
    merged = np.bincount(inverse.ravel(), weights=weight, minlength=len(table))
    return Rows(table[:, :-3], table[:, -3], table[:, -2], merged, table[:, -1])


def bernoulli(eta: Array, y: Array) -> Array:
    return y * eta - np.logaddexp(0.0, eta)


def probit(eta: Array, y: Array) -> Array:
    return special.log_ndtr((2.0 * y - 1.0) * eta)


def poisson(eta: Array, y: Array) -> Array:
    return y * eta - np.exp(eta) - special.gammaln(y + 1.0)


def gaussian(eta: Array, y: Array, log_sigma: Array) -> Array:
    z = (y - eta) * np.exp(-log_sigma)
    return -0.5 * z * z - log_sigma - 0.5 * math.log(2.0 * math.pi)


def student_t(eta: Array, y: Array, log_sigma: Array, log_nu: Array) -> Array:
    nu, z = np.exp(log_nu), (y - eta) * np.exp(-log_sigma)
    top = special.gammaln(0.5 * (nu + 1.0)) - special.gammaln(0.5 * nu)
    return top - 0.5 * np.log(nu * math.pi) - log_sigma - 0.5 * (nu + 1) * np.log1p(z * z / nu)


def exponential(eta: Array, y: Array) -> Array:
    return np.asarray(-eta - y * np.exp(-eta))


def gamma(eta: Array, y: Array, log_shape: Array) -> Array:
    shape, rate = np.exp(log_shape), np.exp(log_shape - eta)
    value = shape * np.log(rate) - special.gammaln(shape) + (shape - 1.0) * np.log(y) - rate * y
    return np.asarray(value)


def negative_binomial(eta: Array, y: Array, log_phi: Array) -> Array:
    """Poisson for large phi: the difference of two gamma functions is summed term by term."""
    phi, terms = np.exp(log_phi), np.arange(int(y.max(initial=0.0)))
    rising = np.concatenate(
        [np.zeros((len(phi), 1)), np.cumsum(np.log1p(terms / phi), axis=1)], axis=1
    )[:, y.astype(int)]  # log Gamma(y + phi) - log Gamma(phi) - y log phi
    ratio = np.exp(eta - log_phi)
    return rising + y * eta - special.gammaln(y + 1.0) - (phi + y) * np.log1p(ratio)


def inverse_gaussian(eta: Array, y: Array, log_shape: Array) -> Array:
    away = np.square(y * np.exp(-eta) - 1.0) * np.exp(log_shape) / y
    return np.asarray(0.5 * (log_shape - np.log(2.0 * math.pi * y**3) - away))


def lognormal(eta: Array, y: Array, log_sigma: Array) -> Array:
    return gaussian(eta, np.log(y), log_sigma) - np.log(y)


def weibull(eta: Array, y: Array, log_shape: Array) -> Array:
    z = np.exp(log_shape) * (np.log(y) - eta)
    return np.asarray(log_shape - np.log(y) + z - np.exp(z))


def beta(eta: Array, y: Array, log_phi: Array) -> Array:
    phi, mean = np.exp(log_phi), special.expit(eta)
    a, b = phi * mean, phi * (1.0 - mean)
    return np.asarray((a - 1.0) * np.log(y) + (b - 1.0) * np.log1p(-y) - special.betaln(a, b))


def inflated(log_odds: Array, y: Array, counts: Array) -> Array:
    log_zero, log_rest = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
    return np.where(y == 0.0, np.logaddexp(log_zero, log_rest + counts), log_rest + counts)


def zero_inflated_poisson(eta: Array, y: Array, log_odds: Array) -> Array:
    return inflated(log_odds, y, poisson(eta, y))


def zero_inflated_negative_binomial(eta: Array, y: Array, log_phi: Array, log_odds: Array) -> Array:
    return inflated(log_odds, y, negative_binomial(eta, y, log_phi))


def hurdle_poisson(eta: Array, y: Array, log_odds: Array) -> Array:
    above = poisson(eta, y) - np.log(-np.expm1(-np.exp(eta)))
    zero, rest = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
    return np.where(y == 0.0, zero, rest + above)


def tweedie(eta: Array, y: Array, log_phi: Array, logit_power: Array) -> Array:
    """Sum over the number of gamma variables, which is Poisson."""
    p, phi = 1.0 + special.expit(logit_power), np.exp(log_phi)
    rate = np.exp((2.0 - p) * eta) / (phi * (2.0 - p))
    shape, log_scale = (2.0 - p) / (p - 1.0), log_phi + np.log(p - 1.0) + (p - 1.0) * eta
    log_y, total = np.log(np.where(y > 0.0, y, 1.0)), np.full(np.shape(rate), -np.inf)
    for j in range(1, 200):
        size = j * shape * (log_y - log_scale) - special.gammaln(j * shape)
        total = np.logaddexp(total, j * np.log(rate) - special.gammaln(j + 1.0) + size)
    return np.where(y > 0.0, total - log_y - y * np.exp(-log_scale) - rate, -rate)


def quantile(eta: Array, y: Array, log_sigma: Array) -> Array:
    """Of the median, smoothed over 0.05 sigma."""
    z = 20.0 * (y - eta) * np.exp(-log_sigma)
    value = 0.025 * (special.log_expit(z) + special.log_expit(-z))
    return np.asarray(value - log_sigma - math.log(0.05) - special.betaln(0.025, 0.025))


def ordinal(eta: Array, y: Array, *log_gaps: Array) -> Array:
    """Category k has the chance F(c_k - eta) - F(c_(k-1) - eta), c_0 = 0."""
    cuts = np.cumsum([np.zeros_like(log_gaps[0]), *map(np.exp, log_gaps)], axis=0)
    below = [np.zeros_like(eta), *(special.expit(cut - eta) for cut in cuts), np.ones_like(eta)]
    chances = np.diff(below, axis=0)
    return np.log(np.choose(y.astype(int)[None, :].repeat(len(chances[0]), 0), list(chances)))


LINEAR: dict[str, tuple[Callable[..., Array], tuple[str, ...]]] = {
    "logistic": (bernoulli, ()),
    "binomial": (bernoulli, ()),
    "probit": (probit, ()),
    "poisson": (poisson, ()),
    "exponential": (exponential, ()),
    "gamma": (gamma, ("shape",)),
    "gaussian": (gaussian, ("sigma",)),
    "student-t": (student_t, ("sigma", "nu")),
    "negative-binomial": (negative_binomial, ("phi",)),
    "inverse-gaussian": (inverse_gaussian, ("shape",)),
    "lognormal": (lognormal, ("sigma",)),
    "weibull": (weibull, ("shape",)),
    "beta": (beta, ("phi",)),
    "zero-inflated-poisson": (zero_inflated_poisson, ("logit_zi",)),
    "zero-inflated-negative-binomial": (zero_inflated_negative_binomial, ("phi", "logit_zi")),
    "hurdle-poisson": (hurdle_poisson, ("logit_hu",)),
    "tweedie": (tweedie, ("phi", "logit_power")),
    "quantile": (quantile, ("sigma",)),
    "ordinal": (ordinal, ("gap[1]",)),
}


def mixture(theta: Array, rows: Rows, components: int, variance: float) -> Array:
    """Equal weights, the covariance ``variance I``."""
    centres = theta.reshape(len(theta), components, 1, -1)
    away = np.square(rows.X - centres).sum(axis=-1) / variance
    constant = math.log(components) + 0.5 * rows.X.shape[1] * math.log(2 * math.pi * variance)
    return (special.logsumexp(-0.5 * away, axis=1) - constant) @ rows.weight


def mixture_free(theta: Array, rows: Rows) -> Array:
    """Two components in order: their means, log scales, and the log odds of the first."""
    x, terms = rows.X[:, 0], []
    for k, sign in enumerate((-1.0, 1.0)):
        log_weight = -np.logaddexp(0.0, sign * theta[:, 4:5])
        terms.append(log_weight + gaussian(theta[:, k : k + 1], x, theta[:, 2 + k : 3 + k]))
    value = np.logaddexp(*terms) @ rows.weight
    return np.where(theta[:, 0] < theta[:, 1], value, -np.inf)


def mixture_tied(theta: Array, rows: Rows, variance: float = 2.0) -> Array:
    both = np.column_stack([theta[:, 0], theta[:, 0] + theta[:, 1]])
    return mixture(both, rows, 2, variance)


def gaussian_mean(theta: Array, rows: Rows, covariance: Any = 1.0) -> Array:
    q = rows.X.shape[1]
    sigma = np.asarray(covariance) if np.ndim(covariance) == 2 else np.eye(q) * covariance
    away = rows.X - theta[:, None, :]
    value = -0.5 * np.einsum("mna,ab,mnb->mn", away, np.linalg.inv(sigma), away)
    return (value - 0.5 * np.linalg.slogdet(2.0 * math.pi * sigma)[1]) @ rows.weight


def gaussian_process(theta: Array, rows: Rows) -> Array:
    q, n = rows.X.shape[1], len(rows.y)
    scaled = rows.X / np.exp(theta[:, None, :q])
    squares = np.square(scaled[:, :, None, :] - scaled[:, None, :, :]).sum(axis=-1)
    noise = np.exp(2.0 * theta[:, q + 1, None, None]) * np.eye(n)
    K = np.exp(2.0 * theta[:, q, None, None] - 0.5 * squares) + noise
    K = np.where(np.isfinite(K), K, 0.0)
    K += (1e-10 * np.trace(K, axis1=1, axis2=2) + 1e-300)[:, None, None] * np.eye(n)
    along = np.linalg.solve(K, np.broadcast_to(rows.y[:, None], (len(K), n, 1)))[:, :, 0]
    return -0.5 * (along @ rows.y + np.linalg.slogdet(K)[1] + n * math.log(2.0 * math.pi))


def network(theta: Array, rows: Rows, units: int) -> Array:
    """One hidden layer: ``beta[unit, feature]``, the output weights, the output's bias."""
    q = rows.X.shape[1]
    first = theta[:, : units * q].reshape(-1, units, q)
    hidden = special.expit(np.einsum("muq,nq->mun", first, rows.X))
    eta = np.einsum("mun,mu->mn", hidden, theta[:, units * q : -1]) + theta[:, -1:]
    return bernoulli(eta, rows.y) @ rows.weight


def beta_binomial(theta: Array, rows: Rows) -> Array:
    """Of the trials of each row in their order; shares are responses, trials their weights."""
    eta, inverse = theta[:, :-1] @ rows.X.T, np.exp(-theta[:, -1:])
    successes = np.rint(rows.y * rows.weight)
    value = np.zeros(eta.shape)
    for i in range(int(rows.weight.max())):  # of an urn: exact where phi is large, too
        value += np.where(successes > i, np.log(special.expit(eta) + i * inverse), 0.0)
        value += np.where(
            rows.weight - successes > i, np.log(special.expit(-eta) + i * inverse), 0.0
        )
        value -= np.where(rows.weight > i, np.log1p(i * inverse), 0.0)
    return np.asarray(value.sum(axis=1))


def multinomial(theta: Array, rows: Rows) -> Array:
    """Category 0 is the reference: its predictor is 0."""
    eta = np.einsum("mkq,nq->mnk", theta.reshape(len(theta), -1, rows.X.shape[1]), rows.X)
    eta = np.concatenate([np.zeros((*eta.shape[:2], 1)), eta], axis=2)
    chosen = eta[:, np.arange(len(rows.y)), rows.y.astype(int)]
    return (chosen - special.logsumexp(eta, axis=2)) @ rows.weight


GRID = np.linspace(-9.0, 9.0, 181)
NEAR = np.linspace(-8.0, 8.0, 121)
"""Points of an effect over its standard deviation, and around the mode of a group, in sds there."""


def of_groups(link: Callable[..., Array], rows: Rows) -> Callable[..., Array]:
    """Return the log-likelihood of groups of rows with an intercept each, integrated out.

    The function of the predictors without it (m, n), of ``log tau`` (m, 1) and of the shared
    parameters (m, 1). An effect is integrated by the trapezoidal rule on points over the whole of
    its prior and, closer, around every row's own optimum and the mode.
    """
    members = [np.flatnonzero(rows.group == g) for g in np.unique(rows.group)]

    def at(eta: Array, v: Array, log_tau: Array, own: Array, shared: tuple[Array, ...]) -> Array:
        """Return (m, p) the log of the integrand of a group at its points v (m, p)."""
        total = -0.5 * v * v
        u = np.exp(np.minimum(log_tau, 50.0)) * v
        for i in own:
            if rows.weight[i] > 0.0:
                y = rows.y[i : i + 1]
                total = total + rows.weight[i] * link(eta[:, i : i + 1] + u, y, *shared)
        return np.where(np.isnan(total), -np.inf, total)

    def log_likelihood(eta: Array, log_tau: Array, *shared: Array) -> Array:
        m, value = len(eta), np.zeros(len(eta))
        for own in members:
            points = np.broadcast_to(GRID, (m, len(GRID)))
            if link is student_t:  # as many modes as rows
                peaks = (rows.y[own] - eta[:, own]) * np.exp(-log_tau)
                width = np.exp(shared[0] - log_tau)[:, :, None]
                apart = np.sinh(np.linspace(-7.0, 7.0, 101))
                more = (peaks[:, :, None] + width * apart).reshape(m, -1)
                more = np.where(np.abs(more) < 9.0, more, 9.0)
            else:
                here, step = GRID[np.argmax(at(eta, points, log_tau, own, shared), axis=1)], 0.1
                for _ in range(12):
                    near = here[:, None] + step * np.linspace(-1.0, 1.0, 9)
                    here = np.take_along_axis(
                        near, np.argmax(at(eta, near, log_tau, own, shared), axis=1)[:, None], 1
                    )[:, 0]
                    step *= 0.25
                h = np.full((m, 1), 0.01)
                for _ in range(3):  # the step over which the integrand falls by about 1/2
                    ends = at(eta, here[:, None] + h * [[-1.0, 0.0, 1.0]], log_tau, own, shared)
                    fall = 2.0 * ends[:, 1] - ends[:, 0] - ends[:, 2]
                    h = h / np.sqrt(np.maximum(fall[:, None], 1e-12))
                more = here[:, None] + np.minimum(h, 1.0) * NEAR
            points = np.sort(np.concatenate([points, more], axis=1), axis=1)
            log = at(eta, points, log_tau, own, shared)
            width = np.diff(points, axis=1)
            cells = np.logaddexp(log[:, :-1], log[:, 1:]) + np.log(np.maximum(0.5 * width, 1e-300))
            value += special.logsumexp(cells, axis=1) - 0.5 * math.log(2.0 * math.pi)
        return value

    def of_gaussians(eta: Array, log_tau: Array, log_sigma: Array) -> Array:
        """Return the same in closed form."""
        value, precision = np.zeros(len(eta)), np.exp(-2.0 * log_sigma[:, 0])
        for own in members:
            w, r = rows.weight[own], rows.y[own] - eta[:, own]
            total = w.sum()
            mean = r @ w / total
            spread = 1.0 / (total * precision) + np.exp(2.0 * log_tau[:, 0])
            square = np.square(r - mean[:, None]) @ w
            value -= 0.5 * (total - 1.0) * (math.log(2.0 * math.pi) + 2.0 * log_sigma[:, 0])
            value -= 0.5 * (square * precision + mean**2 / spread + np.log(spread * total))
            value -= 0.5 * math.log(2.0 * math.pi)
        return value

    return of_gaussians if link is gaussian else log_likelihood


JOINT: dict[str, Callable[..., Array]] = {
    "beta-binomial": beta_binomial,
    "multinomial": multinomial,
    "gaussian-mixture": mixture,
    "gaussian-mixture-free": mixture_free,
    "gaussian-mixture-tied": mixture_tied,
    "gaussian-mean": gaussian_mean,
    "gaussian-process": gaussian_process,
    "network": network,
}


@dataclass(frozen=True)
class Posterior:
    """Log density of theta (m, d), unnormalised, and what a search for its modes needs."""

    labels: tuple[str, ...]
    log_likelihood: Callable[[Array], Array]
    priors: tuple[Any, ...]
    scale: Array
    """(d,) sizes of steps in theta."""
    temperature: float = 1.0
    folded: bool = False
    """Whether a position ends with ``t``, ``tau = |sinh t|``, and begins with an intercept over
    ``cosh t``: the density is even in t, smooth at 0, and has light tails."""
    starts: Array = field(default_factory=lambda: np.empty((0, 0)))
    n_rows: int = 1

    def log_prior(self, theta: Array) -> Array:
        """Return the log density of the prior of theta (m, d), Jacobians included."""
        total = np.zeros(len(theta))
        for j, (label, prior) in enumerate(zip(self.labels, self.priors, strict=True)):
            kind, at = kind_of(label), theta[:, j]
            if kind == "log":
                total += prior.logpdf(np.exp(np.minimum(at, 700.0))) + at
            elif kind == "logit":
                total += prior.logpdf(special.expit(at)) + at - 2.0 * np.logaddexp(0.0, at)
            else:
                total += prior.logpdf(at)
        return total

    def theta(self, position: Array) -> Array:
        """Return theta (m, d) of positions (m, d)."""
        if not self.folded:
            return position
        out, t = position.copy(), np.maximum(np.abs(position[:, -1]), 1e-9)
        out[:, 0] *= np.cosh(np.minimum(t, 300.0))
        out[:, -1] = t - math.log(2.0) + np.log(-np.expm1(-2.0 * t))
        return out

    def log_density(self, position: Array) -> Array:
        """Return log prior plus log-likelihood over T, (m,); NaN counts as minus infinity.

        It is a density of positions.
        """
        theta = self.theta(position)
        step = max(1, AT_ONCE // self.n_rows)
        parts = [theta[lo : lo + step] for lo in range(0, len(theta), step)]
        with np.errstate(all="ignore"):
            value = [self.log_prior(p) + self.log_likelihood(p) / self.temperature for p in parts]
        joined = np.concatenate(value)
        if self.folded:  # log cosh t + log coth t
            t = np.maximum(np.abs(position[:, -1]), 1e-9)
            joined += np.logaddexp(t, -t) - math.log(2.0) - np.log(np.tanh(t))
        return np.where(np.isfinite(joined), joined, -np.inf)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Return draws of positions (n, d) from the prior."""
        columns = [p.rvs(size=n, random_state=rng) for p in self.priors]
        pairs = zip(self.labels, columns, strict=True)
        found = np.column_stack([transformed(label, column) for label, column in pairs])
        if self.folded:
            found[:, -1] = np.arcsinh(np.exp(found[:, -1])) * rng.choice([-1.0, 1.0], n)
            found[:, 0] /= np.cosh(found[:, -1])
        return found


def posterior(
    family: str,
    data: dict[str, Any],
    prior: dict[str, str],
    options: dict[str, Any] | None = None,
    temperature: float = 1.0,
) -> Posterior:
    """Return the posterior of a family; ``options`` are those of the density here."""
    settings = dict(options or {})
    rows = rows_of(data, merge=family not in ("gaussian-process", "beta-binomial"))
    q = rows.X.shape[1]
    size = np.maximum(np.abs(rows.X).max(axis=0), 1e-300)
    starts, folded = np.empty((0, 0)), False
    if family in LINEAR:
        link, scales = LINEAR[family]
        fixed = settings.get("df")
        labels = (*(f"beta[x{j}]" for j in range(q)), *(scales[:1] if fixed else scales))
        integrated = of_groups(link, rows) if "groups" in data else None
        own = len(labels)
        labels += ("tau[group]",) if integrated else ()
        folded = integrated is not None
        scale = np.append(1.0 / size, np.ones(len(labels) - q))

        def log_likelihood(theta: Array) -> Array:
            eta = theta[:, :q] @ rows.X.T + rows.offset
            shared = [theta[:, j : j + 1] for j in range(q, own)]
            shared += [np.full((len(theta), 1), math.log(fixed))] if fixed else []
            if integrated is not None:
                return integrated(eta, theta[:, own:], *shared)
            value = link(eta, rows.y, *shared)
            return np.where(rows.weight > 0.0, value, 0.0) @ rows.weight

    else:
        labels, scale, starts = _of_joint(family, rows, settings)

        def log_likelihood(theta: Array) -> Array:
            return JOINT[family](theta, rows, **settings)

    priors = tuple(prior_of(prior_text(label, prior)) for label in labels)
    return Posterior(
        labels, log_likelihood, priors, scale, temperature, folded, starts, len(rows.y)
    )


def _of_joint(family: str, rows: Rows, options: dict[str, Any]) -> tuple[Any, Array, Array]:
    """Return labels, sizes of steps and starts of a family without a linear predictor."""
    q, spread = rows.X.shape[1], rows.X.std(axis=0)
    starts = np.empty((0, 0))
    if family == "gaussian-mixture":
        K = options["components"]
        labels = tuple(f"mu[{k}, x{j}]" for k in range(K) for j in range(q))
        # Components along the first column, in every order.
        cut = np.array_split(rows.X[np.argsort(rows.X[:, 0])], K)
        centres = [part.mean(axis=0) for part in cut]
        starts = np.array([np.concatenate(p) for p in itertools.permutations(centres)])
    elif family == "beta-binomial":
        labels = (*(f"beta[x{j}]" for j in range(q)), "phi")
    elif family == "multinomial":
        labels = tuple(
            f"beta[{k}, x{j}]" for k in range(1, int(rows.y.max()) + 1) for j in range(q)
        )
    elif family == "gaussian-mixture-free":
        labels = ("mu[0]", "mu[1]", "sigma[0]", "sigma[1]", "weight[0]")
    elif family == "gaussian-mixture-tied":
        labels = ("theta1", "theta2")
    elif family == "gaussian-mean":
        labels = tuple(f"mu[x{j}]" for j in range(q))
    elif family == "network":
        units = options["units"]
        labels = tuple(f"beta[{k}, x{j}]" for k in range(units) for j in range(q))
        labels += (*(f"output[{k}]" for k in range(units)), "output_bias")
    else:
        labels = (*(f"length_scale[x{j}]" for j in range(q)), "sigma_f", "sigma_n")
    size = float(spread.max()) or 1.0
    moved = [size if each.startswith(("mu", "theta")) else 1.0 for each in labels]
    return labels, np.array(moved), starts
