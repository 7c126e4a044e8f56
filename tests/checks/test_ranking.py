"""Models ranked by leave-one-out, against ArviZ, and what is not comparable."""

from __future__ import annotations

import math

import arviz_stats
import numpy as np
import pytest
from loo_runs import NAMES, poisson_case
from mixed_runs import make_run

import streammc
from streammc import from_arrays, models
from streammc.checks.ranking import Candidate, ranked, response_digest
from streammc.checks.scoring import ScoreRequest
from streammc.errors import IdentityError, ModelError
from streammc.trace.run_directory import RunDirectory

REQUEST = ScoreRequest(draws=400)


def candidate(name, path, table, model, theta):
    run = RunDirectory.open(make_run(path / name, model, table, theta))
    return Candidate(name, run, streammc.prediction.predict.model_of(run, None), table)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two models of the same rows on stores of their own: with three columns, and with two."""
    path = tmp_path_factory.mktemp("pair")
    found = []
    for name, columns in (("small", 2), ("large", 3)):
        table, model, run = poisson_case(path / name, columns=columns, draws=200)
        found.append(Candidate(name, run, model, table))
    return found


def test_the_better_model_is_first_with_the_paired_error_of_arviz(pair):
    found = ranked(pair, REQUEST)
    assert ["large", "small"] == [each["run"] for each in found]
    trees = {
        each.path: streammc.posterior_predictive(each.run.path, each.store, rows=3000, draws=400)
        for each in pair
    }
    loos = {name: arviz_stats.loo(tree, pointwise=True) for name, tree in trees.items()}
    pointwise = (loos["small"].elpd_i - loos["large"].elpd_i).values
    assert found[0]["difference"] == {"estimate": 0.0, "se": 0.0, "sampling_se": 0.0}
    away = found[1]["difference"]
    assert away["estimate"] == pytest.approx(pointwise.sum(), rel=1e-8)
    assert away["se"] == pytest.approx(math.sqrt(3000 * pointwise.var()), rel=1e-8)
    assert away["se"] < 0.5 * math.hypot(*(each["elpd_loo"]["se"] for each in found))


def test_a_sample_is_the_same_rows_for_all_and_within_its_error(pair):
    full = ranked(pair, REQUEST)
    found = ranked(pair, ScoreRequest(draws=400, rows=300))
    assert {"subsampled"} == {each["method"] for each in found}
    assert 1 == len({each["evaluated"] for each in found})
    one, two = found[1]["difference"], full[1]["difference"]
    assert one["sampling_se"] > 0.0
    assert abs(one["estimate"] - two["estimate"]) < 4.5 * one["sampling_se"]
    assert one["se"] == pytest.approx(two["se"], rel=0.25)
    # Samples of their own would differ by far more than the paired error.
    others = [
        ranked([each], ScoreRequest(draws=400, rows=300, seed=s))[0] for s, each in enumerate(pair)
    ]
    assert {300} == {each["evaluated"] for each in others}


def test_one_run_is_first_by_itself(pair):
    (only,) = ranked(pair[:1], REQUEST)
    assert only["difference"]["estimate"] == 0.0


def test_other_rows_and_responses_are_refused(pair, tmp_path):
    first, theta = pair[0], np.zeros((2, 60, 2))
    X = np.ones((3000, 2))
    y = np.random.default_rng(11).integers(0, 3, 3000)
    fewer = from_arrays(X[:50], y[:50], feature_names=NAMES[:2])
    renamed = from_arrays(X, y, feature_names=NAMES[:2], response="claims")
    others = from_arrays(X, y, feature_names=NAMES[:2])
    for name, table, words in (
        ("fewer", fewer, "on the same rows, found 50 in 'fewer' and 3000 in 'small'"),
        ("renamed", renamed, "on the same response, found 'claims'"),
        ("others", others, "the same responses and weights in the same order"),
    ):
        with pytest.raises(IdentityError, match=words):
            ranked([first, candidate(name, tmp_path, table, models.poisson(), theta)], REQUEST)


def test_units_and_constants_that_differ_are_refused(tmp_path):
    rng = np.random.default_rng(3)
    X, g = np.c_[np.ones(60), rng.normal(size=60)], np.repeat(np.arange(20), 3)
    y = rng.normal(size=60)
    plain = from_arrays(X, y, feature_names=NAMES[:2])
    groups = from_arrays(X, y, feature_names=NAMES[:2], groups=g)
    theta = np.zeros((2, 60, 4))
    one = candidate("rows", tmp_path, plain, models.gaussian(), theta[..., :3])
    two = candidate("groups", tmp_path, groups, models.gaussian(), theta)
    with pytest.raises(IdentityError, match="leave out the same unit, found a group"):
        ranked([one, two], REQUEST)
    share = rng.integers(0, 5, 60)
    trials = from_arrays(X, share, trials=np.full(60, 4), feature_names=NAMES[:2])
    one = candidate("binomial", tmp_path, trials, models.binomial(), theta[..., :2])
    two = candidate("gaussian", tmp_path, trials, models.gaussian(), theta[..., :3])
    with pytest.raises(ModelError, match="expected one family for shares of trials"):
        ranked([one, two], REQUEST)


def test_weights_that_are_trials_for_one_model_alone_are_refused(tmp_path):
    rng = np.random.default_rng(3)
    X, y = np.c_[np.ones(60), rng.normal(size=60)], rng.integers(0, 2, 60)
    table = from_arrays(X, y, weight=np.full(60, 3.0), feature_names=NAMES[:2])
    theta = 0.05 * rng.normal(size=(2, 60, 2))
    found = [
        candidate(model.name, tmp_path, table, model, theta)
        for model in (models.logistic(), models.binomial(), models.probit())
    ]
    ranking = ranked(found[::2], ScoreRequest(draws=120))
    assert ["observation"] * 2 == [each["left_out"] for each in ranking]
    with pytest.raises(IdentityError, match="found row in 'binomial' and observation in 'logist"):
        ranked(found[:2], ScoreRequest(draws=120))


def test_models_of_the_columns_are_compared_on_one_store_alone(tmp_path):
    rng = np.random.default_rng(3)
    tables = [from_arrays(rng.normal(size=(300, 1)), None, feature_names=["x"]) for _ in range(2)]
    found = []
    for name, table, scale in (("a", tables[0], 1.0), ("b", tables[0], 2.0), ("c", tables[1], 1.0)):
        model = models.gaussian_mean(covariance=scale, dim=1)
        theta = 0.05 * rng.normal(size=(2, 60, 1))
        found.append(candidate(name, tmp_path, table, model, theta))
    assert "a" == ranked(found[:2], ScoreRequest(draws=120))[0]["run"]
    with pytest.raises(IdentityError, match="of the columns with others of the same store"):
        ranked([found[0], found[2]], ScoreRequest(draws=120))


def test_mixed_models_are_compared_where_their_groups_are_the_same(tmp_path):
    rng = np.random.default_rng(3)
    X, y = np.c_[np.ones(60), rng.normal(size=60)], rng.normal(size=60)
    theta = np.zeros((2, 60, 4)) + 0.05 * rng.normal(size=(2, 60, 4))
    three, five = np.repeat(np.arange(20), 3), np.repeat(np.arange(12), 5)
    found = []
    for name, columns, g in (("large", 2, three), ("small", 1, three), ("other", 1, five)):
        table = from_arrays(X[:, :columns], y, feature_names=NAMES[:columns], groups=g)
        draws = theta if columns == 2 else theta[..., 1:]
        found.append(candidate(name, tmp_path, table, models.gaussian(), draws))
    assert 2 == len(ranked(found[:2], ScoreRequest(draws=120)))
    with pytest.raises(IdentityError, match="the same groups in the same order"):
        ranked(found[1:], ScoreRequest(draws=120))


def test_the_digest_knows_positions_responses_and_weights():
    X, y = np.ones((5000, 1)), np.random.default_rng(1).integers(0, 2, 5000)
    tables = [
        from_arrays(X, y),
        from_arrays(np.ones((5000, 3)), y.astype(float), chunk_rows=4096),
        from_arrays(X, np.roll(y, 1)),
        from_arrays(X, y, weight=np.r_[2.0, np.ones(4999)]),
        from_arrays(X, np.r_[1 - y[0], y[1:]]),
    ]
    digests = [response_digest(each) for each in tables]
    assert digests[0] == digests[1]
    assert 4 == len(set(digests))
