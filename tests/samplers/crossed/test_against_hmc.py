"""The posterior of factors that cross is that of hmc with a column for each level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crossed_tables import crossed_table, data_of, summary

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
