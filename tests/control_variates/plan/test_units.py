from __future__ import annotations

import numpy as np
import pytest
from passes import outliers

from streammc.control_variates import compute
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan_units


class OnDisk:
    """A table in memory that says it is not."""

    def __init__(self, store):
        self._store = store
        self.address = "/somewhere"

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.fixture(scope="module", params=[False, True], ids=["mixed", "ordered"])
def case(request):
    rows = outliers()
    if request.param:
        rows = rows.reordered(np.argsort(rows.X[:, 2], kind="stable"))
    cv = compute(rows.store, rows.model)

    def choose(memory, store=None, **options):
        store = store or OnDisk(rows.store)
        return plan_units(cv, store, rows.model, PlanRequest(**options), memory=memory)

    return choose, rows.store, request.param


def test_units_are_rows_where_the_store_fits_in_memory(case):
    choose, store, _ = case
    found = choose(10**9, subsample_size=1000)
    assert (found.k, found.unit_rows) == (1000, 1)
    assert found.reasons[-1].startswith("single rows: the store (")
    assert choose(0, store, subsample_size=1000).unit_rows == 1  # arrays in memory


def test_units_are_runs_where_it_does_not_unless_rows_are_ordered(case):
    choose, _, ordered = case
    found = choose(0, subsample_size=1000)
    assert (found.k, found.unit_rows) == (100, 10)
    assert "100 reads replace 1000" in found.reasons[-1]
    free = choose(0, n_blocks=20, variance_target=0.01, certainty=False)
    rows = choose(10**9, n_blocks=20, variance_target=0.01, certainty=False)
    if ordered:
        assert free.unit_rows == 1
        assert "--shuffle" in free.reasons[-1]
    else:
        assert free.unit_rows == -(-rows.k // 20)
        assert free.subsample_size <= 2 * rows.subsample_size


def test_given_unit_rows_and_subsample_size_are_kept(case):
    choose, _, _ = case
    assert choose(0, subsample_size=1000, unit_rows=3).unit_rows == 3
    one = choose(0, subsample_size=60)
    assert one.unit_rows == 1
    assert "no run would read less" in one.reasons[-1]
