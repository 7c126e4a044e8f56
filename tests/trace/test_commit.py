import errno
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from checks_of_trust import rounds

from streammc.errors import (
    BusyError,
    ConfigError,
    IdentityError,
    ModelError,
    OutputError,
    StorageIOError,
    StoreError,
    StreammcError,
)
from streammc.trace import disk
from streammc.trace.datatree import facts, open_run
from streammc.trace.run_directory import RunDirectory


class Recorder:
    """The order of opens, fsyncs and renames of one commit."""

    def __init__(self, monkeypatch):
        self.log, self.paths = [], {}
        real_open, real_fsync, real_replace = os.open, os.fsync, os.replace

        def opened(path, flags, *rest):
            descriptor = real_open(path, flags, *rest)
            self.paths[descriptor] = os.fspath(path)
            if flags & os.O_CREAT:
                self.log.append(("write", os.fspath(path)))
            return descriptor

        def synced(descriptor):
            real_fsync(descriptor)
            self.log.append(("fsync", self.paths[descriptor]))

        def replaced(source, target):
            real_replace(source, target)
            self.log.append(("rename", os.fspath(source), os.fspath(target)))

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", replaced)

    def moment(self, root):
        """Return the place in the log at which the root was renamed."""
        return next(i for i, e in enumerate(self.log) if e[0] == "rename" and e[2] == root)

    def violations(self, root):
        """Return what a power cut just before or after the root's rename would lose."""
        moment = self.moment(root)
        missing = []
        for at, (kind, path, *_) in enumerate(self.log[:moment]):
            if kind == "write":
                later = self.log[at:moment]
                if ("fsync", path) not in later:
                    missing.append(f"content of {path}")
                if ("fsync", os.path.dirname(path)) not in later and path.endswith(".npz"):
                    missing.append(f"name of {path}")
                if ("fsync", os.path.dirname(path)) not in later and "/c." in path:
                    missing.append(f"name of {path}")
        if ("fsync", os.path.dirname(root)) not in self.log[moment:]:
            missing.append("the rename")
        return missing


@pytest.mark.trust(19)
def test_everything_is_durable_before_the_root_points_to_it(job, tmp_path, monkeypatch):
    run = job.create(tmp_path / "run")
    with run.lock():
        recorder = Recorder(monkeypatch)
        job.step(run)
    root = str(run.path / "zarr.json")
    kinds = [entry[0] for entry in recorder.log[: recorder.moment(root)]]
    assert kinds.count("write") == 9  # 2 + 3 arrays, 2 x draw, checkpoint, root
    assert recorder.violations(root) == []


@pytest.mark.trust(19)
def test_a_commit_without_fsync_is_noticed(job, tmp_path, monkeypatch):
    run = job.create(tmp_path / "run")
    with run.lock():
        recorder = Recorder(monkeypatch)
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        job.step(run)
    assert len(recorder.violations(str(run.path / "zarr.json"))) == 18


@pytest.mark.trust(26)
def test_a_failed_fsync_commits_nothing_and_is_not_tried_again(job, tmp_path, monkeypatch):
    run = job.create(tmp_path / "run")
    real, calls = os.fsync, []

    def fail_at(number):
        counter = itertools.count(1)  # files are synced by threads

        def failing(descriptor):
            calls.append(descriptor)
            if next(counter) == number:
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)

        return failing

    with run.lock():
        job.step(run)
    for number in range(1, 20):
        with run.lock():
            calls.clear()
            monkeypatch.setattr(os, "fsync", fail_at(number))
            with pytest.raises(StorageIOError, match="Input/output error"):
                job.step(run)
            before = len(calls)
            with pytest.raises(StorageIOError, match="earlier one failed"):
                job.step(run)
            assert len(calls) == before >= number
            monkeypatch.setattr(os, "fsync", real)
        seen = RunDirectory.open(run.path)
        # The last fsync is that of the folder after the root's rename.
        assert seen.committed_warmup == (20 if number == 19 else 10)
        job.check_prefix(seen)
    assert job.sample(run.path).finished()
    job.check_prefix(RunDirectory.open(run.path))


@pytest.mark.trust(25)
def test_the_disk_filling_up_is_an_io_error_that_names_path_and_bytes(job, tmp_path, monkeypatch):
    run = job.create(tmp_path / "run")

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with run.lock():
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StorageIOError, match=r"write 324 bytes to .*No space left"):
            job.step(run)
        monkeypatch.undo()
    assert RunDirectory.open(run.path).committed_warmup == 0


