from __future__ import annotations

import numpy as np
import pytest
from passes import table

from streammc.control_variates import compute
from streammc.control_variates.mode import newton
from streammc.control_variates.mode.newton import Spread, in_memory
from streammc.control_variates.mode.search import first_centre
from streammc.likelihood import data_views
from streammc.likelihood.data_views import gather


@pytest.fixture
def small(monkeypatch):
    """A table that counts as large, spread over 40 runs of 16 rows."""
    monkeypatch.setattr(newton, "RUN_ROWS", 16)
    monkeypatch.setattr(newton, "SPREAD_ROWS", 640)
    monkeypatch.setattr(data_views, "SUBSET_ROWS", 100)
    return table("logistic", n=20_000, q=4)


def test_the_spread_is_the_scaled_sum_over_its_runs(small):
    spread = Spread(small.store, small.model)
    assert len(spread.starts) == 40
    assert spread.starts[0] > 0
    assert spread.starts[-1] + 16 < 20_000
    assert set(np.diff(spread.starts)) == {500}
    rows = gather(small.store, spread.starts, 16)
    theta = np.array([0.1, -0.2, 0.3, 0.4])
    expected = in_memory(small.model, rows, 20_000 / 640)(theta)
    for found, wanted in zip(spread(theta), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert spread.rows_read == 640


def test_small_table_has_no_first_centre():
    rows = table("logistic", n=5000, q=4)
    assert len(Spread(rows.store, rows.model).starts) == 0


def test_the_first_centre_is_nearer_to_the_mode_than_that_of_the_subset(small, monkeypatch):
    full = compute(small.store, small.model)
    prior = small.model.prior_table(full.labels)
    rows = data_views.draw_subset(small.store, 2**27)
    assert len(rows.y) == 100

    def distance():
        spread = Spread(small.store, small.model)
        centre = first_centre(small.store, small.model, rows, spread, None, prior, only=False)
        assert not centre.shift.any()
        assert centre.inflation == 1.0
        away = np.linalg.solve(full.factor, centre.point.theta - full.theta_star)
        return np.linalg.norm(away), spread.rows_read

    near, read = distance()
    assert read == 640 * round(read / 640) > 0
    monkeypatch.setattr(newton, "SPREAD_ROWS", 0)
    far, nothing = distance()
    assert nothing == 0
    # About sqrt(4 (n / rows)) posterior sd: 11 and 28.
    assert near < 20 < far


def test_rows_without_a_finite_likelihood_are_left_to_the_pass(small, monkeypatch):
    monkeypatch.setattr(Spread, "__call__", lambda self, theta: (np.nan, theta, np.eye(4)))
    assert compute(small.store, small.model).certificate["converged"]
