"""Samplers with a ladder of levels: ``pt`` and ``spt``, ``tt`` and ``stt``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from streammc.protocols import Model
from streammc.samplers.common.options import (
    LAPLACE,
    builder,
    check_counts,
    check_number,
)
from streammc.samplers.common.sampler import EXACT, Sampler
from streammc.samplers.common.statistics import OF_ESTIMATES, TEMPERED_STATISTICS, recorded

if TYPE_CHECKING:
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import Check, RunRequest, Setup


@dataclass(frozen=True, kw_only=True)
class TemperedOptions(Sampler):
    """Options of every sampler with a ladder of levels.

    Level m has the density ``p(X|theta)^beta_m p(theta)``; with subsampling
    ``p(X_m|theta) p(theta)``, where ``X_m`` has ``round(beta_m N)`` rows. Level 0 is the
    posterior.

    Parameters
    ----------
    n_levels
        Levels, ``M + 1``; 1 is the inner kernel alone. ``None``: from the global barrier that a
        pilot run finds.
    max_levels
        Most levels that the pilot run may choose. ``None``: 40 of parallel tempering, 100 of
        tempered transitions. Without effect where ``n_levels`` is given.
    beta_min
        Inverse temperature of the last level, in [0, 1); 0 is the prior, of which it takes
        independent draws. ``None``: 0, or 0.125 where the prior is flat or has the power too.
    ladder
        ``geometric``: ``beta_m = beta_min^(m / M)``; ``adapted``: warm-up spaces the levels so
        that all neighbours exchange equally often, beginning there.
    explorer
        Inner kernel: ``hmc`` or ``random-walk``.
    step_size
        Step of the inner kernel at level 0, in units of ``covariance``: with ``laplace`` in
        posterior standard deviations. Level m has ``step_size beta_m^(-1/2)``. ``None``: warm-up
        tunes every level by itself to ``target_acceptance``.
    n_steps
        Leapfrog steps of an ``hmc`` transition. ``None``: 10, or 3 where a draw has several
        iterations of all levels.
    jitter
        Half-width of the uniform factor on the step size of an ``hmc`` transition, in [0, 1).
    inner_steps
        Transitions of the inner kernel for every one that the sampler asks for.
    target_acceptance
        Mean acceptance probability of the inner kernel, in (0, 1), to which warm-up tunes step
        sizes. ``None``: 0.8 for ``hmc``, 0.234 for ``random-walk``, 0.44 in one dimension.
    """

    n_levels: int | None = None
    max_levels: int | None = None
    beta_min: float | None = None
    ladder: Literal["geometric", "adapted"] = "adapted"
    explorer: Literal["hmc", "random-walk"] = "hmc"
    step_size: float | None = None
    n_steps: int | None = None
    jitter: float = 0.2
    inner_steps: int = 1
    target_acceptance: float | None = None
    covariance: Literal["laplace", "identity"] | None = None
    start: float | None = None

    parallel: ClassVar[bool] = True
    """Whether there is a replica at every level, instead of transitions that visit the levels."""
    subsets_of_rows: ClassVar[bool] = False
    """Whether levels have fewer rows, instead of a power of the likelihood."""
    target: ClassVar[str] = EXACT
    crosses_modes: ClassVar[bool] = True
    restarts: ClassVar[bool] = True
    statistics: ClassVar[tuple[str, ...]] = recorded(TEMPERED_STATISTICS, *OF_ESTIMATES)

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "n_levels", "max_levels", "n_steps", "inner_steps")
        # The posterior to the power 0 is no density.
        interval = "(0, 1)" if self.powers_of_prior else "[0, 1)"
        check_number("beta_min", self.beta_min, "[0, 1]" if self.n_levels == 1 else interval)
        check_number("step_size", self.step_size, "(0, inf)")
        check_number("jitter", self.jitter, "[0, 1)")
        check_number("target_acceptance", self.target_acceptance, "(0, 1)")
        check_number("start", self.start)

    @property
    def powers_of_prior(self) -> bool:
        """Whether the prior is raised to ``beta_m`` as well: no level is the prior then."""
        return False

    @property
    def nested(self) -> bool:
        """Whether the rows of each level are among those of the level below."""
        return False

    @abstractmethod
    def in_parallel(self) -> ParallelOptions:
        """Return parallel tempering with the levels of this sampler."""

    def needs_pass(self, model: Model) -> bool:
        """Return whether the shape of the steps comes from passes over all rows."""
        if self.covariance is None:
            return model.joint is None
        return self.covariance == LAPLACE

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return the setup with every level settled, by a pilot run where none are given."""
        from streammc.samplers.tempering.problem import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.tempering.problem import tempering

        return tempering(request.dataset, request.model, setup.cv, self)

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of swaps, excursions and restarts; see ``Sampler``."""
        from streammc.samplers.tempering.facts import ladder_checks

        return ladder_checks(summary)


@dataclass(frozen=True, kw_only=True)
class ParallelOptions(TemperedOptions):
    """Options that ``pt`` and ``spt`` share.

    Parameters
    ----------
    swaps
        ``even-odd``: pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... in turn; ``sweep``: every
        pair, from the last level down, so that a state can fall to level 0 at once.
    iterations_per_draw
        Iterations of all levels for one draw, after warm-up. ``None``: so many that about every
        draw comes from another draw of the prior, where rows are few; 1 or 2 where they are many.
    """

    swaps: Literal["even-odd", "sweep"] = "even-odd"
    iterations_per_draw: int | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "iterations_per_draw")

    @property
    def exchanges(self) -> int:
        """Proposals to exchange rows of every subset, per iteration."""
        return 0

    def in_parallel(self) -> ParallelOptions:
        """Return the sampler with one iteration for a draw."""
        return replace(self, iterations_per_draw=1)


@dataclass(frozen=True, kw_only=True)
class ParallelTempering(ParallelOptions):
    """Sampler ``pt``: parallel tempering.

    One replica at every level, ``h_m = p(X|theta)^beta_m p(theta)``; neighbours exchange their
    levels with probability ``min(1, h_n(a) h_m(b) / (h_n(b) h_m(a)))`` (van de Meent et al.
    2014, eq. 2). Draws are those of level 0, the posterior.

    Examples
    --------
    >>> from streammc.samplers import pt
    >>> pt(n_levels=10, beta_min=0.01).target
    'exact'
    """

    path: Literal["likelihood", "posterior"] = "likelihood"

    name: ClassVar[str] = "pt"
    paper: ClassVar[str] = "Geyer 1991, Markov chain Monte Carlo maximum likelihood"

    @property
    def powers_of_prior(self) -> bool:
        """Whether the prior is raised to ``beta_m`` as well."""
        return self.path == "posterior"


@dataclass(frozen=True, kw_only=True)
class SubsampledParallelTempering(ParallelOptions):
    """Sampler ``spt``: subsampled parallel tempering, with fewer rows at every level.

    Level m has ``round(beta_m N)`` rows, drawn without replacement (van de Meent et al. 2014,
    Algorithm 1, with the pair ``(m - 1, m)``). Draws are those of level 0, which has all rows:
    the posterior.

    Parameters
    ----------
    resample
        Proposals to exchange rows of every subset, per iteration; 0 keeps the first subsets.
        Accepted with ``p(X'_m|theta_m) / p(X_m|theta_m)``, which leaves level 0 exact.

    Examples
    --------
    >>> from streammc.samplers import spt
    >>> spt(subsets="independent").subsets_of_rows
    True
    """

    subsets: Literal["nested", "independent"] = "nested"
    resample: int = 0

    name: ClassVar[str] = "spt"
    paper: ClassVar[str] = "van de Meent, Paige and Wood 2014, Tempering by subsampling"
    subsets_of_rows: ClassVar[bool] = True

    @property
    def nested(self) -> bool:
        """Whether the rows of each level are among those of the level below."""
        return self.subsets == "nested"

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "resample", least=0)

    @property
    def exchanges(self) -> int:
        """Proposals to exchange rows of every subset, per iteration."""
        return self.resample


pt = builder(ParallelTempering)
spt = builder(SubsampledParallelTempering)


@dataclass(frozen=True, kw_only=True)
class TransitionOptions(TemperedOptions):
    """Options that ``tt`` and ``stt`` share.

    Parameters
    ----------
    base_steps
        Transitions at level 0 before every tempered one, which itself targets nothing there;
        0 or more.
    """

    base_steps: int = 1

    parallel: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "base_steps", least=1 if self.n_levels == 1 else 0)

    def in_parallel(self) -> ParallelOptions:
        """Return parallel tempering with the levels of this sampler."""
        kind = SubsampledParallelTempering if self.subsets_of_rows else ParallelTempering
        shared = {f.name for f in fields(kind)} & {f.name for f in fields(self)}
        return kind(**{name: getattr(self, name) for name in shared})


@dataclass(frozen=True, kw_only=True)
class TemperedTransitions(TransitionOptions):
    """Sampler ``tt``: tempered transitions.

    A proposal rises through the levels and comes down again, with the kernel of level m both
    on the way from ``m - 1`` to ``m`` and back, and is accepted with probability
    ``min(1, prod_m h_m(u_{m-1}) h_{m-1}(v_{m-1}) / (h_m(v_{m-1}) h_{m-1}(u_{m-1})))``, ``u``
    the states on the way up and ``v`` on the way down (Neal 1996; van de Meent et al. 2014,
    eq. 3). Level m has the density ``h_m = p(X|theta)^beta_m p(theta)``; level 0 is the
    posterior.

    Examples
    --------
    >>> from streammc.samplers import tt
    >>> tt(n_levels=12, explorer="random-walk").n_levels
    12
    """

    path: Literal["likelihood", "posterior"] = "likelihood"

    name: ClassVar[str] = "tt"
    paper: ClassVar[str] = "Neal 1996, Sampling from multimodal distributions"

    @property
    def powers_of_prior(self) -> bool:
        """Whether the prior is raised to ``beta_m`` as well."""
        return self.path == "posterior"


@dataclass(frozen=True, kw_only=True)
class SubsampledTransitions(TransitionOptions):
    """Sampler ``stt``: subsampled tempered transitions, with fewer rows at every level.

    Tempered transitions whose level m has ``round(beta_m N)`` rows, drawn anew for every
    transition and the same on the way up and down (van de Meent et al. 2014, Algorithm 2, with
    the ratio of eq. 3).

    Examples
    --------
    >>> from streammc.samplers import stt
    >>> stt(beta_min=0.25).subsets
    'nested'
    """

    subsets: Literal["nested", "independent"] = "nested"

    name: ClassVar[str] = "stt"
    paper: ClassVar[str] = "van de Meent, Paige and Wood 2014, Tempering by subsampling"
    subsets_of_rows: ClassVar[bool] = True

    @property
    def nested(self) -> bool:
        """Whether the rows of each level are among those of the level below."""
        return self.subsets == "nested"


tt = builder(TemperedTransitions)
stt = builder(SubsampledTransitions)
