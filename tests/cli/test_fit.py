"""``streammc fit`` and ``streammc.fit``: the draws of ingest and sample, again, refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import streammc as command

import streammc
from streammc.errors import ConfigError, DataError, RefusedError
from streammc.priors import normal
from streammc.stores.ingest import ingestion

FORMULA = "late ~ age + C(region)"
SIZES = {"draws": 200, "warmup": 200, "chains": 2, "seed": 1}
FLAGS = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


def table(n=600):
    rng = np.random.default_rng(3)
    age, region = rng.normal(40.0, 10.0, n), rng.choice(["north", "south", "west"], n)
    late = rng.logistic(size=n) < 0.03 * (age - 30.0) + 0.5 * (region == "west")
    return {"age": age, "region": region, "late": late.astype(int)}


@pytest.fixture
def csv(tmp_path):
    columns = table()
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def draws(tree):
    return tree["posterior"]["beta"].values


@pytest.fixture
def expected():
    data = streammc.from_table(table(), formula=FORMULA)
    return draws(streammc.sample(data, streammc.models.logistic(), **SIZES))


def test_fit_is_from_table_and_sample(expected, csv, tmp_path):
    assert np.array_equal(draws(streammc.fit(table(), FORMULA, "logistic", **SIZES)), expected)
    kept = streammc.fit(csv, FORMULA, family="logistic", store=tmp_path / "s.zarr", **SIZES)
    assert np.array_equal(draws(kept), expected)
    assert streammc.open_store(tmp_path / "s.zarr").n_rows == 600


def test_family_sampler_and_prior_are_those_that_are_given():
    model = streammc.models.logistic(prior=normal(scale=2.0))
    data = streammc.from_table(table(), formula=FORMULA)
    by_hand = streammc.sample(data, model, sampler=streammc.samplers.smh(), **SIZES)
    options = {"sampler": "smh", "prior": normal(scale=2.0)}
    by_name = streammc.fit(table(), FORMULA, "logistic", **options, **SIZES)
    of_model = streammc.fit(table(), FORMULA, model, sampler=streammc.samplers.smh(), **SIZES)
    assert np.array_equal(draws(by_name), draws(by_hand))
    assert np.array_equal(draws(of_model), draws(by_hand))


@pytest.mark.parametrize("store", [False, True])
def test_the_command_draws_the_same_and_once(store, csv, expected, tmp_path):
    run, rows = tmp_path / "run", ["--store", str(tmp_path / "s.zarr")] if store else []
    words = ["fit", str(csv), "-o", str(run), "--formula", FORMULA, "--model", "logistic", *rows]
    done = command(*words, *FLAGS, "--json")
    assert done.code == 0, done.err
    assert np.array_equal(draws(streammc.open_run(run)), expected)
    assert list(json.loads(done.out)["parameters"])[1] == "beta[age]"
    again = command(*words, *FLAGS)
    assert again.code == 0
    assert "nothing to do" in again.err
    more = command(*words, *FLAGS, "--draws", "300")
    assert more.code == 0, more.err
    assert np.array_equal(draws(streammc.open_run(run))[:, :200], expected)


def test_a_dry_run_of_smh_says_what_it_takes(csv, tmp_path):
    store = str(tmp_path / "s.zarr")
    assert command("ingest", str(csv), store, "--formula", FORMULA).code == 0
    words = ["sample", store, "-o", str(tmp_path / "run"), "--model", "logistic"]
    dry = command(*words, "--sampler", "smh", "--dry-run", "--json", *FLAGS)
    assert dry.code == 0
    assert dry.json["target"] == "exact"
    assert "rows an iteration are drawn ahead" in dry.json["reason"]
    assert not (tmp_path / "run").exists()


def test_bad_calls_say_what_to_do(csv, tmp_path, monkeypatch):
    data = streammc.from_table(table(), formula=FORMULA)
    with pytest.raises(ConfigError, match="found a data set: call streammc"):
        streammc.fit(data, FORMULA, "logistic")
    with pytest.raises(ConfigError, match=r"streammc.models.logistic\(prior=...\)"):
        streammc.fit(table(), FORMULA, streammc.models.logistic(), prior=normal(scale=1.0))
    with pytest.raises(ConfigError, match=r"unknown model 'logit': did you mean 'logistic'"):
        streammc.fit(table(), FORMULA, "logit")
    with pytest.raises(DataError, match="did you mean 'age'"):
        streammc.fit(table(), "late ~ aeg", "logistic")
    with pytest.raises(TypeError, match=r"fit\(\): missing a required argument: 'family'"):
        streammc.fit(table(), FORMULA)
    with monkeypatch.context() as little:
        little.setattr(ingestion, "available_memory", lambda: 2000)
        with pytest.raises(RefusedError, match=r"found hmc, .* --store NAME\.zarr"):
            streammc.fit(table(), FORMULA, "logistic", sampler="hmc")
        tree = streammc.fit(table(), FORMULA, "logistic", **SIZES)
        assert '"sampler": "smh"' in tree.attrs["summary"]
    run = str(tmp_path / "run")
    into_table = command("fit", str(csv), "-o", str(csv), "--formula", FORMULA, "--model", "probit")
    assert into_table.code == 2
    assert not (tmp_path / "run").exists()
    words = ["--formula", FORMULA, "--model", "logistic", *FLAGS]
    assert command("fit", str(csv), "-o", run, *words).code == 0
    other = command("fit", str(csv), "-o", run, *words, "--warmup", "300")
    assert other.code == 78
    assert "warmup" in other.err
    assert "streammc fit command" in command("resume", run).err


def test_a_raw_table_stands_for_the_store_of_a_run(csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed = "late ~ age + (1 | region)"
    for name, formula, store in (("a", mixed, []), ("b", mixed, ["--store", "s.zarr"])):
        done = command(
            "fit", str(csv), "-o", name, "--formula", formula, "--model", "logistic", *store, *FLAGS
        )
        assert done.code == 0, done.err
    rows = csv.read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([*rows[:40], "51.0,east,1"]) + "\n")
    assert command("ingest", "new.csv", "n.zarr", "--like", "s.zarr").code == 0
    here = ["--trained-on", "t.csv"]
    assert command("predict", "a", "new.csv", "-o", "a.csv", *here).code == 0
    found = command("predict", "b", "n.zarr", "-o", "b.csv", "--json")
    assert found.json["new_group_rows"] == 1
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    without = command("predict", "a", "new.csv", "-o", "c.csv")
    assert without.code == 65
    assert "give the table that was fitted as --trained-on" in without.err
    scores = [command("score", *words, "--json").json for words in (["a", "t.csv"], ["b"])]
    assert scores[0]["elpd_loo"] == scores[1]["elpd_loo"]
    assert command("score", "a", "new.csv").code == 78
    for words in (["a", "--store", "t.csv"], ["b"]):
        assert command("effects", *words, "-o", f"e-{words[0]}.csv").code == 0
    assert (tmp_path / "e-a.csv").read_text() == (tmp_path / "e-b.csv").read_text()
