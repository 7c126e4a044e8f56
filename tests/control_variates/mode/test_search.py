"""The search for the mode of a mixed model costs by the rows of its groups, not by their number."""

from __future__ import annotations

import numpy as np
import pytest

import streammc
from streammc.control_variates.full_pass.block_pass import RowSums
from streammc.control_variates.mode import search
from streammc.control_variates.mode.newton import Spread, surrogate
from streammc.control_variates.plan import pilot
from streammc.likelihood.data_views import by_group
from streammc.models import logistic
from streammc.priors import normal


def grouped(n_groups, rows):
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(n_groups), rows)
    X = np.stack([np.ones(len(labels)), rng.normal(size=len(labels))], axis=1)
    eta = X @ [0.2, 0.5] + 0.7 * rng.normal(size=n_groups)[labels]
    y = (rng.random(len(labels)) < 1 / (1 + np.exp(-eta))).astype(float)
    return streammc.from_arrays(X, y, groups=labels, feature_names=["Intercept", "x"])


@pytest.fixture
def evaluated(monkeypatch):
    """Rows of the table in each evaluation of the expansion of groups."""
    found, add = [], RowSums.add

    def counting(self, X, *rest):
        found.append(int(X[:, 1].sum()))
        return add(self, X, *rest)

    monkeypatch.setattr(RowSums, "add", counting)
    return found


def test_other_starts_run_on_few_rows_of_large_groups(evaluated):
    data = grouped(200, 500)
    cv = streammc.control_variates(data, logistic(prior=normal(scale=5.0)))
    assert cv.certificate.converged
    assert abs(cv.theta_star[1] - 0.5) < 0.05
    assert abs(cv.theta_star[2] - np.log(0.7)) < 0.2
    assert sum(evaluated) < 40 * data.n_rows


@pytest.mark.parametrize(("most", "draws"), [(999, 8), (1000, 32)])
def test_scoring_draws_are_chosen_by_the_rows_of_groups(monkeypatch, most, draws):
    monkeypatch.setattr(search, "SMALL_ROWS", most)
    cv = streammc.control_variates(grouped(100, 10), logistic(prior=normal(scale=5.0)))
    assert len(cv.score_draws) == draws


def test_a_surrogate_evaluates_the_largest_groups_of_highest_score(monkeypatch, evaluated):
    monkeypatch.setattr("streammc.control_variates.mode.newton.EXACT_ROWS", 1400)
    data, model = by_group(grouped(200, 20), logistic(prior=normal(scale=5.0)))

    class Sums:
        rows = np.arange(200)[::-1]

        def expansion(self, dim):
            return 0.0, np.zeros(dim), -np.eye(dim)

    surrogate(data, model, Sums(), np.zeros(3))
    assert evaluated == [70 * 20]


def test_pilot_groups_are_drawn_one_by_one(monkeypatch):
    monkeypatch.setattr(pilot, "PILOT_ROWS", 1000)
    data, model = by_group(grouped(400, 10), logistic(prior=normal(scale=5.0)))
    cv = streammc.control_variates(data, model)
    found = pilot.evaluate(cv, data, model, 1)
    assert found.run_rows == 1
    assert len(found.starts) == 256
    assert np.max(np.diff(found.starts)) > 2
    runs = np.split(found.starts, np.flatnonzero(np.diff(found.starts) > 1) + 1)
    assert max(map(len, runs)) < 64


def test_groups_spread_over_a_large_table_are_counted_by_their_rows(monkeypatch, evaluated):
    monkeypatch.setattr("streammc.control_variates.mode.newton.SPREAD_ROWS", 2000)
    monkeypatch.setattr("streammc.control_variates.mode.newton.RUN_ROWS", 100)
    data, model = by_group(grouped(2500, 10), logistic(prior=normal(scale=5.0)))
    spread = Spread(data, model)
    value = spread(np.zeros(3))[0]
    assert evaluated == [256 * 10]  # four runs of 64 groups
    assert value == pytest.approx(2500 * 10 * np.log(0.5), rel=0.2)
