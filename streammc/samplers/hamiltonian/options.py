"""Options of ``hmc``, ``hmc-ecs`` and ``hmc-ecs-signed``, and facts of their runs.

Nothing here imports numba or SciPy: ``problem`` is imported where a run begins.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.control_variates.plan import LARGEST_PERTURBATION, LEAST_SIGN
from streammc.diagnostics.text import number, percent
from streammc.errors import ConfigError
from streammc.likelihood.unit_words import UNIFORM
from streammc.samplers.common.options import (
    DEFAULT_LENGTH,
    builder,
    check_counts,
    check_number,
)
from streammc.samplers.common.sampler import EXACT, PERTURBED, SIGNED, Check, Sampler, at_most
from streammc.samplers.common.statistics import (
    OF_ESTIMATES,
    PERTURBED_STATISTICS,
    SIGNED_STATISTICS,
    STATISTICS,
    recorded,
)

if TYPE_CHECKING:
    from streammc.protocols import Model
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory


DEFAULT_JITTER: Final = 0.2
"""Half-width of the uniform factor on the default length, against resonances."""
DEFAULT_ACCEPTANCE: Final = 0.85
"""Leads to one step if the posterior is nearly Gaussian, and to two or more otherwise."""


FEWEST_UNITS: Final = 2
"""Smallest number of units of a subsample: from one unit no variance can be estimated."""
VARIANCE_LIMIT: Final = 3.0
"""Largest mean ``log_lik_variance``: above it a large perturbation may go unnoticed."""
VARIANCE_WARNING: Final = 1.0
"""Mean ``log_lik_variance`` above which a run warns."""
EDGE_WARNING: Final = 0.001
"""Share of the iterations beyond the edge above which a run warns."""


@dataclass(frozen=True, kw_only=True)
class TrajectoryOptions(Sampler):
    """Options of every sampler with a trajectory.

    Parameters
    ----------
    trajectory
        ``jittered``: trajectories of random length, ``trajectory_length`` within ``jitter``;
        ``nuts``: each ends where it turns back.
    integrator
        ``split``: integrates the Gaussian approximation of the posterior exactly, and the rest by
        kicks of the momentum; ``leapfrog``.
    step_size
        Longest step of the integrator, in posterior standard deviations (of the Laplace
        approximation). ``None``: warm-up tunes it to ``target_acceptance``.
    trajectory_length
        Mean length of a trajectory, ``step_size * n_steps``, in posterior standard deviations.
        ``None``: pi / 2, a quarter of a period. Not allowed with ``nuts``.
    jitter
        Half-width of the uniform factor on step size and length of a trajectory, in [0, 1).
        ``None``: 0.2, or 0 if ``trajectory_length`` is given. Not allowed with ``nuts``.
    target_acceptance
        Mean acceptance probability, in (0, 1), to which warm-up tunes the step size. A given
        ``step_size`` is not tuned.
    spread
        Spread of the first positions of the chains around theta_star, in posterior standard
        deviations (of the Laplace approximation), above 0. ``None``: 2 for ``hmc``, else 1.
    """

    trajectory: Literal["jittered", "nuts"] = "jittered"
    integrator: Literal["split", "leapfrog"] = "split"
    step_size: float | None = None
    trajectory_length: float | None = None
    jitter: float | None = None
    target_acceptance: float = DEFAULT_ACCEPTANCE
    spread: float | None = None

    own_designs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        for option in ("trajectory_length", "jitter"):
            value = getattr(self, option)
            if self.trajectory == "nuts" and value is not None:
                raise ConfigError(
                    f"{option} must be left out with trajectory='nuts', which ends a trajectory "
                    f"where it turns back; found {value!r}: leave it out"
                )
        check_number("step_size", self.step_size, "(0, inf)")
        check_number("trajectory_length", self.trajectory_length, "(0, inf)")
        check_number("spread", self.spread, "(0, inf)")
        check_number("jitter", self.jitter, "[0, 1)")
        check_number("target_acceptance", self.target_acceptance, "(0, 1)")

    @property
    def length_and_jitter(self) -> tuple[float, float]:
        """Length and jitter of trajectories; a length given without a jitter is fixed."""
        if self.trajectory_length is None:
            return DEFAULT_LENGTH, DEFAULT_JITTER if self.jitter is None else self.jitter
        return self.trajectory_length, 0.0 if self.jitter is None else self.jitter

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of divergences and acceptance; see ``Sampler``."""
        facts = summary["sampling"]
        return [
            at_most(
                "divergent transitions",
                facts.get("divergences"),
                0,
                "A trajectory that leaves its energy level marks a place that the steps are too "
                "long for, where the posterior is not explored.",
            ),
            Check(
                name="acceptance rate",
                value=number(facts.get("acceptance_rate"), 3),
                meaning="The share of proposals that is taken; warm-up tunes the step size to it.",
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class SubsampleOptions(TrajectoryOptions):
    """Options of trajectories over a subsample.

    ``unit_rows``, ``certainty`` and ``probabilities`` are described in ``common.options``.

    Parameters
    ----------
    subsample_size
        Rows in the subsample, m; for ``hmc-ecs-signed`` their expected number. ``None``: chosen by
        the variance of the estimate that the full pass predicts.
    n_blocks
        Blocks of the subsample, G; an iteration proposes new units for one of them. ``None``: 100,
        or fewer for a subsample of fewer units.
    order
        Order of the control variates, Taylor expansions of every row around theta_star: 0, 1 or 2.
    recalibrate
        Iterations of a preliminary run, whose draws are not kept. The mean of its second half
        becomes theta_star, with one more full pass. ``None``: no such run.
    """

    subsample_size: int | None = None
    n_blocks: int | None = None
    unit_rows: int | None = None
    order: Literal[0, 1, 2] = 2
    certainty: bool = True
    probabilities: Literal["uniform", "scores"] = UNIFORM
    recalibrate: int | None = None

    fewest_units: ClassVar[int] = 0
    """Units of a subsample below which no variance can be estimated, where one is needed."""

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        check_counts(self, "subsample_size", "n_blocks", "unit_rows", "recalibrate")

    @property
    @abstractmethod
    def factor_units(self) -> int:
        """Units of a factor of the block-Poisson product; 0 without a product."""

    def recalibrating_sampler(self) -> HmcEcs:
        """Return the sampler of the preliminary run of ``recalibrate``."""
        return HmcEcs(order=self.order)

    @property
    def forced(self) -> bool:
        """Whether the sampler runs even if the plan refuses it."""
        return False

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates and the plan of the subsample; see ``Sampler``."""
        from streammc.samplers.hamiltonian.problem import prepare_subsampled

        return prepare_subsampled(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return the problem that all chains share; see ``Sampler``."""
        from streammc.samplers.hamiltonian.problem import subsampled

        assert setup.plan is not None
        return subsampled(request.dataset, request.model, setup.cv, setup.plan, self)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return the facts in the summary of samplers with a subsample.

        Returns
        -------
        dict
            ``recalibration``: its two stages; ``beyond_edge``: share of the draws whose trajectory
            left the region; ``mean_sign`` and ``negative_signs`` (a share) of signed runs.
        """
        from streammc.samplers.hamiltonian.problem import described_recalibration

        stats = run.statistics("sign", "beyond_edge")
        facts: dict[str, Any] = {"recalibration": described_recalibration(setup.cv, setup.plan)}
        if "sign" in stats:
            facts["mean_sign"] = float(stats["sign"].mean())
            facts["negative_signs"] = float((stats["sign"] < 0.0).mean())
        if "beyond_edge" in stats:
            facts["beyond_edge"] = float(stats["beyond_edge"].mean())
        return facts

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of warm-up, estimates, tails, signs and trajectories; see ``Sampler``."""
        facts = summary["sampling"]
        blocks, warmup = facts.get("n_blocks"), facts.get("warmup", math.inf)
        variance = facts.get("log_lik_variance_mean")
        accepted, sign = facts.get("subsample_acceptance_rate"), facts.get("mean_sign")
        found = [
            Check(
                name="warm-up",
                warning=f"warmup of {warmup} is shorter than 5 x {blocks} blocks: the first "
                "subsample may still be felt"
                if warmup < 5 * (blocks or 0)
                else "",
                receipt={"blocks of a subsample": blocks},
            ),
            at_most(
                "variance of the log-likelihood estimate",
                variance,
                VARIANCE_WARNING,
                "An iteration estimates the log-likelihood of all rows from a few; the sampled "
                "density is close to the posterior where the variance of that estimate is small.",
                warning=f"mean log_lik_variance is {variance or 0.0:.2f}, above "
                f"{VARIANCE_WARNING}: use a larger --subsample-size",
                receipt={
                    "log_lik_variance": f"{variance:.4g}: variance of the log-likelihood "
                    "estimated from the subsample"
                }
                if variance is not None
                else {},
                figure="log_lik_variance",
                line=VARIANCE_WARNING,
            ),
        ]
        if accepted is not None:
            found.append(
                Check(
                    name="acceptance rate of new subsamples",
                    value=number(accepted, 3),
                    meaning="How often a block of the subsample is exchanged for a new one.",
                )
            )
        perturbation = facts.get("predicted_perturbation") or 0.0
        size = f"{perturbation:.2g}" if perturbation < 1e3 else "more than 1,000"
        found.append(
            at_most(
                "predicted error in the tails",
                perturbation,
                LARGEST_PERTURBATION,
                warning=f"the sampled density is predicted to be off by {size} in the tails, "
                f"above {LARGEST_PERTURBATION}: use a larger --subsample-size, or hmc",
            )
        )
        if facts.get("beyond_edge") is not None:
            found.append(
                at_most(
                    "iterations beyond the edge, share",
                    facts["beyond_edge"],
                    EDGE_WARNING,
                    "Subsampling is cut where its error would be large, at a millionth of the "
                    "posterior's mass; a chain that often comes there is in a wider posterior.",
                    warning=f"{percent(facts['beyond_edge'])} of the iterations came beyond the "
                    "edge of the region on which hmc-ecs samples: the posterior may be wider than "
                    "it; use hmc",
                )
            )
        if sign is not None:
            negative = facts.get("negative_signs")
            found.append(
                Check(
                    name="mean sign",
                    value=number(sign, 4),
                    meaning="Draws are weighted by the sign of an unbiased estimate of the "
                    "likelihood; the closer the mean sign is to 1, the more each draw is worth.",
                    warning=f"{percent(negative)} of the draws have a negative sign: weight "
                    "them by it, as this summary does and ArviZ does not"
                    if negative
                    else "",
                    receipt={"mean sign": sign},
                    figure="sign",
                )
            )
        return [*found, *super().checks(summary)]


@dataclass(frozen=True, kw_only=True)
class Hmc(TrajectoryOptions):
    """Sampler ``hmc``: Hamiltonian Monte Carlo on every row, the reference for all samplers.

    It leaves the posterior invariant (Duane et al. 1987) and evaluates every row at every gradient.

    Examples
    --------
    >>> from streammc.samplers import hmc
    >>> hmc().target
    'exact'
    """

    name = "hmc"
    target = EXACT
    samples_scales = True
    statistics = recorded(STATISTICS, *OF_ESTIMATES)
    paper = "Duane, Kennedy, Pendleton and Roweth 1987, Hybrid Monte Carlo"

    def needs_rows(self, model: Model) -> bool:
        """Return whether the sums of a pass are no sufficient statistics; see ``Sampler``."""
        return model.exact_sums is None

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return the setup: control variates for start and metric, no plan; see ``Sampler``."""
        from streammc.samplers.hamiltonian.problem import prepare_full_data

        return prepare_full_data(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return the problem that all chains share; see ``Sampler``."""
        from streammc.samplers.hamiltonian.problem import full_data

        return full_data(request.dataset, request.model, setup.cv, self)


hmc = builder(Hmc)


@dataclass(frozen=True, kw_only=True)
class HmcEcs(SubsampleOptions):
    """Sampler ``hmc-ecs``: Hamiltonian Monte Carlo with energy conserving subsampling.

    It leaves ``exp(l^ - s^2 / 2) p(theta) p(u)`` invariant (Dang et al. 2019, eq. 12), where ``l^``
    estimates the log-likelihood from the subsample ``u`` and ``s^2`` its variance: a perturbed
    posterior. The audit measures its distance from the posterior.

    Parameters
    ----------
    variance
        Divisor of ``s^2`` from k units: ``unbiased``, k (k - 1); ``paper``, k^2, as eq. (10) is
        printed.
    allow_high_variance
        Whether to run even if the plan refuses it, or if the mean of ``log_lik_variance``
        exceeds 3: the perturbation may then be large.

    Examples
    --------
    >>> from streammc.samplers import hmc_ecs
    >>> hmc_ecs(step_size=0.2, trajectory_length=1.2).step_size
    0.2
    """

    variance: Literal["unbiased", "paper"] = "unbiased"
    allow_high_variance: bool = False

    name = "hmc-ecs"
    fewest_units = FEWEST_UNITS
    target = PERTURBED
    statistics = PERTURBED_STATISTICS
    audited = True
    samples_scales = True
    paper = "Dang, Quiroz, Kohn, Tran and Villani 2019, HMC with energy conserving subsampling"

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        b = self.unit_rows or 1
        if self.subsample_size is not None and self.subsample_size <= b:
            raise ConfigError(
                f"subsample_size must be more than one unit of {b} row{'s' * (b > 1)}, or no "
                f"variance can be estimated, found {self.subsample_size}: use {FEWEST_UNITS * b} "
                "rows or more, or shorter units"
            )

    @property
    def factor_units(self) -> int:
        """Units of a factor: 0, since the estimate is not a block-Poisson product."""
        return 0

    def recalibrating_sampler(self) -> HmcEcs:
        """Return the sampler itself; see :class:`SubsampleOptions`."""
        return self

    @property
    def forced(self) -> bool:
        """Whether the sampler runs even if the plan refuses it."""
        return self.allow_high_variance

    @property
    def variance_limit(self) -> float:
        """Mean ``log_lik_variance`` above which a run is refused."""
        return math.inf if self.allow_high_variance else VARIANCE_LIMIT


hmc_ecs = builder(HmcEcs)


@dataclass(frozen=True, kw_only=True)
class HmcEcsSigned(SubsampleOptions):
    """Sampler ``hmc-ecs-signed``: Hamiltonian Monte Carlo with the block-Poisson estimator.

    It leaves ``|L^(theta, u)| p(theta) p(u)`` invariant, with an unbiased estimate ``L^`` of the
    likelihood (Dang et al. 2019, eqs. 15 and 16). Means weighted by the recorded sign are posterior
    means for any variance of the estimate (eq. 17).

    Parameters
    ----------
    minibatch
        Units in the mini-batch of one factor of ``L^``; with more, more estimates are negative.
    soft_bound
        Bound ``a`` on the sampled remainder, in units of the log-likelihood, constant in theta.
        ``None``: the typical remainder minus the expected number of factors, and lower far from
        theta_star.

    Examples
    --------
    >>> from streammc.samplers import hmc_ecs_signed
    >>> hmc_ecs_signed(subsample_size=3000, minibatch=30).target
    'signed'
    """

    minibatch: int = 1
    soft_bound: float | None = None

    name = "hmc-ecs-signed"
    target = SIGNED
    statistics = SIGNED_STATISTICS
    least_sign = LEAST_SIGN
    paper = "Dang, Quiroz, Kohn, Tran and Villani 2019, HMC with energy conserving subsampling"

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        check_counts(self, "minibatch")
        check_number("soft_bound", self.soft_bound)

    @property
    def factor_units(self) -> int:
        """Units of a factor of the block-Poisson product."""
        return self.minibatch


hmc_ecs_signed = builder(HmcEcsSigned)