@pytest.mark.trust(23)
def test_readers_beside_a_writer_see_only_whole_commits(job, tmp_path, record_property):
    path = tmp_path / "run"
    job.create(path)
    program = Path(__file__).with_name("example_job.py")
    seen = []
    for draws in (33, rounds(195, 1195)):  # the second extends over a short chunk
        with subprocess.Popen(
            [sys.executable, program, path, str(draws), "0.01"], stdout=subprocess.DEVNULL
        ) as writer:
            while writer.poll() is None:
                tree = xr.open_datatree(path, engine="zarr").load()
                for phase, group in (("warmup", "warmup_posterior"), ("draws", "posterior")):
                    done = tree[group].sizes["draw"]
                    expected = job.theta(phase, 0, done)
                    np.testing.assert_array_equal(expected[:, :, :2], tree[group]["beta"])
                    np.testing.assert_array_equal(expected[:, :, 2], tree[group]["log_sigma"])
                # A writer deletes old checkpoints, which are none of a reader's business.
                job.check_prefix(RunDirectory.open(path), checkpoint=False)
                seen.append(facts(tree)["streammc"]["generation"])
        assert writer.returncode == 0
    assert seen == sorted(seen)
    assert len({*seen}) > 3
    record_property("figure", f"xarray: {len(seen)} openings, 0 mixed, {len({*seen})} generations")


