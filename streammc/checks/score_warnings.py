"""What the Pareto shapes of leave-one-out terms say of a score, and its warnings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streammc.checks.leave_one_out import RowTerms
from streammc.protocols import Index

_WORST: Final = 10
_MOST_VARIANCE: Final = 0.4
"""Variance of a row's log-likelihood above which WAIC is not accurate (Vehtari et al. 2017)."""
_MOST_SAMPLING: Final = 0.5
_NOT_THE_POSTERIOR: Final = ("approximate", "biased", "tempered")


def good_shape(draws: int) -> float:
    """Return the Pareto k below which a term is reliable (Vehtari et al. 2024, section 3.2.4)."""
    return min(1.0 - 1.0 / float(np.log10(draws)), 0.7)


def pareto_facts(terms: RowTerms, at: Index, draws: int) -> dict[str, Any]:
    """Return the counts of rows by Pareto k, and the rows with the largest, as JSON."""
    k, limit = terms.shape, good_shape(draws)
    used = terms.observations > 0.0
    order = np.argsort(-k, kind="stable")[:_WORST]
    return {
        "good_below": limit,
        "good": int((used & (k <= limit)).sum()),
        "bad": int((used & (k > limit) & (k <= 1.0)).sum()),
        "very_bad": int((used & (k > 1.0)).sum()),
        "largest": [
            {"row": int(at[i]), "k": float(k[i])} for i in order.tolist() if k[i] > -np.inf
        ],
    }


def weight_warnings(attributes: Mapping[str, Any], trials: bool, fractions: int) -> list[str]:
    """Return the warnings about weights that are not numbers of observations.

    Parameters
    ----------
    attributes
        Those of the store.
    trials
        Whether a row is left out with all its weight.
    fractions
        Number of rows whose weight is no whole number.
    """
    if trials and attributes.get("trials") and attributes.get("weight"):
        return [
            f"the store has the product of the trials {attributes['trials']!r} and the weights "
            f"{attributes['weight']!r}: a row is left out with all of it, not one of its weight"
        ]
    if trials or not fractions:
        return []
    have = "rows have weights that are" if fractions > 1 else "row has a weight that is"
    return [
        f"{fractions:,} {have} not whole: a row of weight w counts as w observations, one of which "
        "is left out (all of a weight below 1), and p_loo and se are those of as many observations "
        "as the weights sum to; compare models on the same weights alone"
    ]


def score_warnings(
    facts: Mapping[str, Any], terms: RowTerms, unit: str, *, trials: bool
) -> list[str]:
    """Return the warnings about a score, each a sentence with its remedy.

    ``unit`` is ``row`` or ``group``; with ``trials`` a row is left out with all its weight.
    """
    found = []
    pareto = facts["pareto_k"]
    if facts["target"] in _NOT_THE_POSTERIOR:
        found.append(
            f"the draws of this run are {facts['target']}, not those of the posterior, and so are "
            "its scores; sample with hmc or hmc-ecs"
        )
    wrong = pareto["bad"] + pareto["very_bad"]
    if wrong:
        advice = f"look at these {unit}s, use more draws, or a model with longer tails"
        if trials and terms.weight.max() > 1.0:
            advice = (
                "a row is left out with all its trials: score a table of more rows with fewer "
                "trials each, or use more draws"
            )
        found.append(
            f"{wrong:,} of {facts['evaluated']:,} {unit}s have a Pareto k above "
            f"{pareto['good_below']:.2f}: their leave-one-out terms are not reliable, and neither "
            f"is elpd_loo if they matter; {advice}"
        )
    spread = int((terms.lpd - terms.waic > _MOST_VARIANCE * terms.observations).sum())
    if spread:
        found.append(
            f"the log-likelihood of {spread:,} of {facts['evaluated']:,} {unit}s has a variance "
            f"above {_MOST_VARIANCE}: WAIC is not accurate; use elpd_loo"
        )
    loo = facts["elpd_loo"]
    if loo["sampling_se"] > _MOST_SAMPLING * max(loo["se"], 1e-300):
        found.append(
            f"the sample of {unit}s adds a standard error of {loo['sampling_se']:.3g} to one of "
            f"{loo['se']:.3g}: evaluate more {unit}s"
        )
    return found
