"""``streammc ingest --append`` as a user sees it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import snapshot, streammc


def table(path: Path, rows: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-x))).astype(int)
    pd.DataFrame({"x": x, "y": y}).to_csv(path, index=False)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = ["ingest", table(tmp_path / "a.csv", 500, 1), tmp_path / "s.zarr", "--response", "y"]
    assert streammc(*made, "--quiet").code == 0
    return tmp_path / "s.zarr"


def test_the_same_command_appends_once_and_changes_nothing_then(store: Path) -> None:
    words = ["ingest", "--append", table(store.parent / "b.csv", 50, 2), store, "--json"]
    first = streammc(*words)
    assert (0, 550, True) == (first.code, first.json["n_rows"], first.json["new"])
    before = snapshot(store.parent)
    again = streammc(*words)
    assert (0, 550, False) == (again.code, again.json["n_rows"], again.json["new"])
    assert "appended by the same command as generation 2: nothing to do" in again.err
    assert before == snapshot(store.parent)


def test_the_table_of_the_store_is_not_appended_to_it(store: Path) -> None:
    before = snapshot(store.parent)
    found = streammc("ingest", "--append", store.parent / "a.csv", store, "--json")
    assert (0, 500, False) == (found.code, found.json["n_rows"], found.json["new"])
    assert "was made of these files: nothing to do" in found.err
    assert "generation  " in streammc("ingest", "--append", store.parent / "a.csv", store).out
    assert before == snapshot(store.parent)


def test_rows_that_are_there_twice_need_again(store: Path) -> None:
    more = table(store.parent / "b.csv", 50, 2)
    words = ("ingest", "--append", more.rename(store.parent / "c.csv"), store, "--quiet")
    shutil.copy(store.parent / "c.csv", more)
    assert 0 == streammc("ingest", "--append", more, store, "--quiet").code
    before = snapshot(store)
    found = streammc(*words)
    assert found.code == 78
    [line] = found.err.splitlines()
    assert f"found '{store.parent}/c.csv' with those of '{more}', which was appended" in line
    assert "--again" in line
    assert before == snapshot(store)
    assert 600 == streammc(*words, "--again", "--json").json["n_rows"]
    alone = streammc("ingest", more, store, "--again")
    assert (2, True) == (alone.code, "found --again alone" in alone.err)


def test_the_command_that_made_the_store_still_finds_it_done(store: Path) -> None:
    streammc("ingest", "--append", table(store.parent / "b.csv", 50, 2), store)
    made = ["ingest", store.parent / "a.csv", store, "--response", "y"]
    again = streammc(*made, "--json")
    assert (0, 550) == (again.code, again.json["n_rows"])
    assert "nothing to do" in again.err
    assert 78 == streammc(*made, "--seed", "2").code


def test_options_that_the_store_decides_are_refused(store: Path) -> None:
    more = table(store.parent / "b.csv", 50, 2)
    for words in (["--response", "y"], ["--overwrite"], ["--no-standardize"], ["--like", store]):
        found = streammc("ingest", "--append", more, store, *words)
        assert found.code == 2
        assert f"expected --append or {words[0].replace('no-', '')}" in found.err
    assert 0 == streammc("ingest", "--append", more, store, "--no-shuffle", "--seed", "2").code


def test_info_and_verify_know_generations(store: Path) -> None:
    assert "generations" not in streammc("info", store).out
    streammc("ingest", "--append", table(store.parent / "b.csv", 50, 2), store)
    assert "generations   2: 500 + 50 rows" in streammc("info", store).out
    kept = streammc("info", store, "--json").json["generations"]
    assert [500, 50] == [each["n_rows"] for each in kept]
    assert 0 == streammc("verify", store).code


def test_a_missing_store_or_table_is_named(store: Path) -> None:
    more = table(store.parent / "b.csv", 50, 2)
    found = streammc("ingest", "--append", more, store.parent / "none.zarr")
    assert (66, True) == (found.code, "none.zarr" in found.err)
    assert 66 == streammc("ingest", "--append", store.parent / "none.csv", store).code
    found = streammc("ingest", "--append", store)
    assert found.code == 2


FEW = ("--draws", "100", "--warmup", "100", "--chains", "2", "--seed", "1", "--sampler", "hmc-ecs")
MODEL = ("--model", "logistic")


@pytest.fixture
def grown(store: Path) -> Path:
    """Return a store with control variates and a run, to which rows were appended since."""
    for words in (
        ("summarize", store, *MODEL),
        ("sample", store, "-o", store.parent / "run", *MODEL, *FEW, "--no-audit"),
        ("ingest", "--append", table(store.parent / "b.csv", 10, 2), store),
    ):
        assert streammc(*words, "--quiet").code == 0
    return store


def test_summarize_updates_what_it_finds(grown: Path) -> None:
    first = streammc("summarize", grown, *MODEL, "--json")
    assert first.code == 0, first.err
    assert "theta_star still holds" in first.err
    assert 10 == first.json["certificate"]["rows_read"]
    assert 510 == first.json["n_rows"]
    before = snapshot(grown.parent)
    again = streammc("summarize", grown, *MODEL, "--json")
    assert first.out == again.out
    assert before == snapshot(grown.parent)


def test_summarize_update_names_control_variates(grown: Path) -> None:
    old, new = grown.parent / "run" / "control-variates.zarr", grown.parent / "new.zarr"
    words = ("summarize", grown, *MODEL, "-o", new, "--update")
    assert 10 == streammc(*words, old, "--json").json["certificate"]["rows_read"]
    again = streammc(*words, new)
    assert (0, True) == (again.code, "nothing to do" in again.err)
    wrong = streammc(*words[:4], "-o", grown.parent / "x.zarr", "--update", new)
    assert (78, True) == (wrong.code, "found others: leave out --update" in wrong.err)


def test_summarize_of_other_settings_still_refuses(grown: Path) -> None:
    for more in (("--order", "1"), ("--passes", "1"), ("--prior-scale", "3")):
        before = snapshot(grown.parent)
        assert 78 == streammc("summarize", grown, *MODEL, *more).code
        assert before == snapshot(grown.parent)


def test_an_update_that_was_killed_is_made_again(grown: Path) -> None:
    receipt = grown.parent / "s.cv.zarr.config.json"
    receipt.unlink()
    assert 10 == streammc("summarize", grown, *MODEL, "--json").json["certificate"]["rows_read"]


def test_sample_starts_from_a_run_and_resumes_by_the_same_command(grown: Path) -> None:
    run, new = grown.parent / "run", grown.parent / "new"
    words = ("sample", grown, "-o", new, *MODEL, *FEW, "--start-from", run, "--json")
    first = streammc(*words)
    assert first.code == 0, first.err
    assert "starts from the posterior of" in first.err
    assert "10 rows appended to 500: theta_star still holds" in first.err
    before = snapshot(new)
    again = streammc(*words)
    assert (0, first.out) == (again.code, again.out)
    assert before == snapshot(new)
    more = streammc(*words, "--draws", "150")
    assert more.code == 0, more.err
    wrong = streammc(*words, "--control-variates", grown.parent / "s.cv.zarr")
    assert (2, True) == (wrong.code, "found both: leave out one" in wrong.err)


def test_the_same_command_says_that_the_run_is_of_fewer_rows(grown: Path) -> None:
    found = streammc("sample", grown, "-o", grown.parent / "run", *MODEL, *FEW, "--no-audit")
    assert found.code == 78
    assert "found one of its first 500, before others were appended" in found.err


def test_a_run_of_fewer_rows_is_audited_and_goes_on_as_if_none_were_appended(
    store: Path,
) -> None:
    words = ("sample", store, "-o", "{}", *MODEL, *FEW, "--no-audit", "--quiet")
    runs = [store.parent / "whole", store.parent / "grown"]
    for run, draws in zip(runs, ("150", "100"), strict=True):
        made = [str(word).format(run) for word in words]
        assert streammc(*made, "--draws", draws).code == 0
    streammc("ingest", "--append", table(store.parent / "b.csv", 50, 2), store)
    assert streammc("resume", runs[1], "--draws", "150", "--quiet").code == 0
    digests = {streammc("verify", run, "--json").json["digest"] for run in runs}
    assert len(digests) == 1
    audit = streammc("audit", runs[1], "--json")
    assert (0, True) == (audit.code, audit.json["audit"]["ess"] > 50)
    like = store.parent / "p.zarr"
    assert 550 == streammc("predict", runs[1], store, "-o", like, "--json").json["rows"]
