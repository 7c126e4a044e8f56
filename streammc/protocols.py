"""Interfaces between the layers of the package: protocols and types, without code.

Every likelihood of a row is a function of ``p`` predictors. The first ``n_linear``
are linear, ``eta[a, i] = x_i . theta[a q : (a + 1) q]`` (plus the offset of the row
for ``a == 0``), with ``q`` features; the other ``n_scalar`` are parameters that all
rows share, ``eta[n_linear + s, i] = theta[n_linear q + s]``. A generalised linear
model has one linear predictor, a scale parameter adds a scalar one, and a model
without linear structure has only scalar ones. The compiled *link* turns
predictors into log-likelihoods and their first two derivatives, so that a Taylor
expansion costs ``1 + p + p(p+1)/2`` numbers a row and never a ``d x d`` matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from streammc.group_table import CrossedFactor, GroupTable

# The annotation is the number of dimensions, which ``numerics.jit`` reads.
Vector = Annotated[NDArray[np.float64], 1]
Matrix = Annotated[NDArray[np.float64], 2]
Index = Annotated[NDArray[np.int64], 1]

Phases = Callable[[str, int, int | None, Mapping[str, Any]], None]
"""``progress(phase, done, total, facts)``; ``total`` is ``None`` where it is not known."""

T = TypeVar("T")


class Rows(NamedTuple):
    """Rows in memory, float64, owned by the caller."""

    X: Matrix
    """(m, q) design matrix."""
    y: Vector
    """(m,) response."""
    offset: Vector
    """(m,) offset of the first linear predictor; zeros if the store has none."""
    weight: Vector
    """(m,) weight of the log-likelihood of each row; 0 for padding."""


class ColumnTerm(NamedTuple):
    """What a column of the design is: ``times`` a product of levels of factors and numbers."""

    levels: tuple[tuple[str, int], ...]
    """Factors, each with the number of its level: the column is 0 in rows of other levels."""
    numbers: tuple[str, ...]
    """Names of the numbers, sorted; with no levels and no numbers it is constant."""
    times: float


class Coding(NamedTuple):
    """What the columns of a design are, as functions of a row of the table."""

    columns: tuple[ColumnTerm, ...]
    sizes: Mapping[str, int]
    """Number of levels of each factor."""
    contrasts: Mapping[str, Mapping[str, Vector]]
    """Of each factor in sum, Helmert or polynomial coding: name -> values at its n levels (n,).

    The names, n - 1 of them, are among the numbers of the columns.
    """
    mean: Vector
    """(q,) subtracted from the columns of the table."""
    scale: Vector
    """(q,) their divisors."""


class RowBlock(NamedTuple):
    """Contiguous rows for a task of a full pass, with ``X`` in the dtype of the store.

    The arrays belong to the reader, which overwrites them with the next rows.
    """

    index: int  # type: ignore[assignment]
    """Index of the block: the key of the fixed combination tree."""
    start: int
    """First row."""
    X: Any
    """(m, q) float32 or float64; see ``PassTask`` for designs with codes."""
    y: Vector
    offset: Vector
    weight: Vector


class RowSource(Protocol):
    """Source of the rows of a data set, for samplers."""

    n_rows: int
    n_features: int
    row_bytes: int
    """Bytes of one row on disk, in all arrays."""

    @property
    def columns(self) -> Any:
        """Return the ``numerics.coded_matrix.CodedColumns`` of a design with codes, or ``None``."""

    @property
    def codes(self) -> NDArray[Any] | None:
        """Return the codes (n, K) of a mapped design, or ``None``."""

    def gather(self, starts: Index, unit_rows: int, out: Rows) -> None:
        """Copy the runs ``[start, start + unit_rows)`` into ``out``, one after the other.

        Rows at or past ``n_rows`` become zeros with weight 0. ``out`` has
        ``len(starts) * unit_rows`` rows. Releases the GIL; safe from many threads.
        """

    def will_need(self, starts: Index, unit_rows: int) -> None:
        """Tell the operating system that these runs are about to be gathered."""


class PassTask(Protocol, Generic[T]):
    """A reduction over all rows; ``map`` and ``combine`` must be picklable and pure."""

    @property
    def takes_codes(self) -> bool:
        """Return whether designs with codes come as ``numerics.coded_matrix.CodedMatrix``.

        Their pieces are chunks. Of other designs every column comes, in pieces of a few megabytes.
        """
        return False

    def map(self, block: RowBlock) -> T:
        """Reduce contiguous rows: a block, or a piece of one; pieces are combined in order."""

    def combine(self, left: T, right: T) -> T:
        """Merge the results of two neighbours; ``left`` is that of the earlier rows."""

    def asked_next(self, result: T) -> Index:
        """Return the rows (k,) of a result that are asked for next.

        A table that is only read in order keeps them, and saves a read.
        """
        return np.empty(0, np.int64)


@runtime_checkable
class PieceTask(PassTask[T], Protocol[T]):
    """A reduction with a cheaper way than ``combine`` to merge the pieces of a block."""

    def map_pieces(self, pieces: Iterator[RowBlock]) -> T:
        """Reduce one block given in pieces; equal to combining ``map`` of every piece, in order."""


class Dataset(Protocol):
    """A table for samplers and full passes: a store, arrays in memory, or a view of one.

    Defaults of a table are in ``stores.data_set.RowTable``; a view (``likelihood.data_views.View``)
    hands on those of its table.
    """

    n_rows: int
    n_features: int
    feature_names: tuple[str, ...]
    response: str | None
    fingerprint: str
    """Digest of the table, the same at every temperature and in units of groups."""
    address: str
    """Path of the store; ``"memory"`` for arrays."""
    attributes: Mapping[str, Any]
    """The group attribute ``streammc``: standardisation, shuffle, sources."""
    unit_name: str
    """``row``, or ``group`` where a row of the data set is a group of rows of the table."""
    unit_offset: Index | None
    """(n_rows + 1,) first row of the table of each group; ``None`` where units are rows."""
    temperature: float
    """T: every row counts 1 / T times."""
    sequential: bool
    """Whether rows are only read in their order: a row out of it costs a read of all."""

    @property
    def table(self) -> Dataset:
        """The data set with its own rows: this one, or that under a view."""

    @property
    def units(self) -> Dataset:
        """The same rows or groups at temperature 1."""

    @property
    def groups(self) -> GroupTable | None:
        """The groups of the rows of the table, or ``None``."""

    def rows(self) -> RowSource:
        """Return the row source; cheap after the first call."""

    def reduce(
        self,
        task: PassTask[T],
        *,
        scheduler: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> T:
        """Run ``task`` over every row once, in a fixed combination tree.

        The result does not depend on the number of threads or workers, bit for bit.
        ``scheduler``: ``None`` (local threads), ``"sync"``, an integer (that many
        local threads), an address ``tcp://...`` or a ``distributed.Client``.
        ``progress(done, total)`` is called per block.
        """

    def block_rows(self) -> int:
        """Return the number of rows of a block of :meth:`reduce`."""

    def piece_rows(self) -> int:
        """Return the number of rows of a piece of a block; the last piece may be shorter."""

    def row_ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the ids of rows ``start`` to ``stop`` (m,), the keys to join predictions with.

        int64, or UTF-8 texts as bytes; ``None`` if rows were shuffled and no ids kept.
        """

    def covariate(self, name: str) -> tuple[Vector, float]:
        """Return ``(a, c)`` with ``x_i . a + c`` the column ``name`` on the table's scale."""

    def row_groups(self, start: int = 0, stop: int | None = None) -> NDArray[Any] | None:
        """Return the labels (m,) of the groups of rows of the table; ``None`` without groups."""

    @property
    def crossed(self) -> Sequence[CrossedFactor]:
        """Return the factors that cross; empty: none."""

    def row_levels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint32]:
        """Return the levels (m, F), from 0, of the factors that cross, of rows of the table."""

    def coding(self) -> Coding | None:
        """Return what the design columns are as functions of a row; ``None`` if that is unknown."""

    def references(self) -> dict[str, list[str]]:
        """Return the reference levels of each design column that compares a level with them."""

    def only_together(self) -> list[str]:
        """Return the design columns that cannot change alone."""

    def earlier(self, fingerprint: str) -> Dataset | None:
        """Return the table as it was before rows were appended; ``None`` if it never was that."""

    def stamps(self) -> Index:
        """Return (objects, 3) size, modification time in ns and inode; (0, 3) in memory."""

    def recheck(self, stamps: Index) -> None:
        """Raise StoreError if an object that changed since ``stamps`` fails its checksum."""


