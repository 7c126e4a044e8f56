"""Plan of a subsample: the certainty rows, and the number of units sampled from the rest.

With V the variance of the log-likelihood estimate and gamma the skewness of D, the
plan is the cheapest (fewest rows an iteration) such that, at draws from the Laplace
approximation,

- V <= 0.1 at the 90th percentile of the draws, from at least 30 units;
- no unit moves the estimate by more than (U/k) max abs(D_j - mean D) = 0.5;
- the log of the perturbation, V^2 / (4k) - gamma V^1.5 / (3 sqrt k), varies by less
  than 0.02 over the draws (Dang et al. 2019, eq. 12, to third order in D).

Where the perturbed density is sampled, it must also match the posterior out to its tails
(:mod:`tails`), and is cut there (:mod:`edge`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan import plan_words, signs, tails
from streammc.control_variates.plan.certainty_choice import Bounds, by_score, same_for_all
from streammc.control_variates.plan.edge import Edge
from streammc.control_variates.plan.pilot import evaluate
from streammc.control_variates.plan.plan_request import PlanRequest
from streammc.control_variates.plan.unit_scores import unit_scores
from streammc.errors import ConfigError, StoreError
from streammc.likelihood.grouped import relative_sizes
from streammc.protocols import Dataset, Index, Model
from streammc.subsampling.probabilities import SCORES, UNIFORM

VARIANCE_TARGET = 0.1
MOST_BLOCKS = 100
CERTAINTY_ROWS: Final = "certainty_rows"
RELATIVE: Final = "relative_probability"
_NAMES: Final = ("hmc-ecs", "hmc-ecs-signed")


@dataclass(frozen=True)
class Plan:
    """The design of the subsample, frozen before the first iteration.

    Attributes
    ----------
    certainty_rows
        (c,) sorted indices of the rows that are always evaluated.
    unit_rows, n_units, k, n_blocks
        Rows of a unit b, units of the data U, units of the subsample k, blocks G.
    reasons
        One sentence for each choice.
    predicted
        ``variance`` (90th percentile), ``variance_by_draw``, ``skewness``,
        ``remainder_kurtosis``, ``perturbation_range``, ``max_jump``,
        ``needed_without_certainty`` (rows); with an edge ``perturbation``, the largest of
        ``tails.Tails.perturbation``.
    deff, deff_rows
        Design effect of runs of ``deff_rows`` rows, without the certainty rows.
    refused
        Why subsampling is refused, and what to do; ``None`` if it is not.
    relative
        (U,) probabilities of the units over the uniform one; ``None``: all the same.
    score_seconds
        Time of the pass that scored the units.
    """

    certainty_rows: Index
    unit_rows: int
    n_units: int
    k: int
    n_blocks: int
    reasons: tuple[str, ...]
    predicted: dict[str, Any]
    deff: float
    deff_rows: int
    refused: str | None
    factor_units: int = 0
    """Units of a factor of the block-Poisson product; 0 for the difference estimator."""
    relative: NDArray[np.float32] | None = None
    score_seconds: float = 0.0
    edge: Edge | None = None
    """Region outside which the perturbed density is 0; ``None``: not cut."""

    @property
    def passes(self) -> int:
        """Number of full passes made by the plan itself."""
        return 0 if self.relative is None else 1

    @property
    def subsample_size(self) -> int:
        """Rows of the subsample, m = k b."""
        return self.k * self.unit_rows

    def describe(self) -> dict[str, Any]:
        """Return JSON of everything but the arrays; a number that is not finite becomes null."""
        return {
            "unit_rows": self.unit_rows,
            "n_units": self.n_units,
            "k": self.k,
            "n_blocks": self.n_blocks,
            "certainty_rows": len(self.certainty_rows),
            "reasons": list(self.reasons),
            "predicted": {name: _plain(value) for name, value in self.predicted.items()},
            "deff": self.deff,
            "deff_rows": self.deff_rows,
            "refused": self.refused,
            "factor_units": self.factor_units,
            "probabilities": UNIFORM if self.relative is None else SCORES,
            "passes": self.passes,
            "score_seconds": self.score_seconds,
            "edge": self.edge.describe() if self.edge is not None else None,
        }

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by name, for the group ``constant_data``."""
        arrays: dict[str, Any] = {CERTAINTY_ROWS: self.certainty_rows}
        if self.relative is not None:
            arrays[RELATIVE] = (("unit",), self.relative)
        return arrays | (self.edge.arrays() if self.edge is not None else {})

    @classmethod
    def from_description(
        cls, described: Mapping[str, Any], read: Callable[[str], NDArray[Any]]
    ) -> Plan:
        """Restore from :meth:`describe` and :meth:`arrays`, read by name."""
        rows = np.asarray(read(CERTAINTY_ROWS), np.int64)
        if len(rows) != described["certainty_rows"]:
            raise StoreError(
                f"expected {described['certainty_rows']} certainty rows, found {len(rows)}; "
                "the run is damaged: start it again"
            )
        return cls(
            certainty_rows=rows,
            unit_rows=int(described["unit_rows"]),
            n_units=int(described["n_units"]),
            k=int(described["k"]),
            n_blocks=int(described["n_blocks"]),
            reasons=tuple(described["reasons"]),
            predicted=dict(described["predicted"]),
            deff=float(described["deff"]),
            deff_rows=int(described["deff_rows"]),
            refused=described["refused"],
            factor_units=int(described.get("factor_units", 0)),
            relative=None if described.get("probabilities", UNIFORM) == UNIFORM else read(RELATIVE),
            score_seconds=float(described.get("score_seconds", 0.0)),
            edge=Edge.from_description(described["edge"], read) if described.get("edge") else None,
        )


