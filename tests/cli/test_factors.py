"""Factors as columns through the command line: ingest, sample, diagnose, predict, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import snapshot, streammc

FORMULA = "late ~ x + (1 | origin) + (1 | month)"
QUIET = ("--seed", "1", "--quiet")
SHORT = ("--draws", "300", "--warmup", "300", "--chains", "2", *QUIET)


def write_table(path: Path, n: int = 3000, users: int = 400) -> None:
    """Write late, x, origin (text, 6), month (1 to 12), user (integers)."""
    rng = np.random.default_rng(4)
    origin, month, user = rng.integers(0, 6, n), rng.integers(1, 13, n), rng.integers(0, users, n)
    x = rng.normal(size=n)
    eta = 0.5 * x + rng.normal(size=6)[origin] + 0.5 * rng.normal(size=13)[month]
    late = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    lines = [
        f"{a},{b:.6g},A{c},{d},{e}"
        for a, b, c, d, e in zip(late, x, origin, month, user, strict=True)
    ]
    path.write_text("\n".join(["late,x,origin,month,user", *lines]) + "\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, a store of two factors, and a run."""
    folder = tmp_path_factory.mktemp("factors")
    write_table(folder / "t.csv")
    done = streammc("ingest", folder / "t.csv", folder / "s.zarr", "--formula", FORMULA, "--quiet")
    assert done.code == 0, done.err
    done = streammc(
        "sample", folder / "s.zarr", "-o", folder / "run", "--model", "logistic", *SHORT
    )
    assert done.code == 0, done.err
    return folder


