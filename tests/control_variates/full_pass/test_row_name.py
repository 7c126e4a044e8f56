from __future__ import annotations

import numpy as np
import pytest

import streammc
from streammc.errors import ModelError
from streammc.models.responses import row_name

ROWS = 500
WRONG = 321


@pytest.fixture
def rentals(tmp_path):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, ROWS)
    y[WRONG] = 2
    x = rng.normal(size=ROWS)
    lines = [f"{x[i]:.6f},{y[i]},day{i}" for i in range(ROWS)]
    path = tmp_path / "rentals.csv"
    path.write_text("\n".join(["x,rentals,day", *lines]) + "\n")
    return path


def ingested(path, **options):
    place = path.with_suffix(".zarr")
    return streammc.from_table(path, response="rentals", features=["x"], path=place, **options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, rf"the row with row_id {WRONG} \(its place in the table, from 0\)"),
        ({"row_id": "day"}, rf"the row with row_id 'day{WRONG}' \(column 'day'\)"),
    ],
)
def test_wrong_response_in_a_shuffled_store_names_the_row_of_the_table(rentals, options, name):
    store = ingested(rentals, seed=1, **options)
    with pytest.raises(ModelError, match=rf"found 2 in {name}: correct the rows"):
        streammc.control_variates(store, streammc.models.logistic())


def test_row_of_a_moved_store_without_ids_is_a_row_of_the_store(rentals, monkeypatch):
    store = ingested(rentals, seed=1)
    monkeypatch.setattr(store, "row_ids", lambda start, stop: None)
    assert row_name(store, 12) == "row 12 of the store, counted from 0"