def plan(
    cv: ControlVariates, dataset: Dataset, model: Model, request: PlanRequest | None = None
) -> Plan:
    """Return the plan: certainty rows, number of units k and number of blocks G.

    Parameters
    ----------
    request
        Settings; ``None``: all defaults.

    Raises
    ------
    ConfigError
        If a setting is out of range.
    """
    request = request or PlanRequest()
    subsample_size, factor_units = request.subsample_size, request.factor_units
    n = dataset.n_rows
    b = 1 if request.unit_rows is None else request.unit_rows
    _require("unit_rows", b, 1, n)
    if subsample_size is not None:
        _require("subsample_size", subsample_size, 1, n)
    variance_target = _variance_target(request, cv)
    fit = request.memory_limit // (8 * (dataset.n_features + 3))
    most = min(fit, n) if request.certainty else 0
    edge = signs.edge(cv.dim, cv.order) if factor_units else None
    bounds = Bounds(variance_target, subsample_size, most, edge)
    pilot = evaluate(cv, dataset, model, b)
    scores = None
    if request.probabilities == UNIFORM:
        cost = relative_sizes(dataset, cv.candidates)
        choice = same_for_all(cv, pilot, b, bounds, cost)
    else:
        scores = unit_scores(
            cv, dataset, model, b, scheduler=request.scheduler, progress=request.progress
        )
        choice = by_score(pilot, b, bounds, scores)
    wanted = choice.needed if subsample_size is None else float(subsample_size)
    group = max(factor_units, 1)
    k = group * math.ceil(math.ceil(min(wanted, float(n)) / b) / group)
    certain = len(choice.certain)
    refused = None
    if subsample_size is None and not choice.load + wanted <= n / 2:
        refused = plan_words.refusal(
            certain, choice.load + wanted, n, cv.order, _NAMES[factor_units > 0]
        )
    reach: tails.Tails | None = None
    if request.perturbed and refused is None and k >= 2:
        reach = tails.profile(cv, dataset, model, b, choice, request.phases)
        if subsample_size is None:
            needed = reach.units(k, most := int(n / 2 - choice.load) // b)
            k = int(needed) if math.isfinite(needed) else max(k, most)
        # A given subsample size is only refused if the perturbation is hopeless.
        hopeless = float(reach.perturbation(k).max()) > tails.HOPELESS
        if hopeless if subsample_size is not None else not reach.holds(k):
            refused = plan_words.leaves(reach.fault(k), subsample_size is not None)
    if request.n_blocks is not None:
        _require("n_blocks", request.n_blocks, 1, k // group)
    n_units = -(-n // b)
    predicted = choice.predict(k, b, n_units)
    if factor_units:
        predicted |= signs.predicted(choice.rest, b, k, factor_units, choice.moments[0].total[0])
        if refused is None and not predicted["mean_sign"] >= signs.LEAST_SIGN:
            refused = plan_words.unsigned(k * b, predicted["mean_sign"], signs.LEAST_SIGN)
    if reach is not None:
        predicted["perturbation"] = min(float(reach.perturbation(k).max()), 1e9)
    deff = choice.rest.deff(pilot.run_rows)
    reasons = plan_words.reasons(cv, certain, k, b, predicted, subsample_size, variance_target)
    reasons += plan_words.order(choice.rest.relative, deff, pilot.run_rows)
    return Plan(
        certainty_rows=choice.certain,
        unit_rows=b,
        n_units=n_units,
        k=k,
        n_blocks=request.n_blocks or min(MOST_BLOCKS, k // group),
        reasons=tuple(reasons),
        predicted=predicted,
        deff=deff,
        deff_rows=pilot.run_rows,
        refused=refused,
        factor_units=factor_units,
        relative=choice.rest.relative,
        score_seconds=scores.seconds if scores else 0.0,
        edge=reach.edge(k) if reach is not None else None,
    )


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON: numbers that are not finite become null."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else None


def _require(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or int(value) != value or not low <= value <= high:
        raise ConfigError(
            f"expected {name} from {low} to {high}, found {value}; leave it out for the default"
        )


def _variance_target(request: PlanRequest, cv: ControlVariates) -> float:
    """Return the limit of V, as given or by default; raise ConfigError unless above 0."""
    given = request.variance_target
    if given is None:
        blocks = request.n_blocks or MOST_BLOCKS
        given = signs.variance_target(cv.dim, blocks) if request.factor_units else VARIANCE_TARGET
    if not given > 0.0:
        raise ConfigError(f"expected variance_target > 0, found {given}; give one such as 0.1")
    return given
