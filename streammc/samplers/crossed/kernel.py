"""Setup and chains of ``gibbs``: what all chains share, one chain, and the effects it keeps.

Effects have moments over all draws, and some of their draws. Of the draws those with the numbers
``s - 1``, ``2 s - 1``, .. are kept, where the stride ``s`` doubles whenever there is no more room:
the same ones whenever a chain stops, and spread over it.
"""

from __future__ import annotations

import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.control_variates.bound import Bound
from streammc.control_variates.certify import without_pass
from streammc.errors import (
    ConfigError,
    IdentityError,
    ModelError,
    OutOfMemoryError,
    RefusedError,
    StoreError,
)
from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.target import Base
from streammc.models.glm.gaussian_identity import Gaussian
from streammc.models.responses import response_check
from streammc.models.table_scale import turn_of_effects
from streammc.numerics.dispatchers import compile_ahead
from streammc.numerics.prior import COLUMNS, FLAT, JOINT_NORMAL, NORMAL, log_prior
from streammc.numerics.process_limits import available_memory
from streammc.protocols import Index, Matrix, RowSource, Vector
from streammc.samplers.common.chains import BATCH_SECONDS, Chain
from streammc.samplers.common.preparation import size_text
from streammc.samplers.common.sampler import NAMED, RunRequest, Setup
from streammc.samplers.crossed import likelihoods
from streammc.samplers.crossed.likelihoods import (
    Family,
    Rows,
    allocate_walk,
    constants_of,
    steps_of,
)
from streammc.samplers.crossed.sweep import Crossed, Scales, State, add_moments, sweep
from streammc.samplers.crossed.table import (
    Piece,
    Structure,
    Term,
    halved,
    ordered,
    pieces_of,
    require_distinct,
    structure_of,
    summed,
)
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.samplers.crossed.options import Gibbs

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
KEPT_BYTES: Final = 48 << 20
"""Memory of the draws of the effects that a chain keeps."""
MOST_KEPT: Final = 250
LEAST_KEPT: Final = 8
_CHAIN_BYTES: Final = 160
"""Memory of an effect in a chain: position and scratch, four moments, and the state that is written
of them, twice. Of 1e7 effects with 8 draws each four chains took 10.2 GB; this says 10.6."""
_DRAW_BYTES: Final = 12
"""Memory of a draw of an effect that is kept, likewise."""
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
        If the model has no factors that cross, two are copies, or no draw is made from a prior.
    ModelError
        If a response is invalid, or fitted without error.
    OutOfMemoryError
        If the effects of so many levels need more memory than there is.
    RefusedError
        If control variates are given, which this sampler has no use for.
    """
    model: Any = request.model
    if not model.crossed:
        raise ConfigError(
            f"expected factors that cross for gibbs, found a model {model.name!r} without: make "
            "the table with several terms (1 | g) of factors of more than 300 levels, with "
            "several slopes, (1 + x + z | g), or with --group-as g=crossed; or use hmc-ecs, or hmc"
        )
    if request.control_variates is not None:
        raise RefusedError(
            "expected no control variates for gibbs, whose draws need none, found some: leave "
            "them out"
        )
    begun = time.perf_counter()
    cv = without_pass(Bound(request.dataset, model))
    _check_priors(model, cv)
    _require_memory(sampler, request)
    if sampler.start_from is not None:
        earlier_states(sampler.start_from, request, cv.labels)
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
    found = np.array([structure.parts, structure.largest, table.effect[-1]])
    text = f"{table.effect[-1]:,} effects of {len(model.crossed)} factors are drawn with them"
    arrays = {"crossed_structure": found}
    return Setup(sampler, cv, None, f"{reason or NAMED}; {text}", arrays, (table, rows))


def _require_memory(sampler: Gibbs, request: RunRequest) -> None:
    """Refuse more effects than there is memory for: sums by level, and positions of all chains."""
    model: Any = request.model
    crossed = request.dataset.table.crossed
    sizes = [each.n_groups * len(k) for each, k in zip(crossed, model.effects, strict=True)]
    widest, effects = max(map(len, model.effects)), sum(sizes)
    a_chain = _CHAIN_BYTES + _DRAW_BYTES * kept_draws(effects, sampler.effect_draws)
    sums = 8 * (request.dataset.n_features + widest + 2)
    needed, free = effects * (request.chains * a_chain + sums), available_memory()
    if needed > free:
        raise OutOfMemoryError(
            f"expected {size_text(needed)} of memory for {effects:,} effects in {request.chains} "
            f"chains, found {size_text(free)} available: use fewer --chains, or put the smallest "
            "levels together"
        )


def _warnings(structure: Structure) -> tuple[str, ...]:
    if structure.parts == 1 or structure.largest > 0.95:
        return ()
    return (
        f"the table falls into {structure.parts:,} parts that share no level of the factors that "
        f"cross, the largest with {structure.largest:.1%} of the rows: effects of different parts "
        "are compared by their common distribution alone",
    )


def _table(request: RunRequest, cv: ControlVariates) -> tuple[Crossed, Rows | None]:
    """Read the table, and return its sums, and, unless these suffice, its rows."""
    dataset, stated = request.dataset, request.dataset.attributes
    check = response_check(dataset, request.model)
    sizes = np.array([each.n_groups for each in dataset.table.crossed])
    weighted = dataset.temperature != 1.0 or bool(stated.get("weight") or stated.get("trials"))
    model: Any = request.model
    q, terms = dataset.n_features, [Term(*each) for each in model.columns_of_effects]
    if of_sums(request.model):
        centre = cv.theta_star[:q]
        return summed(lambda: pieces_of(dataset, centre, check), sizes, q, weighted, terms), None

    def pieces() -> Iterator[Piece]:
        return pieces_of(dataset, None, check)

    table = summed(pieces, sizes, q, weighted, terms, False)
    return table, ordered(pieces, table, q, stated["dtype"], bool(stated.get("offset")))


def _require_noise(table: Crossed, model: Any, centre: Vector) -> None:
    """Refuse a response that columns, alone or with the effects of a factor, fit without error."""
    q = len(table.cross)
    fitted = float(centre @ table.gram @ centre)
    left = {"its columns": (table.square, table.gram, table.cross)}
    for f, name in enumerate(model.crossed):
        own = slice(table.effect[f], table.effect[f + 1])
        half = halved(table, f, np.column_stack([table.response[own], table.design[own]]))
        square = table.square - float(half[:, 0] @ half[:, 0])
        cross = table.cross - half[:, 1:].T @ half[:, 0]
        left[f"the levels of {name!r}"] = square, table.within[f * q : (f + 1) * q], cross
    for name, (square, gram, cross) in left.items():
        rest = square - float(cross @ np.linalg.lstsq(gram, cross, rcond=1e-10)[0])
        if not rest > _ROUNDING * (table.square + _ROUNDING * fitted):
            raise ModelError(
                f"{model.inner.name}: expected a response with noise, found one that {name} fit "
                "without error: sigma is 0; choose another response"
            )


def of_sums(model: Any) -> bool:
    """Return whether sums by level are all that a sweep needs of the rows.

    They are not of another model with the name of the Gaussian one.
    """
    return type(model.of_a_row) is Gaussian


def _check_priors(model: Any, cv: ControlVariates) -> None:
    """Refuse priors of which no draw is made.

    Raises
    ------
    ConfigError
        If the prior of a coefficient is flat where columns may separate the responses; of a
        Gaussian response, if it is not normal or flat, or that of a scale is joint.
    """
    kinds = model.prior_table(cv.labels)[:, 0]
    if (kinds[len(kinds) - model.n_covariance :] == JOINT_NORMAL).any():
        raise ConfigError(
            "expected priors of the scales of effects by themselves for gibbs, found one with "
            "other parameters: give each its own"
        )
    if not of_sums(model):
        flat = np.flatnonzero(kinds == FLAT)
        if len(flat) and model.inner.separable:
            raise ConfigError(
                f"expected proper priors of coefficients for {model.inner.name!r} with factors "
                f"that cross, found a flat one of {cv.labels[flat[0]]}: write normal(0, s)"
            )
        return
    q = len(kinds) - 1 - model.n_covariance
    for label, kind in zip(cv.labels, kinds[:q], strict=False):
        if kind not in (FLAT, NORMAL, JOINT_NORMAL):
            raise ConfigError(
                f"expected normal or flat priors of coefficients of a gaussian response with "
                f"factors that cross, found another of {label}: write normal(0, s)"
            )
    if kinds[q] == JOINT_NORMAL:
        raise ConfigError(
            "expected a prior of sigma by itself for gibbs, found one with coefficients: give it "
            "its own"
        )


def earlier_states(path: str, request: RunRequest, labels: Sequence[str]) -> list[Arrays]:
    """Return the last parameters and state of each chain of an earlier run, of all levels now.

    Levels that have come since follow those of each factor that it knew, with effects of 0.

    Raises
    ------
    ConfigError
        If it is no finished run of gibbs, or of another model.
    IdentityError
        If it is of another store.
    """
    run, model = RunDirectory.open(path), request.model
    table: Any = request.dataset.table
    same = run.identity["store"] == table.fingerprint
    before = table if same else table.earlier(run.identity["store"])
    if before is None:
        raise IdentityError(
            f"expected a run of the store {table.address!r} to start from, now or before rows were "
            f"appended, found one of another store at {path!r}: leave out start_from"
        )
    found = run.checkpoint() if run.finished() else None
    if found is None or "chain0_effects" not in found[0]:
        what = "one of another sampler" if found else "one that is not finished"
        raise ConfigError(
            f"expected a finished run of gibbs to start from, found {what} at {path!r}: leave out "
            "start_from"
        )
    described = [{**each, "prior": None} for each in (run.identity["model"], model.describe())]
    if described[0] != described[1] or run.labels != tuple(labels):
        raise ConfigError(
            f"expected a run of the same model to start from, found one of another at {path!r}: "
            "leave out start_from"
        )
    terms: Any = model
    widths = [len(each) for each in terms.effects]
    known = [k * each.n_groups for k, each in zip(widths, before.crossed, strict=True)]
    sizes = [k * each.n_groups for k, each in zip(widths, table.crossed, strict=True)]
    last = run.draws_matrix()[:, -1]
    states: list[Arrays] = []
    for chain in range(run.chains):
        start = f"chain{chain}_"
        state = {
            name[len(start) :]: each
            for name, each in found[0].items()
            if name.startswith(start) and name[len(start) :] not in ("moments", "kept")
        }
        parts = np.split(state["effects"], np.cumsum(known)[:-1])
        padded = [np.append(u, np.zeros(n - len(u))) for u, n in zip(parts, sizes, strict=True)]
        states.append(state | {"effects": np.concatenate(padded), "last": last[chain]})
    return states


def scales_of(model: Any, cv: ControlVariates) -> Scales:
    """Return the priors of a Gaussian response, of coefficients less those of theta_star."""
    table = model.prior_table(cv.labels)
    q = len(cv.labels) - 1 - model.n_covariance
    precision, shift = np.zeros((q, q)), np.zeros(q)
    for j, row in enumerate(table[:q]):
        if row[0] == JOINT_NORMAL:
            precision[j], shift[j] = row[COLUMNS : COLUMNS + q], row[3]
        elif row[0] == NORMAL:
            precision[j, j] = row[2] ** -2.0
            shift[j] = row[1] * row[2] ** -2.0
    order = [*range(q + 1, len(cv.labels)), q]
    scales = np.ascontiguousarray(table[order, :COLUMNS])
    return Scales(scales, precision, shift - precision @ cv.theta_star[:q])


def problem(sampler: Gibbs, request: RunRequest, setup: Setup) -> GibbsProblem:
    """Return what all chains share; reads the table, unless :func:`prepare` did."""
    cv, model = setup.cv, request.model
    untyped: Any = model
    table, rows = setup.ahead if setup.ahead is not None else _table(request, cv)
    d = cv.dim
    base = Base(
        cv.theta_star, 0.0, np.zeros(d), np.zeros((d, d)), np.eye(d), model.prior_table(cv.labels),
        model.of_a_row.constants, model.n_linear, -1, 1, 0.0, 0.0,
    )  # fmt: skip
    shared: dict[str, Any] = {
        "table": table,
        "effect_draws": sampler.effect_draws,
        "statistics": sampler.statistics,
        "earlier": None
        if sampler.start_from is None
        else cache(partial(earlier_states, sampler.start_from, request, cv.labels)),
        "turns": tuple(
            turn_of_effects(each, request.dataset.attributes) for each in untyped.effects
        ),
        "base": base,
        "source": request.dataset.rows(),
        "certain": allocate_block(0, request.dataset.n_features, 1),
        "certainty_rows": np.zeros(0, np.int64),
        "constrain": model.constrain,
    }
    if rows is None:
        return SumsProblem(priors=scales_of(model, cv), **shared)
    inner: Any = model.of_a_row
    q = request.dataset.n_features
    family = Family(
        q, inner.n_scalar, inner.constants, base.prior, constants_of(table, rows, q),
        steps_of(table, q + inner.n_scalar),
    )  # fmt: skip
    return RowsProblem(link=inner.link, rows=rows, family=family, **shared)


@dataclass(frozen=True, kw_only=True)
class GibbsProblem(ABC):
    """What all chains share; see ``chains.SharedProblem``."""

    table: Crossed
    effect_draws: int | None
    earlier: Callable[[], list[Arrays]] | None
    """Returns the states of the chains of the run to start from, if there is one."""
    statistics: tuple[str, ...]
    turns: tuple[Matrix, ...]
    """Of each factor what turns the effects of a level to the table's scale (k, k)."""
    base: Base
    source: RowSource
    certain: Block
    certainty_rows: Index
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    design: None = None

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> GibbsChain:
        """Return chain ``chain`` of the run with this seed."""
        return GibbsChain(self, seed, chain, batch_iterations=batch_iterations)

    @abstractmethod
    def position(self) -> Position:
        """Return the position of a chain, before its start."""


