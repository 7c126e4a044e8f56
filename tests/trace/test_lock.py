import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from streammc.errors import BusyError
from streammc.trace.lock import FILE, FOLDER, run_lock
from streammc.trace.run_directory import RunDirectory

PROGRAM = Path(__file__).with_name("example_job.py")


@pytest.fixture
def holder(job, tmp_path):
    """Start a process that holds a run; return it when it has the lock."""
    job.create(tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, PROGRAM, tmp_path / "run", "100000", "60"], stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_second_process_is_turned_away(job, tmp_path, holder):
    run = RunDirectory.open(tmp_path / "run")
    with pytest.raises(BusyError, match="locked by another process"), run.lock():
        pass
    begun = time.monotonic()
    with pytest.raises(BusyError):
        job.sample(tmp_path / "run")
    assert time.monotonic() - begun < 2.0


@pytest.mark.trust(42)
def test_the_lock_dies_with_its_process(job, tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    run = job.sample(tmp_path / "run", 33)
    job.check_prefix(run)


@pytest.mark.trust(42)
def test_a_copy_of_a_held_run_is_free(job, tmp_path, holder):
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with RunDirectory.open(tmp_path / "copy").lock():
        pass


def test_a_second_thread_is_turned_away(job, tmp_path):
    run = job.create(tmp_path / "run")
    caught = []

    def attempt():
        try:
            with RunDirectory.open(run.path).lock():
                pass
        except BusyError as error:
            caught.append(error)

    with run.lock():
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert len(caught) == 1
    with run.lock():
        pass


@pytest.mark.slow
def test_of_many_processes_one_samples_and_the_others_are_turned_away(job, tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, tmp_path / "run", "200", "0.2"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    errors = [process.communicate()[1] for process in started]
    winners = [process for process in started if process.returncode == 0]
    assert len(winners) == 1, errors
    assert sum("BusyError" in text.splitlines()[-1] for text in errors if text) == 3, errors
    job.check_prefix(RunDirectory.open(tmp_path / "run"))


def test_a_run_begun_while_its_folder_is_looked_at_is_one(tmp_path, monkeypatch):
    iterdir = Path.iterdir

    def another_begins_first(self):
        (tmp_path / FOLDER).mkdir(exist_ok=True)
        (tmp_path / FOLDER / FILE).touch()
        return iterdir(self)

    monkeypatch.setattr(Path, "iterdir", another_begins_first)
    with run_lock(tmp_path):
        pass


def test_a_lock_taken_later_sees_what_others_committed(job, tmp_path):
    run = job.create(tmp_path / "run")
    job.sample(tmp_path / "run")
    assert run.committed_draws == 0
    with run.lock():
        assert run.committed_draws == 35
