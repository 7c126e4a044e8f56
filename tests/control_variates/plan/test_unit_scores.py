"""Scores of units, and the plan that draws by them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from passes import outliers, table

from streammc.control_variates import compute
from streammc.control_variates.coordinates import covering_draws
from streammc.control_variates.full_pass.block_kernel import N_BINS
from streammc.control_variates.plan import unit_scores
from streammc.control_variates.plan.pilot import N_DRAWS, remainders
from streammc.control_variates.plan.subsample_plan import Plan, PlanRequest, plan, plan_units
from streammc.control_variates.plan.unit_scores import (
    UNIFORM_SHARE,
    UnitScoreTask,
    relative_probabilities,
)
from streammc.errors import RefusedError
from streammc.likelihood.data_views import gather


class Case:
    """A table with its control variates, and brute force."""

    def __init__(self, rows):
        self.rows, self.store = rows, rows.store
        self.cv = compute(self.store, rows.model)
        self.everything = gather(self.store, np.arange(len(rows.y), dtype=np.int64))

    def plan(self, **options) -> Plan:
        return plan(self.cv, self.store, self.rows.model, PlanRequest(**options))

    def totals(self, shifts, b, certain=()):
        """D_j (S, U)."""
        d = remainders(self.cv, self.rows.model, self.everything, shifts)
        d[:, np.asarray(certain, int)] = 0.0
        n_units = -(-d.shape[1] // b)
        d = np.pad(d, ((0, 0), (0, n_units * b - d.shape[1])))
        return d.reshape(len(d), n_units, b).sum(axis=2)


@pytest.fixture(scope="module")
def case():
    return Case(outliers())


@pytest.mark.parametrize("b", [1, 3, 700])
@pytest.mark.parametrize("block", [256, 1000, 5000])
def test_scores_and_histogram_are_those_of_brute_force(case, b, block):
    """Units of 700 rows reach over blocks of 256, and the last unit is short."""
    xi = covering_draws(12, case.cv.dim, 9) @ case.cv.factor.T
    task = UnitScoreTask(case.rows.model, case.cv.theta_star, xi, case.cv.order, b, judging=4)
    parts = [task.map(block) for block in case.rows.blocks(block)]
    while len(parts) > 1:  # a tree, as in a pass
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [task.combine(*pair) for pair in pairs] + parts[len(parts) // 2 * 2 :]
    scores, histogram = task.finish(parts[0])
    totals = case.totals(xi, b)
    np.testing.assert_allclose(scores, np.sqrt((totals[:8] ** 2).mean(axis=0)), rtol=1e-5)
    assert histogram.counts.sum() == totals.shape[1]
    for power in (1, 2, 3, 4):
        np.testing.assert_allclose(
            histogram.moments.sum(axis=0)[:, power - 1], (totals[8:] ** power).sum(axis=1),
            rtol=1e-8, atol=1e-13,
        )  # fmt: skip
    np.testing.assert_allclose(histogram.maxima.max(axis=0), np.abs(totals[8:]).max(axis=1))


def test_the_pass_has_the_same_bits_on_any_scheduler(case):
    found = [
        unit_scores.unit_scores(case.cv, case.store, case.rows.model, 3, scheduler=scheduler)
        for scheduler in ("sync", 2)
    ]
    assert found[0].scores.tobytes() == found[1].scores.tobytes()
    assert found[0].histogram.moments.tobytes() == found[1].histogram.moments.tobytes()


def test_probabilities_follow_the_scores_and_none_is_small():
    score = np.array([0.0, 1.0, 3.0, np.inf])
    found = relative_probabilities(score)
    np.testing.assert_allclose(found.mean(), 1.0, rtol=1e-6)
    assert found[3] == found[2] == found.max()
    assert found[0] == pytest.approx(UNIFORM_SHARE)
    np.testing.assert_allclose(
        (found[2] - UNIFORM_SHARE) / (found[1] - UNIFORM_SHARE), 3.0, rtol=1e-5
    )
    np.testing.assert_array_equal(relative_probabilities(np.zeros(5)), 1.0)


@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("draws", ["pilot", "fresh"])
def test_the_chosen_design_keeps_every_bound_by_brute_force(case, b, draws):
    found = case.plan(probabilities="scores", unit_rows=b)
    assert found.refused is None
    xi = covering_draws(N_DRAWS, case.cv.dim, 3 if draws == "pilot" else 77)
    totals = case.totals(case.cv.newton_step + xi @ case.cv.factor.T, b, found.certainty_rows)
    share = found.relative / found.relative.sum(dtype=float)
    assert len(share) == found.n_units
    D = totals / (found.n_units * share)
    mean = D @ share
    variance = found.n_units**2 * ((D - mean[:, None]) ** 2 @ share) / found.k
    np.testing.assert_allclose(mean, totals.mean(axis=1), rtol=1e-5, atol=1e-12)
    slack = 1.0 + 1e-4 if draws == "pilot" else 1.5
    assert np.quantile(variance, 0.9) <= 0.1 * slack
    assert found.n_units / found.k * np.abs(D - mean[:, None]).max() <= 0.5 * slack
    if draws == "pilot":
        np.testing.assert_allclose(found.predicted["variance_by_draw"], variance, rtol=1e-4)


def test_fewer_rows_are_needed_than_with_equal_probabilities(case):
    equal, found = case.plan(), case.plan(probabilities="scores")
    bare = case.plan(probabilities="scores", certainty=False)
    cost = found.subsample_size + len(found.certainty_rows)
    assert cost < 0.8 * (equal.subsample_size + len(equal.certainty_rows))
    assert cost <= bare.subsample_size < equal.predicted["needed_without_certainty"] / 3
    assert not len(bare.certainty_rows)
    assert any("drawn by their scores" in reason for reason in found.reasons)
    assert (equal.passes, found.passes) == (0, 1)


def test_certainty_rows_are_whole_units(case):
    found = case.plan(probabilities="scores", unit_rows=4, variance_target=1e-4)
    rows = found.certainty_rows
    assert len(rows)
    np.testing.assert_array_equal(rows, np.unique(rows))
    np.testing.assert_array_equal(rows.reshape(-1, 4), rows[::4, None] + np.arange(4))
    assert not np.any(rows[::4] % 4)
    np.testing.assert_allclose(found.relative[rows[::4] // 4], UNIFORM_SHARE)


def test_the_plan_survives_json(case):
    found = case.plan(probabilities="scores")
    text = json.dumps(found.describe(), allow_nan=False)
    arrays = {
        name: value[1] if isinstance(value, tuple) else value
        for name, value in found.arrays().items()
    }
    again = Plan.from_description(json.loads(text), arrays.__getitem__)
    assert again.describe() == found.describe()
    assert again.relative.tobytes() == found.relative.tobytes()


def test_a_score_is_made_from_many_draws_where_they_are_cheap():
    found = [unit_scores.scoring_draws(n) for n in (100, 8_000_000, 16_000_000, 10**9)]
    assert found == [128, 128, 64, 32]


def test_units_are_single_rows_by_default_under_unequal_probabilities(case):
    found = plan_units(
        case.cv,
        case.store,
        case.rows.model,
        PlanRequest(probabilities="scores", subsample_size=500),
        memory=0,
    )
    assert found.unit_rows == 1


def test_a_table_that_would_not_fit_is_refused(case, monkeypatch):
    monkeypatch.setattr(unit_scores, "MEMORY_LIMIT", 16 * 1000)
    with pytest.raises(RefusedError, match=r"at most 1000 units.* found 4000.*--unit-rows 4 or"):
        case.plan(probabilities="scores")
    assert case.plan(probabilities="scores", unit_rows=4).refused is None


def test_score_of_a_unit_is_recovered_from_its_bin():
    """The histogram takes the score of a unit to be that of its bin."""
    model = table("logistic", n=40, q=2).model
    task = UnitScoreTask(model, np.zeros(2), np.zeros((8, 2)), 2, 1, judging=4)
    scores = np.exp2(np.linspace(-20.0, 3.0, 500))
    totals = np.vstack([np.tile(scores, (4, 1)), np.tile(scores, (4, 1))])
    found, histogram = unit_scores.score_units(totals, task.judging)
    np.testing.assert_allclose(found, scores, rtol=1e-6)
    counts, moments, maxima = histogram.below_weighted(1e-4)
    # With almost no uniform share every r / (n omega) is the mean score, but for half a bin.
    mean = scores.mean()
    assert counts[-1] == 500
    np.testing.assert_allclose(maxima[-1], mean, rtol=0.12)
    assert maxima[-1].max() >= mean * 0.98
    np.testing.assert_allclose(moments[-1, :, 1] / 500, mean**2, rtol=0.1)
    assert histogram.counts.shape == (N_BINS,)
