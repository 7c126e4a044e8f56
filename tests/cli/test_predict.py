"""``streammc predict``, with ``ingest --like``."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from command_line import snapshot, streammc


@pytest.fixture
def other(store):
    words = ("--rows", "5000", "--dim", "3", "--seed", "5", "--quiet")
    assert streammc("simulate", "logistic", "test.zarr", *words).code == 0
    return store.parent / "test.zarr"


PREDICT = ("predict", "run", "test.zarr", "-o", "p.zarr", "--by", "x1", "--bins", "10")


def test_predictions_are_printed_and_written(run, other):
    result = streammc(*PREDICT, "--json", "--quiet")
    assert result.code == 0, result.err
    facts = result.json
    assert (facts["rows"], facts["draws"], facts["by"]["groups"]) == (5000, 120, 10)
    assert 0.5 < facts["auc"]["q5"] < facts["auc"]["mean"] < facts["auc"]["q95"] < 1
    assert -0.7 < facts["log_score"] < 0
    import xarray as xr

    found = xr.open_zarr("p.zarr")
    assert found["mean"].sizes == {"row": 5000}
    assert (found["q5"] < found["q95"]).all()
    assert found["group_rows"].values.tolist() == [500] * 10
    info, verify = streammc("info", "p.zarr", "--json"), streammc("verify", "p.zarr", "--json")
    assert (info.json["kind"], info.json["auc"]) == ("predictions", facts["auc"])
    assert (verify.json["ok"], verify.code) == (True, 0)


def test_same_command_again_does_nothing(run, other):
    first = streammc(*PREDICT, "--json", "--quiet")
    before = snapshot(run.parent / "p.zarr")
    again = streammc(*PREDICT, "--json")
    assert first.json == again.json
    assert "nothing to do" in again.err
    assert before == snapshot(run.parent / "p.zarr")
    other = streammc(*PREDICT, "--predict-draws", "50")
    assert other.code == 78
    assert "draws" in other.err


def test_predictions_of_other_draws_of_the_same_settings_are_refused(run, other, monkeypatch):
    assert 0 == streammc(*PREDICT, "--quiet").code
    receipt = run.parent / "p.zarr.config.json"
    kept = json.loads(receipt.read_text())
    monkeypatch.setattr(
        "streammc.trace.run_directory.RunView.digest", lambda self: "of another version"
    )
    again = streammc(*PREDICT)
    assert 78 == again.code
    assert "digest of the draws" in again.err
    del kept["asked"]["digest of the draws"]  # as earlier versions wrote it
    receipt.write_text(json.dumps(kept))
    assert 0 == streammc(*PREDICT).code


def test_predict_prints_less_than_ten_lines_with_the_auc(run, other):
    result = streammc(*PREDICT)
    assert result.code == 0
    assert len(result.out.splitlines()) < 10
    assert "auc" in result.out


def test_damage_is_found_by_verify(run, other):
    assert streammc(*PREDICT, "--quiet").code == 0
    chunk = next((run.parent / "p.zarr" / "q5").glob("c.*"))
    data = bytearray(chunk.read_bytes())
    data[20] ^= 4
    chunk.write_bytes(data)
    verify = streammc("verify", "p.zarr")
    assert verify.code == 65


def test_store_with_more_columns_is_refused_with_both_counts(run, other):
    simulated = ("simulate", "logistic", "wide.zarr", "--rows", "200", "--dim", "4", "--seed", "1")
    assert streammc(*simulated).code == 0
    wide = streammc("predict", "run", "wide.zarr", "-o", "p.zarr")
    assert wide.code == 78
    assert "expected the 3 features of the run, found 4 in the store: ingest the" in wide.err


def test_run_that_does_not_describe_its_store_opens_it(run, other):
    """As runs of earlier versions were."""
    from streammc.trace.run_directory import RunDirectory

    plain = streammc(*PREDICT, "--json", "--quiet").json
    opened = RunDirectory.open(run)
    with opened.lock():
        opened._attributes.pop("design")
        opened.set_attributes({})
    shutil.rmtree("p.zarr")
    (run.parent / "p.zarr.config.json").unlink()
    again = streammc(*PREDICT, "--json", "--quiet")
    assert again.code == 0, again.err
    assert {**plain, "seconds": 0} == {**again.json, "seconds": 0}


@pytest.mark.parametrize(
    ("words", "code", "culprit"),
    [
        ("predict nowhere test.zarr -o p", 66, "nowhere"),
        ("predict run nowhere -o p", 66, "nowhere"),
        ("predict test.zarr run -o p", 65, "test.zarr"),
        ("predict run test.zarr -o test.zarr/p", 2, "test.zarr"),
        ("predict run test.zarr -o run/p", 2, "run"),
        ("predict run test.zarr -o store.zarr/p", 2, "store.zarr"),
        ("predict run test.zarr -o run", 2, "run"),
        ("predict run test.zarr -o folder", 78, "folder"),
        ("predict run test.zarr -o no/such/p", 73, "no/such/p"),
        ("predict run wide.zarr -o p", 78, "features"),
        ("predict run counts.zarr -o p", 65, "row"),
        ("predict run test.zarr -o p --interval 1.5", 2, "--interval"),
        ("predict run test.zarr -o p --interval x", 2, "--interval"),
        ("predict run test.zarr -o p --predict-draws 1", 2, "--predict-draws"),
        ("predict run test.zarr -o p --bins 0", 2, "--bins"),
        ("predict run test.zarr -o p --by y", 65, "'y'"),
        ("predict run test.zarr -o p --scheduler zero", 2, "--scheduler"),
        ("predict run test.zarr", 2, "--output"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(run, other, words, code, culprit):
    more = ("--rows", "50", "--seed", "1", "--quiet")
    assert streammc("simulate", "logistic", "wide.zarr", "--dim", "4", *more).code == 0
    assert streammc("simulate", "poisson", "counts.zarr", "--dim", "3", *more).code == 0
    (run.parent / "folder").mkdir()
    before = snapshot(run.parent)
    result = streammc(*words.split(), "--quiet")
    assert result.code == code, result.err
    assert result.err.count("\n") == 1
    assert culprit in result.err
    assert before == snapshot(run.parent)


def test_splines_are_sampled_and_predict_new_rows_with_their_own_knots(tmp_path, monkeypatch):
    """An intercept and ten basis functions of each of eight covariates: d = 81."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    names = [f"x{k}" for k in range(1, 9)]

    def write(path, n):
        X = rng.random((n, 8))
        y = rng.random(n) < 1 / (1 + np.exp(1 - 2 * np.sin(4 * X[:, 0]) - X[:, 1]))
        header = ",".join([*names, "y"])
        np.savetxt(path, np.c_[X, y], delimiter=",", header=header, comments="")
        return X

    write("train.csv", 20_000)
    X = write("test.csv", 3000)
    formula = "y ~ " + " + ".join(f"bs({name}, df=10, extrapolation='extend')" for name in names)
    assert streammc("ingest", "train.csv", "train", "--formula", formula, "--quiet").code == 0
    like = streammc("ingest", "test.csv", "test", "--like", "train", "--no-shuffle", "--json")
    assert like.code == 0, like.err
    assert 81 == len(like.json["features"])
    sample = ("sample", "train", "-o", "run", "--model", "logistic", "--prior-scale", "1")
    counts = ("--draws", "60", "--warmup", "60", "--chains", "1", "--seed", "1", "--no-audit")
    ecs = ("--sampler", "hmc-ecs", "--subsample-size", "2000", "--n-blocks", "10")
    done = streammc(*sample, *counts, *ecs, "--json", "--quiet")
    assert done.code == 0, done.err
    assert 81 == len(done.json["parameters"])
    own = streammc("ingest", "test.csv", "own", "--formula", formula, "--quiet")
    assert own.code == 0
    assert 78 == streammc("predict", "run", "own", "-o", "q").code
    words = ("predict", "run", "test", "-o", "p", "--by", "x1", "--bins", "5")
    result = streammc(*words, "--json", "--quiet")
    assert result.code == 0, result.err
    assert result.json["auc"]["mean"] > 0.7
    import xarray as xr

    from streammc.stores import encode_rows, open_store
    from streammc.trace.run_directory import RunDirectory

    found = xr.open_zarr("p")
    expected = [part.mean() for part in np.array_split(np.sort(X[:, 0]), 5)]
    np.testing.assert_allclose(found["group_covariate"], expected, atol=1e-5)
    theta = RunDirectory.open("run").draws_matrix()[0]
    design = np.empty((3000, 81))
    for part in encode_rows(open_store("train").attributes, "test.csv"):
        design[part.start : part.start + len(part.X)] = part.X
    mean = (1 / (1 + np.exp(-design @ theta.T))).mean(axis=1)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-5)  # the store holds float32
    assert json.loads(result.out)["draws"] == 60


