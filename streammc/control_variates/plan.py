"""Which rows are certain, and how many units are sampled from the rest.

With V the variance of the log-likelihood estimate and gamma the skewness of D, the
plan is the cheapest (fewest rows an iteration) such that, at draws from the Laplace
approximation,

- V <= 0.1 at the 90th percentile of the draws, from at least 30 units;
- no unit moves the estimate by more than (U/k) max abs(D_j - mean D) = 0.5;
- the log of the perturbation, V^2 / (4k) - gamma V^1.5 / (3 sqrt k), varies by less
  than 0.02 over the draws (Dang et al. 2019, eq. 12, to third order in D).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammc.control_variates import plan_words, signs
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.pilot import Pilot, evaluate
from streammc.control_variates.remainder_moments import (
    LARGEST_JUMP,
    RemainderMoments,
    required_rows,
)
from streammc.errors import ConfigError, StoreError
from streammc.protocols import Dataset, Index, Model

VARIANCE_TARGET = 0.1
MOST_BLOCKS = 100
ROW_ORDER_WARNING = 2.0


@dataclass(frozen=True)
class Plan:
    """The design of the subsample, frozen before the first iteration.

    Attributes
    ----------
    certainty_rows
        (c,) sorted rows that are always evaluated.
    unit_rows, n_units, k, n_blocks
        b, U, units in the subsample, G.
    reasons
        One sentence for each choice.
    predicted
        ``variance`` (90th percentile), ``variance_by_draw``, ``skewness``,
        ``remainder_kurtosis``, ``perturbation_range``, ``max_jump``,
        ``needed_without_certainty`` (rows).
    deff, deff_rows
        Design effect of runs of ``deff_rows`` rows, without the certainty rows.
    refused
        Why subsampling is refused, and what to do; ``None`` if it is not.
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

    @property
    def subsample_size(self) -> int:
        """Rows of the subsample, m = k b."""
        return self.k * self.unit_rows

    def describe(self) -> dict[str, Any]:
        """Return everything but the certainty rows as JSON; not finite becomes null."""
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
        }

    @classmethod
    def from_description(cls, described: Mapping[str, Any], certainty_rows: Index) -> Plan:
        """Restore from :meth:`describe` and the certainty rows."""
        rows = np.asarray(certainty_rows, np.int64)
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
        )


