"""Options of ``sgld`` and ``sghmc``, and facts of their runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.diagnostics.text import percent
from streammc.errors import ConfigError
from streammc.likelihood.unit_words import UNIFORM
from streammc.samplers.common.options import (
    LAPLACE,
    NONE,
    builder,
    check_counts,
    check_number,
)
from streammc.samplers.common.sampler import BIASED, Check, Sampler, at_most
from streammc.samplers.common.statistics import (
    NOISE_STATISTICS,
    OF_ACCEPTANCE,
    STATISTICS,
    recorded,
)

if TYPE_CHECKING:
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory


BIAS_WARNING: Final = 0.05
"""Predicted error of the variances, as a share, above which a run warns."""


@dataclass(frozen=True, kw_only=True)
class StochasticGradient(Sampler):
    """Common options of ``sgld`` and ``sghmc``.

    ``unit_rows``, ``certainty`` and ``probabilities`` are described in ``common.options``.

    Parameters
    ----------
    subsample_size
        Rows of every gradient, m. ``None``: planned from the full pass, as for ``hmc-ecs``; if that
        plan is refused, 1 % of all rows, at least 30.
    control_variate
        Order of the Taylor expansion that is subtracted from every row: 2, 1 or 0. ``none``, or
        ``None``: nothing is subtracted.
    preconditioner
        ``laplace``: steps in posterior standard deviations (of the Laplace approximation);
        ``none``, or ``None``: in units of theta.
    decay
        Power of the decrease of the step size, in [0, 1]: ``step_size (1 + t / offset)^-decay`` at
        iteration t, counted from the first of the warm-up. 0: constant.
    offset
        Time scale of the decrease in iterations, above 0.
    """

    subsample_size: int | None = None
    unit_rows: int | None = None
    control_variate: Literal[0, 1, 2, "none"] | None = 2
    certainty: bool = True
    probabilities: Literal["uniform", "scores"] = UNIFORM
    preconditioner: Literal["laplace", "none"] | None = LAPLACE
    step_size: float | None = None
    decay: float = 0.0
    offset: float = 1000.0

    target: ClassVar[str] = BIASED
    n_blocks: ClassVar[int | None] = None
    factor_units: ClassVar[int] = 0
    momentum: ClassVar[bool] = False
    """Whether an iteration is a trajectory with a momentum."""

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        for option in ("control_variate", "preconditioner", "noise_estimate"):
            if getattr(self, option, NONE) is None:  # `none` on a command line
                object.__setattr__(self, option, NONE)
        super().__post_init__()
        check_counts(self, "subsample_size", "unit_rows")
        for option in ("step_size", "offset", "trajectory_length"):
            check_number(option, getattr(self, option, None), "(0, inf)")
        check_number("decay", self.decay, "[0, 1]")

    @property
    def estimates_noise(self) -> bool:
        """Whether the noise of every gradient is estimated from its units."""
        return False

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics of an iteration."""
        return recorded(STATISTICS, *OF_ACCEPTANCE)

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates and the plan, which includes the step size; see ``Sampler``."""
        from streammc.samplers.stochastic_gradient.problem import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return the problem that all chains share; see ``Sampler``."""
        from streammc.samplers.stochastic_gradient.problem import stochastic

        assert setup.plan is not None
        return stochastic(request.dataset, request.model, setup.cv, setup.plan, self)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return ``decay``, and ``noise_clipped``: share of steps with a clipped noise estimate."""
        clipped = run.statistics("noise_clipped").get("noise_clipped")
        return {
            "decay": self.decay,
            "noise_clipped": None if clipped is None else float(clipped.mean()),
        }

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of bias, weights of the draws and noise; see ``Sampler``."""
        facts = summary["sampling"]
        if "predicted_variance_bias" not in facts:  # an unfinished run
            return []
        bias, clipped = facts["predicted_variance_bias"], facts.get("noise_clipped")
        size = "without bound" if bias is None else f"by {percent(bias)}"
        found = [
            Check(
                name="variance of the log-likelihood estimate",
                receipt={"log_lik_variance": facts.get("log_lik_variance_mean")},
            ),
            at_most(
                "predicted bias of the variances, share",
                math.inf if bias is None else bias,  # without bound
                BIAS_WARNING,
                "No step is rejected, so the draws are wider than the posterior; this is by how "
                "much at the step size of the run.",
                warning=f"{facts['sampler']} is biased: at this step size the variances are "
                f"predicted to be off {size}; use a smaller --step-size, a larger "
                "--subsample-size, or hmc-ecs",
                receipt={"predicted variance bias": bias},
                figure="log_lik_variance",
            ),
            Check(
                name="weights of the draws",
                warning="the steps decrease, and a draw counts as much as its step is long: weight "
                "the draws by step_size, which these means do not"
                if facts["decay"]
                else "",
            ),
        ]
        if clipped is not None:
            found.append(
                at_most(
                    "steps with a clipped noise estimate, share",
                    clipped,
                    0.0,
                    "The friction cannot take up more noise than itself.",
                    warning=f"the noise estimate exceeded the friction in {100.0 * clipped:.2g} % "
                    "of the steps and was cut there: use more friction or a smaller --step-size",
                    figure="noise_clipped",
                )
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Sgld(StochasticGradient):
    """Sampler ``sgld``: stochastic gradient Langevin dynamics (Welling and Teh 2011).

    ``theta' = theta + (eps / 2) P grad + N(0, eps P)`` with a gradient estimated from newly
    drawn rows. No step is rejected, so the sampler does NOT leave the posterior invariant, and
    the error of its variances grows with ``eps``. By default ``P`` is the covariance of the Laplace
    approximation.

    Parameters
    ----------
    step_size
        ``eps`` of the first iteration, in posterior variances (with ``preconditioner='none'`` in
        squared units of theta). ``None``: the largest with a predicted error of variances of at
        most 1 %.

    Examples
    --------
    >>> from streammc.samplers import sgld
    >>> sgld(control_variate=1).target
    'biased'
    """

    name: ClassVar[str] = "sgld"
    paper: ClassVar[str] = (
        "Welling and Teh 2011, Bayesian learning via stochastic gradient Langevin dynamics"
    )


sgld = builder(Sgld)


@dataclass(frozen=True, kw_only=True)
class Sghmc(StochasticGradient):
    """Sampler ``sghmc``: stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014).

    Each iteration draws a momentum ``p ~ N(0, M)`` and makes L steps ``theta += eps M^-1 p``,
    ``p += eps grad - eps C M^-1 p + N(0, 2 eps (C - B^))`` (Dang et al. 2019, section 6.2),
    each with a gradient estimated from newly drawn rows. No step is rejected, so the sampler
    does NOT leave the posterior invariant. By default ``M`` is the inverse covariance of the
    Laplace approximation.

    Parameters
    ----------
    step_size
        ``eps`` of the first iteration, in posterior standard deviations (with
        ``preconditioner='none'`` in units of theta). ``None``: ``trajectory_length / n_steps``.
    n_steps
        Steps of an iteration, L. ``None``: ``trajectory_length / step_size``, rounded up; without
        a ``step_size`` the fewest steps with a predicted error of variances of at most 1 %.
    trajectory_length
        ``step_size * n_steps``, in the unit of ``step_size``; not allowed if both are given.
        ``None``: a quarter of the longest period, pi / 2 posterior standard deviations.
    friction
        C, times the mass matrix M, at least 0.
    noise_estimate
        Part B^ of the friction that compensates for the noise of gradients. ``none``, or ``None``:
        0; ``estimated``: estimated from the units of each gradient.

    Examples
    --------
    >>> from streammc.samplers import sghmc
    >>> sghmc(step_size=0.06, trajectory_length=1.2, friction=0.0).n_steps is None
    True
    """

    n_steps: int | None = None
    trajectory_length: float | None = None
    friction: float = 1.0
    noise_estimate: Literal["none", "estimated"] | None = NONE

    name: ClassVar[str] = "sghmc"
    momentum: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Chen, Fox and Guestrin 2014, Stochastic gradient Hamiltonian Monte Carlo"
    )

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        super().__post_init__()
        check_counts(self, "n_steps")
        check_number("friction", self.friction, "[0, inf)")
        if None not in (self.step_size, self.n_steps, self.trajectory_length):
            raise ConfigError(
                "expected at most two of step_size, n_steps and trajectory_length, found all "
                "three; leave one out"
            )

    @property
    def estimates_noise(self) -> bool:
        """Whether the noise of every gradient is estimated from its units."""
        return self.noise_estimate == "estimated"

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics; with estimated noise, ``noise_clipped`` is one of them."""
        columns = NOISE_STATISTICS if self.estimates_noise else STATISTICS
        return recorded(columns, *OF_ACCEPTANCE)


sghmc = builder(Sghmc)
