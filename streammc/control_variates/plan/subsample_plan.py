"""Plan of a subsample: the certainty rows, and the number of units sampled from the rest.

With V the variance of the log-likelihood estimate and gamma the skewness of the unit totals D_j,
the plan is the cheapest (fewest rows an iteration) such that, at draws from the Laplace
approximation,

- V <= 0.1 at the 90th percentile of the draws, from at least 30 units;
- no unit moves the estimate by more than (U/k) max abs(D_j - mean D) = 0.5;
- the log of the perturbation, V^2 / (4k) - gamma V^1.5 / (3 sqrt k), varies by less
  than 0.02 over the draws (Dang et al. 2019, eq. 12, to third order in D).

Where the perturbed density is sampled, it must also match the posterior out to its tails
(``plan.tails``), and is cut there (``tails.Edge``).

Of a block-Poisson product the variance of its logarithm and its mean sign are forecast.
``log |L^|`` is a sum over Poisson(lambda) factors ``A = (d_f - a) / lambda``: its variance
is ``lambda E[(log |A|)^2]``, and under the density that the sampler visits the mean sign
is ``exp(-2 lambda E[max(-A, 0)])`` (``likelihood.estimators``). Quiroz et al. 2018
evaluate the first for normal ``d_f``; here both are averages over the mini-batches that
the pilot holds, so heavy tails count. With the bound ``a`` at the sampled remainder less
``lambda``, and mini-batches of ``g`` units, ``A - 1`` is about ``sum_f U D_j / k``: the
variance is that of the difference estimator from the same ``k`` units, ``V``, and the
mini-batch only decides how often ``A`` is negative: least often for one unit.

The unit is a single row, or a run where the store does not fit in memory. To read one row of a
mapped file, its page is read. If the store does not fit in memory, these reads take most of the
time of an iteration, and a run of contiguous rows needs no more of them than one row: with more
than one unit a block, runs give the same subsample with fewer reads. If the rows are in memory,
runs save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc import rng
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan import LEAST_SIGN, tails
from streammc.control_variates.plan.certainty_choice import Bounds, by_score, same_for_all
from streammc.control_variates.plan.pilot import Pilot, evaluate
from streammc.control_variates.plan.tails import Edge
from streammc.control_variates.plan.unit_scores import unit_scores
from streammc.errors import ConfigError, StoreError
from streammc.likelihood.data_views import relative_sizes
from streammc.likelihood.unit_words import SCORES, UNIFORM
from streammc.protocols import Dataset, Index, Model, Phases, Vector


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Settings of :func:`plan`, which checks them against the data."""

    subsample_size: int | None = None
    """m rows as given; ``None``: the fewest that meet the limits of ``subsample_plan``."""
    unit_rows: int | None = None
    """b; ``None``: 1."""
    n_blocks: int | None = None
    """G; ``None``: the smaller of 100 and k."""
    certainty: bool = True
    """``False``: no certainty rows."""
    factor_units: int = 0
    """Units of a factor of the block-Poisson product; 0 plans the difference estimator."""
    probabilities: str = UNIFORM
    """Probabilities of units: ``uniform``, or ``scores``, which makes one more full pass."""
    variance_target: float | None = None
    """Limit of V; ``None``: 0.1, or ``signed_variance_target`` for a product."""
    perturbed: bool = False
    """Whether the perturbed density is sampled: it must match the posterior out to its tails, with
    more units if need be, and is cut there."""
    memory_limit: int = 2**27
    """Largest size of the certainty rows in bytes."""
    scheduler: Any = None
    progress: Callable[[int, int], None] | None = None
    """Options of the pass for ``scores``; see ``Dataset.reduce``."""
    phases: Phases | None = None
    """Called as the tails are evaluated; see ``certify.compute``."""


VARIANCE_TARGET = 0.1
MOST_BLOCKS = 100
CERTAINTY_ROWS: Final = "certainty_rows"
RELATIVE: Final = "relative_probability"
_NAMES: Final = ("hmc-ecs", "hmc-ecs-signed")


