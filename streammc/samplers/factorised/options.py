"""``smh``: exact draws from rows that sequential reads drew ahead."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streammc.diagnostics.text import number
from streammc.errors import ConfigError
from streammc.samplers.common.options import builder, check_number
from streammc.samplers.common.sampler import EXACT, Check, Sampler, at_most

if TYPE_CHECKING:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.protocols import Dataset, Model
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory

NEAR_THE_EDGE: Final = 0.95
"""Share of ``pool.PoolPlan.radius`` beyond which a draw says that the posterior may be cut."""


@dataclass(frozen=True, kw_only=True)
class ScalableMetropolis(Sampler):
    """Sampler ``smh``: scalable Metropolis-Hastings on rows drawn ahead (Cornish et al. 2019).

    Exact, without a variance, a sign or an audit. Proposals leave the Gaussian approximation
    invariant: they rotate the position towards a fresh draw of it. A proposal is rejected by any
    one of few rows, drawn with probabilities proportional to bounds on their remainders, which hold
    within a radius around theta_star that the chain never leaves. Sequential reads draw these rows
    ahead of the chains: an iteration reads nothing from the disk, and takes fewer rows the more
    rows there are. For families with one linear predictor and a bounded third derivative (logistic,
    probit, binomial, poisson, exponential), and for gaussian, whose sums are sufficient.

    Parameters
    ----------
    acceptance
        Share of proposals to accept, in (0, 1): warm-up makes the angle of the rotation smaller
        where fewer are.

    Examples
    --------
    >>> from streammc.samplers import smh
    >>> smh().target
    'exact'
    """

    acceptance: float = 0.6

    name: ClassVar[str] = "smh"
    target: ClassVar[str] = EXACT
    paper: ClassVar[str] = (
        "Cornish, Vanetti, Bouchard-Cote, Deligiannidis, Doucet 2019, Scalable "
        "Metropolis-Hastings for exact Bayesian inference with large datasets"
    )
    statistics: ClassVar[tuple[str, ...]] = (
        "lp",
        "acceptance_rate",
        "n_rows",
        "angle",
        "distance",
    )
    """Columns of ``loop``. ``lp``: log posterior, that of rows in memory exact and of all others
    by their expansions; ``angle`` of the rotation, radians; ``distance`` from theta_star over the
    radius."""
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pool_plan": ("pool_quantity",),
        "pool_factor": ("pool_row", "pool_column"),
    }
    """``pool.PoolPlan`` as one array, a number for each of its fields, and ``pool.Whitening``'s
    factor."""

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_number("acceptance", self.acceptance, "(0, 1)")

    def needs_rows(self, model: Model) -> bool:
        """Return ``False``: they are drawn in passes; see ``Sampler``."""
        return False

    def check_model(self, model: Model) -> None:
        """Raise ConfigError where the remainders of rows have no known bound."""
        if model.exact_sums is not None or model.joint is not None:  # joint: no pass adds it up
            return
        p = model.n_linear + model.n_scalar
        if p != 1 or model.third_derivative is None:
            why = f"{p} predictors a row" if p != 1 else "no bound on its third derivative"
            raise ConfigError(
                "expected a model of one linear predictor with a bounded third derivative for "
                "smh, as logistic, probit, binomial, poisson or exponential, found "
                f"{model.name} with {why}: use hmc-ecs, or hmc"
            )

    def predicted_rows(self, dataset: Dataset, model: Model, cv: ControlVariates) -> float | None:
        """Return the rows of an iteration; ``None`` where the model has no bound."""
        from streammc.samplers.factorised.kernel import planned_around

        with suppress(ConfigError):
            self.check_model(model)
            _, plan = planned_around(dataset, model, cv)
            return plan.drawn + plan.certain
        return None

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return control variates and the plan of the reads; see ``Sampler``."""
        from streammc.samplers.factorised.kernel import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Make the first read, and return what all chains share; see ``Sampler``."""
        from streammc.samplers.factorised.kernel import problem

        return problem(self, request, setup)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return rows an iteration, angle and the largest distance of the draws."""
        drawn = run.statistics("n_rows", "angle", "distance")
        return {
            "rows_per_iteration": float(drawn["n_rows"].mean()),
            "angle": float(drawn["angle"].mean()),
            "largest_distance": float(drawn["distance"].max()),
        }

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return checks of the rows and of the radius; see ``Sampler``."""
        facts = summary["sampling"]
        if "largest_distance" not in facts:  # an unfinished run
            return []
        rows = facts["rows_per_iteration"]
        return [
            Check(
                name="rows an iteration",
                value=number(rows, 3),
                meaning="Rows whose likelihood an iteration evaluates; all others are bounded.",
                receipt={"rows an iteration": rows},
                figure="n_rows",
            ),
            at_most(
                "largest distance from theta_star, share of the radius",
                facts["largest_distance"],
                NEAR_THE_EDGE,
                "The chain never leaves a ball that holds all but 1e-12 of the Gaussian "
                "approximation: a draw near its edge says that the posterior is wider.",
                warning="draws reach the edge of the region in which the rows are bounded: the "
                "posterior has heavier tails than its Gaussian approximation, and is cut there; "
                "use hmc-ecs, or hmc",
                figure="distance",
            ),
        ]


smh = builder(ScalableMetropolis)
