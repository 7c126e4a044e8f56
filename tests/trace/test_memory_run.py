"""Runs in memory: the same arrays as in a directory, and files only when they are asked for."""

from __future__ import annotations

import os

import numpy as np
import pytest

from streammc import unfinished
from streammc.errors import MissingError, ModelError, StreammcError
from streammc.trace.datatree import open_run, tree_in_memory
from streammc.trace.run_directory import MemoryRun, RunDirectory, fits_in_memory
from streammc.trace.run_state import make_layout
from streammc.unfinished import temporary_folder


def draw(job, kind, path, group=True):
    """Draw the example job, with a group and an attribute that come after the draws."""
    with kind.hold(path, identity=job.IDENTITY, **job.plan()) as run:
        while not run.finished():
            job.step(run)
        if group:
            values = job.theta("draws", 0, 4)[:, :, 0]
            run.add_group("audit", {"log_weight": (("chain", "draw"), values)})
        run.set_attributes({"summary": {"mean": 0.25, "all": (1, 2)}})
    return run


@pytest.fixture
def held(job):
    """Return a finished run in memory."""
    return draw(job, MemoryRun, temporary_folder("streammc-test-"))


def test_a_run_in_memory_writes_no_file(held):
    assert [] == list(held.path.iterdir())


def test_a_run_in_memory_has_the_arrays_of_a_directory(job, held, tmp_path):
    written = draw(job, RunDirectory, tmp_path / "run")
    assert written.digest() == held.digest()
    for group in ("posterior", "sample_stats", "warmup_posterior", "constant_data", "audit"):
        expected, found = written.read_group(group), held.read_group(group)
        assert expected.keys() == found.keys()
        for name, values in expected.items():
            assert values.dtype == found[name].dtype
            np.testing.assert_array_equal(values, found[name])
    np.testing.assert_array_equal(
        written.constant_data("theta_star"), held.constant_data("theta_star")
    )
    assert written.attributes == held.attributes
    assert written.generation == held.generation


def test_a_change_of_a_draw_changes_the_digest(held):
    before = held.digest()
    held._commits["draws"][0].theta[0, 0, 0] += 1e-9
    assert before != held.digest()


def test_the_tree_in_memory_is_that_of_the_directory(job, held, tmp_path):
    draw(job, RunDirectory, tmp_path / "run")
    expected, found = open_run(tmp_path / "run"), tree_in_memory(held)
    assert expected.equals(found)
    for node in expected.subtree:
        assert list(node.variables) == list(found[node.path].variables)
        for name, values in node.variables.items():
            assert values.dtype == found[node.path][name].dtype
    assert list(expected.attrs) == list(found.attrs)
    assert expected.attrs["summary"] == found.attrs["summary"]


def test_a_tree_in_memory_owns_its_values(held):
    tree_in_memory(held)["posterior"]["beta"][0, 0, 0] = 99.0
    assert 99.0 not in held.draws_matrix()


def test_opening_the_path_writes_the_run_once(job, held, tmp_path):
    written = draw(job, RunDirectory, tmp_path / "run")
    opened = RunDirectory.open(held.path)
    job.check_prefix(opened)
    assert written.digest() == opened.digest()
    np.testing.assert_array_equal(
        written.read_group("audit")["log_weight"], opened.read_group("audit")["log_weight"]
    )
    assert written.attributes == opened.attributes
    stamp = (held.path / "zarr.json").stat()
    RunDirectory.open(held.path)
    assert stamp == (held.path / "zarr.json").stat()


def test_a_run_is_opened_by_another_name_of_its_folder(job, held, tmp_path):
    (tmp_path / "link").symlink_to(held.path)
    job.check_prefix(RunDirectory.open(tmp_path / "link"))


def test_a_run_that_a_fork_has_written_is_read(held):
    digest = held.digest()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = int(RunDirectory.open(held.path).digest() != digest)
            finally:
                os._exit(code)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert digest == RunDirectory.open(held.path).digest()


