"""The posterior of factors that cross is that of hmc with a column for each level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crossed_tables import CROSSED, crossed_table, data_of, summary

import streammc

pytestmark = pytest.mark.filterwarnings("ignore::streammc.errors.SamplingWarning")
FAMILIES = ["gaussian", "logistic", "probit", "negative_binomial", "student_t"]


def posteriors(family: str, other: str | None = None) -> tuple[Any, Any]:
    table, *_ = crossed_table(family)
    model = getattr(streammc.models, family)()
    own = streammc.sample(data_of(table), model, seed=5, draws=8000, warmup=300, chains=2)
    if other is not None:
        model = getattr(streammc.models, other)()
    hmc = streammc.samplers.hmc()
    columns = data_of(table, "columns", cells="no")
    known = streammc.sample(columns, model, sampler=hmc, seed=6, draws=4000, warmup=500, chains=2)
    return summary(own), summary(known)


def distances(own: Any, known: Any) -> Any:
    return np.array([
        (row["mean"] - known[name]["mean"]) / np.hypot(row["mcse_mean"], known[name]["mcse_mean"])
        for name, row in own.items()
    ])  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_means_and_sds_are_those_of_hmc(family: str) -> None:
    own, known = posteriors(family)
    assert {*own} <= {*known}
    assert np.max(np.abs(distances(own, known))) < 4.5
    ratio = [row["sd"] / known[name]["sd"] for name, row in own.items()]
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)
    assert min(row["ess_bulk"] for row in own.values()) > 1600


def test_another_link_is_seen() -> None:
    assert np.max(np.abs(distances(*posteriors("logistic", "probit")))) > 6.0


SLOPES = "y ~ x + (1 + x | user) + (1 | item)"


def with_slopes(family: str, broken: bool = False) -> tuple[Any, Any]:
    """Return a run of drawn slopes, and one where they are integrated and items are columns.

    In the broken partner slopes are not correlated.
    """
    table, *_ = crossed_table(family, n=1500)
    rng = np.random.default_rng(4)
    table["x"] = 1.5 + 2.0 * table["x"]  # whose means matter to intercepts
    slope = 0.5 * rng.normal(size=40)[table["user"]] * table["x"]
    eta = slope + 0.7 * rng.normal(size=40)[table["user"]]
    table["y"] = (rng.logistic(size=1500) < eta).astype(int)
    if family == "gaussian":
        table["y"] = eta + rng.normal(size=1500)
    formula = SLOPES.replace("1 + x |", "1 + x ||") if broken else SLOPES
    rows = streammc.from_table(table, formula=formula, group_as=CROSSED)
    model = getattr(streammc.models, family)()
    own = streammc.sample(rows, model, seed=5, draws=8000, warmup=300, chains=2)
    ways = {"user": "integrated", "item": "columns"}
    known_rows = streammc.from_table(table, formula=SLOPES, group_as=ways)
    hmc = streammc.samplers.hmc()
    known = streammc.sample(
        known_rows, model, sampler=hmc, seed=6, draws=4000, warmup=500, chains=2
    )
    return (own, rows), (known, known_rows)


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_slopes_are_those_of_hmc(family: str) -> None:
    (own, rows), (known, known_rows) = with_slopes(family)
    ours, theirs = summary(own), summary(known)
    assert {"tau[user:Intercept]", "tau[user:x]", "rho[user]", "tau[item]"} <= {*ours}
    assert np.max(np.abs(distances(ours, theirs))) < 4.5
    ratio = [row["sd"] / theirs[name]["sd"] for name, row in ours.items()]
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)
    drawn = streammc.effects(own, rows, factor="user").sortby("group")
    exact = streammc.effects(known, known_rows).sortby("group")
    assert ["Intercept", "x"] == drawn["effect"].values.tolist()
    away = (drawn["mean"] - exact["mean"]) / exact["sd"]
    assert float(np.abs(away).max()) < 0.15
    np.testing.assert_allclose(drawn["sd"] / exact["sd"], 1.0, atol=0.1)


def test_slopes_without_their_correlation_are_seen() -> None:
    (own, _), (known, _) = with_slopes("gaussian", broken=True)
    assert np.max(np.abs(distances(summary(own), summary(known)))) > 6.0
