from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import Result, streammc

FEW = ("--model", "logistic", "--warmup", "60", "--chains", "1")


def planned(path: Path, *words: str) -> Result:
    """Ask what a run would take, which shows the settings without drawing."""
    return streammc("sample", path, "-o", "none", "--dry-run", "--json", "--quiet", *words)


def simulate(*words: str) -> Any:
    done = streammc("simulate", "logistic", "s.zarr", "--json", "--quiet", *words)
    assert done.code == 0, done.err
    return done.json


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_flags_win_over_environment_over_file_over_default(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "job.toml").write_text("rows = 30\ndim = 3\nseed = 4\n[simulate]\nseed = 5\n")
    monkeypatch.setenv("STREAMMC_DIM", "4")
    monkeypatch.setenv("STREAMMC_ROWS", "20")
    found = simulate("--config", "job.toml", "--rows", "10")
    assert (10, 4, 5) == (found["n_rows"], found["n_features"], found["simulation"]["seed"])
    assert "float32" == found["dtype"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("ingest", "t.csv", "s.zarr", "--features", "a", "--features", "b"), "--features"),
        (("diagnose", "run", "--check", "rhat=1.01", "--check", "ess=400"), "--check"),
        (("resume", "run", "--check", "rhat=1.01", "--check=rhat=1.01"), "--check"),
    ],
)
def test_a_list_given_twice_is_refused(words: tuple[str, ...], option: str) -> None:
    done = streammc(*words)
    assert 2 == done.code
    assert f"expected {option} once, found it again: give one list, separated by" in done.err


def test_a_number_given_twice_is_the_last() -> None:
    found = simulate("--rows", "20", "--rows", "10", "--dim", "3", "--seed", "1")
    assert 10 == found["n_rows"]


def test_a_list_on_the_command_line_replaces_that_of_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "t.csv").write_text("y,a,b\n0,1,2\n1,3,3\n0,2,1\n")
    monkeypatch.setenv("STREAMMC_FEATURES", "a")
    words = ("ingest", "t.csv", "s.zarr", "--response", "y", "--no-intercept", "--json")
    assert ["b"] == streammc(*words, "--features", "b").json["features"]


def test_features_separated_by_spaces_are_no_paths() -> None:
    done = streammc("ingest", "t.csv", "s.zarr", "--features", "a", "b")
    assert 2 == done.code
    assert "separate the names of --features by commas" in done.err


def test_flags_with_two_sides_come_from_environment_and_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "t.csv").write_text("y,a\n0,1\n1,2\n1,4\n")
    (here / "job.toml").write_text("shuffle = false\nstandardize = true\nresponse = 'y'\n")
    monkeypatch.setenv("STREAMMC_STANDARDIZE", "no")
    words = ("ingest", "t.csv", "s.zarr", "--config", "job.toml", "--no-intercept", "--json")
    found = streammc(*words).json
    assert (False, None, False) == (
        found["shuffle_seed"],
        found["standardization"],
        found["intercept"],
    )


def test_lists_and_tables_in_the_file(store: Path) -> None:
    folder = store.parent
    (folder / "t.csv").write_text('y,a,"b,c",d\n0,1,5,1\n1,2,6,1\n1,4,5,2\n')
    (folder / "job.toml").write_text(
        "response = 'y'\nfeatures = ['b,c', 'a']\n"
        "[sample]\nmodel = 'logistic'\noption = {jitter = 0.1, certainty = false}\n"
    )
    found = streammc("ingest", "t.csv", "t.zarr", "--config", "job.toml", "--json").json
    assert ["Intercept", "b,c", "a"] == found["features"]
    done = planned(store, "--config", "job.toml", "--draws", "10")
    assert 0 == done.json["certainty_rows"]


def test_settings_of_other_commands_are_left_to_them(here: Path) -> None:
    (here / "job.toml").write_text("model = 'logistic'\n[sample]\ndraws = 3\n")
    words = ("--rows", "10", "--dim", "2", "--seed", "1")
    assert 10 == simulate("--config", "job.toml", *words)["n_rows"]


@pytest.mark.trust(50)
@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("drawz = 3", "did you mean 'draws'?"),
        ("[sample]\nmodl = 'x'", "did you mean 'model'?"),
        ("json = true", "'json'"),
        ("step-size = 1\nstep_size = 2", "once"),
        ("draws = 1\ndraws = 2", "job.toml"),
        ("sample = 3", "table [sample]"),
        ("draws: !!python/object:os.system", "job.toml"),
        ("draws = {a = 1}", "'draws'"),
        ("\xff", "job.toml"),
        ("version = 7", "unknown key 'version'"),
    ],
)
def test_a_faulty_file_is_refused_with_78(
    text: str, culprit: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.toml").write_bytes(text.encode("latin-1"))
    done = planned(store, *FEW, "--config", "job.toml")
    assert 78 == done.code
    assert culprit in done.err
    assert 1 == len(done.err.splitlines())


@pytest.mark.parametrize("value", ["1.5", "true", '"many"', "0", "-3", "[1, 2]", "1979-05-27"])
def test_a_value_in_the_file_is_checked_as_on_the_line(value: str, store: Path) -> None:
    Path("job.toml").write_text(f"draws = {value}\n")
    done = planned(store, *FEW, "--config", "job.toml")
    assert 2 == done.code
    assert "--draws" in done.err


def test_a_value_in_the_environment_is_checked_too(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMC_PRIOR_SCALE", "nan")
    done = planned(store, *FEW)
    assert 2 == done.code
    assert "--prior-scale" in done.err


def test_missing_configuration_file_exits_with_66(store: Path) -> None:
    assert 66 == planned(store, *FEW, "--config", "none.toml").code