class Position(ABC):
    """A position of a chain: parameters and effects."""

    effects: Vector
    """(E,)."""

    @abstractmethod
    def start(self, theta: Vector, rng: np.random.Generator) -> None:
        """Begin with parameters (d,), and effects near none, or what they are given these."""

    @abstractmethod
    def follow(self, last: Vector, arrays: Arrays) -> None:
        """Begin with the last parameters (d,) of a chain of an earlier run, and its arrays."""

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> float:
        """Draw everything; return the log density of responses and effects but for the prior."""

    def learn(self) -> None:  # noqa: B027
        """Let the last sweep, one of warm-up, count for how the next ones move."""

    @abstractmethod
    def write(self, theta: Vector) -> None:
        """Write the parameters (d,)."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the position, for :meth:`restore`."""

    def restore(self, arrays: Arrays) -> None:
        """Continue from :meth:`arrays`.

        Raises
        ------
        StoreError
            If they are of another version, which kept others.
        """
        for name, array in self.arrays().items():
            if name not in arrays:
                raise StoreError(
                    f"expected {name!r} in the state of a run of gibbs, found none: another "
                    "version of streammc made it; sample anew, into another path"
                )
            array[:] = arrays[name]


@dataclass(frozen=True, kw_only=True)
class SumsProblem(GibbsProblem):
    """A Gaussian response: sums by level suffice."""

    priors: Scales

    def position(self) -> Position:
        """Return a position; see ``GibbsProblem``."""
        return SumsPosition(self)