@pytest.mark.trust(22)
def test_debris_changes_nothing(job, tmp_path):
    whole = job.sample(tmp_path / "whole").digest()
    path = tmp_path / "run"
    run = job.create(path)
    with run.lock():
        for _ in range(3):
            job.step(run)
    debris = [
        *("c.0.1.0", "zarr.json.partial", ".DS_Store", "c.0.1.0.abc.partial", "empty.tmp"),
        "c.0.9.0",
    ]
    for folder in ("", "posterior", "posterior/beta", "sample_stats/lp", "checkpoint"):
        for name in debris:
            (path / folder / name).write_bytes(b"" if name == "empty.tmp" else b"rubbish")
    (path / "checkpoint" / "4.npz").write_bytes(b"torn")
    (path / "foreign").mkdir()
    (path / "foreign" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    job.check_prefix(RunDirectory.open(path))
    assert job.sample(path).digest() == whole
    assert open_run(path)["posterior"].sizes["draw"] == 35
    assert (path / "posterior" / ".DS_Store").exists()  # not ours to delete


def test_a_short_last_chunk_is_computed_again_when_the_run_is_extended(job, tmp_path):
    run = job.sample(tmp_path / "run", 35)
    with run.lock():
        run.extend(62)
        assert (run.committed_draws, run.next_start, run.next_length) == (35, 30, 10)
        assert run.checkpoint()[1]["next"] == 30
    assert job.sample(tmp_path / "run", 62).digest() == job.sample(tmp_path / "w", 62).digest()


def test_a_run_shorter_than_an_interval_is_extended_from_the_warm_up(job, tmp_path):
    run = job.sample(tmp_path / "run", 4)
    with run.lock():
        run.extend(7)
        assert run.checkpoint()[1]["phase"] == "warmup"
    job.sample(tmp_path / "run", 7)  # short again: the warm-up's checkpoint must be kept
    assert job.sample(tmp_path / "run", 41).digest() == job.sample(tmp_path / "w", 41).digest()


def test_other_draws_in_place_of_committed_ones_are_refused(job, tmp_path):
    run = job.sample(tmp_path / "run", 35)
    other = job.theta("draws", 30, 10)
    other[1, 4, 2] = np.nextafter(other[1, 4, 2], 9.0)
    with run.lock():
        run.extend(62)
        with pytest.raises(IdentityError, match="log_sigma"):
            run.append("draws", other, job.stats("draws", 30, 10), job.state("draws", 40))
    job.check_prefix(RunDirectory.open(run.path))


@pytest.mark.parametrize("kept", [[5, 6]])
def test_the_last_two_checkpoints_are_kept(job, tmp_path, kept):
    run = job.sample(tmp_path / "run", 35)
    found = sorted(int(p.stem) for p in (run.path / "checkpoint").glob("*.npz"))
    assert found == kept


def test_draws_cannot_become_fewer_than_are_committed(job, tmp_path):
    run = job.sample(tmp_path / "run", 35)
    with run.lock(), pytest.raises(ConfigError, match="at least 35"):
        run.extend(34)


def test_append_out_of_order_is_refused(job, tmp_path):
    run = job.create(tmp_path / "run")
    good = job.theta("warmup", 0, 10), job.stats("warmup", 0, 10), job.state("warmup", 10)
    nan = good[0].copy()
    nan[0, 3, 1] = np.nan
    with pytest.raises(StreammcError, match="lock"):
        run.append("warmup", *good)
    with run.lock():
        for phase, theta, stats in (
            ("draws", good[0], good[1]),
            ("warmup", good[0][:, :9], good[1]),
            ("warmup", nan, good[1]),
            ("warmup", good[0], {"lp": good[1]["lp"]}),
            ("warmup", good[0], {**good[1], "lp": good[1]["lp"][:, :4]}),
        ):
            with pytest.raises(StreammcError):
                run.append(phase, theta, stats, good[2])
        with pytest.raises(ConfigError, match="object"):
            run.append("warmup", *good[:2], ({"a": np.array([{}])}, {}))
    assert RunDirectory.open(run.path).generation == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_draws_that_are_not_finite_are_refused_by_name(job, tmp_path, value):
    run = job.create(tmp_path / "run")
    theta = job.theta("warmup", 0, 10)
    theta[1, 3, 1] = theta[0, 7, 0] = value
    words = {"nan": "NaN", "inf": "infinity", "-inf": "minus infinity"}[str(value)]
    label = re.escape(run.labels[1])
    found = f"found {words} in '{label}' .chain 1, iteration 4 of the warm-up.*; give '{label}' a"
    with run.lock(), pytest.raises(ModelError, match=found):
        run.append("warmup", theta, job.stats("warmup", 0, 10), job.state("warmup", 10))
    assert ModelError.exit_code == 65


@pytest.mark.trust(42)
def test_a_writer_that_lost_the_run_to_another_cannot_commit(job, tmp_path):
    run = job.create(tmp_path / "run")
    with run.lock():
        root = run.path / "zarr.json"
        disk.replace_files({root: root.read_bytes()}, run.path / "checkpoint")  # without the lock
        with pytest.raises(BusyError, match="another commit"):
            job.step(run)


def test_a_run_touched_while_it_is_written_is_named_with_the_time(job, tmp_path):
    run = job.create(tmp_path / "run")
    with run.lock():
        root = run.path / "zarr.json"
        os.utime(root, ns=(0, root.stat().st_mtime_ns + 10**9))
        with pytest.raises(BusyError, match=r"zarr\.json has another modification time"):
            job.step(run)


def test_a_group_is_replaced_as_a_whole(job, finished):
    with RunDirectory.open(finished).lock() as run:
        new = {"log_weight": (("draw",), np.arange(3.0)), "k": ((), np.float64(0.2))}
        run.add_group("audit", new)
    assert {*RunDirectory.open(finished).read_group("audit")} == {"log_weight", "k"}
    tree = open_run(finished)
    np.testing.assert_array_equal([0.0, 1.0, 2.0], tree["audit"]["log_weight"])
    with run.lock(), pytest.raises(ConfigError, match="own"):
        run.add_group("posterior", new)


def test_attributes_are_added_and_nan_becomes_null(job, finished):
    with RunDirectory.open(finished).lock() as run:
        run.set_attributes({"r_hat": np.float64(np.nan), "ess": np.int64(4), "v": np.ones(2)})
    found = RunDirectory.open(finished).attributes
    assert found["r_hat"] is None
    assert (found["ess"], found["v"], found["store"]) == (4, [1.0, 1.0], "somewhere")
    assert found["summary"]["mean"] == 0.1234567890123456789


def test_files_of_a_run_are_written_before_the_run_exists(job, tmp_path):
    path = tmp_path / "run"

    def broken(folder):
        (folder / "note").write_text("half")
        raise StoreError("no control variates")

    with pytest.raises(StoreError, match="no control variates"):
        RunDirectory.create(path, identity=job.IDENTITY, prepare=broken, **job.plan())
    assert not RunDirectory.exists(path)
    assert job.sample(path).finished()


def test_a_run_is_not_started_over_other_files(job, tmp_path):
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(OutputError, match="other files"):
        job.create(tmp_path)
    with pytest.raises(OutputError, match="found a file"):
        job.create(tmp_path / "thesis.tex")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.tex"]
    job.create(tmp_path / "run")
    with pytest.raises(OutputError, match="found one"):
        job.create(tmp_path / "run")


def test_readers_without_consolidated_metadata_are_never_ahead(job, tmp_path):
    path = tmp_path / "run"
    run = job.create(path)
    with run.lock():
        while not run.finished():
            job.step(run)
            seen = zarr.open_group(path, mode="r", use_consolidated=False)
            assert seen["posterior/beta"].shape == (2, 0, 2)
    tree = xr.open_datatree(path, engine="zarr", consolidated=False)
    np.testing.assert_array_equal(job.theta("draws", 0, 35)[:, :, :2], tree["posterior"]["beta"])
    consolidated = xr.open_datatree(path, engine="zarr", consolidated=True)
    for group in consolidated.groups[1:]:
        xr.testing.assert_identical(consolidated[group].to_dataset(), tree[group].to_dataset())
