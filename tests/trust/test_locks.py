"""Locks and identities of a run: checks 42 and 43."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks_of_trust import JOB, rounds
from command_line import PROGRAM, snapshot, streammc

from streammc.errors import BusyError
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

Record = Callable[[str, object], None]


def plan(draws: int) -> dict[str, Any]:
    layout = make_layout(["a"], ["a"], 1, 5, {"lp": "float64"})
    return {"layout": layout, "draws": draws, "warmup": 0, "attributes": {}, "constant_data": {}}


def commit(run: RunDirectory) -> None:
    n = run.next_length
    theta = np.full((1, n, 1), 1.0 + run.next_start)
    run.append("draws", theta, {"lp": theta[:, :, 0]}, ({"at": theta[0, -1]}, {"next": 1}))


def two_writers(path: Path, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Let two writers in at once; return how many commits there were, and how many were refused."""
    patch.setattr(fcntl, "flock", lambda *_: None)
    made = refused = 0
    with (
        RunDirectory.hold(path, identity={"seed": 1}, **plan(50)) as first,
        RunDirectory.hold(path, identity={"seed": 1}, **plan(50)) as second,
    ):
        for writer in (first, second, first, second):
            try:
                commit(writer)
                made += 1
            except (BusyError, OSError):
                refused += 1
    return made, refused


@pytest.mark.trust(42)
def test_where_locks_do_nothing_the_second_writer_cannot_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    for number in range(tried := rounds(5, 100)):
        path = tmp_path / f"run-{number}"
        with pytest.MonkeyPatch.context() as patch:
            assert (2, 2) == two_writers(path, patch)
        assert 10 == RunDirectory.open(path).committed_draws
    monkeypatch.setattr("streammc.trace.commit.root_stamp", lambda path: "never another")
    with pytest.MonkeyPatch.context() as patch:
        assert two_writers(tmp_path / "unfenced", patch) != (2, 2)
    record_property("figure", f"no locks: second commit refused in {tried} of {tried} races")
    record_property("caught", "a second writer that does not look at the last commit")


@pytest.mark.trust(42)
@pytest.mark.slow
def test_a_run_whose_holder_was_killed_is_free_within_two_seconds(
    finished: Path, tmp_path: Path, record_property: Record
) -> None:
    words = ("sample", finished / "store.zarr", "-o", tmp_path / "run", *JOB, "--sampler", "hmc")
    many = [*PROGRAM, *map(str, words), "--draws", "200000"]
    with subprocess.Popen(many, stderr=subprocess.DEVNULL) as process:
        while not RunDirectory.exists(tmp_path / "run"):
            assert process.poll() is None
            time.sleep(0.05)
        assert 75 == streammc(*words, "--draws", "200000").code
        process.kill()
        process.wait()
    started = time.monotonic()
    with RunDirectory.open(tmp_path / "run").lock():
        assert time.monotonic() - started < 2.0
    record_property("figure", "killed holder: the run is free within 2 s")


@pytest.mark.trust(43)
@pytest.mark.parametrize("change", ["rows", "version of the format"])
def test_a_run_of_other_rows_or_of_another_version_of_the_format_is_left_alone(
    change: str, finished: Path, tmp_path: Path, record_property: Record
) -> None:
    run, store = tmp_path / "run", tmp_path / "store.zarr"
    shutil.copytree(finished / "run", run)
    shutil.copytree(finished / "store.zarr", store)
    if change == "rows":
        shutil.rmtree(store)
        words = ("--rows", "20000", "--dim", "4", "--seed", "6", "--quiet")
        assert 0 == streammc("simulate", "logistic", store, *words).code
    else:
        root = json.loads((run / "zarr.json").read_text())
        text = (run / "zarr.json").read_text()
        found = root["attributes"]["streammc"]["format"]
        newer = text.replace(f'"format":{found}', f'"format":{found + 1}')
        newer = newer.replace(f'"format": {found}', f'"format": {found + 1}')
        assert newer != text
        (run / "zarr.json").write_text(newer)
    before = snapshot(run)
    done = streammc("sample", store, "-o", run, *JOB, "--draws", "90")
    assert (78 if change == "rows" else 65) == done.code, done.err
    assert 1 == len(done.err.splitlines())
    assert before == snapshot(run)
    record_property("figure", f"other {change}: {done.code}")
