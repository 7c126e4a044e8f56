"""Centred columns of a regression without intercept, of earlier stores, are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streammc
from streammc.control_variates.bound import bind
from streammc.control_variates.certify import compute, without_pass
from streammc.errors import ModelError
from streammc.priors import normal
from streammc.stores.ingest.ingestion import from_table


def store_of(path: Path, *, centred: bool, intercept: bool = False):
    rng = np.random.default_rng(1)
    x = rng.normal(50.0, 5.0, 300)
    table = pa.table({"y": 0.1 * x + rng.normal(size=300), "x": x})
    store = from_table(table, path=path, response="y", intercept=intercept, shuffle=False)
    if centred:
        store.attributes["standardization"]["mean"][-1] = 50.0
    return store


@pytest.mark.parametrize("made", [compute, lambda *pair: without_pass(bind(*pair))])
def test_a_regression_on_centred_columns_needs_an_intercept(tmp_path, made):
    model = streammc.models.gaussian(prior=normal(10.0))
    with pytest.raises(ModelError, match="found centred columns without intercept"):
        made(store_of(tmp_path / "a", centred=True), model)
    made(store_of(tmp_path / "b", centred=False), model)
    made(store_of(tmp_path / "c", centred=True, intercept=True), model)