def plan(
    cv: ControlVariates,
    dataset: Dataset,
    model: Model,
    *,
    subsample_size: int | None = None,
    unit_rows: int | None = None,
    n_blocks: int | None = None,
    certainty: bool = True,
    factor_units: int = 0,
    variance_target: float | None = None,
    memory_limit: int = 2**27,
) -> Plan:
    """Choose the certainty rows, k and G.

    Parameters
    ----------
    subsample_size
        m rows, as given; ``None``: the fewest that keep the bounds above.
    unit_rows
        b; ``None``: 1.
    n_blocks
        G; ``None``: the smaller of 100 and k.
    certainty
        ``False``: no certainty rows.
    factor_units
        Units of a factor of the block-Poisson product; 0 plans the difference estimator.
    variance_target
        Bound on V; ``None``: 0.1, or what :mod:`signs` says of a product.
    memory_limit
        Bytes that the certainty rows may take.

    Raises
    ------
    ConfigError
        If an option is out of range.
    """
    n = dataset.n_rows
    b = 1 if unit_rows is None else unit_rows
    _require("unit_rows", b, 1, n)
    if subsample_size is not None:
        _require("subsample_size", subsample_size, 1, n)
    if variance_target is None:
        blocks = n_blocks or MOST_BLOCKS
        variance_target = signs.variance_target(cv.dim, blocks) if factor_units else VARIANCE_TARGET
    if not variance_target > 0.0:
        raise ConfigError(f"expected variance_target > 0, found {variance_target}; 0.1 is usual")
    pilot = evaluate(cv, dataset, model, b)
    by_pass, sizes = RemainderMoments.of_histogram(cv.histogram, len(cv.candidates))
    allowed = sizes <= min(memory_limit // (8 * (dataset.n_features + 3)), n)
    if not certainty:
        allowed &= sizes == 0
    by_pilot = RemainderMoments.of_pilot(pilot, cv.candidates, sizes)
    deff = 1.0
    for _ in range(1 if b == 1 else 3):
        needed = np.maximum(
            required_rows(by_pass, deff, b, variance_target, perturbed=not factor_units),
            required_rows(by_pilot, deff, b, variance_target, perturbed=not factor_units),
        )
        at = _choose(sizes, needed, allowed, subsample_size)
        certain = np.sort(cv.candidates[: sizes[at]])
        rest = pilot.without(certain)
        if b > 1:
            deff = max(rest.deff(b), 1e-3)
            jump = n * float(rest.units(b).largest.max()) / LARGEST_JUMP
            needed[at] = max(needed[at], b * np.ceil(jump / b))
    bare = needed[sizes == 0][0]
    wanted = float(needed[at]) if subsample_size is None else float(subsample_size)
    k = math.ceil(min(wanted, float(n)) / b)
    if factor_units:
        k = factor_units * math.ceil(k / factor_units)
    refused = None
    name = "hmc-ecs-signed" if factor_units else "hmc-ecs"
    cost = sizes[at] + wanted
    if subsample_size is None and not cost <= n / 2:
        refused = plan_words.refusal(int(sizes[at]), wanted, n, cv.order, name)
    if n_blocks is not None:
        _require("n_blocks", n_blocks, 1, k // max(factor_units, 1))
    predicted = _predict(by_pass, by_pilot, rest, at, k, b, deff)
    if factor_units:
        middle = float(np.median(by_pass.total[at]))
        signed = signs.forecast(rest, b, k, factor_units, middle)
        predicted["variance"] = float(np.quantile(signed.variance, 0.9))
        predicted["variance_by_draw"] = [float(v) for v in signed.variance]
        predicted["remainder"] = middle
        predicted["mean_sign"] = float(signed.mean_sign.mean())
        if refused is None and not predicted["mean_sign"] >= signs.LEAST_SIGN:
            refused = (
                f"hmc-ecs-signed with {k * b} rows would have a mean sign of "
                f"{predicted['mean_sign']:.2g}, under {signs.LEAST_SIGN:g}: its errors would be "
                "unbounded; use a larger --subsample-size, a smaller minibatch, or hmc"
            )
    predicted["needed_without_certainty"] = float(bare)
    deff_rows = pilot.run_rows
    run_effect = rest.deff(deff_rows)
    reasons = plan_words.reasons(cv, sizes[at], k, b, predicted, subsample_size, variance_target)
    if run_effect > ROW_ORDER_WARNING:
        reasons.append(
            f"rows are ordered: runs of {deff_rows} rows have design effect {run_effect:.1f}; "
            "for runs, ingest with --shuffle"
        )
    return Plan(
        certainty_rows=certain,
        unit_rows=b,
        n_units=-(-n // b),
        k=k,
        n_blocks=n_blocks or min(MOST_BLOCKS, k // max(factor_units, 1)),
        reasons=tuple(reasons),
        predicted=predicted,
        deff=run_effect,
        deff_rows=deff_rows,
        refused=refused,
        factor_units=factor_units,
    )


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON can hold it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else None


def _require(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or int(value) != value or not low <= value <= high:
        raise ConfigError(
            f"expected {name} from {low} to {high}, found {value}; leave it out for the default"
        )


def _choose(sizes: Index, needed: np.ndarray, allowed: np.ndarray, given: int | None) -> int:
    """Return the index of the cheapest set of certainty rows; without any if none will do."""
    if given is not None:
        enough = allowed & (needed <= given)
        if enough.any():
            return int(np.argmin(np.where(enough, sizes, np.iinfo(np.int64).max)))
        best = np.where(allowed, needed, np.inf)
    else:
        best = np.where(allowed, sizes + needed, np.inf)
    if not np.isfinite(best).any():
        return int(np.argmin(sizes))
    # Of equally cheap sets the smallest: a subsample too small for any bound needs no row.
    return int(np.argmin(np.where(best == best.min(), sizes, np.iinfo(np.int64).max)))


def _predict(
    by_pass: RemainderMoments,
    by_pilot: RemainderMoments,
    rest: Pilot,
    at: int,
    k: int,
    b: int,
    deff: float,
) -> dict[str, Any]:
    m = k * b
    pilot_variance = deff * by_pilot.variance[at] / m
    pass_variance = deff * by_pass.variance[at] / m
    units = rest.units(b)
    return {
        "variance": float(max(np.quantile(pilot_variance, 0.9), np.quantile(pass_variance, 0.9))),
        "variance_by_draw": [float(v) for v in pilot_variance],
        "skewness": float(np.nan_to_num(np.median(units.skewness))),
        "remainder_kurtosis": float(np.nan_to_num(np.median(units.kurtosis))),
        "perturbation_range": float(
            max(
                by_pass.perturbation_range(deff, b, m)[at],
                by_pilot.perturbation_range(deff, b, m)[at],
            )
        ),
        "max_jump": float(
            max(by_pass.largest[at], by_pilot.largest[at], rest.n_rows * units.largest.max()) / m
        ),
    }