class Refusal(NamedTuple):
    """Why subsampling is refused, and what to use instead."""

    cause: str
    advice: str = ""
    """Empty where the cause is the whole text, read from a run."""

    @property
    def text(self) -> str:
        """Both, as a run records them."""
        return f"{self.cause}; use {self.advice}" if self.advice else self.cause


@dataclass(frozen=True)
class Plan:
    """The design of the subsample, frozen before the first iteration."""

    certainty_rows: Index
    """(c,) sorted indices of the rows that are always evaluated."""
    unit_rows: int
    n_units: int
    k: int
    n_blocks: int
    """Rows of a unit b, units of the data U, units of the subsample k, blocks G."""
    reasons: tuple[str, ...]
    """One sentence for each choice."""
    predicted: dict[str, Any]
    """``variance`` (90th percentile), ``variance_by_draw``, ``skewness``, ``remainder_kurtosis``,
    ``perturbation_range``, ``max_jump``, ``needed_without_certainty`` (rows); with an edge
    ``perturbation``, the largest of ``tails.Tails.perturbation``."""
    deff: float
    deff_rows: int
    """Design effect of runs of ``deff_rows`` rows, without the certainty rows."""
    refused: Refusal | None
    """``None`` if subsampling is not refused."""
    factor_units: int = 0
    """Units of a factor of the block-Poisson product; 0 for the difference estimator."""
    relative: NDArray[np.float32] | None = None
    """(U,) probabilities of the units over the uniform one; ``None``: all the same."""
    score_seconds: float = 0.0
    """Time of the pass that scored the units."""
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
            "refused": self.refused and self.refused.text,
            "factor_units": self.factor_units,
            "probabilities": UNIFORM if self.relative is None else SCORES,
            "passes": self.passes,
            "score_seconds": self.score_seconds,
            "edge": self.edge.describe() if self.edge is not None else None,
        }

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by name, for the group ``constant_data``."""
        arrays: dict[str, Any] = {CERTAINTY_ROWS: (("certainty_row",), self.certainty_rows)}
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
            refused=described["refused"] and Refusal(described["refused"]),
            factor_units=int(described.get("factor_units", 0)),
            relative=None if described.get("probabilities", UNIFORM) == UNIFORM else read(RELATIVE),
            score_seconds=float(described.get("score_seconds", 0.0)),
            edge=Edge.from_description(described["edge"], read) if described.get("edge") else None,
        )


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON: numbers that are not finite become null."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else None


_RUN_BYTES = 16_384
"""Largest size of a run: four pages."""
ROW_ORDER_WARNING: Final = 2.0
"""Design effect of runs above which the rows are said to be ordered."""


def plan_units(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    request: PlanRequest,
    *,
    memory: int,
) -> Plan:
    """Return the plan with the unit that needs the fewest reads.

    Without ``unit_rows`` the unit is chosen here. Units drawn by score are single rows: few are
    needed, and a run dilutes the rows with high scores. The rows of a store may occupy ``memory``
    bytes as cached pages.
    """
    if request.unit_rows is not None or request.probabilities != UNIFORM:
        return plan(cv, dataset, model, request)
    rows, row = plan(cv, dataset, model, replace(request, unit_rows=1)), dataset.unit_name
    size = dataset.n_rows * dataset.rows().row_bytes
    if dataset.address == "memory" or rows.refused is not None:
        return rows
    if size <= memory:
        fits = f"the store ({_gb(size)}) fits in free memory, where runs of {row}s save no reading"
        return _because(rows, f"single {row}s: {fits}")
    larger = f"the store ({_gb(size)}) exceeds free memory ({_gb(memory)})"
    longest = max(_RUN_BYTES // max(dataset.rows().row_bytes, 1), 1)
    b = min(-(-rows.k // (request.n_blocks or MOST_BLOCKS)), longest)
    runs = plan(cv, dataset, model, replace(request, unit_rows=b)) if b > 1 else rows
    if runs.refused is None and runs.k >= rows.k:
        fewest = "no run would read less" if longest > 1 else f"a {row} is a whole read"
        return _because(rows, f"single {row}s: {larger}, but {fewest}")
    if runs.refused or runs.subsample_size > ROW_ORDER_WARNING * rows.subsample_size:
        return _because(
            rows,
            f"single {row}s: {larger}, but {row}s are ordered: runs would take "
            f"{runs.subsample_size} {row}s instead of {rows.subsample_size}; for runs, ingest with "
            "--shuffle",
        )
    return _because(
        runs, f"runs of {b} {row}s: {larger}, and {runs.k} reads replace {rows.k} of single {row}s"
    )


def _because(chosen: Plan, reason: str) -> Plan:
    return replace(chosen, reasons=(*chosen.reasons, reason))


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def plan(
    cv: ControlVariates, dataset: Dataset, model: Model, request: PlanRequest | None = None
) -> Plan:
    """Return the plan: certainty rows, units k and blocks G; ConfigError for a wrong setting."""
    request = request or PlanRequest()
    subsample_size, factor_units = request.subsample_size, request.factor_units
    n, row = dataset.n_rows, dataset.unit_name
    b = 1 if request.unit_rows is None else request.unit_rows
    _require("unit_rows", b, 1, n)
    if subsample_size is not None:
        _require("subsample_size", subsample_size, 1, n)
    variance_target = _variance_target(request, cv)
    fit = request.memory_limit // (8 * (dataset.n_features + 3))
    most_certain = min(fit, n) if request.certainty else 0
    growth = growth_at_edge(cv.dim, cv.order) if factor_units else None
    bounds = Bounds(variance_target, subsample_size, most_certain, growth)
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
    per_factor = max(factor_units, 1)  # k is a multiple of it
    k = per_factor * math.ceil(math.ceil(min(wanted, float(n)) / b) / per_factor)
    certain = len(choice.certain)
    refused = None
    if subsample_size is None and not choice.load + wanted <= n / 2:
        refused = too_many_rows(
            certain, choice.load + wanted, n, cv.order, _NAMES[factor_units > 0], row
        )
    tail_profile: tails.Tails | None = None
    if request.perturbed and refused is None and k >= 2:
        tail_profile = tails.profile(cv, dataset, model, b, choice, request.phases)
        if subsample_size is None:
            most_units = int(n / 2 - choice.load) // b
            needed = tail_profile.units(k, most_units)
            k = int(needed) if math.isfinite(needed) else max(k, most_units)
            unfit = not tail_profile.holds(k)
        else:  # a given subsample size is only refused if the perturbation is hopeless
            unfit = float(tail_profile.perturbation(k).max()) > tails.HOPELESS
        if unfit:
            remedy = ", or a larger --subsample-size, or leave it out"
            refused = Refusal(
                "expected hmc-ecs to sample the posterior, found a density that leaves the "
                f"posterior {tail_profile.fault(k)}: the variance of the log-likelihood estimate "
                "is not small against its units there",
                f"--sampler hmc{'' if subsample_size is None else remedy}",
            )
    if request.n_blocks is not None:
        _require("n_blocks", request.n_blocks, 1, k // per_factor)
    n_units = -(-n // b)
    predicted = choice.predict(k, b, n_units)
    if factor_units:
        predicted |= predicted_signs(choice.rest, b, k, factor_units, choice.moments[0].total[0])
        if refused is None and not predicted["mean_sign"] >= LEAST_SIGN:
            refused = Refusal(
                f"hmc-ecs-signed needs a mean sign of at least {LEAST_SIGN:g}, found "
                f"{predicted['mean_sign']:.2g} predicted with {k * b} {row}s: its errors would be "
                "unbounded",
                "a larger --subsample-size, a smaller minibatch, or hmc",
            )
    if tail_profile is not None:
        predicted["perturbation"] = min(float(tail_profile.perturbation(k).max()), 1e9)
    deff = choice.rest.deff(pilot.run_rows)
    reasons = reason_lines(cv, certain, k, b, predicted, subsample_size, variance_target, row)
    reasons += order_lines(choice.rest.relative, deff, pilot.run_rows, row)
    return Plan(
        certainty_rows=choice.certain,
        unit_rows=b,
        n_units=n_units,
        k=k,
        n_blocks=request.n_blocks or min(MOST_BLOCKS, k // per_factor),
        reasons=tuple(reasons),
        predicted=predicted,
        deff=deff,
        deff_rows=pilot.run_rows,
        refused=refused,
        factor_units=factor_units,
        relative=choice.rest.relative,
        score_seconds=scores.seconds if scores else 0.0,
        edge=tail_profile.edge(k) if tail_profile is not None else None,
    )


def _require(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or int(value) != value or not low <= value <= high:
        raise ConfigError(
            f"expected {name} from {low} to {high}, found {value}; leave it out for the default"
        )


def _variance_target(request: PlanRequest, cv: ControlVariates) -> float:
    """Return the limit of V, as given or by default; raise ConfigError unless above 0."""
    target = request.variance_target
    if target is None:
        blocks = request.n_blocks or MOST_BLOCKS
        target = signed_variance_target(cv.dim, blocks) if request.factor_units else VARIANCE_TARGET
    if not target > 0.0:
        raise ConfigError(f"expected variance_target > 0, found {target}; give one such as 0.1")
    return target


def reason_lines(
    cv: ControlVariates,
    certain: int,
    k: int,
    b: int,
    predicted: dict[str, Any],
    subsample_size: int | None,
    target: float,
    row: str,
) -> list[str]:
    """Return one sentence for each choice of the plan."""
    unit = row if b == 1 else "run"
    lines = [
        f"{subsample_text(certain, k, b, row)}; the log-likelihood estimated from it is predicted "
        f"to have variance {predicted['variance']:.2g} (aim: at most {target:g}), and one random "
        f"{unit} to move it by at most {predicted['max_jump']:.2g}",
    ]
    if subsample_size is not None and not predicted["variance"] <= target:
        lines.append(
            f"subsample_size {subsample_size} was given and is too small for the target of "
            f"{target:g}"
        )
    if certain:
        lines.append(
            f"without certainty {row}s {number(predicted['needed_without_certainty'])} random "
            f"{row}s would be needed"
        )
    if not cv.certificate.converged:
        lines.append(
            f"theta_star is {cv.certificate.decrement:.2g} posterior sd from the mode; "
            "leave out passes to certify it"
        )
    return lines


def subsample_text(certain: int, k: int, b: int, row: str) -> str:
    """Return the composition of a subsample in plain words."""
    random = count_of(k, f"random {row}")
    if b > 1:
        random = f"{count_of(k, 'random run')} of {b} {row}s"
    if not certain:
        return f"a subsample is {random}"
    always = f"{count_of(certain, row)} of largest influence (certainty {row}s: always evaluated)"
    return f"a subsample is {always} and {random}"


def count_of(n: int, thing: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> count_of(1, "row"), count_of(18, "row")
    ('1 row', '18 rows')
    """
    return f"{n} {thing}{'' if n == 1 else 's'}"