def read(*words: str | Path) -> dict:
    done = streammc(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def ingest(folder: Path, name: str, *words: str) -> dict:
    return read("ingest", folder / "t.csv", folder / name, *words, "--quiet")


def refused(folder: Path, *words: str | Path) -> str:
    """Return the one line of a command that is refused and writes nothing."""
    before = snapshot(folder)
    done = streammc(*words)
    assert done.code != 0
    lines = [line for line in done.err.splitlines() if line.startswith("streammc: ")]
    assert len(lines) == 1, done.err
    assert snapshot(folder) == before
    return lines[0]


def test_info_names_the_factors(made: Path) -> None:
    found = read("info", made / "s.zarr")
    assert found["factors"] == [
        {"column": "origin", "first": 2, "levels": 6},
        {"column": "month", "first": 9, "levels": 12},
    ]
    assert found["features"][2:9] == [*(f"u[origin=A{k}]" for k in range(6)), "tau[origin]"]
    assert "(1 | origin), 6 levels; (1 | month), 12 levels" in streammc("info", made / "s.zarr").out


def test_levels_are_neither_centred_nor_scaled(made: Path) -> None:
    table = read("info", made / "s.zarr")["standardization"]
    assert table["mean"][2:] == [0.0] * 20
    assert table["scale"][2:] == [1.0] * 20
    assert table["mean"][1] != 0.0


def test_every_effect_and_scale_is_diagnosed_and_audited(made: Path) -> None:
    found = read("diagnose", made / "run")
    labels = [*(f"u[month={k}]" for k in range(1, 13)), "tau[origin]", "tau[month]"]
    assert {*labels} <= {*found["parameters"]}
    assert all(found["parameters"][label]["r_hat"] < 1.05 for label in labels)
    assert 0.3 < found["parameters"]["tau[origin]"]["median"] < 3.0
    assert {*found["ratios"]["parameters"]} == {"x"}
    assert found["audit"]["ess"] > 100.0


def test_new_rows_are_predicted_with_their_levels(made: Path, tmp_path: Path) -> None:
    lines = (made / "t.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([lines[0], *lines[1:40]]) + "\n")
    done = streammc(
        "ingest", tmp_path / "new.csv", tmp_path / "n.zarr", "--like", made / "s.zarr", "--quiet"
    )
    assert (done.code, done.err) == (0, "")  # no warning about levels that are not there
    done = streammc("predict", made / "run", tmp_path / "n.zarr", "-o", tmp_path / "p", "--quiet")
    assert done.code == 0, done.err
    (tmp_path / "bad.csv").write_text("\n".join([lines[0], "1,0.5,ZZ,3,1"]) + "\n")
    said = refused(
        tmp_path, "ingest", tmp_path / "bad.csv", tmp_path / "b", "--like", made / "s.zarr"
    )
    assert "unseen levels" in said
    assert "'ZZ'" in said


def test_of_several_factors_one_of_many_levels_is_integrated(made: Path, tmp_path: Path) -> None:
    found = ingest(made, tmp_path / "u.zarr", "--formula", "late ~ x + (1 | user) + (1 | month)")
    assert found["groups"]["column"] == "user"
    assert [each["column"] for each in found["factors"]] == ["month"]
    found = ingest(made, tmp_path / "o.zarr", "--formula", "late ~ x + (1 | origin)")
    assert found["groups"]["column"] == "origin"
    assert "factors" not in found


def test_the_choice_can_be_said(made: Path, tmp_path: Path) -> None:
    said = ("--group-as", "origin=integrated")
    found = ingest(made, tmp_path / "i.zarr", "--formula", FORMULA, *said)
    assert found["groups"]["column"] == "origin"
    assert [each["column"] for each in found["factors"]] == ["month"]
    said = ("--group-as", "origin=columns")
    found = ingest(made, tmp_path / "c.zarr", "--formula", "late ~ x + (1 | origin)", *said)
    assert "groups" not in found
    assert found["factors"] == [{"column": "origin", "first": 2, "levels": 6}]


def test_a_slope_is_integrated_beside_columns(made: Path, tmp_path: Path) -> None:
    text = "late ~ x + (1 + x | origin) + (1 | month)"
    found = ingest(made, tmp_path / "s.zarr", "--formula", text)
    assert found["groups"]["terms"] == ["1", "x"]
    assert [each["column"] for each in found["factors"]] == ["month"]


REFUSED = {
    "large as columns": (
        ("late ~ (1 | user)", "--group-as", "user=columns"),
        "at most 300 levels of 'user' as columns",
    ),
    "slope as columns": (
        ("late ~ x + (1 + x | origin)", "--group-as", "origin=columns"),
        "found a slope",
    ),
    "unknown factor": ((FORMULA, "--group-as", "week=columns"), "found 'week'"),
    "unknown way": ((FORMULA, "--group-as", "origin=column"), "found 'column'"),
    "no way": ((FORMULA, "--group-as", "origin"), "write origin=columns"),
    "both integrated": (
        (FORMULA, "--group-as", "origin=integrated,month=integrated"),
        "factors cross or have several slopes, found origin=integrated",
    ),
    "response": (("late ~ x + (1 | origin) + (1 | late)",), "only left of '~'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_choice_that_cannot_be_is_refused_in_one_line(made: Path, name: str) -> None:
    words, expected = REFUSED[name]
    said = refused(made, "ingest", made / "t.csv", made / "no.zarr", "--formula", *words)
    assert expected in said


def test_a_factor_of_one_level_is_refused(made: Path, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("late,x,g\n" + "1,0.5,a\n0,0.2,a\n" * 5)
    words = ("--formula", "late ~ x + (1 | g)", "--group-as", "g=columns")
    said = refused(tmp_path, "ingest", tmp_path / "one.csv", tmp_path / "o.zarr", *words)
    assert "expected at least 2 groups in column 'g', found 1" in said


@pytest.mark.parametrize("sampler", ["laplace", "pt", "mh"])
def test_other_samplers_are_refused(made: Path, sampler: str) -> None:
    words = ("--model", "logistic", "--sampler", sampler, *SHORT)
    said = refused(made, "sample", made / "s.zarr", "-o", made / "other", *words)
    assert "expected hmc-ecs or hmc for tau[origin]" in said
    assert f"found {sampler}" in said


def test_a_run_is_extended(made: Path) -> None:
    words = ("--model", "logistic", "--draws", "350", *SHORT[2:])
    done = streammc("sample", made / "s.zarr", "-o", made / "run", *words)
    assert done.code == 0, done.err
