"""A run records the versions that made its draws, and from which iteration on."""

from __future__ import annotations

import pytest

from streammc.runs import record as recording
from streammc.runs import setup
from streammc.runs.record import recorded_versions, versions, versions_text
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")


def of_run(path):
    return recorded_versions(RunDirectory.open(path).attributes)


def test_a_run_records_its_versions_once(small_job, store, tmp_path):
    path = tmp_path / "run"
    small_job.sample(store, path, draws=100)
    assert [{"iteration": 0, **versions()}] == of_run(path)
    assert {"streammc", "numba", "processor"} <= set(of_run(path)[0])
    small_job.sample(store, path, draws=200)
    assert 1 == len(of_run(path))


@pytest.mark.trust(43)
def test_draws_of_another_version_are_told_apart(
    small_job, store, tmp_path, monkeypatch, record_property
):
    path = tmp_path / "run"
    small_job.sample(store, path, draws=100)
    other = {**versions(), "numba": "9.9"}
    monkeypatch.setattr(recording, "versions", lambda: other)
    small_job.sample(store, path, draws=100)  # nothing to draw, nothing to record
    assert 1 == len(of_run(path))
    small_job.sample(store, path, draws=200)
    run = RunDirectory.open(path)
    first, second = recorded_versions(run.attributes)
    assert (0, 500, "9.9") == (first["iteration"], second["iteration"], second["numba"])
    text = versions_text(run.attributes)
    assert "from iteration 500 on: " in text
    assert "numba 9.9" in text
    record_property("figure", "other version of a library: goes on, and is recorded as such")


def test_a_run_without_versions_gets_those_of_the_draws_to_come(
    small_job, store, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    monkeypatch.setattr(setup, "versions", dict)
    monkeypatch.setattr(recording, "record_versions", lambda run: None)
    monkeypatch.setattr("streammc.runs.job.record_versions", lambda run: None)
    small_job.sample(store, path, draws=100)
    with RunDirectory.open(path).lock() as run:
        run.set_attributes({"versions": None})
    assert [] == of_run(path)
    assert versions_text(RunDirectory.open(path).attributes) is None
    monkeypatch.undo()
    small_job.sample(store, path, draws=200)
    assert [500] == [each["iteration"] for each in of_run(path)]