def order_lines(
    relative: NDArray[np.float32] | None, deff: float, deff_rows: int, row: str
) -> list[str]:
    """Return the sentences on unequal probabilities and on ordered rows, where they apply."""
    lines = []
    if relative is not None:
        lines.append(
            "units drawn by their scores, from one more pass: the most likely "
            f"{relative.max():.3g} times as often as with equal probabilities, the least likely "
            f"{relative.min():.2g} times"
        )
    if deff > ROW_ORDER_WARNING:
        lines.append(
            f"{row}s are ordered: runs of {deff_rows} {row}s have design effect {deff:.1f}; "
            "for runs, ingest with --shuffle"
        )
    return lines


def too_many_rows(
    certain: int, work: float, n_rows: int, order: int, name: str, row: str
) -> Refusal:
    """Return the refusal of ``work`` rows an iteration, more than half, and what to do."""
    cause, advice = (
        f"{name} needs at most half of the {n_rows} {row}s an iteration to be worth it, found "
        f"{number(work)} to be right here ({certain} certainty {row}s and "
        f"{number(work - certain)} sampled)",
        "--sampler hmc",
    )
    if order != 2:
        advice += f", or control variates of order 2 instead of {order} (--option order=2)"
        if name == "hmc-ecs":
            advice += (
                "; a given --subsample-size with --option allow_high_variance=true runs it biased "
                "as it is"
            )
    return Refusal(cause, advice)