def test_a_written_run_can_be_extended(job, held):
    assert RunDirectory.exists(held.path)
    run = job.sample(held.path, draws=60)
    assert 60 == run.committed_draws
    job.check_prefix(RunDirectory.open(held.path))


def test_an_interrupted_run_in_memory_is_resumed_from_its_path(job):
    folder = temporary_folder("streammc-test-")
    with MemoryRun.hold(folder, identity=job.IDENTITY, **job.plan()) as run:
        for _ in range(3):
            job.step(run)
    job.sample(folder)
    whole = job.sample(temporary_folder("streammc-test-"))
    assert whole.digest() == RunDirectory.open(folder).digest()


def test_a_run_that_failed_or_was_discarded_is_not_written(job):
    failed, discarded = temporary_folder("streammc-test-"), temporary_folder("streammc-test-")
    with (
        pytest.raises(ZeroDivisionError),
        MemoryRun.hold(failed, identity=job.IDENTITY, **job.plan()) as run,
    ):
        job.step(run)
        raise ZeroDivisionError
    with MemoryRun.hold(discarded, identity=job.IDENTITY, **job.plan()) as run:
        job.step(run)
        run.discard()
    assert not RunDirectory.exists(failed)
    assert not RunDirectory.exists(discarded)


def test_a_run_in_memory_refuses_what_a_directory_refuses(job):
    folder = temporary_folder("streammc-test-")
    with MemoryRun.hold(folder, identity=job.IDENTITY, **job.plan()) as run:
        theta, stats = job.theta("warmup", 0, 10), job.stats("warmup", 0, 10)
        with pytest.raises(StreammcError, match="expected an interval of warmup"):
            run.append("draws", theta, stats, job.state("warmup", 10))
        with pytest.raises(StreammcError, match="expected statistics of shape"):
            run.append("warmup", theta, {}, job.state("warmup", 10))
        with pytest.raises(ModelError, match="finite"):
            run.append("warmup", theta * np.nan, stats, job.state("warmup", 10))
        with pytest.raises(MissingError, match="expected a group 'audit'"):
            run.read_group("audit")
        with pytest.raises(MissingError, match="expected constant data 'mass'"):
            run.constant_data("mass")
        assert 0 == run.committed_warmup


def test_a_checkpoint_in_memory_is_that_of_its_commit(job):
    folder = temporary_folder("streammc-test-")
    with MemoryRun.hold(folder, identity=job.IDENTITY, **job.plan()) as run:
        arrays, meta = job.state("warmup", 10)
        run.append("warmup", job.theta("warmup", 0, 10), job.stats("warmup", 0, 10), (arrays, meta))
        arrays["at"] += 1.0
        meta["next"] = -1
        saved = run.checkpoint()
    np.testing.assert_array_equal(job.state("warmup", 10)[0]["at"], saved[0]["at"])
    assert 10 == saved[1]["next"]


def test_the_oldest_runs_are_written_when_memory_is_full(job, monkeypatch):
    folders = [temporary_folder("streammc-test-") for _ in range(3)]
    size = draw(job, MemoryRun, folders[0]).nbytes
    monkeypatch.setattr(unfinished, "KEPT_BYTES", 2 * size)
    monkeypatch.setattr(unfinished, "_unwritten", {})
    for folder in folders:
        draw(job, MemoryRun, folder)
    assert [True, False, False] == [any(folder.iterdir()) for folder in folders]
    for folder in folders:
        job.check_prefix(RunDirectory.open(folder))


@pytest.mark.parametrize(("iterations", "fits"), [(2000, True), (200_000, False)])
def test_only_small_runs_fit_in_memory(iterations, fits):
    layout = make_layout(["beta[a]", "beta[b]"], ["a", "b"], 4, 125, {"lp": "float64"})
    assert fits == fits_in_memory(layout, iterations)
