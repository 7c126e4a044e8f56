"""Weigh draws of the Laplace approximation in one pass, and keep them in proportion.

With ``theta = theta_star + S z`` and the Taylor sums of the full pass the log weight is

    sum_i [l_i - q_i](theta) + g'delta + delta'H delta / 2 + log p(theta) - log q(z)

up to a constant: the log ratio of the posterior and the density of the proposals. Its precision
survives a sum over a billion rows.

Weights of what was drawn say nothing of tails that were not. So the posterior is first followed
along lines (``proposals``): where normal proposals leave out more of its mass, of its
variance, than of their own, half of the proposals are of a wider Student t.

Systematic resampling keeps proposal s ``n_s`` times, ``E n_s = N w_s / sum w``, and its copies
stand together; chains are stretches of that sequence. The mean of the N draws then has the variance

    sum_s E[n_s^2] (x_s - mean)^2 / N^2

where the roundings of ``n_s`` are independent, and less where they are systematic. That sum is
what an autocorrelation time measures of draws in this order: the effective sample sizes and
errors of ArviZ count copies as they should.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.certify import require_rows
from streammc.control_variates.coordinates import coordinates
from streammc.control_variates.mode.modes import ADVICE
from streammc.control_variates.plan.pilot import remainders
from streammc.control_variates.plan.tails import FAR, ends_of, unit
from streammc.diagnostics.weights import PARETO_K, heavy_tailed, pareto_k, smoothed_rows
from streammc.errors import RefusedError
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES
from streammc.likelihood.remainder_pass import remainder_sums
from streammc.likelihood.target import Base
from streammc.numerics.prior import log_prior
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Index, Matrix, RowSource, Vector
from streammc.samplers.common.chains import Chain
from streammc.samplers.common.preparation import control_variates
from streammc.samplers.common.sampler import NAMED, RunRequest, Setup

if TYPE_CHECKING:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.samplers.importance.laplace import Laplace


# Whether proposals reach the tails of the posterior, and heavier proposals where they do not.
#
# With ``N`` proposals a normal density is drawn from up to a distance ``r`` that one of them
# exceeds about once. The posterior is followed along lines through the mode, whitened by its
# Laplace approximation: the direction of every parameter, across it at the typical distance of
# draws, and random ones. On each
#
#     missed(r) = integral over |t| > r of (1 + u^2) p(t) dt,
#
# with ``p`` the posterior density on the line and ``u`` standard under it, bounds what is lost of
# masses, means (in sd) and variances, however the weights of the proposals look.


_DF: Final = 3.0
_WIDER: Final = 1.5
HEAVY_WORDS: Final = f"a Student t with {_DF:g} degrees of freedom, {_WIDER:g} times as wide"
_SHARE: Final = 0.5
"""Of the heavy proposals."""
_MOST_MISSED: Final = 0.02
"""More than a normal density misses itself."""
_AXES: Final = 16
_RADIAL: Final = 8
_POINTS: Final = 401
_AT_ONCE: Final = 2**22
"""Rows times points that are evaluated together."""


class Lines(NamedTuple):
    """The posterior along L lines at T points each."""

    t: Matrix
    """(L, T) distances from the centre."""
    weight: Matrix
    """(L, T) posterior mass at the points times ``1 + u^2``."""
    radial: Vector
    """(L,) 1 where t is the length of all coordinates, 0 where it is one of them."""
    names: tuple[str, ...]
    """The parameter of each line; empty for a random one."""

    def missed(self, along: float, radial: float) -> Vector:
        """Return (L,) what lies beyond these distances."""
        reach = np.where(self.radial > 0.0, radial, along)
        found: Vector = np.where(np.abs(self.t) > reach[:, None], self.weight, 0.0).sum(axis=1)
        return found


def needs_heavy_proposals(request: RunRequest, cv: ControlVariates, count: int) -> bool:
    """Return whether normal proposals miss what a Student t reaches.

    Raises
    ------
    RefusedError
        If these miss a tail too.
    """
    lines = lines_of(request, cv)
    d = cv.dim
    along, radial = _normal_reach(count, d)
    own = _normal_lines(d).missed(along, radial)
    missed = lines.missed(along, radial)
    if (missed <= _MOST_MISSED + np.where(lines.radial > 0.0, own[1], own[0])).all():
        return False
    missed = lines.missed(*_heavy_reach(count, d))
    worst = int(np.argmax(missed))
    if not missed[worst] <= _MOST_MISSED:
        size = missed[worst]
        found = f"{size:.2g} of its mass and variance beyond them" if size < 1.0 else "more beyond"
        where = f"in the tail of {lines.names[worst]}" if lines.names[worst] else "in its tails"
        raise RefusedError(
            f"expected {count} draws of {HEAVY_WORDS}, to reach the tails of the posterior, found "
            f"{found} {where}: the posterior is too far from normal for laplace; use hmc-ecs, or "
            "hmc"
        )
    return True


def proposals(
    generator: np.random.Generator, count: int, dim: int, heavy: bool
) -> tuple[Matrix, Vector]:
    """Return whitened proposals (S, d) and their log density (S,), up to a constant."""
    z = generator.standard_normal((count, dim))
    square = (z**2).sum(axis=1)
    if not heavy:
        return z, -0.5 * square
    scale = _WIDER * np.sqrt(_DF / generator.chisquare(_DF, count))
    z *= np.where(generator.random(count) < _SHARE, scale, 1.0)[:, None]
    square = (z**2).sum(axis=1)
    constant = math.lgamma(0.5 * (_DF + dim)) - math.lgamma(0.5 * _DF)
    constant -= dim * math.log(_WIDER) + 0.5 * dim * math.log(0.5 * _DF)
    far = constant - 0.5 * (_DF + dim) * np.log1p(square / (_DF * _WIDER**2))
    return z, np.logaddexp(math.log(1.0 - _SHARE) - 0.5 * square, math.log(_SHARE) + far)


def lines_of(request: RunRequest, cv: ControlVariates) -> Lines:
    """Return the posterior along its lines; of many rows from a sample of their remainders."""
    posterior = _posterior(request, cv)
    d = cv.dim
    axes = np.arange(d)
    if d > _AXES:  # those along which the density falls least
        far = 4.0 * unit(cv.factor)
        fall = posterior(np.concatenate([far, -far]))[0].reshape(2, -1).max(axis=0)
        axes = np.sort(np.argsort(-fall, kind="stable")[:_AXES])
    directions = unit(cv.factor[axes])
    generator = streams.stream(0, 6, streams.Role.PLAN)
    across = generator.standard_normal(directions.shape)
    across -= (across * directions).sum(axis=1, keepdims=True) * directions
    across = math.sqrt(d - 1.0) * unit(across)
    radial = unit(generator.standard_normal((_RADIAL, d)))
    # Through the mode and beside it.
    origin = np.concatenate([np.zeros_like(directions), across, np.zeros_like(radial)])
    direction = np.concatenate([directions, directions, radial])
    power = np.repeat([0.0, d - 1.0], [2 * len(axes), _RADIAL])
    names = [cv.labels[j] for j in axes] * 2 + [""] * _RADIAL
    ends = ends_of(posterior, origin, direction, power)
    alive = ~np.isnan(ends[0])
    origin, direction, power, ends = origin[alive], direction[alive], power[alive], ends[:, alive]
    far_away = 3.0 * FAR[-1]
    low, high = np.maximum(ends[0], -far_away), np.minimum(ends[1], far_away)
    t = np.linspace(low, high, _POINTS, axis=1)
    points = origin[:, None] + t[..., None] * direction[:, None]
    log = posterior(points.reshape(-1, d))[0].reshape(t.shape)
    weight = _second_moments(t, log, power)
    weight[~np.isfinite(ends).all(axis=0)] = np.inf
    kept = tuple(name for name, used in zip(names, alive, strict=True) if used)
    return Lines(t, weight, np.where(power > 0.0, 1.0, 0.0), kept)


def _second_moments(t: Matrix, log: Matrix, power: Vector) -> Matrix:
    """Return (L, T) the mass at evenly spaced points times ``1 + u^2``."""
    log = log + power[:, None] * np.log(np.maximum(np.abs(t), 1e-3))
    mass = np.exp(log - log.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    square = (t - (mass * t).sum(axis=1, keepdims=True)) ** 2
    spread = np.maximum((mass * square).sum(axis=1, keepdims=True), 1e-12)
    found: Matrix = mass * (1.0 + square / spread)
    return found


def _normal_lines(d: int) -> Lines:
    """Return a line of one coordinate and one of all, of a normal density."""
    t = np.tile(np.linspace(-12.0 - math.sqrt(d), 12.0 + math.sqrt(d), 4001), (2, 1))
    weight = _second_moments(t, -0.5 * t * t, np.array([0.0, d - 1.0]))
    return Lines(t, weight, np.array([0.0, 1.0]), ("", ""))


def _normal_reach(count: int, d: int) -> tuple[float, float]:
    """Return how far normal proposals reach along a coordinate, and in length."""
    from scipy.special import chdtri, ndtri

    return float(ndtri(1.0 - 1.0 / count)), math.sqrt(chdtri(d, 1.0 / count))


def _heavy_reach(count: int, d: int) -> tuple[float, float]:
    """Return the same of the heavy proposals."""
    from scipy.special import fdtri, stdtrit

    share = 1.0 / (_SHARE * count)
    length = math.sqrt(d * fdtri(d, _DF, 1.0 - share))
    return _WIDER * float(stdtrit(_DF, 1.0 - share)), _WIDER * length


def _posterior(request: RunRequest, cv: ControlVariates) -> Callable[[Matrix], Matrix]:
    """Return the function z (S, d) -> (1, S) log posterior, up to a constant."""
    dataset, model = request.dataset, request.model
    rows = draw_subset(dataset, SUBSET_BYTES)
    scale = dataset.n_rows / max(len(rows.y), 1)
    table = model.prior_table(cv.labels)
    where = coordinates(model, cv.theta_star, cv.noise)
    gradient, hessian = where.from_theta(cv.gradient, cv.hessian)
    step = max(_AT_ONCE // max(len(rows.y), 1), 1)

    def batch(z: Matrix) -> Vector:
        shifts = z @ cv.factor.T
        moved = where.shifts(shifts)
        with np.errstate(all="ignore"):
            log: Vector = scale * remainders(cv, model, rows, shifts).sum(axis=1)
            if cv.order >= 1:
                log = log + moved @ gradient
            if cv.order == 2:
                log = log + 0.5 * ((moved @ hessian) * moved).sum(axis=1)
            log = log + [log_prior(cv.theta_star + s, table, np.zeros(cv.dim)) for s in shifts]
        return np.where(np.isnan(log) | (log == np.inf), -np.inf, log)

    def posterior(z: Matrix) -> Matrix:
        parts = [batch(z[first : first + step]) for first in range(0, len(z), step)]
        return np.concatenate(parts)[None]

    return posterior


def prepare(sampler: Laplace, request: RunRequest, reason: str) -> Setup:
    """Return control variates, proposals, weights and copies.

    Raises
    ------
    RefusedError
        If the weights are heavy-tailed, or another mode or a tail has mass that no proposal
        reaches.
    """
    require_rows(request.model)
    cv = control_variates(request)
    if cv.other_modes() is not None:
        raise RefusedError(
            "expected one mode for laplace, found others of comparable evidence, which no draw "
            f"around theta_star reaches: use --sampler hmc, and {ADVICE}"
        )
    began = time.perf_counter()
    wanted = request.chains * request.draws
    count = sampler.count(request.dataset.n_rows, wanted)
    generator = streams.stream(request.stream_seed, 0, streams.Role.KERNEL)
    with single_threaded():  # the bits of a product depend on its threads
        heavy = needs_heavy_proposals(request, cv, count)
        z, log_proposal = proposals(generator, count, cv.dim, heavy)
        theta = cv.theta_star + z @ cv.factor.T
        density = log_densities(request, cv, theta)
    log_weight = density - log_proposal
    _require_light_tail(log_weight)
    copies = systematic(_smoothed(log_weight), wanted, generator.random())
    arrays = {
        "proposals": theta,
        "log_density": density,
        "log_weight": log_weight,
        "copies": copies,
    }
    reason = reason or NAMED
    if heavy:
        reason += f"; half of its proposals are of {HEAVY_WORDS}: normal ones miss the tails"
    return Setup(sampler, _with_pass(cv, request, began), None, reason, arrays)


def log_densities(request: RunRequest, cv: ControlVariates, theta: Matrix) -> Vector:
    """Return the log posterior (S,) of ``theta`` (S, d), in one full pass.

    The log-likelihood at ``theta_star`` is left out: its rounding would hide differences.
    """
    dataset, model = request.dataset, request.model
    remainder = remainder_sums(
        dataset,
        model,
        cv.theta_star,
        2,
        theta,
        scheduler=request.scheduler,
        progress=request.blocks_of("pass"),
    )
    delta = theta - cv.theta_star
    quadratic = delta @ cv.gradient + 0.5 * ((delta @ cv.hessian) * delta).sum(axis=1)
    table = model.prior_table(cv.labels)
    prior = np.array([log_prior(at, table, np.zeros(cv.dim)) for at in theta])
    total: Vector = remainder + quadratic + prior
    return total


def systematic(weight: Vector, draws: int, start: float) -> Index:
    """Return how often each proposal is kept (S,), ``draws`` in all; ``start`` in [0, 1)."""
    ends = np.cumsum(weight) * (draws / weight.sum())
    ends[-1] = draws
    last = np.floor(ends - start).astype(np.int64)
    counts: Index = np.diff(last, prepend=np.int64(np.floor(-start)))
    return counts


def weight_facts(log_weight: Vector, copies: Index) -> dict[str, Any]:
    """Return number, effective size, largest and Pareto k of the raw weights."""
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.mean()
    return {
        "proposals": len(weight),
        "distinct_draws": int(np.count_nonzero(copies)),
        "weights_ess": float(weight.sum() ** 2 / (weight**2).sum()),
        "largest_weight": float(weight.max()),
        "pareto_k": pareto_k(log_weight),
    }


def _require_light_tail(log_weight: Vector) -> None:
    """Raise RefusedError where averages with the weights cannot be relied on."""
    if np.isnan(log_weight).any() or not np.isfinite(log_weight.max()):
        raise RefusedError(
            "expected a posterior density at draws of its Laplace approximation, found none or "
            "one that is not a number: use hmc-ecs, or hmc"
        )
    found = weight_facts(log_weight, np.zeros(0, np.int64))
    k, ess, draws = found["pareto_k"], found["weights_ess"], found["proposals"]
    if k is not None and heavy_tailed(k, ess, draws, found["largest_weight"]):
        raise RefusedError(
            f"expected importance weights with a Pareto k of at most {PARETO_K}, found {k:.2f} "
            f"({draws} draws of the Laplace approximation are worth {ess:.3g}): the posterior is "
            "too far from normal for laplace; use hmc-ecs, or hmc"
        )


def _smoothed(log_weight: Vector) -> Vector:
    """Return the weights with their tail smoothed (PSIS); as they are where there is no tail."""
    if pareto_k(log_weight) is not None:
        log_weight = smoothed_rows(log_weight[None, :])[0][0]
    weight: Vector = np.exp(log_weight - log_weight.max())
    return weight


def _with_pass(cv: ControlVariates, request: RunRequest, began: float) -> ControlVariates:
    """Return control variates whose certificate counts the pass that weighed the proposals."""
    n = request.dataset.n_rows
    counted = cv.certificate.plus(
        passes=1,
        rows_read=n,
        bytes_read=n * request.dataset.rows().row_bytes,
        seconds=time.perf_counter() - began,
    )
    return replace(cv, certificate=counted)


@dataclass(frozen=True)
class KeptDraws:
    """Draws of all chains, as the proposals were weighed; see ``chains.SharedProblem``."""

    base: Base
    source: RowSource
    certain: Block
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    theta: NDArray[np.float64]
    """(chain, draw, d)."""
    statistics: NDArray[np.float64]
    """(chain, draw, statistic)."""
    certainty_rows: Index
    design: None = None

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> KeptChain:
        """Return chain ``chain``."""
        return KeptChain(self, seed, chain, batch_iterations=batch_iterations)


def kept_draws(request: RunRequest, setup: Setup) -> KeptDraws:
    """Return the draws of every chain and what is recorded of them.

    Raises
    ------
    RefusedError
        If more draws are asked for than the run was planned for.
    """
    dataset, model, cv = request.dataset, request.model, setup.cv
    proposals, log_weight = setup.arrays["proposals"], setup.arrays["log_weight"]
    copies, d = setup.arrays["copies"], cv.dim
    draws = int(copies.sum()) // request.chains
    if request.draws > draws:
        raise RefusedError(
            f"expected at most {draws} draws, for which laplace has weighed its proposals, found "
            f"{request.draws}: ask for no more",
            ", or start the run anew with --overwrite, or another one with -o",
        )
    base = Base(
        cv.theta_star,
        0.0,
        np.zeros(d),
        np.zeros((d, d)),
        np.ascontiguousarray(cv.factor),
        model.prior_table(cv.labels),
        model.constants,
        model.n_linear,
        -1,
        1,
        0.0,
        0.0,
    )
    kept = np.repeat(np.arange(len(copies)), copies)
    density = setup.arrays["log_density"] + cv.log_lik
    each = round(dataset.n_rows * len(copies) / len(kept))
    recorded = {
        "lp": density,
        "n_rows": np.full(len(copies), each),
        "log_weight": log_weight,
    }
    columns = np.stack([recorded[name][kept] for name in setup.sampler.statistics], axis=1)
    return KeptDraws(
        base,
        dataset.rows(),
        allocate_block(0, dataset.n_features, model.n_linear + model.n_scalar),
        model.constrain,
        proposals[kept].reshape(request.chains, draws, d),
        columns.reshape(request.chains, draws, -1),
        np.zeros(0, np.int64),
    )


class KeptChain(Chain):
    """One chain: the copies of its proposals, in the order in which they were drawn."""

    def __init__(self, problem: KeptDraws, seed: int, chain: int, *, batch_iterations: int) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.statistics = ("lp", "n_rows", "log_weight")
        self._theta, self._recorded = problem.theta[chain], problem.statistics[chain]
        self._given = 0

    def initialise(self) -> None:
        """Do nothing: every draw is known."""

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the number of iterations and of draws that were given."""
        return {}, {"iteration": self.iteration, "given": self._given}

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`."""
        self.iteration, self._given = int(meta["iteration"]), int(meta["given"])

    def _batch(self) -> int:
        return self.batch_iterations

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Give the next draws; in warm-up draws from the first on, which are given again."""
        n = len(theta)
        first = self.iteration if warmup else self._given
        chosen = np.arange(first, first + n) % len(self._theta)
        theta[:], statistics[:] = self._theta[chosen], self._recorded[chosen]
        if warmup:
            statistics[:, self.statistics.index("n_rows")] = 0.0
        self.iteration += n
        self._given += 0 if warmup else n