def number(rows: float) -> str:
    """Return a number of rows as text, ``unboundedly many`` if it is not finite."""
    if not math.isfinite(rows):
        return "unboundedly many"
    return f"{rows:.0f}" if rows < 1e9 else f"{rows:.1e}"


GROWTH = 2.0
"""Standard deviations of a factor that the soft bound keeps positive, at any distance."""


def signed_variance_target(dim: int, n_blocks: int) -> float:
    """Return the target of the variance V: ``dim / n_blocks``, between 0.1 and 1.

    Given the subsample, the centre of the posterior is shifted by at most ``V / dim``
    posterior variances along each direction, and the subsample is renewed in about
    ``n_blocks`` iterations: the inefficiency grows by at most ``n_blocks V / dim``,
    which is 1 at ``V = dim / n_blocks``.
    """
    return min(max(dim / n_blocks, 0.1), 1.0)


def growth_at_edge(dim: int, order: int) -> float:
    """Return the growth of remainders out to the 99.9 % radius of a Gaussian posterior.

    ``r^(order + 1)``, with r^2 the chi-square quantile over d (Wilson and Hilferty 1931).
    """
    square = (1.0 - 2.0 / (9.0 * dim) + 3.09 * math.sqrt(2.0 / (9.0 * dim))) ** 3
    return float(square ** (0.5 * (order + 1)))


