"""Setup and chains of ``gibbs``: what all chains share, one chain, and the effects it keeps.

Effects have moments over all draws, and some of their draws. Of the draws those with the numbers
``s - 1``, ``2 s - 1``, .. are kept, where the stride ``s`` doubles whenever there is no more room:
the same ones whenever a chain stops, and spread over it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import without_pass
from streammc.errors import ConfigError, ModelError, RefusedError
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.target import Base
from streammc.models.responses import response_check
from streammc.numerics.dispatchers import compile_ahead
from streammc.numerics.prior import COLUMNS, FLAT, JOINT_NORMAL, NORMAL, log_prior
from streammc.protocols import Index, Matrix, Model, RowSource, Vector
from streammc.samplers.common.chains import BATCH_SECONDS, Chain
from streammc.samplers.common.sampler import NAMED, RunRequest, Setup
from streammc.samplers.crossed import augmented
from streammc.samplers.crossed.sweep import Crossed, Scales, State, add_moments, sweep
from streammc.samplers.crossed.table import (
    Piece,
    Rows,
    Structure,
    ordered,
    pieces_of,
    require_distinct,
    structure_of,
    summed,
)

if TYPE_CHECKING:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.samplers.crossed.options import Gibbs

GAUSSIAN: Final = 0
KINDS: Final = {
    "gaussian": GAUSSIAN,
    "logistic": augmented.LOGIT,
    "binomial": augmented.LOGIT,
    "probit": augmented.PROBIT,
}
"""Likelihood of a row, by the name of the regression."""
KEPT_BYTES: Final = 48 << 20
"""Memory of the draws of the effects that a chain keeps."""
MOST_KEPT: Final = 250
LEAST_KEPT: Final = 8
_DISPERSED: Final = 1.0
"""Spread of the logarithms of the scales at the start."""
_NO_NOISE: Final = 30.0
"""Logarithm of the standard deviation of the response over sigma that no table has."""
_ROUNDING: Final = 1e-12


def prepare(sampler: Gibbs, request: RunRequest, reason: str) -> Setup:
    """Return the sums of the table.

    Raises
    ------
    ConfigError
        If the model has no factors that cross, two are copies, or a prior is not normal.
    ModelError
        If a response is invalid, or fitted without error.
    RefusedError
        If control variates are given, which this sampler has no use for.
    """
    model: Any = request.model
    if not model.crossed:
        raise ConfigError(
            f"expected factors that cross for gibbs, found a model {model.name!r} without: make "
            "the table with several terms (1 | g) of factors of more than 300 levels, or with "
            "--group-as g=crossed; or use hmc-ecs, or hmc"
        )
    if request.control_variates is not None:
        raise RefusedError(
            "expected no control variates for gibbs, whose draws need none, found some: leave "
            "them out"
        )
    begun = time.perf_counter()
    cv = without_pass(Bound(request.dataset, model))
    priors_of(model, cv)
    table, rows = _table(request, cv)
    structure = structure_of(table)
    require_distinct(structure, model.crossed)
    if rows is None:
        _require_noise(table, model, cv.theta_star[: len(table.cross)])
    n, F = request.dataset.n_rows, len(model.crossed)
    passes = 1 + (F > 1) + (0 if rows is None else F)
    read = {"passes": passes, "rows_read": passes * n}
    read["bytes_read"] = read["rows_read"] * request.dataset.rows().row_bytes
    certificate = cv.certificate.plus(**read, seconds=time.perf_counter() - begun)
    cv = replace(cv, certificate=replace(certificate, warnings=_warnings(structure)))
    found = np.array([structure.parts, structure.largest])
    text = f"{len(table.weight):,} effects of {len(model.crossed)} factors are drawn with them"
    arrays = {"crossed_structure": found}
    return Setup(sampler, cv, None, f"{reason or NAMED}; {text}", arrays, (table, rows))


def _warnings(structure: Structure) -> tuple[str, ...]:
    if structure.parts == 1 or structure.largest > 0.95:
        return ()
    return (
        f"the table falls into {structure.parts:,} parts that share no level of the factors that "
        f"cross, the largest with {structure.largest:.1%} of the rows: effects of different parts "
        "are compared by their common distribution alone",
    )


def _table(request: RunRequest, cv: ControlVariates) -> tuple[Crossed, Rows | None]:
    """Read the table, and return its sums, and, unless these suffice, its rows.

    RefusedError if a row of 0/1 responses counts another number of times than a whole one.
    """
    dataset, stated = request.dataset, request.dataset.attributes
    kind, check = KINDS[request.model.of_a_row.name], response_check(dataset, request.model)
    sizes = np.array([each.n_groups for each in dataset.table.crossed])
    weighted = dataset.temperature != 1.0 or bool(stated.get("weight") or stated.get("trials"))
    q = dataset.n_features
    if kind == GAUSSIAN:
        centre = cv.theta_star[:q]
        return summed(lambda: pieces_of(dataset, centre, check), sizes, q, weighted), None

    def counted(X: Matrix, y: Vector, weight: Vector) -> None:
        check(X, y, weight)
        if weighted and (np.rint(weight) != weight).any():
            raise RefusedError(
                "expected weights that count trials for gibbs with 0/1 responses, found others "
                "than whole numbers: leave out the weights, or the temperature"
            )

    def pieces() -> Iterator[Piece]:
        return pieces_of(dataset, None, counted)

    table = summed(pieces, sizes, q, weighted)
    return table, ordered(pieces, table, q, stated["dtype"], bool(stated.get("offset")))


def _require_noise(table: Crossed, model: Any, centre: Vector) -> None:
    """Refuse a response that columns, alone or with the effects of a factor, fit without error."""
    q = len(table.cross)
    fitted = float(centre @ table.gram @ centre)
    left = {"its columns": (table.square, table.gram, table.cross)}
    for f, name in enumerate(model.crossed):
        own = slice(table.first[f], table.first[f + 1])
        weight = np.where(table.weight[own] > 0.0, table.weight[own], 1.0)
        means = table.response[own] / weight
        square = table.square - float(table.response[own] @ means)
        cross = table.cross - table.design[own].T @ means
        left[f"the levels of {name!r}"] = square, table.within[f * q : (f + 1) * q], cross
    for name, (square, gram, cross) in left.items():
        rest = square - float(cross @ np.linalg.lstsq(gram, cross, rcond=1e-10)[0])
        if not rest > _ROUNDING * (table.square + _ROUNDING * fitted):
            raise ModelError(
                f"{model.inner.name}: expected a response with noise, found one that {name} fit "
                "without error: sigma is 0; choose another response"
            )


def priors_of(model: Model, cv: ControlVariates) -> Scales:
    """Return the priors as a sweep takes them, of coefficients less those of theta_star.

    Raises
    ------
    ConfigError
        If the prior of a coefficient is not normal or flat, or that of a scale is joint.
    """
    table, factors = model.prior_table(cv.labels), len(model.crossed)
    kind = KINDS[model.of_a_row.name]
    q = len(cv.labels) - (kind == GAUSSIAN) - factors
    precision, shift = np.zeros((q, q)), np.zeros(q)
    for j, row in enumerate(table[:q]):
        if row[0] == JOINT_NORMAL:
            precision[j], shift[j] = row[COLUMNS : COLUMNS + q], row[3]
        elif row[0] == NORMAL:
            precision[j, j] = row[2] ** -2.0
            shift[j] = row[1] * row[2] ** -2.0
        elif row[0] != FLAT or kind != GAUSSIAN:
            flat = "" if kind != GAUSSIAN else " or flat"
            raise ConfigError(
                f"expected normal{flat} priors of coefficients for gibbs, found another of "
                f"{cv.labels[j]}: write normal(0, s)"
            )
    order = [*range(len(cv.labels) - factors, len(cv.labels)), *([q] if kind == GAUSSIAN else [])]
    scales = np.ascontiguousarray(table[order, :COLUMNS])
    if (scales[:, 0] == JOINT_NORMAL).any():
        raise ConfigError(
            "expected priors of scales by themselves for gibbs, found one with coefficients: give "
            "each its own"
        )
    if kind == GAUSSIAN:  # sampled as differences from theta_star
        shift -= precision @ cv.theta_star[:q]
    return Scales(scales, precision, shift)


def problem(sampler: Gibbs, request: RunRequest, setup: Setup) -> GibbsProblem:
    """Return what all chains share; reads the table, unless :func:`prepare` did."""
    cv, model = setup.cv, request.model
    table, rows = setup.ahead if setup.ahead is not None else _table(request, cv)
    d = cv.dim
    base = Base(
        cv.theta_star, 0.0, np.zeros(d), np.zeros((d, d)), np.eye(d), model.prior_table(cv.labels),
        model.of_a_row.constants, model.n_linear, -1, 1, 0.0, 0.0,
    )  # fmt: skip
    return GibbsProblem(
        kind=KINDS[model.of_a_row.name],
        table=table,
        rows=rows,
        priors=priors_of(model, cv),
        effect_draws=sampler.effect_draws,
        statistics=sampler.statistics,
        base=base,
        source=request.dataset.rows(),
        certain=allocate_block(0, request.dataset.n_features, 1),
        certainty_rows=np.zeros(0, np.int64),
        constrain=model.constrain,
    )


@dataclass(frozen=True)
class GibbsProblem:
    """What all chains share; see ``chains.SharedProblem``."""

    kind: int
    """``GAUSSIAN``, or one of ``augmented``."""
    table: Crossed
    rows: Rows | None
    """``None``: the table's sums suffice."""
    priors: Scales
    effect_draws: int | None
    statistics: tuple[str, ...]
    base: Base
    source: RowSource
    certain: Block
    certainty_rows: Index
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    design: None = None

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> GibbsChain:
        """Return chain ``chain`` of the run with this seed."""
        return GibbsChain(self, seed, chain, batch_iterations=batch_iterations)


