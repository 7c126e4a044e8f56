"""Weigh draws of the Laplace approximation in one pass, and keep them in proportion.

With ``theta = theta_star + S z`` and the Taylor sums of the full pass the log weight is

    sum_i [l_i - q_i](theta) + g'delta + delta'H delta / 2 + log p(theta) - log q(z)

up to a constant: the log ratio of the posterior and the density of the proposals. Its precision
survives a sum over a billion rows.

Weights say nothing of tails in which nothing was drawn. So the posterior is first followed along
lines (``plan.reach``). Where it has more mass and variance than a normal density has beyond the
reach of so many normal proposals, half of the proposals are of a wider Student t.

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
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.certify import require_rows
from streammc.control_variates.mode.modes import ADVICE
from streammc.control_variates.plan.reach import lines_of, more_than_normal
from streammc.diagnostics.weights import PARETO_K, heavy_tailed, pareto_k, smoothed_rows
from streammc.errors import RefusedError
from streammc.likelihood.blocks import Block, allocate_block
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


_DF: Final = 3.0
"""Degrees of freedom of the heavy proposals, a Student t ..."""
_WIDER: Final = 1.5
"""... so many times as wide as the normal ones."""
HEAVY_WORDS: Final = f"a Student t with {_DF:g} degrees of freedom, {_WIDER:g} times as wide"
_SHARE: Final = 0.5
"""Share of the proposals that are heavy, where normal ones do not reach the tails."""
_MOST_MISSED: Final = 0.02
"""Largest mass and variance of the posterior that may lie beyond the proposals, see
``plan.reach``; for normal ones, in excess of what a normal density has there."""


def needs_heavy_proposals(request: RunRequest, cv: ControlVariates, count: int) -> bool:
    """Return whether ``count`` normal proposals miss a tail that heavy ones reach.

    Raises
    ------
    RefusedError
        If heavy ones miss a tail too.
    """
    lines = lines_of(request.dataset, request.model, cv)
    if (more_than_normal(lines, count, cv.dim) <= _MOST_MISSED).all():
        return False
    missed = lines.missed(*_heavy_reach(count, cv.dim))
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


def _heavy_reach(count: int, d: int) -> tuple[float, float]:
    """Return how far heavy proposals reach along a coordinate, and in length.

    As ``plan.reach.normal_reach`` does for ``count`` normal ones: about one of them is beyond.
    """
    from scipy.special import fdtri, stdtrit

    share = 1.0 / (_SHARE * count)
    length = math.sqrt(d * fdtri(d, _DF, 1.0 - share))
    return _WIDER * float(stdtrit(_DF, 1.0 - share)), _WIDER * length


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
        theta_star=cv.theta_star,
        log_lik=0.0,
        gradient=np.zeros(d),
        hessian=np.zeros((d, d)),
        factor=np.ascontiguousarray(cv.factor),
        prior=model.prior_table(cv.labels),
        constants=model.constants,
        n_linear=model.n_linear,
        order=-1,
        unit_rows=1,
        estimate_factor=0.0,
        variance_factor=0.0,
    )
    kept = np.repeat(np.arange(len(copies)), copies)
    density = setup.arrays["log_density"] + cv.log_lik
    rows_per_draw = round(dataset.n_rows * len(copies) / len(kept))
    recorded = {
        "lp": density,
        "n_rows": np.full(len(copies), rows_per_draw),
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