class SumsPosition(Position):
    """A position by ``sweep``: coefficients are less those of theta_star."""

    def __init__(self, problem: SumsProblem) -> None:
        table = problem.table
        F, E, q = len(table.first) - 1, int(table.effect[-1]), len(table.cross)
        self._problem = problem
        self._state = State(
            np.zeros(q), np.zeros(int(table.parameter[-1]) + 1), np.zeros(E), np.zeros(F),
            np.zeros((2, E)), np.zeros(E),
        )  # fmt: skip
        self.effects = self._state.effects
        self._least = 0.5 * math.log(table.square / table.total) - _NO_NOISE

    def start(self, theta: Vector, rng: np.random.Generator) -> None:
        """Begin with these scales."""
        q = len(self._state.beta)
        self._state.scales[:] = np.append(theta[q + 1 :], theta[q])

    def follow(self, last: Vector, arrays: Arrays) -> None:
        """Begin with the last parameters and arrays of a chain; see ``Position``."""
        q = len(self._state.beta)
        beta = last[:q] - self._problem.base.theta_star[:q]
        self.restore({**arrays, "beta": beta})

    def sweep(self, rng: np.random.Generator) -> float:
        """Draw everything; ModelError if there is no noise, or columns are not told apart."""
        try:
            value: float = sweep(self._problem.table, self._problem.priors, self._state, rng)
        except np.linalg.LinAlgError:
            raise ModelError(
                "expected columns that the rows tell apart, found some that others add up to: "
                "leave one out, or give coefficients proper priors"
            ) from None
        if not self._state.scales[-1] > self._least:
            raise ModelError(
                "expected a response with noise, found one that columns and effects fit "
                "without error: sigma goes to 0; leave a factor out"
            )
        return value

    def write(self, theta: Vector) -> None:
        """Write the parameters (d,)."""
        q, scales = len(self._state.beta), self._state.scales
        theta[:q] = self._problem.base.theta_star[:q] + self._state.beta
        theta[q], theta[q + 1 :] = scales[-1], scales[:-1]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return coefficients, parameters of the covariances and effects."""
        state = self._state
        return {"beta": state.beta, "scales": state.scales, "effects": state.effects}


@dataclass(frozen=True, kw_only=True)
class RowsProblem(GibbsProblem):
    """Any other response: every sweep reads the rows."""

    link: Any
    rows: Rows
    family: Family

    def position(self) -> Position:
        """Return a position; see ``GibbsProblem``."""
        compile_ahead(likelihoods.__name__)
        return RowsPosition(self)


class RowsPosition(Position):
    """A position by ``likelihoods``."""

    def __init__(self, problem: RowsProblem) -> None:
        self._problem = problem
        self._walk = allocate_walk(problem.family, problem.table)
        self.effects = self._walk.effects

    def start(self, theta: Vector, rng: np.random.Generator) -> None:
        """Begin with these parameters, and go uphill in all but the scales of effects.

        Where there may be several hills, again from effects that are drawn.
        """
        self._walk.theta[:] = theta
        self._climb(rng)
        if not likelihoods.is_concave(self._walk):
            likelihoods.disperse(self._problem.table, self._walk, rng)
            self._climb(rng)

    def _climb(self, rng: np.random.Generator) -> None:
        for _ in range(likelihoods.CLIMBS):
            self._sweep(True, rng)

    def follow(self, last: Vector, arrays: Arrays) -> None:
        """Begin with the arrays of a chain; see ``Position``."""
        self.restore(arrays)

    def sweep(self, rng: np.random.Generator) -> float:
        """Draw everything; see ``Position``."""
        return self._sweep(False, rng)

    def _sweep(self, climb: bool, rng: np.random.Generator) -> float:
        problem = self._problem
        shared = problem.link, problem.family, problem.table, problem.rows
        value: float = likelihoods.sweep(*shared, self._walk, climb, rng)
        return value

    def learn(self) -> None:
        """Let the last sweep count; see ``Position``."""
        if not likelihoods.is_concave(self._walk):
            self._walk.afar[:] = likelihoods.AFAR
        likelihoods.learn(self._problem.table, self._walk)

    def write(self, theta: Vector) -> None:
        """Write the parameters (d,)."""
        theta[:] = self._walk.theta

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return parameters and effects, and what warm-up has learnt."""
        walk = self._walk
        learnt = {"pull": walk.pull, "chance": walk.chance, "afar": walk.afar}
        return {"theta": walk.theta, "effects": walk.effects, **learnt}

    def restore(self, arrays: Arrays) -> None:
        """Continue from :meth:`arrays`."""
        super().restore(arrays)
        likelihoods.set_powers(self._problem.table, self._walk)