def kept_draws(levels: int, wanted: int | None) -> int:
    """Return how many draws of so many effects a chain has room for, an even number."""
    if wanted is not None:
        return wanted + wanted % 2
    return max(min(KEPT_BYTES // (4 * levels), MOST_KEPT) // 2 * 2, LEAST_KEPT)


class GibbsChain(Chain):
    """One chain: coefficients, scales and effects, and what it keeps of the effects."""

    def __init__(
        self, problem: GibbsProblem, seed: int, chain: int, *, batch_iterations: int
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        if problem.rows is not None:
            compile_ahead(augmented.__name__)
        self.problem, self.statistics = problem, problem.statistics
        table = problem.table
        F, L, q = len(table.first) - 1, len(table.weight), len(table.cross)
        self._state = State(
            np.zeros(q), np.zeros(F + 1), np.zeros(L), np.zeros(F), np.zeros((2, L))
        )
        self._count = 0
        """Draws after warm-up."""
        self._moments = np.zeros((L, 4))
        self._stride = 1
        self._kept = np.zeros((kept_draws(L, problem.effect_draws), L), np.float32)

    def initialise(self) -> None:
        """Draw scales around those of theta_star; there are no effects yet."""
        problem, state = self.problem, self._state
        F, q, start = len(state.spread), len(state.beta), problem.base.theta_star
        spread = _DISPERSED * self._kernel_rng.standard_normal(F + 1)
        state.log_scale[:F] = start[-F:] + spread[:F]
        if problem.kind == GAUSSIAN:
            state.log_scale[F] = start[q] + spread[F]
        else:
            state.beta[:] = start[:q]

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``.

        ``effects`` (L,) are the last ones, ``moments`` (L, 4) those of all draws, see
        ``sweep.add_moments``, ``kept`` (draws, L) some of the draws.
        """
        state = self._state
        arrays: dict[str, NDArray[Any]] = {
            "beta": state.beta.copy(),
            "log_scale": state.log_scale.copy(),
            "effects": state.effects.copy(),
            "moments": self._moments.copy(),
            "kept": self._kept[: self._count // self._stride].copy(),
        }
        meta: dict[str, Any] = {
            "iteration": self.iteration,
            "rows_gathered": self.rows_gathered,
            "kernel_rng": streams.get_state(self._kernel_rng),
            "count": self._count,
            "stride": self._stride,
        }
        return arrays, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit."""
        state = self._state
        state.beta[:], state.log_scale[:] = arrays["beta"], arrays["log_scale"]
        state.effects[:], self._moments[:] = arrays["effects"], arrays["moments"]
        self.iteration, self.rows_gathered = int(meta["iteration"]), int(meta["rows_gathered"])
        self._kernel_rng = streams.from_state(meta["kernel_rng"])
        self._count, self._stride = int(meta["count"]), int(meta["stride"])
        self._kept[: len(arrays["kept"])] = arrays["kept"]

    def _batch(self) -> int:
        if self._seconds_per_iteration == 0.0:
            return min(self.batch_iterations, 8)
        return max(min(self.batch_iterations, int(BATCH_SECONDS / self._seconds_per_iteration)), 1)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        """Run as many iterations as ``theta`` has rows; see ``Chain``."""
        problem, state = self.problem, self._state
        table, base = problem.table, problem.base
        q, F, n = len(table.cross), len(table.first) - 1, int(table.rows)
        slope = np.zeros(len(base.theta_star))
        gaussian = problem.kind == GAUSSIAN
        least, centre = -math.inf, np.zeros(q)
        if gaussian:
            least = 0.5 * math.log(table.square / table.total) - _NO_NOISE
            centre = base.theta_star[:q]
        for out, row in zip(theta, statistics, strict=True):
            try:
                if problem.rows is None:
                    value = sweep(table, problem.priors, state, self._kernel_rng)
                else:
                    value = augmented.sweep(
                        table, *problem.rows, problem.kind, problem.priors, state, self._kernel_rng
                    )
            except np.linalg.LinAlgError:
                raise ModelError(
                    "expected columns that the rows tell apart, found some that others add up to: "
                    "leave one out, or give coefficients proper priors"
                ) from None
            if not state.log_scale[F] > least:
                raise ModelError(
                    "expected a response with noise, found one that columns and effects fit "
                    "without error: sigma goes to 0; leave a factor out"
                )
            out[:q], out[-F:] = centre + state.beta, state.log_scale[:F]
            if gaussian:
                out[q] = state.log_scale[F]
            row[0] = value + log_prior(out, base.prior, slope)
            row[1] = n
            if not warmup:
                self._keep(state.effects)
        self.iteration += len(theta)
        self.rows_gathered += n * len(theta)

    def _keep(self, effects: Vector) -> None:
        """Add a draw of the effects to their moments, and to those that are kept."""
        add_moments(float(self._count), effects, self._moments)
        self._count += 1
        if self._count % self._stride:
            return
        place = self._count // self._stride - 1
        if place == len(self._kept):
            self._kept[: place // 2] = self._kept[1::2]
            self._stride *= 2
            if self._count % self._stride:
                return
            place = self._count // self._stride - 1
        self._kept[place] = effects
