"""Options of the samplers with stochastic gradients, ``sgld`` and ``sghmc``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.option_checks import (
    LAPLACE,
    NONE,
    check_number,
    check_probabilities,
    check_subsample,
)
from streammc.samplers.common.sampler import Sampler
from streammc.samplers.common.statistics import STATISTICS, recorded
from streammc.samplers.common.targets import BIASED
from streammc.subsampling.probabilities import UNIFORM

if TYPE_CHECKING:
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.evidence import Evidence
    from streammc.samplers.common.request import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory

NOISE_STATISTICS: Final = (*STATISTICS, "noise_clipped")
"""Statistics with an estimate of the noise; ``noise_clipped`` is its clipped share."""
OF_ACCEPTANCE: Final = ("acceptance_rate", "diverging", "subsample_accepted")
"""Columns with a meaning only if steps can be rejected."""
NOISE_CLIPPED_COLUMN: Final = NOISE_STATISTICS.index("noise_clipped")


@dataclass(frozen=True, kw_only=True)
class StochasticGradient(Sampler):
    """Common options of ``sgld`` and ``sghmc``.

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

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        for option in ("control_variate", "preconditioner", "noise_estimate"):
            if getattr(self, option, NONE) is None:  # `none` on a command line
                object.__setattr__(self, option, NONE)
        if isinstance(self.control_variate, bool) or self.control_variate not in (0, 1, 2, NONE):
            raise ConfigError(
                f"control_variate must be 0, 1, 2 or 'none', found {self.control_variate!r}"
                ": choose one of them"
            )
        if self.preconditioner not in (LAPLACE, NONE):
            raise ConfigError(
                f"preconditioner must be 'laplace' or 'none', found {self.preconditioner!r}"
                ": choose one of them"
            )
        if not isinstance(self.certainty, bool):
            raise ConfigError(
                f"certainty must be true or false, found {self.certainty!r}: use True or False"
            )
        check_subsample(self, "subsample_size", "unit_rows")
        check_probabilities(self.probabilities)
        for option in ("step_size", "offset", "trajectory_length"):
            check_number(option, getattr(self, option, None), above=True)
        check_number("decay", self.decay, most=1.0)

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
        """Return the decay of the step size, and the share of clipped noise estimates."""
        from streammc.samplers.stochastic_gradient.facts import gradient_facts

        return gradient_facts(run, self.decay)

    def warnings(self, facts: Mapping[str, Any]) -> list[str]:
        """Return warnings about the bias of the draws; see ``Sampler``."""
        from streammc.samplers.stochastic_gradient.facts import bias_warnings

        return bias_warnings(facts)

    def text(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return receipt lines on the variance of the estimate and on the predicted bias."""
        return {
            "log_lik_variance": facts.get("log_lik_variance_mean"),
            "predicted variance bias": facts.get("predicted_variance_bias"),
        }

    def evidence(self, summary: Mapping[str, Any]) -> list[Evidence]:
        """Return checks of the bias; see ``Sampler``."""
        from streammc.samplers.stochastic_gradient.facts import bias_evidence

        return bias_evidence(summary["sampling"])
