"""``laplace``: draws of the Laplace approximation, weighed by the exact posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streammc.diagnostics.summary import least_ess
from streammc.diagnostics.text import number
from streammc.diagnostics.weights import PARETO_K, heavy_tailed
from streammc.errors import ConfigError
from streammc.numerics.process_limits import available_threads
from streammc.samplers.common.options import builder, check_counts
from streammc.samplers.common.sampler import WEIGHTED, Check, Sampler

if TYPE_CHECKING:
    from streammc.protocols import Model
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory


FEWEST_PROPOSALS: Final = 100
"""Fewer show no tail of the weights."""
_EVALUATIONS: Final = 1e11
_ENOUGH: Final = 1000
"""Proposals that a pass weighs however long it is."""
_PER_SECOND: Final = 4e8
"""Evaluations of a row on one core."""


@dataclass(frozen=True, kw_only=True)
class Laplace(Sampler):
    """Sampler ``laplace``: the Laplace approximation, weighed by the exact posterior in one pass.

    Draws of ``N(theta_star, S S')`` in unconstrained coordinates get the importance weights

        w = exp(log_lik(theta) + log_prior(theta)) / N(theta; theta_star, S S'),

    smoothed in their tail (Vehtari et al. 2024). Each is then kept a number of times in proportion
    to its weight, one copy after the other: the draws of the run need no weights, and the
    autocorrelation of its copies is what a draw that is kept twice lacks in effective size. A
    posterior too far from its approximation (Pareto k above 0.7, or a second mode) is refused.
    Warm-up tunes nothing, and takes no time.

    Parameters
    ----------
    proposals
        Draws of the approximation that are weighed, of all chains together, at least 100. ``None``:
        as many as draws are asked for, or fewer where that is over 1e11 evaluations of a row, but
        1000.

    Examples
    --------
    >>> from streammc.samplers import laplace
    >>> laplace(proposals=2000).target
    'exact, by weights'
    """

    proposals: int | None = None

    name: ClassVar[str] = "laplace"
    target: ClassVar[str] = WEIGHTED
    own_designs: ClassVar[bool] = True
    draws_together: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Vehtari, Simpson, Gelman, Yao and Gabry 2024, Pareto smoothed importance sampling"
    )
    statistics: ClassVar[tuple[str, ...]] = ("lp", "n_rows", "log_weight")
    """``log_weight``: of the draw before it was kept, up to a constant."""
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "proposals": ("proposal", "parameter"),
        "log_density": ("proposal",),
        "log_weight": ("proposal",),
        "copies": ("proposal",),
    }
    """Unconstrained draws of the approximation, in order; their log posterior without the
    log-likelihood at theta_star; their log weights; how many draws of the run each became."""

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "proposals")
        if self.proposals is not None and self.proposals < FEWEST_PROPOSALS:
            raise ConfigError(
                f"proposals must be at least {FEWEST_PROPOSALS}, found {self.proposals}: fewer "
                "show no tail of the weights; give more, or leave it out"
            )

    def count(self, n_rows: int, draws: int) -> int:
        """Return how many proposals a pass over ``n_rows`` weighs for ``draws`` draws in all."""
        affordable = max(int(_EVALUATIONS / n_rows), _ENOUGH)
        return self.proposals or min(max(draws, _ENOUGH), affordable)

    def own_pass_seconds(self, n_rows: int, draws: int) -> float:
        """Return about how long the proposals take to be weighed; see ``Sampler``."""
        return n_rows * self.count(n_rows, draws) / (_PER_SECOND * available_threads())

    def needs_rows(self, model: Model) -> bool:
        """Return ``False``: a pass weighs the proposals; see ``Sampler``."""
        return False

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Make the pass that weighs the proposals, and keep them; see ``Sampler``."""
        from streammc.samplers.importance.weighing import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.importance.weighing import kept_draws

        return kept_draws(request, setup)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return number, effective size, largest and Pareto k of the weights."""
        from streammc.samplers.importance.weighing import weight_facts

        return weight_facts(setup.arrays["log_weight"], setup.arrays["copies"])

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of the weights; see ``Sampler``."""
        facts = summary["sampling"]
        if "weights_ess" not in facts:  # an unfinished run
            return []
        k, ess, least = facts["pareto_k"], facts["weights_ess"], least_ess(facts["chains"])
        proposals, passed = facts["proposals"], ess >= least
        heavy = k is not None and heavy_tailed(k, ess, proposals, facts["largest_weight"])
        return [
            Check(
                name="effective draws by the weights",
                value=f"{number(ess)} of {proposals:,}",
                limit=f"at least {least}",
                passed=passed,
                meaning="How many independent draws of the posterior the weighted ones are worth.",
                warning=""
                if passed
                else f"the weights of {proposals} draws are worth {ess:.3g} independent ones, "
                f"below {least}: means and quantiles are not yet sure; use more --option "
                "proposals, hmc-ecs, or hmc",
                receipt={"proposals": proposals, "effective draws": ess},
            ),
            Check(
                name="Pareto k of the weights",
                value=number(k, 2),
                limit=f"at most {PARETO_K:g}",
                passed=None if k is None else not heavy,
                meaning="Draws of a Gaussian approximation are weighed by the exact density; with "
                "a heavy tail a few of them decide everything.",
                receipt={"pareto k": k},
            ),
        ]


laplace = builder(Laplace)
