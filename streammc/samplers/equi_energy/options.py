"""``mintee``: the equi-energy sampler on subsets of the rows (Li and Wong 2017, section 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.protocols import Model
from streammc.samplers.common.options import (
    LAPLACE,
    NONE,
    builder,
    check_counts,
    check_number,
)
from streammc.samplers.common.sampler import APPROXIMATE, Sampler
from streammc.samplers.common.statistics import (
    EQUI_ENERGY_STATISTICS,
    OF_ESTIMATES,
    recorded,
)

if TYPE_CHECKING:
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import Check, RunRequest, Setup

NOISE: Final = 4.0
"""Variance of the log of a jump's ratio above which few past states can be taken."""


@dataclass(frozen=True, kw_only=True)
class EquiEnergy(Sampler):
    """Sampler ``mintee``: equi-energy sampling on subsets of the rows.

    Level k has ``m_k`` rows and the temperature ``T_k = n / m_k^alpha``; its density is
    ``exp(-max(h_k, H_k) / T_k) p(theta)``, where ``h_k`` is minus the log-likelihood of all rows
    as its rows tell it. Level 0 has all rows, ``T_0 = 1`` and no bound: the posterior.

    A level proposes, with a small probability, a state of the level above that has an energy
    like its own, and takes it with probability
    ``min(1, pi_k(x') pi_(k+1)(x) / (pi_k(x) pi_(k+1)(x')))`` (Li and Wong 2017, Algorithm 2; Kou,
    Zhou and Wong 2006). Draws are those of level 0.

    Parameters
    ----------
    energy
        Rows of the energy ``h_k``. ``subset``: rows of its own, drawn once, those of a hotter level
        among them; ``full``: all rows; ``shared``: rows drawn at every step for both of its ends;
        ``carried``: rows drawn at every proposal, the estimate being carried along: Algorithm 2 as
        printed. ``None``: ``subset`` where ``d (growth - 1)``, about the variance of the log of a
        jump's ratio, is at most 4, else ``full``.
    control_variate
        0: from every term of ``shared`` and ``carried`` its value at the lowest point known is
        subtracted; ``none``, or ``None``: nothing is.
    subset_size
        Rows of the hottest level. ``None``: a hundredth of all, at least 20.
    growth
        How many times more rows the next colder level has; above 1.
    n_levels
        Levels, K, counted from the hottest; the coldest has all rows. ``None``: as many as lead
        there; with fewer there is a gap above level 0.
    alpha
        Exponent of the temperatures ``n / m_k^alpha``, in (0, 1].
    ring_width
        c, in units of ``T_k``: the energy levels are ``H_(k + 1) = H_k + c T_k``.
    lowest_energy
        ``H_0``, minus a log-likelihood. ``None``: a minimum that is looked for.
    jump_probability
        p_ee: with which a level proposes a jump, where the ring that it asks for has states. The
        paper has 0.1; the way down takes as many jumps as there are levels.
    ring_capacity
        States that are kept of a ring, each equally likely to be among them.
    keep_rings
        Folder for all states of all levels: a file per chain and interval. ``None``: not written.
    explorer
        Step of a level: ``langevin`` or ``random-walk``.
    step_size
        Standard deviation of a step at level 0, in units of ``covariance``: with ``laplace`` in
        posterior standard deviations. Level k has ``step_size sqrt(T_k)``. ``None``: warm-up tunes
        every level by itself to ``target_acceptance``.
    target_acceptance
        Mean acceptance probability, in (0, 1), to which warm-up tunes the step size of every level.
    inner_steps
        Steps or jumps of every level in one iteration.

    Examples
    --------
    >>> from streammc.samplers import mintee
    >>> mintee(subset_size=1000, n_levels=7).sizes(100_000)
    [100000, 5378, 3842, 2744, 1960, 1400, 1000]
    """

    energy: Literal["subset", "full", "shared", "carried"] | None = None
    control_variate: Literal[0, "none"] | None = 0
    subset_size: int | None = None
    growth: float = 1.4
    n_levels: int | None = None
    alpha: float = 0.995
    ring_width: float = 10.0
    lowest_energy: float | None = None
    jump_probability: float = 0.3
    ring_capacity: int = 4000
    keep_rings: str | None = None
    explorer: Literal["langevin", "random-walk"] = "langevin"
    step_size: float | None = None
    target_acceptance: float = 0.35
    inner_steps: int = 1
    covariance: Literal["laplace", "identity"] | None = None
    start: float | None = None

    name: ClassVar[str] = "mintee"
    target: ClassVar[str] = APPROXIMATE
    """Level 0 is exact but for its rings, which have finitely many states."""
    crosses_modes: ClassVar[bool] = True
    paper: ClassVar[str] = "Li and Wong 2017, Mini-batch tempered MCMC"
    statistics: ClassVar[tuple[str, ...]] = recorded(
        EQUI_ENERGY_STATISTICS, *OF_ESTIMATES, "diverging", "n_steps"
    )

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        if self.control_variate is None:  # `none` on a command line
            object.__setattr__(self, "control_variate", NONE)
        super().__post_init__()
        check_counts(self, "subset_size", "n_levels", "ring_capacity", "inner_steps")
        check_number("growth", self.growth, "(1, inf)")
        check_number("alpha", self.alpha, "(0, 1]")
        check_number("ring_width", self.ring_width, "(0, inf)")
        check_number("jump_probability", self.jump_probability, "[0, 1]")
        check_number("step_size", self.step_size, "(0, inf)")
        check_number("target_acceptance", self.target_acceptance, "(0, 1)")
        check_number("start", self.start)
        check_number("lowest_energy", self.lowest_energy)
        if self.keep_rings is not None and not isinstance(self.keep_rings, str):
            raise ConfigError(
                f"keep_rings must name a folder, found {self.keep_rings!r}"
                ": give text, or leave it out"
            )

    def needs_pass(self, model: Model) -> bool:
        """Return whether the shape of the steps comes from passes over all rows."""
        if self.covariance is None:
            return model.joint is None
        return self.covariance == LAPLACE

    def settled(self, d: int) -> EquiEnergy:
        """Return the options with an energy chosen for ``d`` parameters."""
        if self.energy is not None:
            return self
        subset = d * (self.growth - 1.0) <= NOISE
        return replace(self, energy="subset" if subset else "full")

    def sizes(self, n: int) -> list[int]:
        """Return the rows of every level, level 0 first.

        Raises
        ------
        ConfigError
            If the levels asked for need more rows than there are.
        """
        smallest = self.subset_size or min(max(-(-n // 100), 20), n)
        grown = [n]
        if self.n_levels is not None:
            grown = [round(smallest * self.growth**j) for j in range(self.n_levels - 1)]
            if grown and grown[-1] >= n:
                raise ConfigError(
                    f"{self.n_levels} levels from {smallest} rows on need {grown[-1]}, found {n}; "
                    "ask for a smaller subset_size, growth or n_levels"
                )
            return [n, *grown[::-1]]
        grown = []
        size = float(smallest)
        # The last step may be shorter, but not by half.
        while size * math.sqrt(self.growth) < n:
            grown.append(round(size))
            size *= self.growth
        return [n, *grown[::-1]]

    def temperatures(self, n: int) -> list[float]:
        """Return ``T_k = n / m_k^alpha`` of every level: 1 for level 0."""
        return [1.0, *(n / size**self.alpha for size in self.sizes(n)[1:])]

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates, of no order where the steps take no shape from a pass."""
        from streammc.samplers.equi_energy.problem import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.equi_energy.problem import equi_energy

        return equi_energy(request.dataset, request.model, setup.cv, self, request.warmup)

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of jumps and steps; see ``Sampler``."""
        from streammc.samplers.equi_energy.facts import jump_checks

        return jump_checks(summary)


mintee = builder(EquiEnergy)
