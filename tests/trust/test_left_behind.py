"""What workers leave behind, and the credentials that they read with: checks 38 and 54."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from checks_of_trust import rounds
from clusters import cluster, sums, write_store
from command_line import PROGRAM
from object_store import Bucket

from streammc.stores.store import open_store

pytest.importorskip("distributed")


MODEL = ("--model", "logistic", "--prior-scale", "10")


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the processes that name a folder on their command line or work in it."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join([*process.cmdline(), process.cwd()]):
                found.append(process)
        except psutil.Error:
            continue
    return found


def left_behind(folder: Path, seconds: float = 10.0) -> list[str]:
    """Return processes and files of Dask that are still there after some seconds."""
    until = time.monotonic() + seconds
    while True:
        names = [path.name for path in (folder / "tmp").rglob("*")]
        names += [str(process) for process in processes_of(folder)]
        if not names or time.monotonic() > until:
            return names
        time.sleep(0.2)


@pytest.mark.trust(38)
@pytest.mark.slow
@pytest.mark.parametrize("end", ["success", "error", "SIGINT", "SIGTERM", "nothing"])
def test_local_workers_leave_no_process_port_or_file(end: str, store: Path, tmp_path: Path) -> None:
    for number in range(rounds(1, 5)):
        folder = tmp_path / str(number)
        (folder / "tmp").mkdir(parents=True)
        place = Path(shutil.copytree(store, folder / "s.zarr"))
        if end == "error":
            with (place / "X" / "c.3.0").open("r+b") as file:
                file.write(b"damaged!")
        env = {**os.environ, "TMPDIR": str(folder / "tmp")}
        words = ("summarize", place, *MODEL, "-o", folder / "cv.zarr", "--scheduler", "local:2")
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            env=env,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=listen,
        )
        if end.startswith("SIG") or end == "nothing":
            until = time.monotonic() + 60
            while len(processes_of(folder)) < 4:  # the command and its workers
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.05)
        if end == "nothing":  # the control: what is alive is seen
            assert left_behind(folder, 0.0)
            end_signal = signal.SIGTERM
        elif end.startswith("SIG"):
            end_signal = signal.Signals[end]
        if end not in ("success", "error"):
            process.send_signal(end_signal)
        _, err = process.communicate(timeout=60)
        expected = {"success": 0, "error": 65, "SIGINT": 130}.get(end, 143)
        assert expected == process.returncode, err
        assert "Traceback" not in err
        assert [] == left_behind(folder), end


def listen() -> None:
    """Undo what a shell does to its background jobs: they ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.trust(54)
@pytest.mark.slow
def test_workers_read_a_store_at_an_address_with_credentials_of_their_own(
    bucket: Bucket, tmp_path: Path
) -> None:
    far = str(write_store(f"{bucket.address}/s.zarr", rows=20_000))
    task, expected = sums(tmp_path / "seen", open_store(far))
    with cluster(tmp_path / "cluster", workers=1) as made:
        found = open_store(far).reduce(task, scheduler=made.address)
    assert expected.tobytes() == found.tobytes()
