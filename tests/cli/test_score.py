"""``streammc score``, and ``streammc compare --loo``."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from command_line import snapshot, streammc

import streammc as package

SAMPLE = ("--model", "logistic", "--sampler", "hmc", "--seed", "1", "--draws", "100", "--quiet")


@pytest.fixture(scope="session")
def two_made(tmp_path_factory):
    """Folder with two stores of one table, with and without a column, and a run on each."""
    folder = tmp_path_factory.mktemp("two")
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2, 2000))
    late = rng.random(2000) < 1 / (1 + np.exp(0.5 - x - 0.5 * z))
    rows = zip(late.astype(int), x, z, strict=True)
    text = "late,x,z\n" + "".join(f"{y},{a:.4f},{b:.4f}\n" for y, a, b in rows)
    (folder / "t.csv").write_text(text)
    for name, formula in (("both", "late ~ x + z"), ("one", "late ~ x")):
        store = folder / f"{name}.zarr"
        words = ("--formula", formula, "--quiet")
        assert streammc("ingest", folder / "t.csv", store, *words).code == 0
        done = streammc("sample", store, "-o", folder / name, *SAMPLE)
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def two(two_made, tmp_path, monkeypatch):
    """The runs, in the current folder; their stores stay where they were made."""
    monkeypatch.chdir(tmp_path)
    for name in ("both", "one"):
        shutil.copytree(two_made / name, tmp_path / name)
    return two_made


def test_score_prints_what_python_returns_and_changes_nothing(run):
    before = snapshot(run.parent)
    done = streammc("score", "run", "--json", "--quiet")
    assert done.code == 0, done.err
    found = done.json
    assert before == snapshot(run.parent)
    expected = package.score("run", package.open_store("store.zarr"))
    for name in ("elpd_loo", "p_loo", "elpd_waic", "p_waic", "lpd", "pareto_k", "n", "method"):
        assert expected[name] == found[name], name
    assert found["elpd_loo"]["estimate"] < found["lpd"]["estimate"]


def test_score_of_a_sample_says_so_in_the_text(run):
    done = streammc("score", "run", "store.zarr", "--score-rows", "200", "--quiet")
    assert done.code == 0, done.err
    assert "200 of 3,000 rows (6.7 %), the others by a surrogate in one pass" in done.out
    assert "(elpd_loo / n)" in done.out
    assert "one row" in done.out


def test_scores_of_weighted_rows_are_per_unit_of_weight_in_both_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    lines = [f"{rng.normal():.4f},{k % 2},{1 + k % 5}\n" for k in range(300)]
    (tmp_path / "t.csv").write_text("x,y,w\n" + "".join(lines))
    words = ("--formula", "y ~ x", "--weight", "w", "--quiet")
    assert streammc("ingest", "t.csv", "w.zarr", *words).code == 0
    assert streammc("sample", "w.zarr", "-o", "r", *SAMPLE).code == 0
    found = streammc("score", "r", "--json", "--quiet").json
    assert found["weight"] == 900
    text = streammc("score", "r", "--quiet").out
    assert "one observation; a row of weight w counts as w of them" in text
    shown = re.search(r"per observation +(\S+) \(elpd_loo / sum of weights\)", text)
    assert float(shown[1]) == pytest.approx(found["elpd_loo"]["estimate"] / 900, rel=1e-3)
    predict = ("predict", "r", "w.zarr", "-o")
    text = streammc(*predict, "p.zarr", "--quiet").out
    assert "(sum / sum of weights)" in text
    made = streammc(*predict, "q.zarr", "--json", "--quiet").json
    assert made["weight"] == 900
    # Both are near the log score of a fair coin.
    for value in (found["elpd_loo"]["estimate"] / 900, made["log_score"]):
        assert value == pytest.approx(np.log(0.5), abs=0.03)


def test_score_writes_the_terms_by_row_once(run):
    done = streammc("score", "run", "-o", "score.json", "--score-rows", "200", "--quiet")
    assert done.code == 0, done.err
    kept = json.loads((run.parent / "score.json").read_text())
    assert {200} == {len(each) for each in kept["terms"].values()}
    before = snapshot(run.parent)
    other = streammc("score", "run", "-o", "score.json", "--quiet")
    assert 78 == other.code
    assert "to be made by the same command, found other 'rows'" in other.err
    same = ("score", "run", "-o", "score.json", "--score-rows", "200", "--json")
    again = streammc(*same)
    assert "already there" in again.err
    facts = {name: each for name, each in kept.items() if name not in ("terms", "made_by")}
    assert facts == again.json
    assert before == snapshot(run.parent)
    receipt = run.parent / "score.json.config.json"
    text = json.loads(receipt.read_text())
    receipt.write_text(json.dumps({**text, "result": None}))  # as after a kill
    assert again.json == streammc(*same).json
    receipt.write_text(json.dumps(text))
    (run.parent / "score.json").write_text("{}")
    changed = streammc(*same)
    assert 78 == changed.code
    assert "found another fingerprint" in changed.err


def test_score_leaves_a_file_that_it_did_not_make(run):
    (run.parent / "notes.json").write_text("{}")
    done = streammc("score", "run", "-o", "notes.json", "--quiet")
    assert 78 == done.code
    assert "expected nothing at 'notes.json'" in done.err
    assert "{}" == (run.parent / "notes.json").read_text()


def test_score_refuses_another_store_and_a_folder_that_is_missing(run, two_made):
    other = streammc("score", "run", two_made / "one.zarr")
    assert other.code == 78
    assert "expected the store of the run" in other.err
    missing = streammc("score", "run", "-o", "nowhere/score.json")
    assert missing.code != 0
    assert "expected an existing folder" in missing.err


def test_models_on_stores_of_one_table_are_ranked(two):
    done = streammc("compare", "--loo", "one", "both", "--json", "--quiet")
    assert done.code == 0, done.err
    assert ("both", ["both", "one"]) == (
        done.json["best"],
        [each["run"] for each in done.json["runs"]],
    )
    away = done.json["runs"][1]["difference"]
    assert away["estimate"] < -4 * away["se"]
    text = streammc("compare", "--loo", "one", "both", "--quiet").out
    assert "from all 2,000 rows" in text
    sampled = streammc("compare", "--loo", "one", "both", "--score-rows", "300", "--quiet")
    assert "of 2,000 rows" in sampled.out


def test_runs_of_other_rows_are_not_ranked(run, two_made):
    done = streammc("compare", "--loo", "run", two_made / "one")
    assert done.code == 78
    assert "expected runs on the same rows" in done.err


def test_the_comparison_of_cost_points_to_the_ranking(two):
    done = streammc("compare", "one", "both")
    assert done.code == 78
    assert "rank models of the same rows with --loo" in done.err


def test_a_run_is_scored_on_its_own_rows_after_others_were_appended(two_made, tmp_path):
    store = tmp_path / "one.zarr"
    words = ("--formula", "late ~ x", "--quiet")
    assert streammc("ingest", two_made / "t.csv", store, *words).code == 0
    run = tmp_path / "run"
    assert streammc("sample", store, "-o", run, *SAMPLE).code == 0
    before = streammc("score", run, "--json", "--quiet").json
    lines = (two_made / "t.csv").read_text().splitlines()[:101]
    (tmp_path / "more.csv").write_text("\n".join(lines) + "\n")
    assert streammc("ingest", "--append", tmp_path / "more.csv", store, "--quiet").code == 0
    after = streammc("score", run, "--json", "--quiet").json
    given = streammc("score", run, store, "--json", "--quiet").json
    assert 2000 == before["n"]
    assert before["elpd_loo"] == after["elpd_loo"] == given["elpd_loo"]