def effects_r_hat(run: RunDirectory) -> Vector | None:
    """Return R-hat (E,) of each effect, from its moments in every chain; ``None`` of one chain.

    That of Gelman and Rubin 1992: of n draws the mean of the variances within chains is W, the
    variance of the means of the chains is B; R-hat is sqrt((n - 1) / n + B / W).
    """
    found = run.checkpoint("_moments")
    if found is None or run.chains == 1:
        return None
    arrays, meta = found
    n = min(each["count"] for each in meta["chains"])
    if n < 2:
        return None
    moments = [arrays[f"chain{chain}_moments"] for chain in range(run.chains)]
    between = np.var([each[:, 0] for each in moments], axis=0, ddof=1)
    within = sum(each[:, 1] for each in moments) / (run.chains * (n - 1))
    shares = np.divide(between, within, out=np.zeros_like(between), where=within > 0.0)
    return np.asarray(np.sqrt((n - 1) / n + shares))


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
        self.problem, self.statistics, self._chain = problem, problem.statistics, chain
        self._position = problem.position()
        E = len(self._position.effects)
        self._count = 0
        """Draws after warm-up."""
        self._moments = np.zeros((E, 4))
        self._stride = 1
        self._kept = np.zeros((kept_draws(E, problem.effect_draws), E), np.float32)

    def initialise(self) -> None:
        """Draw scales of the effects around those of theta_star; there are no effects yet.

        Or continue a chain of an earlier run, each of them in turn.
        """
        if self.problem.earlier is not None:
            states = self.problem.earlier()
            state = states[self._chain % len(states)]
            self._position.follow(state["last"], state)
            return
        theta, table = self.problem.base.theta_star.copy(), self.problem.table
        linear = len(theta) - int(table.parameter[-1])
        at = steps_of(table, linear)[linear:]
        theta[at] += _DISPERSED * self._kernel_rng.standard_normal(len(at))
        self._position.start(theta, self._kernel_rng)

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``.

        ``effects`` (E,) are the last ones, ``moments`` (E, 4) those of all draws, see
        ``sweep.add_moments``, on the table's scale, ``kept`` (draws, E) some of the draws.
        """
        position = self._position.arrays()
        arrays: dict[str, NDArray[Any]] = {
            **{name: array.copy() for name, array in position.items()},
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
        self._position.restore(arrays)
        self._moments[:] = arrays["moments"]
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
        position, n = self._position, int(self.problem.table.rows)
        prior, slope = self.problem.base.prior, np.zeros(theta.shape[1])
        for out, row in zip(theta, statistics, strict=True):
            value = position.sweep(self._kernel_rng)
            position.write(out)
            row[0] = value + log_prior(out, prior, slope)
            row[1] = n
            if warmup:
                position.learn()
            else:
                self._keep(position.effects)
        self.iteration += len(theta)
        self.rows_gathered += n * len(theta)

    def _turned(self, effects: Vector) -> Vector:
        """Return effects (E,) on the table's scale."""
        if all(len(turn) == 1 and turn[0, 0] == 1.0 for turn in self.problem.turns):
            return effects
        bounds = itertools.pairwise(self.problem.table.effect.tolist())
        return np.concatenate([
            np.einsum("lc,dc->ld", effects[low:high].reshape(-1, len(turn)), turn).ravel()
            for (low, high), turn in zip(bounds, self.problem.turns, strict=True)
        ])  # fmt: skip

    def _keep(self, effects: Vector) -> None:
        """Add a draw of the effects to their moments, and to those that are kept."""
        add_moments(float(self._count), self._turned(effects), self._moments)
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
