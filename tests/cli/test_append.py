"""``streammc ingest --append`` as a user sees it."""

from __future__ import annotations

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