class Prior(Protocol):
    """A prior density over the parameters, evaluated by ``numerics.prior``."""

    def table(
        self,
        labels: Sequence[str],
        positive: Sequence[int] = (),
        defaults: Mapping[str, Any] = ...,
    ) -> Matrix:
        """Return the (d, 5) table ``kind, location, scale, shape, constant``, a row per label.

        Of jointly normal parameters it is (d, 5 + d), see ``numerics.prior``.
        ``positive`` marks scale parameters, sampled as their logarithms; 2 marks correlations,
        sampled as their artanh. The Jacobian is part of the density. Empty means none.
        ``defaults`` are the priors of the model's own parameters that are not named, by label.
        """

    def describe(self) -> dict[str, Any]:
        """Return a JSON description of the prior; it is part of every digest."""


class Model(Protocol):
    """A likelihood family with its prior."""

    name: str
    n_linear: int
    n_scalar: int
    prior: Prior

    @property
    def link(self) -> Any:
        """Return the compiled link, of type ``numerics.jit.LINK_TYPE``.

        ``link(eta (p, m), X (q, m), y (m,), constants (c,), order,
        out (1 + p + p(p+1)/2, m))`` writes the log-likelihood, normalised, into
        ``out[0]``; for ``order >= 1`` its ``p`` derivatives into ``out[1 : 1 + p]``;
        for ``order == 2`` the upper triangle of the Hessian, row by row, into the
        rest. ``X`` is the design with its rows along the second axis; a generalised
        linear model does not use it.
        """

    @property
    def constants(self) -> Vector:
        """Return (c,) constants that the link needs, such as options of the model."""

    @property
    def exact_sums(self) -> Any:
        """Return the compiled log-likelihood in terms of its Taylor sums, or ``None``.

        Of type ``numerics.jit.SUMS_TYPE``, for likelihoods with sufficient
        statistics: ``f(log_lik, gradient (d,), hessian (d, d), theta_star (d,),
        delta (d,), out (d,))`` returns the exact log-likelihood of all rows at
        ``theta_star + delta`` and writes its gradient.
        """

    @property
    def third_derivative(self) -> Any:
        """Return the compiled bound of ``models.third_derivative``; ``None``: none is known."""

    @property
    def joint(self) -> Any:
        """Return the compiled log-likelihood of all rows together, or ``None`` if rows factorise.

        Of type ``numerics.jit.JOINT_TYPE``: ``joint(X (q, m), y (m,), theta (d,),
        constants (c,), order, gradient (d,))`` returns the normalised log-likelihood of
        these rows together, minus infinity where it is not defined, and for ``order == 1``
        writes its gradient. Such a model has no link, and only the samplers of
        ``streammc.samplers.tempering`` can draw from its posterior.
        """

    analytic: bool
    separable: bool
    log_concave: bool
    location_scale: bool
    residual_scale: Any
    heavy_tailed: bool
    multimodal: bool
    exchangeable: bool
    takes_trials: bool
    sees_trials: bool
    takes_censored: bool
    censored: bool
    mean_by_draw: bool
    takes_levels: bool
    most_levels: int
    nominal: bool
    takes_offset: bool
    levels: int | None
    sufficient: str | None
    if_overdispersed: str
    caveat: str
    derivative_bounds: tuple[float, ...]
    """These traits have their meanings and defaults in ``models.base.StatedModel``."""

    @property
    def nodes(self) -> int | None:
        """Return the quadrature nodes of a mixed model, or ``None``."""

    @property
    def factors(self) -> Sequence[Any]:
        """Return the factors whose effects have a sampled scale."""

    @property
    def crossed(self) -> Sequence[str]:
        """Return the columns of factors that cross, whose effects are drawn with theta."""

    @property
    def n_covariance(self) -> int:
        """Return the number of scales and correlations of effects, which come last in theta."""

    @property
    def designs(self) -> Sequence[Sequence[int]]:
        """Return the columns of each linear predictor, ascending; empty: each has them all."""

    @property
    def of_a_row(self) -> Any:
        """Return the model of a row: this one, or the regression of a mixed model."""

    @property
    def sees_columns(self) -> bool:
        """Return whether the link uses the columns of rows, and not their predictors alone."""

    def relabelled(self, theta: Vector) -> Sequence[Vector]:
        """Return the positions of the same density, where components may be exchanged."""

    def share_fault(self, y: Vector, trials: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is no share of these trials; ``None`` of a model without trials."""

    def log_constant(self, y: Vector, trials: Vector) -> float | None:
        """Return what the log-likelihood omits; ``None``: that is not known."""

    def simulate_trials(self, eta: Matrix, trials: Vector, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m), of so many trials (m,)."""

    def dim(self, n_features: int) -> int:
        """Return the length of theta."""

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return one ArviZ label per component of theta: ``beta[distance]``, ``sigma``."""

    def table_scale(self, feature_names: Sequence[str]) -> Sequence[Any]:
        """Return the transformation to the table's scale, as ``models.base.ScaleBlock``."""

    def constrain(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reported parameters of theta (..., d), such as a scale for its logarithm."""

    def unconstrain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return theta (..., d) of reported parameters: the inverse of :meth:`constrain`."""

    def prior_table(self, labels: Sequence[str]) -> Matrix:
        """Return the table of the prior of theta, Jacobians included; see ``Prior``."""

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return the positions of invalid responses in ``y`` and the expectation, or ``None``."""

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response (m,) per column of ``eta`` (p, m).

        Raises ModelError if the model has no mean.
        """

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m)."""

    def start(self, rows: Rows) -> Vector:
        """Return a finite starting point for Newton's method from some rows."""

    def describe(self) -> dict[str, Any]:
        """Return a JSON description: name, options, prior; it is part of every digest."""


class Trace(Protocol):
    """Draws on disk, committed interval by interval."""

    def append(
        self,
        phase: str,
        theta: NDArray[np.float64],
        stats: Mapping[str, NDArray[Any]],
        checkpoint: tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]],
    ) -> None:
        """Commit one interval: ``theta`` (chain, K, d), ``stats`` each (chain, K).

        ``phase`` is ``"warmup"`` or ``"draws"``. When this returns, the interval and
        the checkpoint have survived a power cut, or an exception was raised.
        """
