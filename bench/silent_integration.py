"""Points and weights that integrate a small posterior: around its modes, or drawn there."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from arviz_stats.base import array_stats
from scipy import optimize, stats
from silent_densities import Posterior

Array = np.ndarray
Mode = tuple[Array, Array, float]
Function = Callable[[Array], Array]
STEPS = (0.6, 1.2, 1.8, 2.4, 3.0, 3.7, 4.5, 5.5, 7.0, 9.0, 12.0, 17.0, 25.0, 40.0, 70.0, 130.0,
         250.0, 500.0, 1e3, 2e3, 5e3, 1e4)  # fmt: skip
"""Edges of boxes, in sds from a mode."""
NEGLIGIBLE = 45.0


def modes_of(posterior: Posterior, rng: np.random.Generator) -> list[Mode]:
    """Return every mode that is found, its Laplace covariance and log density."""
    d, scale = len(posterior.labels), posterior.scale
    few = posterior.n_rows > 500  # many rows: a mode of the prior, one of the likelihood
    anchors = [np.zeros(d), *posterior.starts, *posterior.prior_draws(1 if few else 6, rng)]
    prior_centre = np.median(posterior.prior_draws(999, rng), axis=0)
    spread = [prior_centre + scale * 2.0 * rng.standard_normal(d) for _ in range(1 if few else 2)]
    found: list[Mode] = []

    def minus(u: Array) -> Array:
        return -posterior.log_density(u * scale)

    def flat(u: Array) -> Array:
        with np.errstate(all="ignore"):
            return -posterior.log_likelihood(posterior.theta(u * scale)) + 1e-6 * np.square(u).sum(
                axis=1
            )

    likeliest = optimize.minimize(
        _with_gradient(flat, d), prior_centre / scale, jac=True, method="BFGS"
    ).x
    for start in (prior_centre, likeliest * scale, *anchors, *spread):
        u = np.asarray(start) / scale
        if not np.isfinite(minus(u[None])[0]):
            continue
        u, hessian, climbed = _climbed(minus, u)
        top, theta = -float(minus(u[None])[0]), u * scale
        if not climbed or any(abs(top - t) < 1e-2 and _near(theta, m, c) for m, c, t in found):
            continue
        values, vectors = np.linalg.eigh(hessian)
        values = np.maximum(values, 1e-8 * max(values.max(), 1e-8))
        covariance = (vectors / values) @ vectors.T * np.outer(scale, scale)
        found.append((theta, covariance, top))
    best = max(top for _, _, top in found)
    kept = [each for each in found if each[2] > best - 60.0]
    return sorted(kept, key=lambda each: -each[2])[:40]


def _near(theta: Array, mode: Array, covariance: Array) -> bool:
    return bool(np.all(np.abs(theta - mode) < 0.05 * np.sqrt(np.diag(covariance))))


def _with_gradient(function: Function, d: int) -> Callable[[Array], tuple[float, Array]]:
    """Return value and gradient by central differences, from one call of the function."""
    step = 1e-5 * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])

    def both(u: Array) -> tuple[float, Array]:
        at = np.nan_to_num(function(u + step), nan=1e30, posinf=1e30)
        return float(at[0]), (at[1 : d + 1] - at[d + 1 :]) / 2e-5

    return both


def _climbed(minus: Function, u: Array) -> tuple[Array, Array, bool]:
    """Return a minimum, the Hessian there, and whether it is one."""
    value = _with_gradient(minus, len(u))
    for method in ("BFGS", "Nelder-Mead"):
        if method == "BFGS":
            u = optimize.minimize(value, u, jac=True, method=method).x
        else:
            u = optimize.minimize(lambda v: value(v)[0], u, method=method).x
        u, hessian, decrement = _polished(minus, u)
        if decrement < 1e-2:
            return u, hessian, True
    return u, hessian, bool(np.linalg.eigvalsh(hessian)[-1] > 0.0 and np.isfinite(decrement))


def _polished(minus: Function, u: Array) -> tuple[Array, Array, float]:
    """Return the end of a few Newton steps, the Hessian there and the last decrement."""
    d, identity, decrement = len(u), np.eye(len(u)), np.inf
    sizes = 2.0 ** np.arange(-34, 12)
    pairs = list(itertools.combinations_with_replacement(range(d), 2))
    for _ in range(4):
        here = minus(u[None])[0]
        h = np.empty(d)
        for j in range(d):  # the step over which the density changes by about 0.01
            moved = u + np.concatenate([sizes, -sizes])[:, None] * identity[j]
            rise = np.reshape(minus(moved), (2, -1)).sum(axis=0) - 2.0 * here
            h[j] = sizes[np.argmin(np.abs(np.log(np.clip(np.abs(rise), 1e-12, 1e12) / 1e-2)))]
        steps = identity * h
        corners = [(a, b) for a in (-1, 1) for b in (-1, 1)]
        points = [u + a * steps[i] + b * steps[j] for i, j in pairs for a, b in corners]
        cross = minus(np.array(points)).reshape(-1, 4) @ [a * b for a, b in corners]
        hessian = np.zeros((d, d))
        for (i, j), value in zip(pairs, cross, strict=True):
            hessian[i, j] = hessian[j, i] = value / (4.0 * h[i] * h[j])
        ends = minus(np.concatenate([u + steps, u - steps])).reshape(2, d)
        gradient = (ends[0] - ends[1]) / (2.0 * h)
        hessian = np.where(np.isfinite(hessian), hessian, 0.0)
        size = np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
        if not np.linalg.eigvalsh(hessian / np.outer(size, size))[0] > 1e-9:
            break
        step = np.linalg.solve(hessian, gradient)
        decrement = float(gradient @ step)
        if decrement < 1e-4 or not minus((u - step)[None])[0] < here:
            break
        u = u - step
    return u, hessian, decrement


def quadrature(posterior: Posterior, modes: list[Mode], order: int) -> tuple[Array, Array]:
    """Return points (m, d) and weights (m,), which add up to 1."""
    d = len(posterior.labels)
    if len(modes) == 1:
        centre, covariance, _ = modes[0]
        turn, centres, sizes = np.linalg.cholesky(covariance), np.zeros((1, d)), np.ones((1, d))
    else:
        centre, turn = np.zeros(d), np.eye(d)
        centres = np.array([mode for mode, _, _ in modes])
        sizes = np.sqrt([np.diag(covariance) for _, covariance, _ in modes])
    steps = np.array([-s for s in reversed(STEPS)] + [0.0, *STEPS])
    edges = []
    for j in range(d):
        every = np.sort((centres[:, j, None] + sizes[:, j, None] * steps).ravel())
        least = 0.25 * sizes[:, j].min()
        kept = [every[0]]
        for edge in every[1:]:
            if edge - kept[-1] > least:
                kept.append(edge)
        edges.append(np.array(kept))

    def log_density(z: Array) -> Array:
        return posterior.log_density(centre + z @ turn.T)

    corners = np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1)
    at = log_density(corners.reshape(-1, d)).reshape(corners.shape[:-1])
    middle = np.stack(np.meshgrid(*(0.5 * (e[1:] + e[:-1]) for e in edges), indexing="ij"), axis=-1)
    highest = log_density(middle.reshape(-1, d)).reshape(middle.shape[:-1])
    for corner in itertools.product((slice(None, -1), slice(1, None)), repeat=d):
        highest = np.maximum(highest, at[corner])
    widths = np.stack(np.meshgrid(*(np.diff(e) for e in edges), indexing="ij"), axis=-1)
    mass = highest + np.log(widths).sum(axis=-1)  # a wide box counts by its width as well
    boxes = np.argwhere(mass > mass.max() - NEGLIGIBLE + 10.0)
    nodes, weights = np.polynomial.legendre.leggauss(order)
    unit = np.array(list(itertools.product(0.5 * (nodes + 1.0), repeat=d)))
    unit_weight = np.prod(list(itertools.product(0.5 * weights, repeat=d)), axis=1)
    low = np.array([[edges[j][k] for j, k in enumerate(box)] for box in boxes])
    width = np.array([widths[tuple(box)] for box in boxes])
    z = (low[:, None, :] + width[:, None, :] * unit).reshape(-1, d)
    log_weight = log_density(z) + (np.log(width).sum(axis=1)[:, None] + np.log(unit_weight)).ravel()
    weight = np.exp(log_weight - log_weight.max())
    kept = weight > 1e-18
    return centre + z[kept] @ turn.T, weight[kept] / weight[kept].sum()


def importance(
    posterior: Posterior, rng: np.random.Generator, draws: int
) -> tuple[Array, Array, float]:
    """Return points, weights and Pareto k; the proposal is refitted four times."""
    d = len(posterior.labels)
    modes = modes_of(posterior, rng)
    evidence = np.array([t + 0.5 * np.linalg.slogdet(c)[1] for _, c, t in modes])
    share = np.maximum(np.exp(evidence - evidence.max()), 0.02)
    parts = [stats.multivariate_t(m, 1.2 * _definite(c), df=5, seed=rng) for m, c, _ in modes]
    prior = posterior.prior_draws(4000, rng)  # as wide as it: bounds the weights, is not refitted
    middle, wide = np.median(prior, axis=0), np.atleast_2d(np.cov(prior, rowvar=False))
    parts += [stats.multivariate_t(middle, _definite(wide), df=5, seed=rng)] * 2  # one is refitted
    share = np.append(share / share.sum(), [0.3, 0.1])
    for rounds in range(5):
        n = draws if rounds == 4 else max(20_000, 1000 * d)
        share = np.append(0.9 * share[:-1] / share[:-1].sum(), 0.1)
        counts = rng.multinomial(n, share)
        theta = np.concatenate([np.atleast_2d(p.rvs(c).reshape(-1, d))
                                for p, c in zip(parts, counts, strict=True)])  # fmt: skip
        own = np.column_stack([p.logpdf(theta) for p in parts]) + np.log(share)
        proposal = np.logaddexp.reduce(own, axis=1)
        log_weight = posterior.log_density(theta) - proposal
        if rounds == 4:
            break
        weight = np.exp(log_weight - log_weight.max())
        weight = np.minimum(weight, 50.0 * weight.mean())  # no single draw makes a component
        by_part = np.exp(own - proposal[:, None]) * (weight / weight.sum())[:, None]
        share = np.maximum(by_part.sum(axis=0), 0.005)
        for k, mass in enumerate(by_part.T[:-1]):
            if 1.0 / np.square(mass / max(mass.sum(), 1e-300)).sum() < 20 * d:
                continue
            mean = mass @ theta / mass.sum()
            away = theta - mean
            covariance = (away.T * mass) @ away / mass.sum()
            parts[k] = stats.multivariate_t(mean, _definite(covariance), df=5, seed=rng)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    k = float(array_stats.psislw(-log_weight[np.isfinite(log_weight)])[1])
    return theta, weight, k


def _definite(covariance: Array) -> Array:
    size = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(size, size))
    return (vectors * np.maximum(values, 1e-8)) @ vectors.T * np.outer(size, size)