def csv_of(path, n, seed):
    """Rows in an order of their own, with an id each; return the outcomes by id."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = (rng.random(n) < 1 / (1 + np.exp(-3 * x))).astype(int)
    keys = [f"k{place}" for place in rng.permutation(n)]
    pd.DataFrame({"x": x, "y": y, "key": keys}).to_csv(path, index=False)
    return pd.Series(y, index=keys)


@pytest.mark.parametrize("row_id", [(), ("--row-id", "key")])
@pytest.mark.parametrize("order", [(), ("--shuffle",)])
def test_predictions_are_of_the_rows_of_the_file(tmp_path, monkeypatch, row_id, order):
    """Correlation of the mean with the outcome: 0.7 row by row, 0 in another order."""
    import xarray as xr

    monkeypatch.chdir(tmp_path)
    csv_of("train.csv", 3000, 1)
    outcomes = csv_of("new.csv", 2000, 2)
    columns = ("--response", "y", "--features", "x", "--quiet")
    assert streammc("ingest", "train.csv", "train.zarr", *columns, *row_id).code == 0
    sample = ("--model", "logistic", "--draws", "50", "--warmup", "50", "--quiet")
    assert streammc("sample", "train.zarr", "-o", "run", *sample).code == 0
    made = streammc("ingest", "new.csv", "new.zarr", "--like", "train.zarr", *order, "--json")
    assert made.code == 0, made.err
    assert streammc("predict", "run", "new.zarr", "-o", "p.zarr", "--quiet").code == 0
    found = xr.open_zarr("p.zarr")
    if not order:
        assert np.corrcoef(found["mean"], outcomes)[0, 1] > 0.6
    assert "row_id" in found.coords
    ids = found["row_id"].values
    joined = outcomes[ids] if row_id else outcomes.iloc[ids]
    assert np.corrcoef(found["mean"], joined)[0, 1] > 0.6
    assert np.array_equal(outcomes.index if row_id else np.arange(2000), ids) == (not order)
    assert streammc("verify", "p.zarr").code == 0


def test_store_without_ids_is_named(run, other):
    """As stores of earlier versions are, whose rows were shuffled."""
    import tampering
    import xarray as xr

    def shuffle(document):
        document["attributes"]["streammc"]["shuffle_seed"] = 3

    tampering.edit(other, "zarr.json", shuffle)
    result = streammc(*PREDICT, "--json")
    assert result.code == 0, result.err
    assert "test.zarr" in result.err
    assert "row ids" in result.err
    assert result.json["row_id"] is None
    assert "row_id" not in xr.open_zarr("p.zarr").variables