def predicted_signs(
    pilot: Pilot, unit_rows: int, k: int, units: int, totals: Vector
) -> dict[str, Any]:
    """Return the forecast of a product of ``k`` expected units, ``units`` a factor, as JSON.

    ``pilot`` has no certainty rows; ``totals`` (S,) are the sampled remainders of all rows at its
    draws, around the median of which the soft bound is chosen. ``mean_sign`` is that under the
    density proportional to ``|L^|``.
    """
    remainder = float(np.median(totals))
    intensity = k / units
    n_units = -(-pilot.n_rows // unit_rows)
    bound = remainder - intensity
    variance, sign = [], []
    shares = pilot.shares(unit_rows)
    for drawn in pilot.totals(unit_rows):
        generator = rng.stream(0, 4, rng.Role.PLAN)
        if pilot.relative is None:
            shuffled = generator.permutation(drawn)
        else:
            shuffled = generator.choice(drawn, size=len(drawn), p=shares / shares.sum())
        groups = max(len(drawn) // units, 1)
        means = shuffled[: groups * units].reshape(groups, -1).mean(axis=1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            factor = (n_units * means - bound) / intensity
            variance.append(intensity * float(np.mean(np.log(np.abs(factor)) ** 2)))  # of log |L^|
            sign.append(float(np.exp(-2.0 * intensity * np.mean(np.maximum(-factor, 0.0)))))
    by_draw = np.nan_to_num(np.array(variance), nan=np.inf, posinf=np.inf)
    return {
        "variance": float(np.quantile(by_draw, 0.9)),
        "variance_by_draw": by_draw.tolist(),
        "remainder": remainder,
        "mean_sign": float(np.nan_to_num(np.array(sign)).mean()),
    }
