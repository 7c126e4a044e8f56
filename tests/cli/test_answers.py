"""``comparisons``, ``slopes`` and ``predictions`` on the command line."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command_line import streammc

import streammc as package
from streammc.errors import ConfigError, IdentityError

SIZES = ("--draws", "60", "--warmup", "60", "--chains", "2", "--seed", "1", "--quiet")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("averages")
    rng = np.random.default_rng(1)
    distance, origin = rng.exponential(800.0, 500).round(), rng.choice(["ATL", "JFK"], 500)
    late = (rng.random(500) < 0.2 + 0.3 * (origin == "JFK")).astype(int)
    pa_csv.write_csv(
        pa.table({"late": late, "distance": distance, "origin": origin}), folder / "t.csv"
    )
    done = streammc(
        "fit", folder / "t.csv", "-o", folder / "run", "--store", folder / "t.zarr", *SIZES,
        "--formula", "late ~ distance + origin", "--model", "logistic",
    )  # fmt: skip
    assert 0 == done.code, done.err
    return folder


def test_answers_are_those_of_python_on_the_store_of_the_run_and_on_its_table(place):
    asked = ("comparisons", place / "run", "--variables", "distance=[100,200]", "--json")
    found = streammc(*asked, "--variables", "origin")
    assert 0 == found.code, found.err
    variables = {"distance": [100, 200], "origin": None}
    own = package.comparisons(place / "run", package.open_store(place / "t.zarr"), variables)
    assert own.to_pylist() == found.json["comparisons"]
    in_one = streammc(*asked[:3], "distance=[100,200],origin", "--json")
    assert found.json == in_one.json
    assert own.equals(package.comparisons(place / "run", place / "t.zarr", variables))
    for rows in ("t.csv", "t.zarr"):
        again = streammc(*asked[:2], place / rows, *asked[2:])
        assert 0 == again.code, again.err
        expected, sd = own["estimate"][0].as_py(), own["std_error"][0].as_py()
        found_here = again.json["comparisons"][0]["estimate"]  # other rows are in the sample
        assert found_here == pytest.approx(expected, abs=0.01 * sd)


def test_tables_are_written_and_not_overwritten(place, tmp_path):
    words = ("slopes", place / "run", "--variables", "distance", "--by", "origin")
    for name in ("s.csv", "s.parquet"):
        assert 0 == streammc(*words, "-o", tmp_path / name).code
        before = (tmp_path / name).read_bytes()
        refused = streammc(*words, "-o", tmp_path / name)
        assert refused.code == IdentityError.exit_code, refused.err
        assert "--overwrite" in refused.err
        assert before == (tmp_path / name).read_bytes()
        assert 0 == streammc(*words, "-o", tmp_path / name, "--overwrite").code
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert [row["origin"] for row in rows] == ["ATL", "JFK"]
    estimates = pq.read_table(tmp_path / "s.parquet")["estimate"].to_pylist()
    assert [float(row["estimate"]) for row in rows] == pytest.approx(estimates)
    absent = streammc(*words, "-o", tmp_path / "absent" / "s.csv")
    assert "expected an existing folder" in absent.err
    copy = tmp_path / "t.csv"
    copy.write_bytes((place / "t.csv").read_bytes())
    own = streammc("slopes", place / "run", copy, "-o", copy, "--overwrite")
    assert own.code != 0
    assert copy.read_bytes() == (place / "t.csv").read_bytes()
    wrong = streammc(*words, "-o", tmp_path / "s.txt")
    assert wrong.code == ConfigError.exit_code
    assert "ends in .csv or .parquet" in wrong.err


def test_text_is_a_table_with_the_interval(place):
    text = streammc("predictions", place / "run", "--by", "origin", "--interval", "0.5").out
    lines = text.splitlines()
    assert lines[0].split() == ["origin", "estimate", "std_error", "conf_low", "conf_high"]
    assert [line.split()[0] for line in lines[1:3]] == ["ATL", "JFK"]
    assert "50 % intervals" in text


def test_questions_of_rows_weights_and_hypotheses(place, tmp_path):
    grid = tmp_path / "grid.csv"
    grid.write_text("distance,origin,people\n100,ATL,1\n100,JFK,3\n")
    words = ("predictions", place / "run", grid, "--json")
    rows = streammc(*words, "--by-row").json["predictions"]
    assert [(row["row_id"], row["distance"], row["origin"]) for row in rows] == [
        (0, 100.0, "ATL"),
        (1, 100.0, "JFK"),
    ]
    (mean,) = streammc(*words, "--weights", "people").json["predictions"]
    own = [row["estimate"] for row in rows]
    assert mean["estimate"] == pytest.approx((own[0] + 3 * own[1]) / 4)
    text = streammc(*words[:-1], "--by-row", "--hypothesis", "b2 - b1 = 0", "--hypothesis", "b1=1")
    assert 0 == text.code, text.err
    header, first, _ = text.out.splitlines()[:3]
    assert header.split()[-1] == "above_zero"
    assert first.startswith("b2 - b1 = 0")
    (at_mean,) = streammc(*words, "--at", "mean").json["predictions"]
    assert at_mean["distance"] == 100.0
    both = streammc(*words, "--weights", "people", "--no-weights")
    assert both.code == ConfigError.exit_code
    assert "expected --weights or --no-weights" in both.err
    known = streammc(*words, "--groups", "known")
    assert known.code == ConfigError.exit_code
    assert "expected known groups of a run of a mixed model" in known.err


def test_a_run_without_a_store_asks_for_its_file(place, tmp_path):
    words = ("--formula", "late ~ distance", "--model", "logistic", *SIZES)
    assert 0 == streammc("fit", place / "t.csv", "-o", tmp_path / "run", *words).code
    done = streammc("slopes", tmp_path / "run")
    assert done.code == ConfigError.exit_code
    assert f"as in streammc slopes {tmp_path / 'run'} FILE" in done.err
    assert 0 == streammc("slopes", tmp_path / "run", place / "t.csv").code


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--variables", "=1"), "expected NAME or NAME=WHAT"),
        (("--variables", "distance="), "expected NAME or NAME=WHAT"),
        (("--variables", "distance=1", "--variables", "distance=2"), "expected each variable once"),
        (("--variables", "price"), "expected a column of the model, found 'price'"),
        (("--variables", "origin=[ATL,LHR]"), "two levels of 'origin'"),
        (("--comparison", "odds"), "expected a comparison among"),
        (("--by", "carrier"), "expected a column of the model, found 'carrier'"),
    ],
)
def test_wrong_questions_are_answered_in_a_line(place, words, message):
    done = streammc("comparisons", place / "run", *words)
    assert done.code == ConfigError.exit_code, done
    assert message in done.err
    assert len(done.err.splitlines()) == 1
