"""``--formula-for`` of ingest and fit, on the command line, in a file of settings and in a job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import streammc

from streammc.stores.store import open_store

DESIGNS = [
    {"parameter": "", "formula": "y ~ x", "columns": ["Intercept", "x"]},
    {"parameter": "phi", "formula": "phi ~ x + g", "columns": ["Intercept", "x", "g[T.b]"]},
    {"parameter": "nu", "formula": "nu ~ z", "columns": ["Intercept", "z"]},
]
FORMULAS = ("--formula", "y ~ x", "--formula-for", "phi ~ x + g", "--formula-for", "nu ~ z")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, and a store of three formulas."""
    made = tmp_path_factory.mktemp("formula-for")
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(size=200) for name in "xyz"}
    pd.DataFrame({**columns, "g": rng.choice(["a", "b"], 200)}).to_csv(
        made / "t.csv", index=False, float_format="%.6f"
    )
    done = streammc("ingest", made / "t.csv", made / "s.zarr", *FORMULAS, "--quiet", "--json")
    assert done.code == 0, done.err
    assert done.json["designs"] == DESIGNS
    return made


def test_info_shows_all_formulas(folder):
    words = ("info", folder / "s.zarr")
    assert "y ~ x; phi ~ x + g; nu ~ z" in streammc(*words).out
    assert streammc(*words, "--json").json["designs"] == DESIGNS


def test_the_same_command_again_has_nothing_to_do_and_another_formula_has(folder):
    words = ("ingest", folder / "t.csv", folder / "s.zarr")
    assert "nothing to do" in streammc(*words, *FORMULAS).err
    other = streammc(*words, *FORMULAS[:-1], "nu ~ x")
    assert other.code == 78
    assert "formula_for" in other.err


def test_formulas_in_a_file_and_in_a_variable_are_those_of_the_command(folder, monkeypatch):
    wanted = open_store(folder / "s.zarr").attributes["designs"]
    (folder / "c.toml").write_text('formula = "y ~ x"\nformula-for = ["phi ~ x + g", "nu ~ z"]\n')
    words = ("ingest", folder / "t.csv")
    config = streammc(*words, folder / "c.zarr", "--config", folder / "c.toml", "--quiet")
    assert config.code == 0, config.err
    monkeypatch.setenv("STREAMMC_FORMULA_FOR", "phi ~ x + g;nu ~ z")
    assert streammc(*words, folder / "v.zarr", "--formula", "y ~ x", "--quiet").code == 0
    for name in ("c.zarr", "v.zarr"):
        assert open_store(folder / name).attributes["designs"] == wanted


def test_a_table_like_the_store_has_its_designs(folder):
    new = folder / "new.zarr"
    done = streammc("ingest", folder / "t.csv", new, "--like", folder / "s.zarr", "--json")
    assert done.code == 0, done.err
    assert done.json["designs"] == DESIGNS


JOB = """
[source]
files = ["t.csv"]
[ingest]
formula = "y ~ x"
formula_for = {texts}
[model]
name = "gaussian"
[sampler]
draws = 20
warmup = 30
[outputs]
store = "job.zarr"
run = "job"
"""


def test_a_job_makes_the_store_of_its_formulas(folder):
    job = folder / "job.toml"
    job.write_text(JOB.format(texts='["sigma ~ x + g"]'))
    streammc("run", job, "--quiet")  # the store is made before the run
    designs = open_store(folder / "job.zarr").attributes["designs"]
    columns = [each["columns"] for each in designs]
    assert columns == [["Intercept", "x"], ["Intercept", "x", "g[T.b]"]]


@pytest.mark.parametrize(
    ("texts", "culprit"),
    [
        ('["phi ~ x", "phi ~ z"]', "ingest.formula: expected one formula for 'phi'"),
        ('["phi ~ xx"]', "expected a column of the tables, found 'xx'"),
        ('"phi ~ x"', "ingest.formula_for: expected a list"),
    ],
)
def test_a_job_with_a_fault_is_refused_before_it_runs(folder, texts, culprit):
    job = folder / "bad.toml"
    job.write_text(JOB.format(texts=texts).replace("job", "bad"))
    done = streammc("run", job, "--quiet")
    assert done.code == 78, done.err
    assert culprit in done.err
    assert not (folder / "bad.zarr").exists()


@pytest.mark.parametrize(
    ("words", "code", "culprit"),
    [
        (("--formula", "y ~ x", "--formula-for", "x"), 2, "'PARAMETER ~ terms', found 'x'"),
        (("--response", "y", "--formula-for", "phi ~ x"), 2, "expected a --formula beside"),
        (("--formula", "y ~ x", "--formula-for", "phi ~ x - 1"), 2, "expected an intercept"),
        (("--formula", "y ~ x", "--formula-for", "phi ~ g:x"), 2, "with their main effects"),
        (("--formula", "y ~ x", "--formula-for", "phi ~ q"), 65, "expected the column 'q'"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(folder, words, code, culprit):
    done = streammc("ingest", folder / "t.csv", folder / "no.zarr", *words, "--quiet")
    (line,) = done.err.splitlines()
    assert (code, True) == (done.code, culprit in line)
    assert not (folder / "no.zarr").exists()
    words = ("fit", folder / "t.csv", "-o", folder / "no", "--model", "gaussian", *words)
    done = streammc(*words, "--quiet")
    assert code == done.code, done.err
    assert culprit in done.err.splitlines()[-1]
    assert not (folder / "no").exists()
