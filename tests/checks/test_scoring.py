"""Scores of whole runs: from a sample of rows against all rows, and what is refused."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from loo_runs import NAMES, poisson_case
from mixed_runs import make_run

import streammc
from streammc import from_arrays, models
from streammc.checks import scoring
from streammc.checks.scoring import Scored, ScoreRequest, score_run, totals
from streammc.errors import ConfigError, DataError, IdentityError, ModelError, RefusedError
from streammc.trace.run_directory import RunDirectory

TOTALS = ("elpd_loo", "p_loo", "elpd_waic", "p_waic", "lpd")


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return poisson_case(tmp_path_factory.mktemp("poisson") / "run")


@pytest.fixture(scope="module")
def full(case):
    table, model, run = case
    return score_run(run, model, table, ScoreRequest(draws=400))


def distances(found: Scored, full: Scored) -> dict[str, float]:
    """Return the distances of totals from the full computation in their sampling errors."""
    return {
        name: abs(found.facts[name]["estimate"] - full.facts[name]["estimate"])
        / found.facts[name]["sampling_se"]
        for name in TOTALS
    }


def test_all_rows_of_a_small_table_are_evaluated(full):
    assert ("exact", 3000, 1.0) == tuple(full.facts[k] for k in ("method", "evaluated", "share"))
    assert all(full.facts[name]["sampling_se"] == 0.0 for name in TOTALS)
    assert 2.0 < full.facts["p_loo"]["estimate"] < 4.5  # three coefficients
    assert [] == full.facts["warnings"]
    assert full.facts["elpd_loo"]["estimate"] < full.facts["lpd"]["estimate"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_sample_of_rows_is_within_its_stated_error_of_all(case, full, seed):
    table, model, run = case
    found = score_run(run, model, table, ScoreRequest(draws=400, rows=300, seed=seed))
    assert ("subsampled", 300, 60) == tuple(
        found.facts[k] for k in ("method", "evaluated", "always_evaluated")
    )
    assert max(distances(found, full).values()) < 4.5
    for name in ("elpd_loo", "lpd"):
        assert found.facts[name]["sampling_se"] < 1e-3 * found.facts[name]["se"]
        assert found.facts[name]["se"] == pytest.approx(full.facts[name]["se"], rel=0.01)


def test_surrogates_of_the_wrong_rows_are_caught(case, full):
    table, model, run = case
    found = score_run(run, model, table, ScoreRequest(draws=400, rows=300))
    # A pass that counts the first hundred rows twice.
    first = full.terms.elpd[:100].sum()
    twice = found.sums._replace(total=found.sums.total + first)
    wrong = totals(found.terms, found.surrogate, twice, found.sample)["elpd_loo"]
    assert abs(wrong.total - full.facts["elpd_loo"]["estimate"]) > 4.5 * wrong.error
    # Surrogates of the neighbours of the sampled rows say little about these.
    moved = np.roll(found.surrogate, 1, axis=0)
    other = totals(found.terms, moved, found.sums, found.sample)["elpd_loo"]
    assert other.error > 100 * found.facts["elpd_loo"]["sampling_se"]


def test_the_most_influential_rows_are_always_evaluated(case, full):
    table, model, run = case
    found = score_run(run, model, table, ScoreRequest(draws=400, rows=300))
    influence = full.terms.lpd - full.terms.elpd
    worst = np.argsort(-influence)[:20]
    assert set(worst) <= set(found.sample.rows[found.sample.always])


def test_terms_by_row_are_those_of_the_full_computation(case, full):
    table, model, run = case
    found = score_run(run, model, table, ScoreRequest(draws=400, rows=300))
    np.testing.assert_allclose(found.terms.elpd, full.terms.elpd[found.sample.rows], rtol=1e-12)
    assert (np.diff(found.sample.rows) > 0).all()
    kept = found.pointwise()
    assert {"row", "elpd_loo", "lpd", "pareto_k", "always", "surrogate"} == set(kept)
    assert {300} == {len(each) for each in kept.values()}


def test_rows_of_weight_zero_do_not_count(tmp_path):
    weight = (np.arange(3000) % 2).astype(float)
    table, model, run = poisson_case(tmp_path / "run", weight=weight)
    full = score_run(run, model, table, ScoreRequest(draws=400))
    assert full.terms.observations.sum() == 1500
    found = score_run(run, model, table, ScoreRequest(draws=400, rows=400))
    assert found.sums.observations == 1500
    assert "row" == full.facts["left_out"]
    assert max(distances(found, full).values()) < 4.5
    assert found.facts["elpd_loo"]["se"] == pytest.approx(full.facts["elpd_loo"]["se"], rel=0.02)


def counted(path, model, y, count, draws=300, **how):
    """Return the store and the run of rows that stand for ``count`` observations each."""
    rng = np.random.default_rng(8)
    X = np.c_[np.ones(len(y)), np.linspace(-1.0, 1.0, len(y))]
    if how.pop("repeat", False):
        X, y, count = (np.repeat(each, count, axis=0) for each in (X, y, np.ones(len(y))))
    name = how.pop("name", "weight")
    table = from_arrays(X, y, feature_names=NAMES[:2], **({} if name is None else {name: count}))
    theta = [0.2, 0.6] + 0.03 * rng.normal(size=(2, draws, 2))
    make_run(path, model, table, theta)
    return table, model, RunDirectory.open(path)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """400 rows that stand for 1 to 250 observations, and the table of all observations."""
    rng = np.random.default_rng(1)
    y, count = rng.integers(0, 2, 400).astype(float), rng.integers(1, 251, 400)
    path = tmp_path_factory.mktemp("cells")
    return [
        counted(path / str(repeat), models.logistic(), y, count, repeat=repeat)
        for repeat in (False, True)
    ]


def test_frequencies_are_scored_as_the_observations_they_count(cells):
    (few, model, run), (many, _, repeated) = cells
    found = score_run(run, model, few, ScoreRequest(draws=400, rows=400)).facts
    full = score_run(repeated, model, many, ScoreRequest(draws=400, rows=many.n_rows)).facts
    assert ("exact", "exact") == (found["method"], full["method"])
    for name in TOTALS:
        for each in ("estimate", "se"):
            assert found[name][each] == pytest.approx(full[name][each], rel=1e-9), name
    assert ("observation", "row") == (found["left_out"], full["left_out"])
    assert found["weight"] == full["n"]
    assert [] == found["warnings"]
    assert 0 == found["pareto_k"]["bad"] + found["pareto_k"]["very_bad"]


def test_frequencies_of_a_sample_of_rows_are_within_the_stated_error_of_all(cells):
    few, model, run = cells[0]
    full = score_run(run, model, few, ScoreRequest(draws=400, rows=400))
    found = score_run(run, model, few, ScoreRequest(draws=400, rows=150))
    assert ("subsampled", "observation") == (found.facts["method"], found.facts["left_out"])
    assert max(distances(found, full).values()) < 4.5
    assert found.facts["elpd_loo"]["se"] == pytest.approx(full.facts["elpd_loo"]["se"], rel=0.02)
    # Surrogates of rows that are left out with all they count are those of another score.
    task = replace(scoring.Surrogate(model, *moments(run), "store"), whole_rows=True)
    wrong = few.reduce(task)
    other = totals(found.terms, found.surrogate, wrong, found.sample)["elpd_loo"]
    assert abs(other.total - full.facts["elpd_loo"]["estimate"]) > 4.5 * other.error


def moments(run):
    theta = run.draws_matrix().reshape(-1, 2)
    return theta.mean(axis=0), np.cov(theta.T)


def test_trials_of_a_row_are_left_out_together_and_the_advice_says_so(tmp_path):
    y, trials = np.array([3000.0, 1500.0, 4000.0, 900.0]), np.array([4000, 6000, 9000, 2000])
    table, model, run = counted(tmp_path / "run", models.binomial(), y, trials, name="trials")
    found = score_run(run, model, table, ScoreRequest(draws=400)).facts
    assert ("row", 4) == (found["left_out"], found["n"])
    (line,) = (line for line in found["warnings"] if "Pareto k" in line)
    assert "a row is left out with all its trials" in line
    assert "tails" not in line


def test_weights_that_do_not_count_are_said(tmp_path):
    y, weight = np.tile([0.0, 1.0], 60), np.where(np.arange(120) < 7, 1.5, 1.0)
    table, model, run = counted(tmp_path / "run", models.logistic(), y, weight)
    for rows in (100, 120):
        found = score_run(run, model, table, ScoreRequest(draws=400, rows=rows)).facts
        (line,) = found["warnings"]
        assert line.startswith("7 rows have weights that are not whole")
    both = from_arrays(
        np.ones((4, 1)), [1, 2, 3, 1], trials=[4, 4, 4, 4], weight=[2, 1, 3, 1],
        feature_names=["Intercept"],
    )  # fmt: skip
    theta = 0.1 * np.random.default_rng(1).normal(size=(2, 60, 1))
    made = make_run(tmp_path / "both", models.binomial(), both, theta)
    assert "the product of the trials" in streammc.score(made, both, draws=100)["warnings"][0]


def test_the_sum_of_weights_is_that_of_all_rows_and_of_predictions(tmp_path):
    weight = 1.0 + np.arange(3000) % 3
    table, model, run = poisson_case(tmp_path / "run", weight=weight)
    full = score_run(run, model, table, ScoreRequest(draws=400))
    found = score_run(run, model, table, ScoreRequest(draws=400, rows=400))
    assert full.facts["weight"] == found.facts["weight"] == weight.sum()
    made = streammc.facts(streammc.predict(run.path, table))
    assert made["weight"] == weight.sum()
    per_row = full.facts["lpd"]["estimate"] / full.facts["weight"]
    assert per_row == pytest.approx(made["log_score"], rel=1e-3)


def test_groups_of_a_mixed_model_are_sampled_as_rows_are(tmp_path):
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(600), 4)
    X = np.c_[np.ones(2400), rng.normal(size=2400)]
    y = X @ [0.3, -0.5] + rng.normal(size=600)[g] + 0.5 * rng.normal(size=2400)
    table = from_arrays(X, y, feature_names=NAMES[:2], groups=g)
    theta = [0.3, -0.5, np.log(0.5), 0.0] + 0.03 * rng.normal(size=(2, 200, 4))
    run = RunDirectory.open(make_run(tmp_path / "run", models.gaussian(), table, theta))
    model = streammc.prediction.predict.model_of(run, None)
    request = ScoreRequest(draws=400, rows=150)
    full = score_run(run, model, table, replace(request, rows=600))
    found = score_run(run, model, table, request)
    assert ("group", "group", 600, 150) == tuple(
        found.facts[k] for k in ("left_out", "group", "n", "evaluated")
    )
    assert max(distances(found, full).values()) < 4.5


@pytest.mark.slow
def test_claims_from_a_twentieth_of_the_rows_are_those_of_all(data_folder, tmp_path):
    path = data_folder / "fretpl_claimnumber" / "data.npz"
    if not path.exists():
        pytest.skip("fretpl_claimnumber is not among the data sets here")
    with np.load(path) as file:
        claims, age = file["claim_number"].astype(float), file["driver_age"].astype(float)
    z = (age - age.mean()) / age.std()
    table = from_arrays(np.c_[np.ones(len(z)), z, z**2], claims, feature_names=NAMES)
    tree = streammc.sample(
        table, models.poisson(), path=tmp_path / "run", chains=2, draws=400, seed=1, audit=False
    )
    run = RunDirectory.open(tree.encoding["source"])
    model = streammc.prediction.predict.model_of(run, None)
    request = ScoreRequest(draws=100)  # the same of both, of which no error depends
    full = score_run(run, model, table, replace(request, rows=len(z)))
    found = score_run(run, model, table, replace(request, rows=20_000))
    assert len(z) == 678_013
    assert found.facts["share"] < 0.05
    assert max(distances(found, full).values()) < 4.5
    assert found.facts["elpd_loo"]["sampling_se"] < 1e-3 * found.facts["elpd_loo"]["se"]
    moved = np.roll(found.surrogate, 1, axis=0)
    wrong = totals(found.terms, moved, found.sums, found.sample)["elpd_loo"]
    assert wrong.error > 100 * found.facts["elpd_loo"]["sampling_se"]


def test_memory_does_not_grow_with_the_table(tmp_path):
    peaks = []
    for n in (40_000, 400_000):
        table, model, run = poisson_case(tmp_path / str(n), n=n, draws=60, chunk_rows=8192)
        request = ScoreRequest(draws=120, rows=500, scheduler="sync")
        score_run(run, model, table, request)  # what is imported and kept
        tracemalloc.start()
        score_run(run, model, table, request)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 400_000 * 8 * 3  # bytes of the table


def test_draws_that_are_not_of_the_posterior_are_a_warning(case, monkeypatch):
    table, model, run = case
    monkeypatch.setattr(scoring, "target_of_run", lambda run: "biased")
    found = score_run(run, model, table, ScoreRequest(draws=400))
    assert ["the draws of this run are biased"] == [line[:32] for line in found.facts["warnings"]]


def test_influential_rows_are_a_warning(tmp_path):
    X, y = np.ones((40, 1)), np.r_[np.zeros(39), 400.0]
    table = from_arrays(X, y, feature_names=["Intercept"])
    rng = np.random.default_rng(2)
    theta = np.log(10.0) + rng.normal(size=(2, 300, 1)) / 20.0
    run = make_run(tmp_path / "run", models.poisson(), table, theta)
    found = streammc.score(run, table, draws=600)
    assert 39 == found["pareto_k"]["largest"][0]["row"]
    assert any("Pareto k above" in line for line in found["warnings"])
    assert any("WAIC is not accurate" in line for line in found["warnings"])


def test_how_many_rows_are_evaluated(monkeypatch):
    request = ScoreRequest(draws=1000)
    assert 200_000 == request.evaluated(200_000, 1.0)
    assert 10_000 == request.evaluated(200_001, 1.0)
    assert 300 == ScoreRequest(rows=300).evaluated(10**9, 1.0)
    assert 250 == ScoreRequest(rows=300).evaluated(250, 1.0)
    assert 1_333 == request.evaluated(10**6, 150.0)
    assert 100 == request.evaluated(10**6, 1e5)
    monkeypatch.setattr(scoring, "MOST_EXACT", 500)
    with pytest.raises(ConfigError, match="expected at most 500 rows"):
        ScoreRequest(rows=10**6).evaluated(10**6, 1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 99}, "rows of at least 100"),
        ({"draws": 99}, "draws of at least 100"),
        ({"seed": -1}, "seed of at least 0"),
        ({"rows": "all"}, "rows of at least 100"),
        ({"model": models.logistic()}, "expected the model of the run"),
        ({"progress": 3}, "expected progress"),
    ],
)
def test_wrong_options_are_refused(case, change, words):
    table, _, run = case
    with pytest.raises(ConfigError, match=words):
        streammc.score(run.path, table, **change)


def test_other_tables_and_runs_without_equal_draws_are_refused(case, tmp_path):
    table, model, run = case
    other = from_arrays(np.ones((30, 3)), np.ones(30), feature_names=NAMES)
    with pytest.raises(IdentityError, match="rows of another one are scored by"):
        streammc.score(run.path, other)
    theta = np.zeros((2, 200, 3))
    signed = make_run(tmp_path / "signed", model, table, theta, sign=np.ones((2, 200)))
    with pytest.raises(RefusedError, match="signs"):
        streammc.score(signed, table)
    few = make_run(tmp_path / "few", model, table, theta[:, :40])
    with pytest.raises(DataError, match="at least 100 draws"):
        streammc.score(few, table)


def test_a_model_of_all_rows_together_is_refused(tmp_path):
    rng = np.random.default_rng(1)
    table = from_arrays(rng.normal(size=(20, 1)), rng.normal(size=20), feature_names=["a"])
    run = make_run(tmp_path / "run", models.gaussian_process(), table, np.zeros((2, 60, 3)))
    with pytest.raises(ModelError, match="no row has a likelihood of its own"):
        streammc.score(run, table)
